"""Files that we write are there complete or not at all, earlier ones survive, and none of them can run anything."""

import ast
import errno
import io
import os
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fuzzing import cases
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from homophily import drafts, output
from homophily.cli import app
from homophily.drafts import is_draft, replacing, writing
from homophily.errors import OutputError
from homophily.evaluation import Cell, RunStore
from homophily.evaluation.tables import ResultTable, markdown
from homophily.io import read_table
from homophily.output import as_csv, check_output, harmless, output_folder, write_whole

HERE = Path(__file__).parent
SOURCES = HERE.parent / "src" / "homophily"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def raising(error):
    def fail(*arguments, **keywords):
        raise error

    return fail


# One file


@pytest.mark.parametrize("error", [OSError("what?"), KeyError("what?"), KeyboardInterrupt(), SystemExit(1)])
def test_whatever_goes_wrong_the_earlier_file_stays_and_no_draft(tmp_path, error):
    path = tmp_path / "a.csv"
    path.write_text("earlier")
    with pytest.raises(type(error)), replacing(path) as draft:  # noqa: PT012
        draft.write_text("half")
        raise error
    assert (names(tmp_path), path.read_text()) == (["a.csv"], "earlier")


def test_draft_is_hidden_beside_the_file_and_has_its_ending(tmp_path):
    with replacing(tmp_path / "a.b.npz") as draft:
        draft.touch()
        assert re.fullmatch(r"\.a\.b\.npz\.[0-9a-f]{8}\.npz", draft.name)
        assert is_draft(draft)
    assert names(tmp_path) == ["a.b.npz"]


def test_a_name_as_long_as_the_system_takes(tmp_path):
    path = tmp_path / ("x" * 251 + ".csv")
    write_whole(path, "text")
    assert names(tmp_path) == [path.name]


def test_two_drafts_of_one_file_do_not_meet(tmp_path):
    with replacing(tmp_path / "a") as one, replacing(tmp_path / "a") as other:
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a").read_text() == "one"


