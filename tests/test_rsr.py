"""RSR: both forms, the optimality conditions, and the regimes in which the ranking says nothing."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from homophily.baselines import RSR
from homophily.baselines.rsr import _by_columns, _by_samples, _reg_max, _solve


def data(n, d, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3) @ rng.randn(3, d) + rng.randn(n, d)
    return (X - X.mean(0)) / X.std(0)


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (25, 25)])
@pytest.mark.parametrize("reg", [1e-3, 1.0, 100.0])
def test_both_forms_are_equal(shape, reg):
    X = data(*shape)
    rng = np.random.RandomState(1)
    G_R, G_L = rng.uniform(0.1, 2, shape[1]), rng.uniform(0.1, 2, shape[0])
    # The definition, with inverses and all.
    W = np.diag(G_R) @ X.T @ np.linalg.inv(X @ np.diag(G_R) @ X.T + reg * np.diag(1 / G_L)) @ X
    expected = np.linalg.norm(W, axis=1), np.linalg.norm(X - X @ W, axis=1)
    for form in (_by_samples, _by_columns):
        for found, wanted in zip(form(X, G_R, G_L, reg), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("shape", [(20, 30), (30, 20)])
def test_a_fit_by_either_form_is_the_same(shape, monkeypatch):
    X = data(*shape)
    expected = RSR(5, reg=3).fit(X)
    for form in (_by_samples, _by_columns):
        monkeypatch.setattr("homophily.baselines.rsr._by_samples", form)
        monkeypatch.setattr("homophily.baselines.rsr._by_columns", form)
        found = RSR(5, reg=3).fit(X)
        np.testing.assert_allclose(found.scores_, expected.scores_, rtol=1e-4, atol=1e-7)
        np.testing.assert_array_equal(found.selected_features_, expected.selected_features_)


@pytest.mark.parametrize("shape", [(20, 60), (60, 20)])
@pytest.mark.parametrize("reg", [1e-9, 1e-3, 1.0, 10.0, 1e3, 1e9])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_objective_never_increases(shape, reg):
    objective = RSR(5, reg=reg, tol=0, max_iter=60).fit(data(*shape)).history_["objective"]
    assert (np.diff(objective) <= 1e-9 * objective[:-1]).all()
    assert np.isfinite(objective).all()


def test_the_objective_is_the_one_minimised():
    """The value after the last round is that of the definition, and no step to the side lowers it."""
    X = data(40, 6)
    reg = 0.8 * _reg_max(X)
    selector = RSR(3, reg=reg, tol=1e-13, max_iter=5000).fit(X)
    weights, residuals = np.ones(6), np.ones(40)
    for _ in range(selector.n_iter_):  # the same rounds, with the matrix itself
        W = np.diag(weights) @ X.T @ np.linalg.inv(X @ np.diag(weights) @ X.T + reg * np.diag(residuals)) @ X
        weights, residuals = 2 * np.linalg.norm(W, axis=1), 2 * np.linalg.norm(X - X @ W, axis=1)

    def value(W):
        return np.linalg.norm(X - X @ W, axis=1).sum() + reg * np.linalg.norm(W, axis=1).sum()

    final = selector.history_["objective"][-1]
    np.testing.assert_allclose(final, value(W), rtol=1e-6)
    rng = np.random.RandomState(0)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            assert final <= value(W + size * rng.randn(6, 6)) * (1 + 1e-9)
    assert final <= value(np.eye(6))
    assert final <= value(np.zeros((6, 6)))


@pytest.mark.parametrize("shape", [(20, 30), (30, 20)])
def test_reg_max_is_where_nothing_is_left(shape):
    X = data(*shape)
    reg_max = _reg_max(X)
    inner = X.T @ (X / np.linalg.norm(X, axis=1)[:, None])
    np.testing.assert_allclose(reg_max, np.linalg.norm(inner, axis=1).max())
    assert RSR(3, reg=1.05 * reg_max, tol=1e-12, max_iter=2000).fit(X).scores_.max() < 1e-5
    assert RSR(3, reg=0.8 * reg_max).fit(X).scores_.max() > 1e-2


def test_weights_survive_a_singular_system():
    A = np.random.RandomState(0).randn(8, 3)
    K = A @ A.T
    B = K @ np.ones((8, 2))
    solution = _solve(K, B, 1e-300)
    np.testing.assert_allclose(K @ solution, B, rtol=1e-6)


def test_no_square_matrix_of_the_columns_is_formed():
    """With d > n, the largest array of the work has n d entries; W alone would have d^2."""
    import tracemalloc

    X = data(10, 3000)
    tracemalloc.start()
    RSR(5, max_iter=3, tol=1.0).fit(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3000 * 3000 * 8 / 4


def test_says_when_it_did_not_converge():
    with pytest.warns(ConvergenceWarning, match=r"the last of 2 rounds lowered the objective by .*tol=1e-05"):
        RSR(3, max_iter=2).fit(data(20, 30))


def test_says_when_every_column_represents_itself():
    with pytest.warns(ConvergenceWarning, match=r"reg=1e-06 ranks nothing.*Raise reg; reg_max_ ="):
        RSR(3, reg=1e-6).fit(np.random.RandomState(0).randn(60, 5))


@pytest.mark.parametrize("shape", [(20, 60), (60, 20)])
def test_far_beyond_reg_max_there_is_still_a_ranking(shape):
    """All weights vanish, but not equally fast; and nothing is said about columns that represent themselves."""
    scores = RSR(5, reg=1e9).fit(data(*shape)).scores_
    assert len(set(scores)) == shape[1]
    assert (scores > 0).all()


def test_finds_the_columns_that_have_something_in_common():
    rng = np.random.RandomState(3)
    X = np.hstack([rng.randn(200, 12), rng.randn(200, 2) @ rng.randn(2, 8) + 0.3 * rng.randn(200, 8)])
    assert set(RSR(8).fit(X).selected_features_) == set(range(12, 20))


def test_finds_the_useful_columns_of_madelon(real_data):
    X, _ = real_data("Madelon")
    useful = {28, 48, 64, 105, 128, 153, 241, 281, 318, 336, 338, 378, 433, 442, 451, 453, 455, 472, 475, 493}
    assert set(RSR(20, reg=1000).fit(X).selected_features_) == useful
