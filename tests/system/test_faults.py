"""Signals at random moments of the commands: nothing finished is lost, nothing is left behind, and resuming works.

``HOMOPHILY_FAULTS`` says how many faults a command gets; if set, ``artefacts/faults.json`` has the figures so far, and
the moments are drawn anew each time (``HOMOPHILY_SEED`` repeats those of an earlier round).
"""

import json
import random
import shutil
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from faults import FAULTS, SIGNALS, Account, Fresh, Server, orphans
from safetensors.numpy import load_file

from homophily import DirichletSelector
from homophily.datasets import PAPER_DATASETS
from homophily.evaluation import RunStore

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc")
HOMOPHILY = (sys.executable, "-m", "homophily")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "homophily")
STOPPED = {signal.SIGTERM: {143, -signal.SIGTERM}, signal.SIGINT: {130, -signal.SIGINT}, signal.SIGKILL: {-9}}
SELECTED = {"selected.csv", "reduced.csv", "graph.npz", "history.csv", "model", "report.html"}
EARLIER = "rank,name\n1,found by an earlier run\n"
SECONDS = ["seconds", "judging"]  # fields of a cell that differ from run to run
LATEST = 30  # attempts at a fault: one that came when the command had ended already is repeated, twice as early


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A table with three planted columns, and a stand-in for a data set of the paper."""
    place = tmp_path_factory.mktemp("data")
    rng = np.random.RandomState(0)
    kind = rng.randint(3, size=60)
    X = rng.randn(60, 12)
    X[:, :3] += 4 * rng.randn(3, 3)[kind]
    pd.DataFrame(X, columns=[f"f{i}" for i in range(12)]).assign(kind=kind).to_csv(place / "x.csv", index=False)
    paper = PAPER_DATASETS["Jaffe"]
    labels = np.arange(paper.n_samples) % paper.n_classes
    centres = rng.randn(paper.n_classes, paper.n_features)
    np.savez(place / "Jaffe.npz", X=rng.randn(paper.n_samples, paper.n_features) + centres[labels], y=labels)
    return place


@pytest.fixture(scope="module")
def server():
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="module")
def accounts():
    """Of all commands; what they come to is printed."""
    kept = []
    yield kept
    sys.stdout.write("\n" + "\n".join(json.dumps(account.summary()) for account in kept) + "\n")


# --- what a folder holds ---------------------------------------------------------------------------------------------


def check_whole(folder):
    """No file under its final name is cut short."""
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.suffix == ".csv":
            assert path.read_text().endswith("\n"), path
            assert len(pd.read_csv(path).columns), path  # of few cells some tables have no row
        elif path.suffix == ".npz":
            sp.load_npz(path)
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>"), path
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".safetensors":
            load_file(path)
        elif path.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        else:
            assert path.suffix == ".sqlite-journal" or path.read_text().endswith("\n"), path


def cells_of(folder):
    """Finished cells, as they are in the store."""
    path = folder / "runs.sqlite"
    if not path.exists():
        return {}
    with RunStore(path) as store:
        return {json.dumps(key): value for key, value in store.items()}


def but_for_seconds(cells):
    return {key: {name: value[name] for name in value if name not in SECONDS} for key, value in cells.items()}


def texts_of(folder):
    """Files of the result of ``select`` that say what was found, and the model."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for name in SELECTED
        for path in ([folder / name] if (folder / name).is_file() else sorted((folder / name).glob("*")))
    }


def assert_same_selection(found, expected):
    for name in ("selected.csv", "history.csv", "reduced.csv"):
        assert (found / name).read_text() == (expected / name).read_text(), name
    one, other = (sp.load_npz(folder / "graph.npz") for folder in (found, expected))
    assert abs(one - other).max() < 1e-12
    arrays, others = (load_file(folder / "model" / "model.safetensors") for folder in (found, expected))
    for name in ("scores_", "logits_", "selected_features_"):
        np.testing.assert_array_equal(arrays[name], others[name])
    assert DirichletSelector.load(found / "model").interrupted_ is False


# --- the commands ----------------------------------------------------------------------------------------------------


