"""Rows on disk: the same numbers as in memory, read block by block."""

import gc
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch

from homophily import DirichletSelector
from homophily.baselines import LaplacianScore
from homophily.distributed import Team
from homophily.preprocessing import Moments, _sample, standardize, standardize_rows
from homophily.sources import ArrayRows, NpyRows, ParquetRows, SomeRows, is_on_disk, open_rows
from homophily.training import Rows, train

RNG = np.random.RandomState(0)
X = RNG.randn(103, 7) * [1, 10, 1e-3, 5, 2, 1, 1] + 3


@pytest.fixture(params=["array", "csr", "npy", "npy in columns", "memmap", "parquet"])
def source(request, tmp_path, monkeypatch):
    """The rows of X, from wherever they are, in blocks of few rows."""
    monkeypatch.setattr("homophily.sources.BLOCK", 70)
    if request.param == "array":
        return ArrayRows(X)
    if request.param == "csr":
        return ArrayRows(sp.csr_array(X))
    if request.param == "parquet":
        pd.DataFrame(X, columns=list("abcdefg")).to_parquet(tmp_path / "x.parquet", row_group_size=25)
        return open_rows(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", np.asfortranarray(X) if request.param == "npy in columns" else X)
    if request.param == "memmap":
        return open_rows(np.load(tmp_path / "x.npy", mmap_mode="r"))
    return open_rows(str(tmp_path / "x.npy"))


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 103), (24, 26), (50, 51), (99, 103), (30, 30), (103, 103)])
def test_blocks_are_the_rows_in_order(source, start, stop):
    assert source.shape == X.shape
    blocks = [*source.blocks(start, stop)]
    assert all(len(block) <= 25 for block in blocks)
    np.testing.assert_array_equal(np.concatenate([np.empty((0, 7)), *blocks]), X[start:stop])
    chosen = [*source.blocks(start, stop, columns=[4, 1])]
    np.testing.assert_array_equal(np.concatenate([np.empty((0, 2)), *chosen]), X[start:stop, [4, 1]])


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 31), (3, 5), (30, 31), (7, 7)])
def test_some_rows(source, start, stop):
    rows = np.sort(np.random.RandomState(1).permutation(103)[:31])
    rows[rows > 40] = np.minimum(rows[rows > 40] + 20, 102)  # more than a block between some
    rows = np.unique(rows)
    some = SomeRows(source, rows)
    assert some.shape == (len(rows), 7)
    blocks = [*some.blocks(start, stop)]
    assert all(0 < len(block) <= 25 for block in blocks)
    np.testing.assert_array_equal(np.concatenate([np.empty((0, 7)), *blocks]), X[rows[start:stop]])
    chosen = [*some.blocks(start, stop, columns=[4, 1])]
    np.testing.assert_array_equal(np.concatenate([np.empty((0, 2)), *chosen]), X[rows[start:stop]][:, [4, 1]])


def test_other_processes_open_the_file_themselves(tmp_path):
    pd.DataFrame(X, columns=list("abcdefg")).to_parquet(tmp_path / "x.parquet")
    rows = pickle.loads(pickle.dumps(ParquetRows(tmp_path / "x.parquet", ["c"])))
    assert rows.names == list("abdefg")
    np.testing.assert_array_equal(np.concatenate([*rows.blocks()]), np.delete(X, 2, 1))


def test_standardised_as_in_memory(source):
    whole = standardize(X)
    data = standardize_rows(source, 103)
    np.testing.assert_allclose(data.values, whole.values, rtol=1e-5, atol=1e-6)
    assert data.n_rows == data.n_sampled == 103
    np.testing.assert_allclose(data.columns(np.array([5, 0])), whole.values[:, [5, 0]], rtol=1e-5, atol=1e-6)


