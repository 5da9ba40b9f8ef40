"""Sparse input: the same result as dense, without a dense copy of all of it."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from homophily import DirichletSelector
from homophily.baselines import LaplacianScore, RandomSelector, laplacian_score
from homophily.preprocessing import standardize, standardize_rows
from homophily.sources import ArrayRows

KINDS = [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array]


def counts(n, d, density=0.1, seed=0):
    """Small counts, most of them 0, about half of the columns with the same clusters; one column is constant."""
    rng = np.random.default_rng(seed)
    often = density * np.where(rng.integers(3, size=n)[:, None] == np.arange(d) % 6, 4, 0.5)
    X = rng.poisson(often).astype(float)
    X[:, d // 2] = 0
    return X


def scattered(n, d):
    """About one entry in a hundred."""
    rng = np.random.default_rng(0)
    count = n * d // 100
    return sp.csr_array((rng.random(count), (rng.integers(n, size=count), rng.integers(d, size=count))), shape=(n, d))


def few_rows_held(monkeypatch):
    """Thresholds made small, so that 600 rows are many."""
    for name, value in (("MANY", 200), ("JUDGED", 100), ("ANCHORS", 64), ("SAMPLE_BYTES", 1)):
        monkeypatch.setattr(f"homophily.joint.{name}", value)
    for module in ("sources", "preprocessing"):
        monkeypatch.setattr(f"homophily.{module}.BLOCK", 4000)


def assert_same_fit(found, expected):
    np.testing.assert_array_equal(found.selected_features_, expected.selected_features_)
    np.testing.assert_array_equal(found.scores_, expected.scores_)
    np.testing.assert_array_equal(found.dropped_features_, expected.dropped_features_)
    assert found.energy_ == expected.energy_
    assert (found.graph_ != expected.graph_).nnz == 0


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_as_if_dense(kind):
    X = counts(80, 12, density=0.5)
    expected = DirichletSelector(3, max_iter=10, random_state=0).fit(X)
    assert_same_fit(DirichletSelector(3, max_iter=10, random_state=0).fit(kind(X)), expected)
    assert expected.dropped_features_.tolist() == [6]


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_as_if_dense(kind, monkeypatch):
    few_rows_held(monkeypatch)
    X = counts(600, 30, density=0.5)
    expected = DirichletSelector(4, max_iter=10, random_state=0).fit(X)
    assert_same_fit(DirichletSelector(4, max_iter=10, random_state=0).fit(kind(X)), expected)


@pytest.mark.parametrize("n_sampled", [90, 31])
def test_sampled_rows_are_those_of_the_dense_data_bit_by_bit(n_sampled, monkeypatch):
    for module in ("sources", "preprocessing"):
        monkeypatch.setattr(f"homophily.{module}.BLOCK", 100)
    X = counts(90, 12)
    dense, sparse = (standardize_rows(ArrayRows(data), n_sampled, seed=3) for data in (X, sp.csr_array(X)))
    np.testing.assert_array_equal(sparse.values, dense.values)
    np.testing.assert_array_equal(sparse.ids, dense.ids)
    kept = dense.kept
    Z = (X[:, kept] - X[:, kept].mean(0)) / X[:, kept].std(0)
    np.testing.assert_allclose(sparse.values, Z[sparse.ids], rtol=1e-5, atol=1e-6)


def peak_of(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_standardised_without_a_second_dense_copy(monkeypatch):
    for module in ("sources", "preprocessing"):
        monkeypatch.setattr(f"homophily.{module}.BLOCK", 2**14)
    X = scattered(2000, 500)
    result = 2000 * 500 * 4
    for data in (X, X.toarray()):
        assert result <= peak_of(lambda data=data: standardize(data)) < 1.3 * result


def test_many_sparse_rows_are_never_all_dense(monkeypatch):
    """The held sample is 128 of 20,000 rows; beside it there are blocks, and the graph."""
    few_rows_held(monkeypatch)
    X = scattered(20_000, 500)
    selector = DirichletSelector(3, max_iter=2, batch_size=32, random_state=0, refine=False, final_graph="none")
    selector.fit(X)  # what is imported on the way does not count
    least = X.shape[0] * X.shape[1] * 4  # bytes of a dense copy in single precision
    assert peak_of(lambda: selector.fit(X)) < least / 8
    assert selector.selected_features_.shape == (3,)


@pytest.mark.parametrize("kind", KINDS)
def test_transform_stays_sparse(kind):
    X = counts(40, 12)
    selector = RandomSelector(5, random_state=0).fit(X)
    reduced = selector.transform(kind(X))
    assert sp.issparse(reduced)
    assert reduced.format == "csr"
    np.testing.assert_array_equal(reduced.toarray(), selector.transform(X))


def test_laplacian_scores_as_if_dense():
    X = counts(60, 12, density=0.5)
    np.testing.assert_array_equal(laplacian_score(sp.csr_array(X)), laplacian_score(X))
    np.testing.assert_array_equal(LaplacianScore(3).fit(sp.csc_array(X)).scores_, LaplacianScore(3).fit(X).scores_)


def test_stored_zeros_and_repeated_entries_change_nothing():
    X = counts(40, 8, density=0.5)
    twice = sp.coo_array(X)
    rows, columns = twice.coords
    rows, columns = np.append(rows, [0, 0]), np.append(columns, [1, 1])
    twice = sp.coo_array((np.append(twice.data, [5.0, -5.0]), (rows, columns)), shape=X.shape).tocsr()
    np.testing.assert_array_equal(standardize(twice).values, standardize(X).values)


def test_missing_entries_are_counted_by_column():
    X = counts(40, 8)
    X[[3, 9], 2], X[4, 5] = np.nan, np.inf
    with pytest.raises(
        ValueError, match=r"2 NaN and 1 infinity \(inf\) entries, in 2 of 8 columns: 2 \(2 rows\), 5 \(1 row\)"
    ):
        DirichletSelector(2).fit(sp.csr_array(X))