class Select:
    """``homophily select`` with a state after every step; every other time over an earlier result."""

    name, launcher = "select", HOMOPHILY
    options = ("--method", "dirichlet", "--max-iter", 150, "--graph", "exact", "--checkpoint-every", 0)

    def __init__(self, data, place):
        self.file, self.out = data / "x.csv", place / "out"
        self.expected, self.earlier = place / "undisturbed", place / "earlier"

    def arguments(self, out, *more):
        return ["select", self.file, "-m", 3, "--label-column", "kind", *self.options, "--out", out, *more]

    def undisturbed(self):
        return self.arguments(self.expected)

    def prepare(self, number):
        shutil.rmtree(self.out, ignore_errors=True)
        if number % 2 and not self.earlier.exists():
            shutil.copytree(self.expected, self.earlier)
            (self.earlier / "selected.csv").write_text(EARLIER)
        if number % 2:
            shutil.copytree(self.earlier, self.out)
        self.more = ["--overwrite"] if number % 2 else []
        return self.arguments(self.out, *self.more)

    def phase(self, output):
        if any(self.out.glob(".result.*")):
            return "writing"
        if any((self.out / "checkpoint").glob("*.safetensors")):
            return "training"
        return "between" if "Read" in output else "start"

    def check_kept(self, code):
        """The earlier result is there, or a complete new one, or one that the next run puts in its place."""
        check_whole(self.out)
        if self.pending():
            assert code == -signal.SIGKILL
            return
        found = {path.name for path in self.out.iterdir()} & SELECTED if self.out.exists() else set()
        if self.more and (self.out / "selected.csv").read_text() == EARLIER:
            assert texts_of(self.out) == texts_of(self.earlier)
        else:
            assert found in (set(), SELECTED)
            assert found or not self.more

    def pending(self):
        """A result that is written and not yet in its place."""
        return [place for name in ("whole", "moving") for place in self.out.glob(f".result.*/{name}")]

    def again(self):
        return self.arguments(self.out, "--resume", *self.more)

    def check_answer(self):
        assert_same_selection(self.out, self.expected)
        assert not any((self.out / "checkpoint").glob("*.safetensors"))
        assert not self.pending()
        for draft in self.out.glob(".result.*"):  # of a killed run
            shutil.rmtree(draft)

    def is_finished(self, output):
        """Whether ``--resume`` refused because the run was killed when all was done."""
        return "the run in it has finished" in " ".join(output.split())


class Torchrun(Select):
    """The same by two processes, which share the rows."""

    name, launcher = "torchrun select", TORCHRUN
    options = (*Select.options, "--n-anchors", 20, "--batch-size", 32)


class Compare:
    """``homophily compare`` in this process or, every third time, with two workers."""

    name, launcher = "compare", HOMOPHILY

    def __init__(self, data, place):
        self.file, self.out, self.expected = data / "x.csv", place / "out", place / "undisturbed"
        self.before = {}

    def arguments(self, out, jobs=1):
        options = ["--methods", "ls", "-m", 2, "--splits", 5, "--trees", 3, "--random-draws", 1, "--jobs", jobs]
        return ["compare", self.file, "--label-column", "kind", *options, "--out", out]

    def undisturbed(self):
        return self.arguments(self.expected)

    def prepare(self, number):
        if number % 5 == 0:  # in between, one run goes on from the other
            shutil.rmtree(self.out, ignore_errors=True)
        self.before = cells_of(self.out)
        if len(self.before) == len(cells_of(self.expected)):
            shutil.rmtree(self.out)
            self.before = {}
        return self.arguments(self.out, 2 if number % 3 == 2 else 1)

    def phase(self, output):
        if "Read" not in output:
            return "start"
        done = len(cells_of(self.out))
        return "writing" if done == len(cells_of(self.expected)) else "cells" if done else "between"

    def check_kept(self, code):
        check_whole(self.out)
        now = cells_of(self.out)
        assert self.before.items() <= now.items()
        assert but_for_seconds(now).items() <= but_for_seconds(cells_of(self.expected)).items()
        self.before = now

    def again(self):
        return self.arguments(self.out)

    def check_answer(self):
        now = cells_of(self.out)
        assert self.before.items() <= now.items()  # unchanged, seconds too: none was done twice
        assert but_for_seconds(now) == but_for_seconds(cells_of(self.expected))
        for name in self.tables:
            frames = (pd.read_csv(out / name) for out in (self.out, self.expected))
            pd.testing.assert_frame_equal(*(frame.drop(columns=SECONDS, errors="ignore") for frame in frames))
        with closing(sqlite3.connect(self.out / "runs.sqlite")) as connection:
            assert connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)

    tables = ("comparison.csv", "cells.csv")

    def is_finished(self, output):
        return False


