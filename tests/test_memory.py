"""Limits to memory: sizes, the plan that keeps within them, refusals before reading, and the guard."""

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from table_files import KINDS, planted, written
from typer.testing import CliRunner

from homophily import DirichletSelector, joint, memory, sources
from homophily.cli import app
from homophily.final_graph import planned_graph
from homophily.io import read_table
from homophily.memory import MemoryLimitError, memory_limit, parse_size
from homophily.preprocessing import standardize_rows
from homophily.table_size import ESTIMATES


@pytest.fixture
def plan(monkeypatch):
    """Let the plan believe in a limit; without the guard, which is for a process that has nothing else to do."""

    def limit_to(size):
        monkeypatch.setattr(memory, "_limit", None if size is None else parse_size(size))

    memory.hold(0)  # what fits before have held
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
        assert planned_graph("auto", 10**6, 100, 10, 5) == "none"
    with pytest.raises(MemoryLimitError, match=r"graph of 1,000,000 samples would take about 720 MB"):
        planned_graph("exact", 10**6, 100, 10, 5)
    assert planned_graph("auto", 10_000, 100, 10, 5) == "exact"


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


def test_the_limit_is_lifted_whatever_happens():
    with pytest.raises(ValueError, match="something else"), memory_limit("64GB"):
        raise ValueError("something else")
    assert not memory.limited()
    with pytest.raises(MemoryLimitError, match=r"64\.0 GB was reached: no more could be had"), memory_limit("64GB"):
        raise MemoryError
    assert not memory.limited()
