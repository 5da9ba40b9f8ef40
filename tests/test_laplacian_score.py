"""LS against the formula written out, scikit-feature, and the cases on which that fails."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_selection import SelectKBest
from sklearn.metrics import pairwise_distances

from homophily.baselines import LaplacianScore, laplacian_score, laplacian_smoothness
from homophily.graph import heat_kernel_graph


def data(n=50, d=8, seed=0):
    X = np.random.RandomState(seed).randn(n, d)
    X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    return X


def by_definition(X, k, sigma=None):
    """Dense, one feature at a time."""
    Z = (X - X.mean(0)) / X.std(0)
    n = len(Z)
    distances = pairwise_distances(Z)
    np.fill_diagonal(distances, np.inf)
    near = np.argsort(distances, axis=1)[:, :k]
    sigma = np.mean([distances[i, j] for i in range(n) for j in near[i]]) if sigma is None else sigma
    W = np.zeros((n, n))
    for i in range(n):
        for j in near[i]:
            W[i, j] = W[j, i] = np.exp(-(distances[i, j] ** 2) / (2 * sigma**2))
    D = np.diag(W.sum(1))
    one = np.ones(n)
    scores = []
    for f in Z.T:
        f = f - (f @ D @ one) / (one @ D @ one) * one
        scores.append((f @ (D - W) @ f) / (f @ D @ f))
    return np.array(scores)


@pytest.mark.parametrize("k", [1, 5, 49])
@pytest.mark.parametrize("sigma", [None, 2.0])
def test_is_the_formula(k, sigma):
    X = data()
    np.testing.assert_allclose(
        laplacian_score(X, n_neighbors=k, sigma=sigma), by_definition(X, k, sigma), rtol=1e-5, atol=1e-7
    )
    selector = LaplacianScore(3, n_neighbors=k, sigma=sigma).fit(X)
    np.testing.assert_allclose(selector.scores_, 1 - by_definition(X, k, sigma) / 2, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(selector.selected_features_, np.argsort(by_definition(X, k, sigma))[:3])


def test_blocks_of_columns_do_not_matter(monkeypatch):
    expected = laplacian_score(data())
    monkeypatch.setattr(
        sys.modules["homophily.baselines.laplacian_score"], "BLOCK", 100
    )  # a function has that name, too
    np.testing.assert_allclose(laplacian_score(data()), expected, rtol=1e-12)


def test_agrees_with_scikit_feature():
    """Its graph is ours plus a loop at every sample; on a graph without loops its ranking is ours."""
    construct_W = pytest.importorskip("skfeature.utility.construct_W").construct_W
    lap_score = pytest.importorskip("skfeature.function.similarity_based.lap_score").lap_score
    X = data(80, 15)
    Z = (X - X.mean(0)) / X.std(0)
    S = heat_kernel_graph(Z, 5, 2.0)
    W = S.maximum(S.T)
    theirs = construct_W(Z, metric="euclidean", neighbor_mode="knn", weight_mode="heat_kernel", k=5, t=2.0).toarray()
    np.testing.assert_allclose(theirs - np.eye(80), W.toarray(), atol=1e-12)
    ranking = lap_score(Z, mode="index", W=sp.csr_matrix(W))
    np.testing.assert_array_equal(LaplacianScore(15, sigma=2.0).fit(X).selected_features_, ranking)


def test_a_narrow_kernel_is_refused():
    with pytest.raises(ValueError, match=r"sigma=0.001 is so small that every weight of the graph is 0"):
        LaplacianScore(2, sigma=1e-3).fit(data())


def test_a_column_that_varies_off_the_graph_is_the_worst():
    """One far outlier: its edges have no weight, so a column that singles it out is constant on the graph."""
    X = data(30, 4)
    X[0] = 1e4
    X[:, 3] = 0
    X[0, 3] = 1
    scores = laplacian_score(X, sigma=0.01)
    assert scores[3] == 2
    assert np.isfinite(scores).all()


def test_scores_of_copies_of_rows():
    """All neighbours are copies: every column is perfectly smooth."""
    X = np.repeat(np.random.RandomState(0).randn(6, 3), 7, axis=0)
    np.testing.assert_allclose(laplacian_score(X), 0, atol=1e-12)


def test_constant_columns_score_worst():
    X = data(30, 4)
    X[:, 2] = 5
    assert laplacian_score(X)[2] == 2
    np.testing.assert_array_equal(laplacian_score(np.ones((10, 3))), 2)


def test_select_k_best():
    X = data(60, 10)
    X[:, 4] = 1.0
    chosen = SelectKBest(laplacian_smoothness, k=3).fit(X).get_support(indices=True)
    assert set(chosen) == set(LaplacianScore(3).fit(X).selected_features_)
    assert set(SelectKBest(laplacian_smoothness, k=9).fit(X).get_support(indices=True)) == set(range(10)) - {4}


def test_too_few_samples():
    with pytest.raises(ValueError, match="k=5 neighbours need at least 6 samples, got 4"):
        laplacian_score(data(4))


def test_finds_the_useful_columns_of_madelon(real_data):
    X, _ = real_data("Madelon")
    useful = {28, 48, 64, 105, 128, 153, 241, 281, 318, 336, 338, 378, 433, 442, 451, 453, 455, 472, 475, 493}
    assert set(LaplacianScore(20).fit(X).selected_features_) == useful
