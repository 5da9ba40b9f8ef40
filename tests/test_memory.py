"""Limits to memory: sizes, the plan that keeps within them, refusals before reading, and the guard."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from typer.testing import CliRunner

from homophily import DirichletSelector, joint, memory, sources
from homophily.cli import app
from homophily.io import read_table
from homophily.memory import MemoryLimitError, memory_limit, parse_size
from homophily.preprocessing import standardize_rows
from homophily.table_size import ESTIMATES

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells and limits the memory of a process")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def plan(monkeypatch):
    """Let the plan believe in a limit; without the guard, which is for a process that has nothing else to do."""

    def limit_to(size):
        monkeypatch.setattr(memory, "_limit", None if size is None else parse_size(size))

    yield limit_to
    memory.hold(0)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        ("512 mb", 512 * 10**6),
        ("1.5GiB", 3 * 2**29),
        (".5g", 5 * 10**8),
        ("800M", 8 * 10**8),
        (123, 123),
    ],
)
def test_sizes_have_a_unit(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "2", "GB", "-1GB", "1e9", "2 gigs", "nan GB", "inf GB", None, True])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="such as 2GB or 800MB"):
        parse_size(text)


@pytest.mark.parametrize("limit", ["1MB", "500MB"])
def test_a_limit_below_what_the_libraries_take_is_refused(tmp_path, limit):
    np.save(tmp_path / "a.npy", np.zeros((5, 2)))
    arguments = ["select", str(tmp_path / "a.npy"), "-m", "1", "--out", str(tmp_path / "out"), "--memory-limit", limit]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    message = " ".join(result.stderr.split())
    assert f"limit of {int(limit[:-2])} MB is too little" in message
    assert "or more." in message
    assert not (tmp_path / "out").exists()


def test_there_is_no_limit_unless_it_is_said():
    assert not memory.limited()
    assert memory.room() is None
    assert memory.scaled(17) == memory.fitting(17, 10**12, 0.1) == 17
    memory.require(10**18, "Everything", "Nothing.")


def test_the_plan_follows_from_the_limit_and_the_data(plan):
    sizes = []
    for limit in ("650MB", "1GB", "2GB", None):
        plan(limit)
        selector = DirichletSelector(10)
        sizes.append((selector._n_sampled(10**6, 256, np.dtype(float), 256, 2048), selector._n_judged(256)))
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[1] < sizes[2] == sizes[3] == (69_120, joint.MANY)
    plan("1GB")
    memory.hold(10**8)  # a table that is in memory leaves less
    assert selector._n_judged(256) < sizes[1][1]


def test_few_rows_of_many_columns_are_sampled_with_a_limit(plan):
    assert not DirichletSelector(10).shares(8000, 20_000)
    plan("2GB")
    assert DirichletSelector(10).shares(8000, 20_000)
    assert not DirichletSelector(10).shares(8000, 100)
    assert not DirichletSelector(10).shares(4000, 20_000)  # as many as are held at least


def write_hollow(path, n, d):
    """An array of which nothing is on the disk but its header: nobody reads the rest."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n, d)})
        file.truncate(file.tell() + 8 * n * d)


def test_rows_that_cannot_be_held_are_refused_before_they_are_read(plan, tmp_path):
    path = tmp_path / "wide.npy"
    write_hollow(path, 10_000, 50_000)
    plan("1GB")
    with pytest.raises(MemoryLimitError, match=r"4,096 rows of 50,000 columns would take about 2.5 GB"):
        DirichletSelector(5).fit(path)


def planted(n, d=20):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X[:, :4] += 4 * rng.standard_normal((3, 4))[rng.integers(3, size=n)]
    return X


def fitted(path):
    selector = DirichletSelector(
        4, max_iter=8, objective="energy", refine=False, final_graph="none", random_state=0
    ).fit(path)
    return selector.selected_features_.tolist(), selector.logits_.tobytes(), selector.energy_


def test_a_limit_that_leaves_room_changes_nothing_and_a_small_one_repeats(plan, tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, planted(20_000))
    free = fitted(path)
    plan("2GB")
    assert fitted(path) == free
    plan(memory.LIBRARIES + 4 * 10**6)
    small = fitted(path)
    assert small[1] != free[1]  # other rows were drawn
    assert fitted(path) == small


