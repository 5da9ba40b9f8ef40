"""FastCan against the package of that name, and against canonical correlations."""

import numpy as np
import pytest

from homophily.baselines import FastCan


def data(n, d, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 4) @ rng.randn(4, d) + rng.randn(n, d)
    return (X - X.mean(0)) / X.std(0)


def components(X, p):
    return np.linalg.svd(X, full_matrices=False)[0][:, :p]


def correlation(X, columns, U):
    """Sum of the squared canonical correlations, by an orthonormal basis."""
    return np.sum((np.linalg.qr(X[:, columns])[0].T @ U) ** 2)


@pytest.mark.parametrize("shape", [(80, 12), (15, 40), (20, 20)])
@pytest.mark.parametrize("p", [None, 2, 6])
def test_agrees_with_the_package(shape, p):
    fastcan = pytest.importorskip("fastcan")
    X = data(*shape)
    U = components(X, p or 5)
    theirs = fastcan.FastCan(5, tol=1e-6, verbose=0).fit(X, U)
    ours = FastCan(5, n_components=p).fit(X)
    np.testing.assert_array_equal(ours.selected_features_, theirs.indices_)
    np.testing.assert_allclose(
        ours.scores_[ours.selected_features_], 1 - np.cumsum([0, *theirs.scores_[:-1]]) / U.shape[1], atol=1e-5
    )


@pytest.mark.parametrize("shape", [(60, 9), (12, 30)])
def test_each_column_adds_most(shape):
    X = data(*shape, seed=1)
    U = components(X, 3)
    selector = FastCan(4, n_components=3).fit(X)
    chosen = selector.selected_features_.tolist()
    for t in range(4):
        others = [j for j in range(shape[1]) if j not in chosen[:t]]
        assert max(others, key=lambda j: correlation(X, [*chosen[:t], j], U)) == chosen[t]
        before = correlation(X, chosen[:t], U) if t else 0
        np.testing.assert_allclose(selector.scores_[chosen[t]], 1 - before / 3, atol=1e-5)
    for j in set(range(shape[1])) - set(chosen):
        gain = correlation(X, [*chosen, j], U) - correlation(X, chosen, U)
        np.testing.assert_allclose(selector.scores_[j], gain / 3, atol=1e-5)


def test_no_more_components_than_the_rank():
    """Two sources: noise in the third component would be all that a third one measures."""
    sources = np.random.RandomState(0).randn(30, 2)
    X = sources @ np.random.RandomState(1).randn(2, 8)
    selector = FastCan(4).fit(X)
    chosen = selector.selected_features_
    assert len(set(chosen)) == 4
    np.testing.assert_array_equal(chosen[:2], FastCan(2).fit(X).selected_features_)
    np.testing.assert_allclose(selector.scores_[chosen[2:]], 0, atol=1e-6)


def test_a_fixed_number_of_components_nests():
    X = data(25, 30)
    most = FastCan(10, n_components=4).fit(X).selected_features_
    np.testing.assert_array_equal(FastCan(6, n_components=4).fit(X).selected_features_, most[:6])
