"""MCFS against dense linear algebra, scikit-feature, and on graphs that fall apart."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn.linear_model import Lars

from homophily.baselines import MCFS, mcfs
from homophily.baselines.mcfs import coefficients, embedding
from homophily.graph import heat_kernel_graph


def data(n=60, d=10, seed=0):
    """Four clusters in three columns, then noise."""
    rng = np.random.RandomState(seed)
    X = rng.randn(n, d)
    X[:, :3] += 3 * rng.randn(4, 3)[rng.randint(4, size=n)]
    return (X - X.mean(0)) / X.std(0)


def graph(X, k=5):
    S = heat_kernel_graph(X.astype(np.float32), k, sigma=None)
    return sp.csr_array(S.maximum(S.T))


def by_definition(X, K, m):
    """Generalised eigenproblem and LARS of scikit-learn; only for connected graphs."""
    W = graph(X).toarray()
    D = np.diag(W.sum(1))
    Y = scipy.linalg.eigh(D - W, D)[1][:, 1 : K + 1]
    Y = (Y - Y.mean(0)) / Y.std(0)
    return np.max([np.abs(Lars(n_nonzero_coefs=m).fit(X, y).coef_) for y in Y.T], axis=0)


@pytest.mark.parametrize(("n", "d", "m"), [(60, 10, 4), (60, 10, 10), (30, 50, 8)])
@pytest.mark.parametrize("K", [1, 3])
def test_is_the_formula(n, d, m, K):
    X = data(n, d)
    expected = by_definition(X, K, m)
    selector = MCFS(m, n_clusters=K).fit(X)
    np.testing.assert_allclose(selector.scores_, expected, rtol=1e-4, atol=1e-5)
    assert set(selector.selected_features_) == set(np.argsort(-expected, kind="stable")[:m])


def test_agrees_with_scikit_feature():
    """On the same graph, up to the length of each eigenvector; it ranks by the signed coefficients, we do not."""
    theirs = pytest.importorskip("skfeature.function.sparse_learning_based.MCFS").mcfs
    X = data(50, 8)
    W = graph(X)
    raw = theirs(X, n_selected_features=3, mode="raw", W=sp.csr_matrix(W), n_clusters=3)
    Y = embedding(W, 3)
    for k in range(3):
        ours = coefficients(X, Y[:, k], 3)
        scale = ours @ raw[:, k] / (raw[:, k] @ raw[:, k])
        np.testing.assert_allclose(ours, scale * raw[:, k], atol=1e-8)


def test_components_of_the_graph_are_eigenvectors():
    """Three clusters far apart: the eigenvalue 0 is threefold, and the constant vector is none of the solutions."""
    rng = np.random.RandomState(0)
    labels = np.repeat([0, 1, 2], 20)
    X = np.c_[100.0 * np.eye(3)[labels] + rng.randn(60, 3), rng.randn(60)]
    Z = (X - X.mean(0)) / X.std(0)
    Y = embedding(graph(Z), 2)
    assert np.abs(Y).max() > 0.5
    for y in Y.T:  # constant on each component
        assert max(y[labels == c].std() for c in range(3)) < 1e-6
    assert set(MCFS(2, n_clusters=2).fit(X).selected_features_) < {0, 1, 2}


def test_lanczos_finds_what_dense_algebra_finds(monkeypatch):
    W = graph(data(80))
    dense = embedding(W, 3)
    monkeypatch.setattr(mcfs, "DENSE_ROWS", 10)
    sparse = embedding(W, 3)
    np.testing.assert_allclose(np.abs(np.sum(dense * sparse, axis=0)) / 80, 1, atol=1e-8)


def test_samples_without_an_edge():
    W = sp.csr_array(np.kron(np.diag([1.0, 1.0, 0.0]), np.ones((4, 4)) - np.eye(4)))
    Y = embedding(W, 3)
    assert np.isfinite(Y).all()
    assert np.abs(Y).max() > 0


def test_copies_of_columns_come_last():
    X = data(40, 4)
    selector = MCFS(6, n_clusters=1).fit(np.hstack([X, X]))
    chosen = selector.selected_features_
    assert len(set(chosen)) == 6
    assert {j % 4 for j in chosen[:4]} == {0, 1, 2, 3}
    assert (selector.scores_[chosen[4:]] == 0).all()


def test_finds_the_columns_of_the_clusters():
    assert set(MCFS(3, n_clusters=3).fit(data(200)).selected_features_) == {0, 1, 2}
