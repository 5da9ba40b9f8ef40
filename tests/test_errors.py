"""What goes wrong is told in one line, with the exit code that docs/errors.md has for it."""

import ast
import errno
import os
import socket
import socketserver
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from homophily import cli_common
from homophily.cli import app
from homophily.cli_common import FAILED, INTERRUPTED, LACKING, PIPE_CLOSED, USER_ERROR, WORKER_LOST, judged
from homophily.evaluation import RunStore

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SOURCES = sorted((ROOT / "src" / "homophily").rglob("*.py"))


def rows(heading):
    """Cells of the table whose first column is called so."""
    lines = PAGE.split(f"\n| {heading} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


CODES = {int(code): name.strip("`") for code, name, _ in rows("code")}
ERRORS = {row[0].strip("`"): row[1:] for row in rows("error")}


def test_exit_codes_of_the_page_are_those_of_the_program():
    constants = {
        name: value
        for name, value in vars(cli_common).items()
        if name.isupper() and type(value) is int and name in cli_common.__all__
    }
    assert {name: code for code, name in CODES.items() if name} == constants
    assert len(set(constants.values())) == len(constants)


def classes():
    """Every class of errors in the package, with its first base."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {node.name: ast.unparse(node.bases[0]) for node in found if node.name.endswith("Error")}


def test_every_error_class_is_on_the_page_with_its_base():
    found = classes()
    assert {"InputError", "OutputError", "FetchError", "WorkerLostError"} <= set(found)
    assert set(found) <= set(ERRORS)
    assert {name: ERRORS[name][0].strip("`") for name in found} == found


def test_input_error_is_where_it_was():
    from homophily import errors, io

    assert io.InputError is errors.InputError
    assert issubclass(io.InputError, ValueError)


# Every row of the table


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOMOPHILY_DATA", "")
    monkeypatch.setenv("HOMOPHILY_CACHE", str(tmp_path / "cache"))
    pd.DataFrame(np.random.RandomState(0).randn(30, 4), columns=list("abcd")).to_csv("good.csv", index=False)
    return tmp_path


def run(*arguments):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(argument) for argument in arguments])


def quick(*more):
    return run("select", "good.csv", "-m", 2, "--method", "random", "--out", "out", *more)


def raising(error):
    def fail(*arguments, **keywords):
        raise error

    return fail


def unusable_file(monkeypatch):
    Path("data.csv").touch()
    return run("select", "data.csv", "-m", 1)


def impossible_value(monkeypatch):
    return quick("-m", 50)


def mistyped_option(monkeypatch):
    return quick("--sed", 1)


def missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    Path("cells.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n")
    return run("select", "cells.h5ad", "-m", 1)


def folder_in_use(monkeypatch):
    Path("out").mkdir()
    Path("out/mine.txt").touch()
    return quick()


def missing_file(monkeypatch):
    return run("runs", "list", "nowhere/runs.sqlite")


def missing_dataset(monkeypatch):
    return run("datasets", "path", "SMK")


def no_connection(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("HOMOPHILY_DATA_URL", f"http://127.0.0.1:{port}")  # where nobody listens any more
    return run("datasets", "fetch", "Yale")


class Breaking(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf of it")


def broken_transfer(monkeypatch):
    monkeypatch.setattr("homophily.datasets.download.PAUSE", 0)
    with socketserver.TCPServer(("127.0.0.1", 0), Breaking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("HOMOPHILY_DATA_URL", f"http://127.0.0.1:{server.server_address[1]}")
            return run("datasets", "fetch", "Yale")
        finally:
            server.shutdown()
            thread.join()


def locked_store(monkeypatch):
    monkeypatch.setattr("homophily.evaluation.store.PATIENCE", 0.05)
    RunStore("runs.sqlite").close()
    with closing(sqlite3.connect("runs.sqlite")) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        return run("runs", "list", "runs.sqlite")


def full_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", raising(OSError(errno.ENOSPC, "No space left on device")))
    return quick()


def full_memory(monkeypatch):
    monkeypatch.setattr("homophily.commands.read_table", lambda *_, **__: np.empty(2**62, np.uint8))
    return quick()


def little_memory(monkeypatch):
    monkeypatch.setattr("homophily.table_size.ESTIMATES", {".csv": lambda path: 10**15})
    return quick("--memory-limit", "1TB")


def lost_worker(monkeypatch):
    from homophily.distributed import _Group

    def lost(*arguments, **keywords):
        group = object.__new__(_Group)  # without torchrun
        group.rank, group.size = 0, 2
        with group._watching():
            raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr("homophily.commands.read_table", lost)
    return quick()


def killed_worker(monkeypatch):
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    monkeypatch.setattr("homophily.evaluation.running.Backend.results", raising(TerminatedWorkerError("killed")))
    return run("compare", "good.csv", "-m", 2, "--methods", "ls", "--splits", 1, "-j", 2, "--out", "compared")


def nothing_to_draw(monkeypatch):
    from homophily.experiments.drawings import DRAWINGS

    monkeypatch.setattr("homophily.draw.DRAWINGS", [one for one in DRAWINGS if one.name == "figS3-sensitivity"])
    return run("reproduce", "figures", "--out", "out")


def bug(monkeypatch):
    monkeypatch.setattr("homophily.commands.read_table", raising(KeyError("nobody\nexpected this")))
    return quick()


CASES = {
    "InputError": unusable_file,
    "ValueError": impossible_value,
    "UsageError": mistyped_option,
    "ImportError": missing_package,
    "FileExistsError": folder_in_use,
    "FileNotFoundError": missing_file,
    "DatasetNotFoundError": missing_dataset,
    "FetchError": no_connection,
    "BrokenTransferError": broken_transfer,
    "OSError": locked_store,
    "OutputError": full_disk,
    "MemoryError": full_memory,
    "MemoryLimitError": little_memory,
    "WorkerLostError": lost_worker,
    "ChildProcessError": killed_worker,
    "MissingInputError": nothing_to_draw,
    "any other": bug,
}


def test_every_row_has_a_case():
    assert list(CASES) == list(ERRORS)


@pytest.mark.parametrize("name", CASES)
def test_error_is_told_as_the_page_says(name, place, monkeypatch):
    _, message, _, code, _ = ERRORS[name]
    result = CASES[name](monkeypatch)
    assert result.exit_code == int(code), result.output
    told = result.stderr if int(code) else result.output
    assert message in " ".join(told.split())
    assert "Traceback" not in result.output
    if int(code):
        assert told.count("\n") == 1  # one line, which the terminal wraps
        assert told.startswith("Error: ")


def test_a_bug_is_called_one(place, monkeypatch):
    said = bug(monkeypatch).stderr
    assert "KeyError: 'nobody\\nexpected this'. This is a bug." in said
    assert "homophily doctor --json" in said
    assert "--debug" in said


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-"])
@pytest.mark.slow
def test_closed_streams_do_not_change_the_code(place, closed):
    script = f'"{sys.executable}" -m homophily select nosuch.csv -m 2 {closed}'
    found = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == USER_ERROR
    assert "Traceback" not in found.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user")
def test_a_folder_that_may_not_be_entered(place):
    (place / "closed").mkdir(mode=0o700)
    os.chmod(place, 0o755)
    folders = [*place.relative_to("/").parents, place.relative_to("/")]
    opened = [Path("/") / folder for folder in folders if (Path("/") / folder).stat().st_mode & 0o5 != 0o5]
    modes = {folder: folder.stat().st_mode for folder in opened}
    code = (
        "import os; from pathlib import Path; from homophily.output import check_writable; os.setuid(65534)\n"
        "from homophily.errors import OutputError\n"
        "try: check_writable(Path('closed/out'))\nexcept OutputError as error: print(error)"
    )
    try:
        for folder in opened:
            folder.chmod(modes[folder] | 0o5)
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode)
    assert "closed/out cannot be written: this is not allowed here" in found.stdout, found.stderr


# Options and arguments, which Typer reads


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("select good.csv -m 2 --seed x", "--seed 'x': expected a whole number."),
        ("select good.csv -m 2 --seed -1", "--seed '-1': expected 0 or more."),
        ("select good.csv -m 2 --seed 4294967296", "--seed '4294967296': expected 4294967295 or less."),
        ("select good.csv -m 2 --method dirichlet --max-iter abc", "--max-iter 'abc': expected a whole number."),
        ("select good.csv -m 2 --reg 1x", "--reg '1x': expected a number."),
        ("select good.csv -m 2 --method magic", "--method: 'magic' is not one of 'predictive',"),
        ("select good.csv -m -3", "-m '-3' is no number of features: give a whole number from 1 on, or auto."),
        ("select good.csv -m 2 --jobs 0", "--jobs 0: 0 threads cannot do anything; give"),
        ("select good.csv -m ٣", "-m '٣' is no number of features"),
        ("select good.csv -m 2 --stability 99999999999", "--stability '99999999999': expected 10000 or less."),
        ("select good.csv -m 2 --stability 1", "--stability 1: one selection agrees with itself; give 2"),
        ("select good.csv -m 2 --sed 1", "No such option: --sed (Possible options: --header, --method, --seed)."),
        ("select good.csv -m", "Option '-m' requires an argument."),
        ("select good.csv -m 2 --quiet=1", "Option '--quiet' does not take a value."),
        ("select good.csv more.csv -m 2", "Got unexpected extra argument(s) (more.csv)."),
        ("select good.csv", "-m is missing. Expected: How many features to select"),
        ("select", "DATA is missing. Expected: csv, tsv, parquet"),
        ("runs clean runs.sqlite", "Say which cells: --experiment, --dataset,"),
        ("runs lst", "No such command 'lst'. Did you mean 'list'?"),
        ("reproduce", "EXPERIMENT is missing. Expected: toy (Fig. 3)"),
        ("slect", "No such command 'slect'. Did you mean 'select'?"),
        ("--no-such-option", "No such option: --no-such-option"),
    ],
)
def test_mistakes_in_the_options_are_told_in_one_line(place, arguments, message):
    result = run(*arguments.split())
    assert (result.exit_code, result.stdout) == (USER_ERROR, "")
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.endswith("--help says more.\n")
    assert result.stderr.count("\n") == 1


def test_mistakes_in_the_options_as_a_process(place):
    expected = "Error: --seed 'x': expected a whole number. homophily select --help says more.\n"
    done = homophily("select", "good.csv", "-m", 2, "--seed", "x")
    assert (done.returncode, done.stdout, done.stderr) == (USER_ERROR, "", expected)
    long = homophily("select", "good.csv", "-m", 2, "--seed", "x", "--debug").stderr
    assert long.startswith("Traceback")
    assert long.endswith(expected)


@pytest.mark.parametrize("words", [(), ("runs",), ("datasets",)])
def test_no_arguments_show_the_help(words):
    shown = run(*words)
    assert "Error:" not in shown.output
    assert shown.output.strip() == run(*words, "--help").output.strip()


@pytest.mark.parametrize("command", [("select", "good.csv", "-m", 2), ("compare", "good.csv", "-m", 2)])
def test_output_folder_that_cannot_be_read(place, monkeypatch, command):
    Path("out").mkdir()
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not (Path(path).name == "out" and mode & os.R_OK) and access(path, mode)
    )
    result = run(*command, "--out", "out")
    assert result.exit_code == LACKING
    assert result.stderr.startswith("Error: out cannot be read, so that nobody knows what would be overwritten in it;")


@pytest.mark.parametrize("command", [("select", "good.csv", "-m", 2), ("compare", "good.csv", "-m", 2)])
def test_output_folder_that_is_a_link_to_nowhere(place, command):
    Path("link").symlink_to("nowhere")
    for folder in ("link", "link/deeper"):
        result = run(*command, "--out", folder)
        assert result.exit_code == USER_ERROR
        assert "link is a link to nowhere, which is not there; make that folder, or name another" in result.stderr


def test_checkpoint_that_is_no_folder_is_refused_before_reading(place):
    Path("out").mkdir()
    Path("out/checkpoint").touch()
    for more in ((), ("--overwrite",), ("--resume",)):
        result = run("select", "good.csv", "-m", 2, "--method", "dirichlet", "--out", "out", *more)
        assert (result.exit_code, result.stdout) == (USER_ERROR, "")
        assert f"{Path('out/checkpoint')} is not a folder" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("select", "", "-m", 2), "An empty name, or a dot, means the current folder; give the name of a data file."),
        (
            ("select", "quote.csv", "-m", 1),
            "quote.csv could not be read as csv: the quotation mark that opens in row 2 of the file is never closed.",
        ),
        (
            ("select", "good.csv", "-m", 2, "--method", "dirichlet", "-p", "n_jobs=0"),
            "The 'n_jobs' parameter of DirichletSelector must be an int",
        ),
        (
            ("select", "good.csv", "-m", 2, "--method", "dirichlet", "-p", "max_iter=true"),
            "The 'max_iter' parameter of DirichletSelector must be a",
        ),
        (("select", "good.csv", "-m", 2, "-p", f"a={'[' * 100_000}"), "--param a: its value has lists in lists"),
        (
            ("select", "good.csv", "-m", 2, "--method", "dirichlet", "--device", "xyz"),
            "--device 'xyz' is not available here; use",
        ),
        (("select", "good.csv", "-m", 2, "--image-shape", "٢x٢"), "--image-shape '٢x٢': expected height and width"),
        (
            ("select", "good.csv", "-m", 2, "--label-column", "a", "--index-column", "a"),
            "--label-column and --index-column both name the column 'a'; give it to one of them only.",
        ),
        (
            ("select", "good.csv", "-m", 2, "--label-column", "a", "--drop", "b", "--drop", "a"),
            "--label-column and --drop both name the column 'a'; give it to one of them only.",
        ),
        (
            ("compare", "one.csv", "-m", 2),
            "1 row cannot be split: --test-size 0.2 leaves none to select on. Give more rows, or a smaller fraction.",
        ),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, tuple) else "",
)
def test_what_was_given_is_told_in_words_of_ours(place, arguments, message):
    Path("quote.csv").write_text('a,b\n1,"2\n3,4\n')
    Path("one.csv").write_text("a,b\n1,2\n")
    result = run(*arguments, "--out", "out")
    assert result.exit_code == USER_ERROR
    assert result.stderr.startswith(f"Error: {message}")
    assert result.stderr.count("\n") == 1
    assert not Path("out").exists()


def test_more_threads_than_there_is_work_for(place):
    result = run(
        "select", "good.csv", "-m", 2, "--method", "dirichlet", "--max-iter", 3, "--jobs", 30_000, "--out", "out"
    )
    assert result.exit_code == 0, result.output


# Exit codes of errors, whoever raises them


class OutOfMemoryError(RuntimeError):  # as torch calls it
    pass


def of_torch():
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**62, dtype=torch.uint8)
    return caught.value


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), LACKING, "Standard output, or a temporary file, cannot be"),
        (
            OSError(errno.ENOSPC, "No space left on device", "x.csv"),
            LACKING,
            "x.csv cannot be written: the disk is full",
        ),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "x.csv"), LACKING, "x.csv cannot be written: your share of the"),
        (OSError(errno.EFBIG, "File too large", "x.csv"), LACKING, "ulimit -f"),
        (OSError(errno.EROFS, "Read-only file system", "x.csv"), LACKING, "the disk is read-only"),
        (OSError(errno.EIO, "Input/output error", "x.csv"), LACKING, "x.csv: Input/output error. This is a limit or a"),
        (OSError(errno.EMFILE, "Too many open files"), LACKING, "Too many open files. This is a limit or a fault"),
        (PermissionError(errno.EACCES, "Permission denied", "x.csv"), USER_ERROR, "x.csv: Permission denied."),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "x.csv"), USER_ERROR, "x.csv: Is a directory."),
        (MemoryError(), LACKING, "Memory ran out. Use fewer jobs"),
        (
            OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"),
            LACKING,
            "(tried to allocate 2.00 GiB)",
        ),
        (of_torch, LACKING, "(tried to allocate 4611686018427387904 bytes)"),
        (ChildProcessError("A worker died."), WORKER_LOST, "A worker died."),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), PIPE_CLOSED, ""),
        (TypeError("expected a number"), USER_ERROR, "expected a number"),
        (ValueError(), USER_ERROR, "ValueError"),
        (RuntimeError("what?"), FAILED, "RuntimeError: what?. This is a bug."),
        (AssertionError(), FAILED, "AssertionError. This is a bug."),
        (RecursionError("too deep"), FAILED, "RecursionError: too deep. This is a bug."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_exit_code_of_an_error(error, code, message):
    found, said = judged(error() if callable(error) else error)
    assert (found, message in said) == (code, True), said


def test_no_sign_that_a_terminal_obeys_is_printed(place):
    Path("bad.csv").write_text("a,b\x1b[2Jc\n1,x\n2,y\n")
    result = run("select", "bad.csv", "-m", 1)
    assert result.exit_code == USER_ERROR
    assert "\x1b" not in result.output


# As a process


def homophily(*arguments, stdout=subprocess.PIPE, stdin=None, before=""):
    code = f"import sys; sys.argv[0] = 'homophily'\nfrom homophily import cli\n{before}\ncli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=stdin,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [("--version",), ("datasets", "list"), ("runs", "export", "runs.sqlite")])
def test_standard_output_that_takes_nothing(place, arguments):
    from homophily.evaluation import RunStore

    with RunStore("runs.sqlite") as store:
        store.put({"method": "ls"}, {"accuracy": 1.0})
    with open("/dev/full", "w") as full:
        done = homophily(*arguments, stdout=full)
    assert done.returncode == LACKING, done.stderr
    assert done.stderr == "Error: Standard output, or a temporary file, cannot be written: the disk is full.\n"


@pytest.mark.parametrize("arguments", [("datasets", "list"), ("datasets", "path")])
def test_output_that_nobody_reads_to_its_end(place, arguments):
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as pipe:
        done = homophily(*arguments, stdout=pipe)
    assert (done.returncode, done.stderr) == (PIPE_CLOSED, "")


def test_a_bug_outside_of_the_commands_is_told_too(place):
    before = "cli.app = lambda: {}['nothing']"
    done = homophily("runs", before=before)
    assert done.returncode == FAILED
    assert "KeyError: 'nothing'. This is a bug." in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in homophily("runs", "--debug", before=before).stderr


def test_ctrl_c_is_no_bug(place, monkeypatch):
    monkeypatch.setattr("homophily.commands.read_table", raising(KeyboardInterrupt()))
    result = quick()
    assert (result.exit_code, result.stderr) == (INTERRUPTED, "Stopped; nothing was written.\n")


def test_a_question_that_nobody_can_answer(place):
    from homophily.evaluation import RunStore

    with RunStore("runs.sqlite") as store:
        store.put({"method": "ls"}, {"accuracy": 1.0})
    result = CliRunner().invoke(app, ["runs", "clean", "runs.sqlite", "--all"], input="")
    assert result.exit_code == USER_ERROR
    assert "There is nobody to answer" in result.stderr


def commands(group=None, names=()):
    """Every command of the program, as words."""
    import typer

    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name), command


@pytest.mark.parametrize(
    ("words", "command"), list(commands()), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_has_debug(words, command):
    assert [param.help for param in command.params if "--debug" in param.opts] == ["Show the traceback of an error."]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("runs", "list", "nowhere"), USER_ERROR),
        (("runs", "export", "nowhere"), USER_ERROR),
        (("runs", "clean", "nowhere", "--all"), USER_ERROR),
        (("datasets", "path", "none"), USER_ERROR),
        (("datasets", "fetch", "none"), USER_ERROR),
        (("compare", "nowhere.csv", "-m", "2"), USER_ERROR),
        (("reproduce", "table", "--datasets", "none"), USER_ERROR),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_debug_shows_the_traceback_before_the_same_line(place, arguments, code):
    short, long = run(*arguments), run(*arguments, "--debug")
    assert (short.exit_code, long.exit_code) == (code, code)
    assert "Traceback" not in short.stderr
    assert long.stderr.startswith("Traceback")
    assert long.stderr.endswith(short.stderr)