def test_content_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """A power cut between the two would leave a name without content."""
    events, fsync, replace = [], os.fsync, Path.replace

    def synced(handle):
        events.append(("sync", os.fstat(handle).st_ino))
        fsync(handle)

    def renamed(self, target):
        events.append(("rename", Path(target).name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write_whole(tmp_path / "a", "text")
    file, folder = ((tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino)
    assert events == [("sync", file), ("rename", "a"), ("sync", folder)]
    events.clear()
    with output_folder(tmp_path / "out") as new:
        (new / "selected.csv").write_text("x")
        (new / "model").mkdir()
        (new / "model" / "model.json").write_text("x")
    out = tmp_path / "out"
    first = next(i for i, (what, _) in enumerate(events) if what == "rename")
    for path in (out / "selected.csv", out / "model" / "model.json"):
        assert ("sync", path.stat().st_ino) in events[:first]
    assert events[-1] == ("sync", out.stat().st_ino)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_disk_that_cannot_say_when_it_is_done(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "fsync", raising(OSError(number, "no such thing")))
    write_whole(tmp_path / "a", "text")
    assert (tmp_path / "a").read_text() == "text"


def test_places_that_no_file_can_have(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder; expected the name of a file"):
        write_whole(tmp_path / "folder", "x")
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*none to write a\.csv to; make it first"):
        write_whole(tmp_path / "none" / "a.csv", "x")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"the disk is full \(3 bytes of it were written\)\. Make room there, or write to another place"),
        (errno.EDQUOT, r"your share of the disk \(quota\) is used up \(3 bytes .*\)\. Make room there, or write to"),
        (errno.EFBIG, r"it is larger than .* \(ulimit -f\) allows\. Write to another place"),
        (errno.EROFS, r"the disk is read-only\. Write to another place"),
        (errno.EACCES, r"this is not allowed here, or another program has it open\. Write to another place"),
        (errno.EPERM, r"this is not allowed here"),
    ],
)
def test_why_a_file_cannot_be_written_is_said(tmp_path, number, message):
    path = tmp_path / "a.csv"
    told = re.escape(f"{path} cannot be written: ") + message
    with pytest.raises(OutputError, match=told) as caught, replacing(path) as draft:  # noqa: PT012
        draft.write_text("abc")
        raise OSError(number, os.strerror(number), str(draft))
    assert caught.value.errno == number
    assert names(tmp_path) == []


def test_what_is_no_matter_of_writing_is_left_alone(tmp_path):
    """A file that is read meanwhile and may not be is the user's mistake, and none of the output."""
    for error in (
        PermissionError(errno.EACCES, "no", "/other.csv"),
        FileNotFoundError(errno.ENOENT, "no"),
        ValueError(),
    ):
        with pytest.raises(type(error)) as caught, writing(tmp_path):
            raise error
        assert caught.value is error


# A folder of results


def old_and_new(folder):
    """Which of the two results is there."""
    found = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    mine = found.pop("mine.txt", None)
    return {
        (("model/model.json", "old"), ("path.csv", "old"), ("selected.csv", "rank,old")): "old",
        (("model/model.json", "new"), ("report.html", "new"), ("selected.csv", "rank,new")): "new",
    }[tuple(sorted(found.items()))], mine


def write_old(folder):
    for name in ("model/model.json", "path.csv", "selected.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("rank,old" if name == "selected.csv" else "old")  # as ours begin
    (folder / "mine.txt").write_text("mine")


def write_new(folder):
    with output_folder(folder) as new:
        (new / "model").mkdir()
        for name in ("model/model.json", "report.html", "selected.csv"):
            (new / name).write_text("rank,new" if name == "selected.csv" else "new")


MOVES = 8  # the draft twice, three old files, three new ones


def test_results_change_places(tmp_path):
    write_old(tmp_path / "out")
    write_new(tmp_path / "out")
    assert old_and_new(tmp_path / "out") == ("new", "mine")
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["mine.txt", "model", "report.html", "selected.csv"]


@pytest.mark.parametrize("last", range(MOVES))
def test_a_move_that_fails_undoes_those_before(tmp_path, monkeypatch, last):
    """On Windows a file that a spreadsheet has open cannot be replaced."""
    write_old(tmp_path / "out")
    replace, done = Path.replace, []

    def fails_once(self, target):
        done.append(target)
        if len(done) == last + 1:
            raise PermissionError(errno.EACCES, "in use", str(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_once)
    with pytest.raises(OutputError, match="another program has it open"):
        write_new(tmp_path / "out")
    assert old_and_new(tmp_path / "out") == ("old", "mine")
    assert names(tmp_path / "out") == ["mine.txt", "model", "path.csv", "selected.csv"]


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_outputs import write_new  # once for all of them
replace = Path.replace
def dies(self, target):
    global left
    if not left:
        os._exit(9)
    left -= 1
    return replace(self, target)
Path.replace = dies
for folder in sys.argv[2:]:
    left = int(Path(folder).name)
    child = os.fork()
    if not child:
        write_new(Path(folder))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_next_run_finishes_what_a_killed_one_had_complete(tmp_path):
    """Killed before any of the moves: the old result or the new one is there, and never parts of both."""
    folders = [tmp_path / str(last) for last in range(MOVES + 1)]
    for folder in folders:
        write_old(folder)
    command = [sys.executable, "-c", KILLED, str(HERE), *map(str, folders)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["9"] * MOVES + ["0"]
    for folder in folders:
        check_output(folder, Path("data.csv"), overwrite=True)
    (draft,) = (path for path in folders[0].iterdir() if is_draft(path))  # it was not complete
    shutil.rmtree(draft)
    assert [old_and_new(folder) for folder in folders] == [("old", "mine")] + [("new", "mine")] * MOVES
    assert {tuple(names(folder)) for folder in folders[1:]} == {("mine.txt", "model", "report.html", "selected.csv")}


# What a killed process leaves behind


def aged(path, seconds):
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_drafts_that_nobody_writes_any_more_are_removed(tmp_path):
    old = tmp_path / ".a.csv.0123abcd.csv"
    old.touch()
    aged(old, drafts.ABANDONED + 60)
    kept = [".a.csv.89abcdef.csv", ".b.csv.0123abcd.csv", ".a.csv.notes", "a.csv.0123abcd.csv"]
    for name in kept:
        (tmp_path / name).touch()
    for name in kept[1:]:
        aged(tmp_path / name, drafts.ABANDONED + 60)
    write_whole(tmp_path / "a.csv", "x")
    assert names(tmp_path) == sorted([*kept, "a.csv"])


def test_folders_that_nobody_writes_any_more_are_removed(tmp_path):
    out = tmp_path / "out"
    for name, age in ((".result.0123abcd", drafts.ABANDONED + 60), (".result.89abcdef", 0)):
        (out / name / "new").mkdir(parents=True)
        (out / name / "new" / "selected.csv").write_text("half")
        for path in (out / name / "new" / "selected.csv", out / name / "new", out / name):
            aged(path, age)
    write_new(out)
    assert names(out) == [".result.89abcdef", "model", "report.html", "selected.csv"]


def test_what_was_only_begun_is_no_result(tmp_path):
    """The same command works again after a process was killed as it wrote its first file."""
    out = tmp_path / "out"
    (out / "checkpoint").mkdir(parents=True)
    (out / "checkpoint" / ".training-0.safetensors.0123abcd.safetensors").touch()
    (out / ".result.0123abcd" / "new").mkdir(parents=True)
    check_output(out, Path("data.csv"), overwrite=False)
    output.check_store_folder(out)
    (out / "mine.txt").touch()
    with pytest.raises(FileExistsError):
        check_output(out, Path("data.csv"), overwrite=False)


def test_a_folder_whose_neighbours_are_not_ours(tmp_path, monkeypatch):
    """Drafts lie within the folder: it may be a disk of its own, in a place where nothing else may be written."""
    (tmp_path / "out").mkdir()
    seen = []
    mkdir = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda self, *args, **kwargs: (seen.append(self), mkdir(self, *args, **kwargs)))
    write_new(tmp_path / "out")
    assert all(path.is_relative_to(tmp_path / "out") for path in seen)


# Disks without room, in earnest


# Every place where something is written

# Functions that are given a draft, or write to what is none of ours to rename.
GIVEN = {
    ("io.py", "_write_reduced"),
    ("io.py", "_write_arrays"),
    ("io.py", "_stream_npy"),
    ("io.py", "_stream_parquet"),
    ("commands.py", "_write_result"),  # a folder of output_folder
    ("figures/style.py", "_svg"),  # a buffer in memory
    ("output.py", "as_csv"),  # a text
    ("persistence.py", "save_estimator"),
}
WRITES = {
    "write_text",
    "write_bytes",
    "to_csv",
    "to_parquet",
    "save",
    "save_file",
    "save_npz",
    "savez",
    "savez_compressed",
    "savemat",
    "savefig",
    "write_h5ad",
    "write_table",
    "ParquetWriter",
    "tofile",
    "dump",
}


def writes():
    """File, function, call and whether it is inside ``with replacing(...)``, of all calls that write a file."""

    def visit(node, function, replaced):
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.With):
            replaced = replaced or any("replacing(" in ast.unparse(item) for item in node.items)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            modes = [ast.unparse(part) for part in (*node.args, *(k.value for k in node.keywords if k.arg == "mode"))]
            opens = name == "open" and any(re.fullmatch(r"'[rb+]*[wax][b+t]*'", mode) for mode in modes)
            if name in WRITES or opens:
                yield file, function, name, replaced
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function, replaced)

    for path in sorted(SOURCES.rglob("*.py")):
        file = path.relative_to(SOURCES).as_posix()
        yield from visit(ast.parse(path.read_text(encoding="utf-8")), "", False)


def test_everything_is_written_to_a_draft():
    found = set(writes())
    assert {
        ("output.py", "write_whole", "write_text", True),
        ("anndata.py", "write_cells", "write_h5ad", True),
    } <= found
    ours = {"save"}  # methods of estimators and checkpoints, and figures.save, which do as they should
    assert [one for one in found if not one[3] and one[:2] not in GIVEN and one[2] not in ours] == []


# Spreadsheets


PAGE = (HERE.parent / "docs" / "errors.md").read_text(encoding="utf-8")
APOSTROPHE = re.compile(re.search(r'str\.replace\(r"(.*)", "", regex=True\)', PAGE)[1])  # as users are told


def undone(text):
    return APOSTROPHE.sub("", text)


TEXTS = st.text(st.sampled_from("=+-@\t\r\n'＝－ab1.e \"|;,"), max_size=6) | st.text(max_size=6)


@cases(300)
@given(TEXTS)
@example("=cmd|' /C calc'!A0")
@example("'=1")
@example("-1e5")
@example("-")
def test_no_text_begins_like_a_formula_and_all_can_be_had_back(text):
    safe = harmless(text)
    assert undone(safe) == text
    number = re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", text, re.ASCII)
    assert number or not safe.startswith(tuple("=+-@\t\r\n＝＋－＠"))
    assert safe in (text, f"'{text}")


def test_numbers_stay_numbers():
    frame = pd.DataFrame(
        {"=name": ["=1+1", "-2", "b"], "x": [-1.5, np.nan, 2.0], "n": [-1, 0, 1], "o": [-1, None, "@a"]}
    )
    text = as_csv(frame)
    assert text == "'=name,x,n,o\n'=1+1,-1.5,-1,-1\n-2,,0,\nb,2.0,1,'@a\n"
    assert pd.read_csv(io.StringIO(text))["x"].tolist()[0] == -1.5


EVIL = ["=HYPERLINK(1)", "+a", "-b", "@c", "</script><script>alert(1)</script>", "--><script>alert(2)</script>"]


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.handlers = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.text.append(data)


def parsed(path):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A file whose name, columns and labels want to be more than text; and what select and compare make of it."""
    folder = tmp_path_factory.mktemp("evil")
    data = folder / "<img onerror=alert(3) src=x>|`.csv"
    X = np.random.RandomState(0).randn(40, len(EVIL))
    frame = pd.DataFrame(X, columns=EVIL).assign(**{"<b>kind": ["=label", "<script>x</script>"] * 20, "<i>flat": 1.0})
    frame.to_csv(data, index=False)
    columns = ("--label-column", "<b>kind")
    for arguments in (
        ("select", data, "-m", 6, "--method", "ls", *columns, "--out", folder / "out"),
        (
            "compare",
            data,
            "-m",
            2,
            "--methods",
            "ls",
            "--splits",
            1,
            "--trees",
            2,
            "-j",
            1,
            *columns,
            "--out",
            folder / "c",
        ),
    ):
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == 0, result.output
    return data


def test_names_of_the_selection_are_harmless_and_the_data_is_as_it_was(evil):
    out = evil.parent / "out"
    selected = pd.read_csv(out / "selected.csv")
    assert sorted(selected["name"]) == sorted(map(harmless, EVIL))
    assert sorted(map(undone, selected["name"])) == sorted(EVIL)
    assert [EVIL[i] for i in selected["index"]] == list(map(undone, selected["name"]))
    original = pd.read_csv(evil).drop(columns="<i>flat")
    pd.testing.assert_frame_equal(pd.read_csv(out / "reduced.csv")[original.columns], original)
    table = read_table(out / "reduced.csv", label_column="<b>kind")
    assert sorted(table.names) == sorted(EVIL)
    assert set(table.labels) == {"=label", "<script>x</script>"}


@pytest.mark.parametrize("report", ["out/report.html", "c/report.html"])
def test_no_text_of_the_data_becomes_code_in_a_report(evil, report):
    page = parsed(evil.parent / report)
    assert page.tags.count("script") == (2 if report.startswith("out") else 1)  # ours
    assert page.handlers == []
    assert "img" not in page.tags
    assert any(evil.name in text for text in page.text)
    if report.startswith("out"):
        assert set(EVIL) <= {text.strip() for text in page.text}


def test_nor_in_markdown(evil):
    text = (evil.parent / "c" / "comparison.md").read_text(encoding="utf-8")
    assert not re.search(r"(?m)^(?!    ).*(?<!\\)<", text)  # but in the command, which is indented: code
    assert r"# Feature selection on \<img" in text
    assert r"\<i>flat" in text


def test_cells_of_tables_stay_in_their_place():
    table = ResultTable("a|b <c>", ["method", "x"], [["m|n", r"\<script>"]], ["[click](javascript:1) `x` & $y_1$ \\"])
    title, grid, note = table.to_markdown().strip().split("\n\n")
    assert title == r"## a\|b \<c>"
    assert grid.splitlines()[2] == r"| m\|n | \\\<script> |"
    assert note == r"- [click]\(javascript:1) \`x\` & $y_1$ \\"
    latex = table.to_latex()
    assert r"m|n & \textbackslash{}<script> \\" in latex
    assert r"\& \$y\_1\$ \textbackslash{}." in latex


def test_markdown_is_one_line():
    assert markdown("a\n# b") == "a # b"


def test_exported_cells_are_harmless(tmp_path):
    with RunStore(tmp_path / "runs.sqlite") as store:
        store.put({"method": "=cmd", "m": -2}, {"warnings": ["@x", "y"], "accuracy": -0.5, "@new": "+z"})
    result = CliRunner().invoke(
        app, ["runs", "export", str(tmp_path / "runs.sqlite"), "--out", str(tmp_path / "a.csv")]
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "a.csv").read_text() == "m,method,warnings,accuracy,'@new\n-2,'=cmd,'@x y,-0.5,'+z\n"


def test_cells_of_a_comparison_are_harmless():
    from homophily.compare import _as_frame

    cell = Cell(method="ls", m=2, split=0, features=[0, 1], failed="=1+1", warnings=["-x"])
    row = pd.read_csv(io.StringIO(as_csv(_as_frame([cell])))).iloc[0]
    assert (row["failed"], row["warnings"]) == ("'=1+1", "'-x")