class Reproduce(Compare):
    """``homophily reproduce table`` on a stand-in for a data set."""

    name = "reproduce"
    tables = ("table-quick-default/table.csv", "table-quick-default/cells.csv")

    def __init__(self, data, place):
        super().__init__(data, place)
        self.data_dir = data

    def arguments(self, out, jobs=1):
        options = ["--methods", "ls", "-m", "2,4", "--splits", 4, "--trees", 3, "--random-draws", 1, "--updates", 5]
        where = ["--data-dir", self.data_dir, "--jobs", jobs, "--out", out]
        return ["reproduce", "table", "--quick", "--datasets", "Jaffe", *options, *where]

    def phase(self, output):
        return super().phase(output.replace("Data:", "Read"))


# --- the faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Select, Compare, Reproduce, Torchrun])
def test_whatever_the_moment_nothing_finished_is_lost(kind, data, server, accounts, tmp_path):
    if kind is Torchrun and not torch.distributed.is_available():
        pytest.skip("torch without torch.distributed")
    command, account = kind(data, tmp_path), Account(kind.name)
    accounts.append(account)
    durations, operations = measure(command, server, tmp_path)
    rng = random.Random(account.seed)
    for number in range(FAULTS):
        for attempt in range(LATEST):
            which = SIGNALS[(number + len(accounts)) % 3]
            moments = {at: seconds / 2**attempt for at, seconds in durations.items()}, max(1, operations >> attempt)
            try:
                if disturb(command, server, account, number, which, moments, rng, tmp_path):
                    break
            except AssertionError:
                account.lost += 1
                raise
            finally:
                account.write()
        else:
            pytest.fail(f"No fault of {LATEST} came before the end of the command.")
    assert account.lost == account.orphans == 0


def measure(command, server, place):
    """Seconds of an undisturbed run, in a process of its own and forked, and its operations on files."""
    if command.launcher is TORCHRUN:
        run = Fresh([*command.launcher, *command.undisturbed()], place / "log")
    else:
        run = server.start(command.undisturbed(), place / "log")
    assert run.finish() == 0, run.output()
    seconds = time.monotonic() - run.began
    if command.launcher is TORCHRUN:
        return {Fresh: seconds}, 0
    return {Fresh: server.seconds + seconds, None: seconds}, run.operations


def disturb(command, server, account, number, which, moments, rng, place):
    """One fault and what follows; whether the command was still at work.

    ``moments`` are the latest: seconds after the start, and operations on files.
    """
    durations, operations = moments
    arguments = command.prepare(number)
    log = place / "log"
    # A batch system may send SIGTERM to one process or to all; Ctrl-C goes to all, and SIGKILL to one is the worst.
    group = which == signal.SIGINT or (which == signal.SIGTERM and number % 4 < 2)
    fresh = command.launcher is TORCHRUN or number % 5 == 1
    phase, sent = "an operation on files", None
    if not fresh and number % 2 == 0:
        run = server.start(arguments, log, fault=(rng.randint(1, operations), int(which)))
    else:
        run = Fresh([*command.launcher, *arguments], log) if fresh else server.start(arguments, log)
        moment = rng.uniform(0, durations[Fresh if fresh else None])
        time.sleep(max(0.0, run.began + moment - time.monotonic()))
        phase = command.phase(run.output())
        with suppress(ProcessLookupError):  # it has ended
            run.disturb(which, group)
        sent = time.monotonic()
    code = run.finish()
    if sent is not None and code != 0:
        account.slowest = max(account.slowest, time.monotonic() - sent)
    said = run.output()
    left = orphans(run)
    account.orphans += len(left)
    assert not left, f"{which.name} in {phase}: {said}"
    if code == 0:
        account.too_late += 1
        return False
    if command.launcher is not TORCHRUN:  # which has its own codes and words
        assert code in STOPPED[which], f"{which.name} in {phase}, exit code {code}: {said}"
        assert "Traceback" not in said or code == -signal.SIGINT, said  # Python's own, before the command begins
    account.faults[which.name] += 1
    account.phases[phase] += 1
    command.check_kept(code)

    if command.launcher is TORCHRUN and number % 2:  # the other times one process goes on alone
        again = Fresh([*command.launcher, *command.again()], log)
    else:
        again = server.start(command.again(), log)
    code = again.finish()
    assert code == 0 or command.is_finished(again.output()), f"{which.name} in {phase}: {said}\n{again.output()}"
    command.check_answer()
    return True