def test_a_graph_that_does_not_fit_is_left_out_or_refused(plan):
    plan("700MB")
    with pytest.warns(UserWarning, match=r"graph of 1,000,000 samples will not be made: it would take about 720 MB"):
        assert DirichletSelector(10)._graph_method(10**6, 100) == "none"
    with pytest.raises(MemoryLimitError, match=r"graph of 1,000,000 samples would take about 720 MB"):
        DirichletSelector(10, final_graph="exact")._graph_method(10**6, 100)
    assert DirichletSelector(10)._graph_method(10_000, 100) == "exact"


@pytest.mark.parametrize("groups", [1, 7])
def test_columns_of_parquet_are_read_group_by_group(groups, monkeypatch, tmp_path):
    X = planted(3000, 7)
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=1000)
    rows = sources.open_rows(tmp_path / "a.parquet")
    if groups > 1:
        monkeypatch.setattr(sources, "PAGES_BYTES", 1)
    found = sources.column_groups(rows)
    assert [len(group) for group in found] == [7 // groups] * groups
    assert [column for group in found for column in group] == list(range(7))
    data = standardize_rows(rows, 500, seed=3)
    expected = (X - X.mean(0)) / X.std(0)
    np.testing.assert_allclose(data.values, expected[data.ids], rtol=1e-5, atol=1e-5)
    frame.loc[1500, "f"] = np.nan
    frame.to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"in 1 of 7 columns: 'f' \(1 row\)"):
        DirichletSelector(2).fit(tmp_path / "b.parquet")


def written(folder, kind, X):
    """The same numbers as a file of any kind."""
    path = folder / f"a.{kind}"
    if kind in ("csv", "tsv"):
        pd.DataFrame(X).add_prefix("f").to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    elif kind == "parquet":
        pd.DataFrame(X).add_prefix("f").to_parquet(path)
    elif kind == "npy":
        np.save(path, X)
    elif kind == "npz":
        np.savez(path, X=X)
    elif kind == "sparse.npz":
        sp.save_npz(path, sp.csr_array(X))
    else:
        scipy.io.savemat(path, {"X": X})
    return path


KINDS = ["csv", "tsv", "parquet", "npy", "npz", "sparse.npz", "mat"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_does_not_fit_is_refused_before_it_is_read(kind, plan, tmp_path, monkeypatch):
    path = written(tmp_path, kind, np.random.default_rng(0).random((300, 20)))
    needed = ESTIMATES[path.suffix](path)
    plan(memory.LIBRARIES + needed)
    assert read_table(path).X.shape == (300, 20)
    plan(memory.LIBRARIES + needed - 1)

    def read(*args, **kwargs):
        raise AssertionError("it was read")

    for module, name in ((pd, "read_csv"), (pd, "read_parquet"), (scipy.io, "loadmat"), (sp, "load_npz")):
        monkeypatch.setattr(module, name, read)
    with pytest.raises(MemoryLimitError) as caught:
        read_table(path)
    message = str(caught.value)
    assert message.startswith(f"To read {path.name} would take about ")
    assert "the limit of" in message
    assert ("Convert it to parquet or npy" in message) == (kind not in ("parquet", "npy"))


def test_a_damaged_file_is_told_by_its_reader_also_with_a_limit(plan, tmp_path):
    path = tmp_path / "a.mat"
    path.write_bytes(b"nothing of the kind" * 20)
    plan("1GB")
    with pytest.raises(ValueError, match=r"a.mat could not be read"):
        read_table(path)


MEASURE = """
import json, sys
from pathlib import Path
from homophily.io import read_table
from homophily.memory import _status
from homophily.table_size import ESTIMATES
import homophily.commands
rises = {}
for path in map(Path, sys.argv[1:]):
    read_table(path)  # what is loaded late
for path in map(Path, sys.argv[1:]):
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    table = read_table(path)
    rises[path.name] = (_status("VmHWM") - before) / ESTIMATES[path.suffix](path)
    del table
print(json.dumps(rises))
"""


@linux
def test_reading_takes_no_more_than_estimated(tmp_path):
    X = np.random.default_rng(0).standard_normal((10_000, 100))  # 8 MB
    paths = [written(tmp_path, kind, X) for kind in KINDS]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths)], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0, done.stderr
    rises = json.loads(done.stdout)
    assert len(rises) == len(KINDS)
    assert max(rises.values()) <= 1.0, rises


