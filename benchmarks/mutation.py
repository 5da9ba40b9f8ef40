"""Would the tests notice? Changes the code in one place at a time and counts the changes that no test finds.

    python benchmarks/mutation.py [--sample 400] [--only nn/dirichlet.py] [--lines 10-40] [--csv mutants.csv]

A mutant is a file with one operator, number, comparison, condition, reduction, keyword or statement changed. It is
killed when a test fails, when it cannot be imported, or when its tests take many times their usual time of a
processor. What survives is printed with its place: either a test is missing, or the place does not matter.

The tests run once on the code as it is, which says what each of them takes and which functions it calls. After that a
mutant meets only the tests that call its function, quick ones first, up to the first failure, in a fork of a process
that has imported and collected everything already: there the changed function takes the place of the old one.

Left alone are strings, messages, annotations, and arguments named ``device``, which only a GPU could tell apart.
"""

import argparse
import ast
import copy
import csv
import gc
import importlib
import inspect
import os
import pickle
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "homophily"
FILES = {  # and the tests that are to notice
    "nn/feature_selector.py": ["test_feature_selector.py"],
    "nn/soft_topk.py": ["test_soft_topk.py", "test_knn_graph.py"],
    "nn/knn_graph.py": ["test_knn_graph.py"],
    "nn/dirichlet.py": ["test_knn_graph.py"],
    "evaluation/tasks.py": ["test_evaluation.py"],
}
LEFT_OUT = [
    "test_results_do_not_depend_on_the_number_of_jobs",  # its work is in other processes, where no mutant is
    "soft_topk-bregman",  # hundreds of iterations to check a backward that is Newton's too
]
LONGEST = 1.0  # seconds of a processor; tests that take more are left out, for they would be most of the time
MEMORY = 2**34  # bytes that a mutant may ask for