def test_a_sample_is_standardised_by_all_rows(source):
    whole = standardize(X).values
    data = standardize_rows(source, 40, seed=1)
    assert data.values.shape == (40, 7)
    place = [int(np.abs(whole - row).max(1).argmin()) for row in data.values]
    assert place == sorted(set(place))
    np.testing.assert_allclose(data.values, whole[place], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(data.columns(np.array([6, 2])), whole[:, [6, 2]], rtol=1e-5, atol=1e-6)
    other = standardize_rows(source, 40, seed=2)
    assert not np.array_equal(data.values, other.values)


def test_every_row_is_as_likely_to_be_sampled():
    rows = ArrayRows(np.arange(50.0)[:, None])
    counts = np.zeros(50)
    for seed in range(400):
        data = standardize_rows(rows, 10, seed=seed)
        counts[np.round(data.values[:, 0] * np.arange(50.0).std() + 24.5).astype(int)] += 1
    assert counts.sum() == 4000
    assert np.abs(counts - 80).max() < 5 * np.sqrt(80)


class ManyRows:
    """Numbers that come in blocks of given sizes."""

    names, dtype = None, np.dtype(np.float64)

    def __init__(self, blocks):
        self.parts = blocks
        self.shape = sum(map(len, blocks)), blocks[0].shape[1]

    def blocks(self, start=0, stop=None, columns=None):
        assert start == 0
        yield from self.parts


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments_in_blocks_of_growing_size_of_numbers(offset):
    """The unit grows with the entries, from 1e-300 to 1e300."""
    parts = [RNG.randn(b, 4) * np.array([1, 1e-300, scale, 0]) + [offset, 0, 0, 0] for b, scale in
             ((3, 1e-200), (50, 1), (1, 1e-50), (20, 1e300))]  # fmt: skip
    whole = np.concatenate(parts)
    data = standardize_rows(ManyRows(parts), len(whole))
    assert data.kept.tolist() == [0, 1, 2]
    largest = np.abs(whole[:, :3]).max(0)
    Z = whole[:, :3] / largest
    np.testing.assert_allclose(data.values, (Z - Z.mean(0)) / Z.std(0), rtol=1e-4, atol=1e-6)


def test_moments_merge_as_if_gathered_by_one():
    parts = np.split(RNG.randn(90, 3) * [1, 1e5, 1e-5], [10, 11, 60])
    alone = Moments(3)
    together = Moments(3)
    for part in parts:
        alone.update(part)
        other = Moments(3)
        other.update(part)
        together.merge(other.packed())
    together.merge(Moments(3).packed())
    for name in ("count", "largest", "unit", "mean", "square"):
        np.testing.assert_allclose(getattr(together, name), getattr(alone, name), rtol=1e-12)


def test_constant_columns_are_found_on_the_way(tmp_path):
    Y = X.copy()
    Y[:, 3] = 0.1
    np.save(tmp_path / "x.npy", Y)
    selector = DirichletSelector(2, max_iter=3, random_state=0).fit(tmp_path / "x.npy")
    assert selector.dropped_features_.tolist() == [3]
    assert selector.scores_[3] == 0


@pytest.mark.parametrize("kind", ["path", "str", "memmap", "parquet"])
def test_fit_takes_files_and_maps(tmp_path, kind):
    expected = DirichletSelector(3, max_iter=5, random_state=0).fit(X)
    np.save(tmp_path / "x.npy", X)
    if kind == "parquet":
        pd.DataFrame(X, columns=list("abcdefg")).to_parquet(tmp_path / "x.parquet")
        data = tmp_path / "x.parquet"
    else:
        data = {
            "path": tmp_path / "x.npy",
            "str": str(tmp_path / "x.npy"),
            "memmap": np.load(tmp_path / "x.npy", mmap_mode="r"),
        }[kind]
    found = DirichletSelector(3, max_iter=5, random_state=0).fit(data)
    assert found.selected_features_.tolist() == expected.selected_features_.tolist()
    np.testing.assert_allclose(found.energy_, expected.energy_, rtol=1e-5)
    assert found.n_features_in_ == 7
    if kind == "parquet":
        assert found.feature_names_in_.tolist() == list("abcdefg")
        assert list(found.get_feature_names_out()) == [list("abcdefg")[i] for i in found.get_support(indices=True)]
    assert (
        LaplacianScore(3).fit(data).selected_features_.tolist() == LaplacianScore(3).fit(X).selected_features_.tolist()
    )


def test_a_part_of_a_map_is_an_array_like_any_other(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert is_on_disk(mapped)
    assert not is_on_disk(mapped[10:])
    part = DirichletSelector(3, max_iter=5, random_state=0).fit(mapped[10:, 1:])
    assert part.energy_ == pytest.approx(DirichletSelector(3, max_iter=5, random_state=0).fit(X[10:, 1:]).energy_)


def test_names_of_an_earlier_fit_are_forgotten(tmp_path):
    np.save(tmp_path / "x.npy", X)
    selector = DirichletSelector(3, max_iter=2).fit(pd.DataFrame(X, columns=list("abcdefg")))
    assert hasattr(selector, "feature_names_in_")
    assert not hasattr(selector.fit(tmp_path / "x.npy"), "feature_names_in_")


def test_integers_booleans_and_pandas_index(tmp_path):
    frame = pd.DataFrame({"i": [1, 2, 3, 4], "b": [True, False, True, True], "f": np.float32([0.5, 1, 2, 3])})
    frame.index = pd.Index(["p", "q", "r", "s"], name="sample")
    frame.to_parquet(tmp_path / "x.parquet")
    rows = ParquetRows(tmp_path / "x.parquet")
    assert rows.names == ["i", "b", "f"]
    np.testing.assert_array_equal(np.concatenate([*rows.blocks()]), frame.to_numpy(dtype=float))
    np.save(tmp_path / "x.npy", np.array([[-128, 3], [127, 4]], dtype=np.int8))
    np.testing.assert_allclose(standardize_rows(open_rows(tmp_path / "x.npy"), 2).values, [[-1, -1], [1, 1]])


def test_what_cannot_be_read_is_refused_in_words(tmp_path):
    selector = DirichletSelector(2)
    with pytest.raises(FileNotFoundError, match=r"nothing\.npy does not exist"):
        selector.fit(tmp_path / "nothing.npy")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        selector.fit(tmp_path)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"x\.csv: fit takes arrays.*read_table"):
        selector.fit(tmp_path / "x.csv")
    (tmp_path / "x.npy").write_text("no array")
    with pytest.raises(ValueError, match="could not be read as a NumPy file"):
        selector.fit(tmp_path / "x.npy")
    (tmp_path / "x.parquet").write_text("no table")
    with pytest.raises(ValueError, match="could not be read as parquet"):
        selector.fit(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="expected samples by features"):
        selector.fit(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.array([["a", "b"]]))
    with pytest.raises(ValueError, match="expected numbers"):
        selector.fit(tmp_path / "x.npy")
    pd.DataFrame({"a": [1.0, 2.0], "t": ["x", "y"]}).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"1 of 2 columns are not numeric: 't'"):
        selector.fit(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", np.ones((1, 3)))
    with pytest.raises(ValueError, match="1 samples and 3 features"):
        selector.fit(tmp_path / "x.npy")


def test_missing_values_on_disk_are_refused_with_their_place(tmp_path, monkeypatch):
    monkeypatch.setattr("homophily.sources.BLOCK", 70)
    Y = X.copy()
    Y[44, 2] = np.nan
    np.save(tmp_path / "x.npy", Y)
    with pytest.raises(ValueError, match=r"1 NaN entries in rows 40 to 49, in 1 of 7 columns: 2 \(1 row\)\."):
        DirichletSelector(2).fit(tmp_path / "x.npy")
    pd.DataFrame(Y, columns=list("abcdefg")).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"1 NaN entries.*'c'"):
        DirichletSelector(2).fit(tmp_path / "x.parquet")