GUARDED = """
import numpy as np, pyarrow as pa, torch
from pathlib import Path
import homophily.commands
from homophily.memory import MemoryLimitError, _status, memory_limit

def greedy(take, *args):
    try:
        with memory_limit("800MB"):
            kept = [take(*args) for _ in range(100)]
    except MemoryLimitError as error:
        return str(error)
    raise AssertionError("a gigabyte was given")

print(greedy(lambda: np.ones(10**7)))
print(greedy(lambda: torch.ones(10**7)))
print(greedy(lambda: bytearray(10**8)))
print(greedy(lambda: pa.allocate_buffer(10**8)))
print(_status("VmHWM") / 800e6)
kept = np.ones(10**8)  # after it, all is as before
try:
    with memory_limit("800MB"):
        pass
except ValueError as error:
    print(error)
del kept
with memory_limit("800MB"):
    try:
        raise RuntimeError("another mistake")
    except RuntimeError:
        pass
    try:
        with memory_limit("900MB"):
            pass
    except RuntimeError as error:
        print(error)
"""


@linux
def test_the_guard_refuses_more_and_is_gone_afterwards():
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    *reached, peak, taken, nested = done.stdout.splitlines()
    assert len(reached) == 4
    assert all(line.startswith("The memory limit of 800 MB was reached") for line in reached)
    assert float(peak) <= 1
    assert "is too little" in taken
    assert "in force already" in nested


SELECT = """
import atexit, sys
from homophily.cli import main
from homophily.memory import _status
atexit.register(lambda: print("peak", _status("VmHWM"), file=sys.stderr))
main()
"""


def select(*arguments):
    """Exit code, lines of output, and peak of the resident memory in bytes of ``homophily select``.

    The process tells the peak itself: what the system tells of a child begins with the memory of its parent.
    """
    command = [sys.executable, "-c", SELECT, "select", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    *lines, peak = done.stderr.splitlines()
    assert peak.startswith("peak "), done.stderr
    return done.returncode, [*done.stdout.splitlines(), *lines], int(peak.split()[1])


@linux
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_select_stays_within_the_limit(kind, tmp_path):
    X = planted(60_000, 256)
    path = written(tmp_path, kind, X)  # 123 MB, of the 129 MB that the limit leaves
    del X
    quick = ["--max-iter", 20, "--final-graph", "none", "--out", tmp_path / "out"]
    if kind == "parquet":  # which differs from the other in how it is read, not in what comes then
        quick += ["--objective", "energy", "--param", "refine=false"]
    code, output, peak = select(path, "-m", 4, "--memory-limit", "700MB", *quick)
    assert code == 0, output
    assert peak <= 700e6
    chosen = pd.read_csv(tmp_path / "out" / "selected.csv")["index"]
    assert len(chosen) == 4
    if kind == "npy":
        assert sorted(chosen) == [0, 1, 2, 3]


def test_other_methods_refuse_a_file_that_they_cannot_hold(plan, tmp_path):
    path = tmp_path / "a.npy"
    write_hollow(path, 60_000, 256)
    plan("700MB")
    arguments = ["select", str(path), "-m", "4", "--method", "ls", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 4
    assert result.stderr.startswith("Error: To read a.npy would take about 246 MB of memory, and the limit of 700 MB")
    assert result.stderr.endswith("Only --method dirichlet reads it in blocks; use that, or raise the limit.\n")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@linux
def test_an_overrun_that_no_plan_foresees_ends_in_one_line(tmp_path):
    X = np.random.default_rng(0).standard_normal((3000, 1200)).astype(np.float32)
    np.save(tmp_path / "a.npy", X)
    # UDFS works with square matrices of the rows and of the columns, in double precision.
    arguments = [tmp_path / "a.npy", "-m", 5, "--method", "udfs", "--memory-limit", "630MB", "--out", tmp_path / "out"]
    code, output, peak = select(*arguments)
    assert code == 4, output
    assert output[-1].startswith("Error: The memory limit of 630 MB was reached")
    assert len(output) == 2  # it read the file
    assert peak <= 630e6
    assert not (tmp_path / "out").exists()


def test_the_limit_is_lifted_whatever_happens():
    with pytest.raises(ValueError, match="something else"), memory_limit("64GB"):
        raise ValueError("something else")
    assert not memory.limited()
    with pytest.raises(MemoryLimitError, match=r"64\.0 GB was reached: no more could be had"), memory_limit("64GB"):
        raise MemoryError
    assert not memory.limited()
