"""Fixed graphs against scikit-learn and direct formulas."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import laplacian as scipy_laplacian
from sklearn.neighbors import kneighbors_graph

from homophily.graph import adaptive_knn_graph, heat_kernel_graph, laplacian, symmetrize


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


@pytest.mark.parametrize("graph", [adaptive_knn_graph, heat_kernel_graph])
@pytest.mark.parametrize("k", [0, 60])
def test_bad_k(X, graph, k):
    with pytest.raises(ValueError, match="samples, got 60"):
        graph(X, k)


def test_bad_sigma(X):
    with pytest.raises(ValueError, match="sigma"):
        heat_kernel_graph(X, sigma=0)