def test_nothing_stays_mapped(tmp_path):
    """Resident memory would otherwise grow with the file."""
    np.save(tmp_path / "x.npy", X)
    rows = NpyRows(np.load(tmp_path / "x.npy", mmap_mode="r"))
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc here to look at")
    for _ in rows.blocks():
        pass
    gc.collect()
    assert str(tmp_path / "x.npy") not in maps.read_text()


@pytest.mark.parametrize("n_shards", [1, 3, 4, 5, 7, 16])
@pytest.mark.parametrize("n_sampled", [103, 102, 99, 50, 20])
def test_shards_take_their_share_of_the_sample(n_shards, n_sampled):
    n = 103
    parts = [_sample(n, n_sampled, n_shards, shard, 0) for shard in range(n_shards)]
    rows = Rows(torch.empty(0, 1), 0, n_sampled, n, Team())
    rows.team.size = n_shards if n_shards != 1 else 1
    ends = np.cumsum([len(part) for part in parts])
    assert ends[-1] == n_sampled
    assert len(np.unique(np.concatenate(parts))) == n_sampled
    if n_shards == rows.team.n_shards:
        assert [rows.shard(shard)[1] for shard in range(n_shards)] == ends.tolist()
    for shard, part in enumerate(parts):
        assert all(shard * n // n_shards <= i < (shard + 1) * n // n_shards for i in part)


def test_maps_that_differ_from_their_file_or_have_none_are_arrays(tmp_path):
    np.save(tmp_path / "x.npy", X)
    changed = np.load(tmp_path / "x.npy", mmap_mode="c")
    changed[:, 0] = 1.0
    assert not is_on_disk(changed)
    assert DirichletSelector(2, max_iter=2, random_state=0).fit(changed).dropped_features_.tolist() == [0]
    with tempfile.TemporaryFile() as file:
        nameless = np.memmap(file, dtype=float, shape=X.shape)
        nameless[:] = X
        assert not is_on_disk(nameless)


def test_two_columns_of_one_name_are_refused(tmp_path):
    pq.write_table(pa.table([[1.0, 2.0], [3.0, 5.0]], names=["a", "a"]), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="several columns named a"):
        DirichletSelector(1).fit(tmp_path / "x.parquet")


def test_a_sample_smaller_than_few_rows_still_has_anchors(monkeypatch):
    """Of wide data so few rows fit into memory that they would pass for small data."""
    for name, value in (("MANY", 500), ("JUDGED", 100), ("ANCHORS", 60), ("SAMPLE_BYTES", 12_000)):
        monkeypatch.setattr(f"homophily.joint.{name}", value)
    seen = []

    def spy(rows, m, graph, objective, schedule, **others):
        seen.append((rows.n, schedule.n_anchors))
        return train(rows, m, graph, objective, schedule, **others)

    monkeypatch.setattr("homophily.joint.train", spy)
    DirichletSelector(2, max_iter=2, random_state=0).fit(np.random.RandomState(0).randn(600, 12))
    assert seen == [(125, 60)]


def test_large_data_trains_on_a_sample_with_anchors(tmp_path, monkeypatch):
    """With thresholds made small: planted columns are found in 3,000 rows of which 300 are held."""
    for name, value in (("MANY", 200), ("JUDGED", 100), ("ANCHORS", 64), ("SAMPLE_BYTES", 300 * 12 * 8)):
        monkeypatch.setattr(f"homophily.joint.{name}", value)
    rng = np.random.RandomState(0)
    Y = rng.randn(3000, 12)
    Y[:, :3] += 4 * rng.randn(4, 3)[rng.randint(4, size=3000)]
    np.save(tmp_path / "x.npy", Y)
    seen = []

    class Watched(NpyRows):
        def blocks(self, start=0, stop=None, columns=None):
            seen.append((start, stop, columns))
            return super().blocks(start, stop, columns)

    monkeypatch.setattr("homophily.sources.NpyRows", Watched)
    selector = DirichletSelector(3, batch_size=64, max_iter=300, random_state=0).fit(tmp_path / "x.npy")
    assert sorted(selector.selected_features_.tolist()) == [0, 1, 2]
    shards = [(0, 750, None), (750, 1500, None), (1500, 2250, None), (2250, 3000, None)]
    assert seen == [*shards, (0, None, selector.selected_features_.tolist())]  # one pass, one for the chosen columns
    assert selector.graph_.shape == (3000, 3000)
    in_memory = DirichletSelector(3, batch_size=64, max_iter=300, random_state=0).fit(Y)
    assert in_memory.energy_ == pytest.approx(selector.energy_, rel=1e-4)
    without = DirichletSelector(3, batch_size=64, max_iter=300, random_state=0, final_graph="none").fit(Y)
    assert without.graph_ is None
    assert without.energy_ == pytest.approx(selector.energy_, rel=0.3)
    monkeypatch.setattr("homophily.joint.ESTIMATED", 10**6)
    monkeypatch.setattr("homophily.joint.SAMPLE_BYTES", 10**9)
    from_all = DirichletSelector(3, batch_size=64, max_iter=300, random_state=0, final_graph="none", n_anchors="all")
    assert from_all.fit(Y).energy_ == pytest.approx(selector.energy_, rel=1e-3)