OPERATORS = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or},
    **{ast.Or: ast.And, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq},
    **{ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
TWINS = [("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("any", "all")]
TWINS += [("clamp_min", "clamp_max"), ("clamp_min_", "clamp_max_"), ("tril", "triu"), ("zeros_like", "ones_like")]
TWINS += [("new_zeros", "new_ones"), ("ceil", "floor"), ("sum", "mean"), ("le", "lt"), ("log_", "exp_"), ("mul", "div")]
NAMES = {one: other for pair in TWINS for one, other in (pair, pair[::-1])}


@dataclass
class Mutant:
    """One change of one file."""

    file: str
    place: str  # line:column
    function: str  # outermost function or method around it, "" at the level of the module
    change: str
    statement: ast.stmt  # the statement of the module in which it lies, changed
    outcome: str = ""

    def __str__(self):
        return f"src/homophily/{self.file}:{self.place}  {self.change}"


def variants(node):
    """Changed copies of a node, ``None`` for a statement that is taken away."""
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) if type(op) in OPERATORS:
            yield changed(node, op=OPERATORS[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            yield changed(node, ops=[OPERATORS[type(op)]()])
        case ast.Compare(ops=[*ops]):
            for i, op in enumerate(ops):
                yield changed(node, ops=[*ops[:i], OPERATORS[type(op)](), *ops[i + 1 :]])
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield changed(node, value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield changed(node, value=value + 1)
        case ast.Attribute(attr=name) if name in NAMES:
            yield changed(node, attr=NAMES[name])
        case ast.Name(id=name) if name in NAMES:
            yield changed(node, id=NAMES[name])
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield changed(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.Call(keywords=[_, *_]):
            for i, keyword in enumerate(node.keywords):
                if keyword.arg != "device":
                    yield changed(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
        case ast.Return(value=ast.expr()):
            yield changed(node, value=ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
    match node:
        case ast.AugAssign() | ast.Raise() | ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield None
        case ast.Expr(value=value) if not isinstance(value, ast.Constant):
            yield None


def changed(node, **fields):
    """Copy of a node with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def children(node):
    """``(field, place in it or None, child)`` of all that is worth changing below a node."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.JoinedStr | ast.Raise):
            continue
        if isinstance(value, ast.AST):
            yield name, None, value
        elif isinstance(value, list):
            yield from ((name, i, item) for i, item in enumerate(value) if isinstance(item, ast.AST))


def mutants_of(file, source):
    """All mutants of a file, in the order of its text."""

    def walk(node, function, path):
        for name, i, child in children(node):
            here = [*path, (name, i)]
            for variant in variants(child):
                new = rebuilt(tree, here, variant or ast.Pass())
                yield Mutant(file, place_of(child, node), function, described(child, variant), new.body[here[0][1]])
            inside = function
            if isinstance(child, ast.FunctionDef) and (not function or isinstance(node, ast.ClassDef)):
                inside = f"{node.name}.{child.name}" if isinstance(node, ast.ClassDef) else child.name
            yield from walk(child, inside, here)

    tree = ast.parse(source)
    return list(walk(tree, "", []))


def place_of(child, parent):
    """Line and column of a node, or of the one around it."""
    node = child if hasattr(child, "lineno") else parent
    return f"{node.lineno}:{node.col_offset + 1}"


def rebuilt(tree, path, node):
    """Tree with one node replaced, and copies of those above it only."""
    (name, i), *rest = path
    value = getattr(tree, name)
    old = value if i is None else value[i]
    new = rebuilt(old, rest, node) if rest else ast.copy_location(node, old)
    return changed(tree, **{name: new if i is None else [*value[:i], new, *value[i + 1 :]]})


def described(old, new):
    """What the change is, in a line."""
    text = [" ".join(ast.unparse(node).split()) if node else "nothing" for node in (old, new)]
    if isinstance(old, ast.If | ast.While):
        text = [f"if {ast.unparse(node.test)}" for node in (old, new)]
    return " -> ".join(one if len(one) < 120 else f"{one[:117]}..." for one in text)


class Session:
    """Pytest plugin that runs the mutants instead of the tests, once these have been collected."""

    def __init__(self, mutants):
        self.mutants = mutants
        self.tests = {}  # seconds that each takes, and functions that it calls
        self.failed = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """Profile the tests, then try all mutants."""
        gc.freeze()  # a fork then copies fewer pages
        self.items = {i.nodeid: i for i in session.items if not any(name in i.nodeid for name in LEFT_OUT)}
        result = in_fork(self.profile)
        if not isinstance(result, dict):
            sys.exit(f"The tests do not pass on the code as it is: {result}")
        self.tests = {name: test for name, test in result.items() if test[0] <= LONGEST}
        total = sum(seconds for seconds, _ in self.tests.values())
        print(f"\n{len(self.mutants)} mutants, {len(self.tests)} tests of {total:.0f} s", flush=True)
        for mutant in self.mutants:
            self.try_out(mutant)
            if mutant.outcome != "killed":
                print(f"{mutant.outcome}: {mutant}", flush=True)
        return True

    def profile(self):
        """Seconds of a processor that each test takes, and the functions that it calls; or the first that fails."""
        files = {str(PACKAGE / file): file for file in FILES}
        found = {}
        for name in self.items:
            calls = set()

            def watch(frame, event, argument, calls=calls):
                file = files.get(frame.f_code.co_filename)
                if file:
                    calls.add((file, frame.f_code.co_qualname.split(".<locals>")[0]))

            start = time.process_time()
            sys.settrace(watch)
            failed = self.run([name])
            sys.settrace(None)
            if failed:
                return failed
            found[name] = time.process_time() - start, calls
        return found

    def try_out(self, mutant):
        """Set the outcome of a mutant."""
        files = [f"tests/{name}" for name in FILES[mutant.file]]
        place = {name: files.index(name.split("::")[0]) for name in self.tests if name.split("::")[0] in files}
        calls = (mutant.file, mutant.function)
        chosen = [name for name in place if not mutant.function or calls in self.tests[name][1]]
        chosen.sort(key=lambda name: (place[name], self.tests[name][0]))  # file by file, as they share fixtures

        def work():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            put_in_place(mutant)
            return self.run(chosen)

        answer = in_fork(work)
        if isinstance(answer, Exception):
            raise answer
        mutant.outcome = "timed out" if answer is None else "killed" if answer else "survived"

    def run(self, names):
        """Run tests; the name of the first that fails, or an empty string."""
        items = [self.items[name] for name in names]
        for item, after in zip_longest(items, items[1:]):
            if item.nodeid in self.tests:
                limit_time(3 + 5 * self.tests[item.nodeid][0])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.failed:
                return item.nodeid
        return ""

    def pytest_runtest_logreport(self, report):
        """Note failures."""
        self.failed |= report.failed


def put_in_place(mutant):
    """Change the module of a mutant, which has been imported already, without changing what others hold of it."""
    path = PACKAGE / mutant.file
    module = sys.modules["homophily." + mutant.file.removesuffix(".py").replace("/", ".")]
    code = compile(ast.fix_missing_locations(ast.Module([mutant.statement], [])), path, "exec", dont_inherit=True)
    if not mutant.function:
        exec(code, vars(module))
        return
    namespace = dict(vars(module))
    exec(code, namespace)
    owner, _, name = mutant.function.rpartition(".")
    old, new = (vars(space[owner])[name] if owner else space[name] for space in (vars(module), namespace))
    old, new = bare(old), bare(new)
    if len(old.__code__.co_freevars) == len(new.__code__.co_freevars):
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
    else:
        setattr(module if not owner else getattr(module, owner), name, new)
    # What the module computed when it was imported, it computes again.
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            exec(compile(ast.Module([statement], []), path, "exec", dont_inherit=True), vars(module))


def bare(function):
    """Function without its decorators."""
    function = getattr(function, "fget", getattr(function, "__func__", function))
    return inspect.unwrap(function)


def limit_time(seconds):
    """End this process after so many more seconds of a processor, or far more of the clock."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(time.process_time() + seconds), hard))
    signal.alarm(ceil(60 * seconds))


def in_fork(work):
    """Result of ``work()`` in a silent fork, or the exception that it raised; None if it was ended."""
    receiver, sender = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(receiver)
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silence, stream)
            try:
                answer = work()
            except BaseException:
                answer = RuntimeError(traceback.format_exc())
            with os.fdopen(sender, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(answer) if answer else None


def chosen_mutants(options):
    """Mutants that the options ask for."""
    mutants = [mutant for file in options.only for mutant in mutants_of(file, (PACKAGE / file).read_text())]
    if options.again:
        with options.again.open() as file:
            rows = [row for row in csv.DictReader(file) if row["outcome"] == "survived"]
        left = {(row["file"], row["place"], row["change"]) for row in rows}
        mutants = [mutant for mutant in mutants if (mutant.file, mutant.place, mutant.change) in left]
    if options.sample and options.sample < len(mutants):
        mutants = random.Random(0).sample(mutants, options.sample)
    return mutants


def table(mutants):
    """Lines of a table, and the per cent of all mutants that were found."""
    yield "| file | mutants | killed | timed out | survived | share |\n|---|---|---|---|---|---|"
    for file in [*FILES, "all"]:
        counts = Counter(mutant.outcome for mutant in mutants if file in (mutant.file, "all"))
        if counts:
            numbers = [counts.total(), *(counts[outcome] for outcome in ("killed", "timed out", "survived"))]
            yield f"| `{file}` | {' | '.join(map(str, numbers))} | {share(counts):.1f} % |"


def share(counts):
    """Per cent of the mutants that were found."""
    return 100 * (1 - counts["survived"] / counts.total())


def main():
    """Print what survives, then a line a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", default=list(FILES), choices=FILES, metavar="FILE", help="paths below src/homophily"
    )
    parser.add_argument("--sample", type=int, help="so many mutants, drawn with a fixed seed; default: all")
    parser.add_argument("--again", type=Path, help="only what survived according to this file of an earlier --csv")
    parser.add_argument("--csv", type=Path, help="write every mutant and its outcome there")
    parser.add_argument("--least", type=float, default=0, help="exit with 1 if fewer per cent are killed")
    options = parser.parse_args()
    mutants = chosen_mutants(options)

    os.environ.update(OMP_NUM_THREADS="1")  # a fork has no other threads
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    importlib.import_module("torch").set_num_threads(1)
    tests = dict.fromkeys(f"tests/{name}" for file in options.only for name in FILES[file])
    plain = ["-s", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:terminal"]
    pytest.main([*plain, *tests], plugins=[Session(mutants)])

    print(*table(mutants), sep="\n")
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "place", "change", "outcome"])
            writer.writerows((m.file, m.place, m.change, m.outcome) for m in mutants)
    sys.exit(share(Counter(mutant.outcome for mutant in mutants)) < options.least)


if __name__ == "__main__":
    main()
