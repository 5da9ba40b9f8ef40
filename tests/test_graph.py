"""Fixed graphs against scikit-learn and direct formulas."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import laplacian as scipy_laplacian
from sklearn.neighbors import kneighbors_graph

from homophily import graph
from homophily.graph import adaptive_knn_graph, heat_kernel_graph, laplacian, symmetrize
from homophily.nn import nearest


@pytest.fixture(name="X")
def gaussian_points():
    return np.random.RandomState(0).randn(60, 4)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_heat_kernel_graph(X, sigma):
    S = heat_kernel_graph(X, k=5, sigma=sigma)
    distances = kneighbors_graph(X, 5, mode="distance").toarray()
    expected = np.where(distances > 0, np.exp(-(distances**2) / (2 * sigma**2)), 0)
    np.testing.assert_allclose(S.toarray(), expected, atol=1e-12)


def test_adaptive_graph_solves_its_optimisation_problem(X):
    """Each row minimises sum_j e_j s_j + alpha s_j^2 over the simplex (Eq. 6-8); any other feasible row is worse."""
    k = 5
    S = adaptive_knn_graph(X, k).toarray()
    np.testing.assert_allclose(S.sum(1), 1)
    assert ((S > 0).sum(1) == k).all()
    rng = np.random.RandomState(1)
    for i in range(len(X)):
        e = np.delete(((X[i] - X) ** 2).sum(1), i)
        s = np.delete(S[i], i)
        order = np.sort(e)
        alpha = (k * order[k] - order[:k].sum()) / 2
        best = e @ s + alpha * s @ s
        for other in (np.full(len(e), 1 / len(e)), rng.dirichlet(np.ones(len(e))), np.roll(s, 1)):
            mixed = 0.99 * s + 0.01 * other
            assert e @ mixed + alpha * mixed @ mixed >= best - 1e-12


def test_duplicates_and_all_others():
    np.testing.assert_allclose(adaptive_knn_graph(np.zeros((5, 2)), 2).sum(axis=1), 1)
    np.testing.assert_allclose(adaptive_knn_graph(np.random.RandomState(0).randn(5, 2), 4).data, 0.25)


@pytest.mark.parametrize("dense", [True, False])
def test_laplacian(X, dense):
    S = adaptive_knn_graph(X, 5)
    L = laplacian(S.toarray() if dense else S)
    assert sp.issparse(L) is not dense
    np.testing.assert_allclose(L if dense else L.toarray(), scipy_laplacian(symmetrize(S).toarray()), atol=1e-12)


@pytest.mark.parametrize("make_graph", [adaptive_knn_graph, heat_kernel_graph])
@pytest.mark.parametrize("k", [0, 60])
def test_bad_k(X, make_graph, k):
    with pytest.raises(ValueError, match="samples, got 60"):
        make_graph(X, k)


def test_bad_sigma(X):
    with pytest.raises(ValueError, match="sigma"):
        heat_kernel_graph(X, sigma=0)


def clustered(n, m, seed=0):
    rng = np.random.RandomState(seed)
    return 4 * rng.randn(20, m)[rng.randint(20, size=n)] + rng.randn(n, m)


def found_share(S, exact):
    """Share of the true neighbours that S has."""
    return ((S > 0).astype(int).multiply((exact > 0).astype(int))).sum() / exact.nnz


@pytest.mark.parametrize("kind", ["clusters", "normal"])
@pytest.mark.parametrize("m", [10, 50])
def test_faiss_finds_nearly_all_neighbours(kind, m):
    """The docstring says 97 % on a sample of rows; 95 % of all leaves room for its error."""
    pytest.importorskip("faiss")
    X = clustered(3000, m) if kind == "clusters" else np.random.RandomState(0).randn(3000, m)
    S, exact = adaptive_knn_graph(X, 5, method="faiss"), adaptive_knn_graph(X, 5, method="exact")
    assert found_share(S, exact) >= 0.95
    np.testing.assert_allclose(S.sum(axis=1), 1)
    assert (np.diff(S.indptr) == 5).all()
    assert not S.diagonal().any()
    # Weights depend on the (k+1)-th neighbour too, so rows agree where that was found as well.
    wide, exact_wide = (k_nearest_of(X, 6, method) for method in ("faiss", "exact"))
    same = (wide == exact_wide).all(1)
    assert same.mean() > 0.7
    np.testing.assert_array_equal(S.indices.reshape(3000, 5)[same], exact.indices.reshape(3000, 5)[same])
    np.testing.assert_allclose(S.data.reshape(3000, 5)[same], exact.data.reshape(3000, 5)[same], rtol=1e-9)


def k_nearest_of(X, k, method):
    return graph._neighbors(X, k, k, method)[0]


def test_faiss_does_not_depend_on_chance_or_threads():
    faiss = pytest.importorskip("faiss")
    X = clustered(3000, 10)
    np.random.seed(5)
    first = adaptive_knn_graph(X, 5, method="faiss")
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        second = adaptive_knn_graph(X, 5, method="faiss")
    finally:
        faiss.omp_set_num_threads(threads)
    assert np.array_equal(first.indices, second.indices)
    assert np.array_equal(first.data, second.data)


def test_faiss_with_copies_of_rows():
    pytest.importorskip("faiss")
    X = np.repeat(clustered(300, 4), 10, axis=0)  # each row has 9 copies, more than it needs
    neighbors, E = graph._neighbors(X, 5, 6, "faiss")
    assert not E.any()
    assert (neighbors != np.arange(3000)[:, None]).all()
    assert (neighbors // 10 == np.arange(3000)[:, None] // 10).all()
    assert all(len(set(row)) == 6 for row in neighbors.tolist())
    np.testing.assert_allclose(adaptive_knn_graph(X, 5, method="faiss").data, 0.2)
    np.testing.assert_allclose(adaptive_knn_graph(np.zeros((2000, 3)), 5, method="faiss").data, 0.2)


@pytest.mark.parametrize(("n", "k"), [(5, 4), (10, 3), (60, 59), (400, 399)])
def test_faiss_on_few_rows_and_all_others(n, k):
    pytest.importorskip("faiss")
    X = np.random.RandomState(0).randn(n, 4)
    S, exact = (adaptive_knn_graph(X, k, method=method).toarray() for method in ("faiss", "exact"))
    np.testing.assert_allclose(S, exact, rtol=1e-9)


def test_faiss_searches_whole_rows_where_the_lists_are_too_short(monkeypatch):
    """Two far points have a list of their own, which holds one neighbour only: too few if no other is probed."""
    pytest.importorskip("faiss")
    X = np.random.RandomState(0).randn(3000, 3)
    X[[7, 8]] += 1e3
    searched = []
    monkeypatch.setattr(graph, "RECALL", 0)
    monkeypatch.setattr(graph, "nearest", lambda *a: searched.append(a[3].tolist()) or nearest(*a))
    neighbors, _ = graph._neighbors(X, 5, 6, "faiss")
    assert {7, 8} <= set(searched[-1])
    assert np.array_equal(neighbors[[7, 8]], graph._neighbors(X, 5, 6)[0][[7, 8]])


def test_faiss_far_from_the_origin():
    pytest.importorskip("faiss")
    X = clustered(3000, 10)
    near, far = adaptive_knn_graph(X, 5, method="faiss"), adaptive_knn_graph(X + 1e6, 5, method="faiss")
    assert found_share(far, near) > 0.99


def test_auto_takes_faiss_for_many_rows_where_it_is_installed(X, monkeypatch):
    assert graph.graph_method(50_000) == "exact"
    for installed, expected in ((None, "exact"), ("spec", "faiss")):
        monkeypatch.setattr(graph, "find_spec", lambda name, found=installed: found)
        assert graph.graph_method(50_001) == expected
    used = []
    monkeypatch.setattr(graph, "EXACT_ROWS", 59)
    monkeypatch.setattr(graph, "_approximately_nearest", lambda X, c: used.append(c) or k_nearest_of(X, c, "exact"))
    np.testing.assert_allclose(adaptive_knn_graph(X).toarray(), adaptive_knn_graph(X, method="exact").toarray())
    assert used == [6]


def test_without_faiss_the_error_says_what_to_install(X, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r'pip install "homophily\[faiss\]"'):
        adaptive_knn_graph(X, method="faiss")


def test_bad_method(X):
    with pytest.raises(ValueError, match="method must be"):
        adaptive_knn_graph(X, method="annoy")


def test_indices_hold_the_number_of_edges():
    assert graph._index_dtype(2**31 - 1) is np.int32
    assert graph._index_dtype(2**31) is np.int64
