"""UDFS against dense references, and its objective."""

import numpy as np
import pytest
import scipy.linalg
from scipy.sparse.linalg import ArpackNoConvergence
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances
from threadpoolctl import threadpool_limits

from homophily.baselines import UDFS, udfs
from homophily.baselines.udfs import _Dense, _local_scatter, _LowRank


def data(n, d, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 3) @ rng.randn(3, d) + rng.randn(n, d)
    return (X - X.mean(0)) / X.std(0)


def scatter_by_definition(X, k, ridge):
    """One sample at a time, with selection matrices."""
    n = len(X)
    distances = pairwise_distances(X)
    M = np.zeros((n, n))
    H = np.eye(k + 1) - np.ones((k + 1, k + 1)) / (k + 1)
    for i in range(n):
        distances[i, i] = -1
        members = np.argsort(distances[i])[: k + 1]
        S = np.zeros((n, k + 1))
        S[members, np.arange(k + 1)] = 1
        local = X[members].T @ H  # (d, k+1), as the formula has it
        M += S @ H @ np.linalg.inv(local.T @ local + ridge * np.eye(k + 1)) @ H @ S.T
    return M


def fit_by_definition(X, reg, c, rounds):
    """Dense reweighting from D = I; the objective after each round, and the row norms."""
    A = X.T @ scatter_by_definition(X, 5, 1000.0) @ X
    D = np.eye(X.shape[1])
    history = []
    for _ in range(rounds):
        _, vectors = np.linalg.eigh(A + reg * D)
        W = vectors[:, :c]
        norms = np.linalg.norm(W, axis=1)
        history.append(np.trace(W.T @ A @ W) + reg * norms.sum())
        D = np.diag(1 / (2 * np.hypot(norms, 1e-8)))
    return history, norms


@pytest.mark.parametrize("shape", [(25, 6), (12, 40)])
@pytest.mark.parametrize(("k", "ridge"), [(5, 1000.0), (3, 0.1), (11, 1.0)])
def test_the_local_scatter_is_the_formula(shape, k, ridge, monkeypatch):
    X = data(*shape)
    expected = scatter_by_definition(X, k, ridge)
    np.testing.assert_allclose(_local_scatter(X, k, ridge).toarray(), expected, rtol=1e-8, atol=1e-10)
    monkeypatch.setattr("homophily.baselines.udfs.BLOCK", 300)  # a few samples at a time
    np.testing.assert_allclose(_local_scatter(X, k, ridge).toarray(), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(expected.sum(0), 0, atol=1e-8)  # centred
    assert np.linalg.eigvalsh(expected).min() > -1e-8


@pytest.mark.parametrize("reg", [1e-3, 0.1, 10.0])
@pytest.mark.filterwarnings("ignore:UDFS did not converge")
def test_a_fit_is_the_dense_reference(reg):
    X = data(60, 15)
    selector = UDFS(2, reg=reg, n_clusters=3, tol=0, max_iter=8).fit(X)
    assert selector.n_iter_ >= 3
    history, norms = fit_by_definition(X, reg, 3, selector.n_iter_)
    np.testing.assert_allclose(selector.history_["objective"], history, rtol=1e-5)
    np.testing.assert_allclose(selector.scores_, norms, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("c", [1, 4])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_few_samples_get_the_same_eigenvectors_without_the_matrix(c, scale):
    X = data(20, 150)
    M = _local_scatter(X, 5, 1.0)
    diagonal = scale * np.random.RandomState(1).uniform(0.5, 20, 150)
    A = X.T @ (M @ X)
    W, energy = _LowRank(X, M, c, np.random.RandomState(0))(diagonal)
    dense, dense_energy = _Dense(A, c)(diagonal)
    np.testing.assert_allclose(W.T @ W, np.eye(c), atol=1e-10)
    np.testing.assert_allclose(W @ W.T, dense @ dense.T, atol=1e-6)
    np.testing.assert_allclose(energy, dense_energy, rtol=1e-5, atol=1e-9)
    values = scipy.linalg.eigvalsh(A + np.diag(diagonal))
    np.testing.assert_allclose(np.sum(W * ((A + np.diag(diagonal)) @ W)), values[:c].sum(), rtol=1e-9)


@pytest.mark.parametrize("shape", [(20, 120), (60, 20)])
@pytest.mark.parametrize("reg", [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_objective_never_increases(shape, reg):
    objective = UDFS(5, reg=reg, tol=0, max_iter=40, random_state=0).fit(data(*shape)).history_["objective"]
    assert np.isfinite(objective).all()
    assert (np.diff(objective) <= 1e-8 * objective[:-1]).all()


def test_the_start_matters_only_where_it_must():
    """With more samples than columns nothing is drawn; otherwise the first round has many solutions."""
    X = data(60, 20)
    np.testing.assert_array_equal(UDFS(3, random_state=0).fit(X).scores_, UDFS(3, random_state=1).fit(X).scores_)
    X = data(20, 120)
    assert (UDFS(3, random_state=0).fit(X).scores_ != UDFS(3, random_state=1).fit(X).scores_).any()


def test_the_number_of_threads_does_not_choose_the_columns():
    """The start is drawn by the seed, not by rounding: the first round has a space of solutions."""
    X = data(20, 400)
    results = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            results.append(UDFS(10, random_state=0).fit(X))
    np.testing.assert_allclose(results[0].scores_, results[1].scores_, atol=1e-7)
    np.testing.assert_array_equal(results[0].selected_features_, results[1].selected_features_)


def test_the_first_round_is_a_frame_without_energy():
    X = data(20, 150)
    M = _local_scatter(X, 5, 1.0)
    W, energy = _LowRank(X, M, 4, np.random.RandomState(0))(np.full(150, 0.3))
    np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-10)
    assert energy < 1e-20
    np.testing.assert_allclose(X.T @ (M @ (X @ W)), 0, atol=1e-10)


def test_no_square_matrix_of_the_columns_is_formed():
    import tracemalloc

    X = data(10, 3000)
    tracemalloc.start()
    UDFS(5, max_iter=3, tol=1.0, random_state=0).fit(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3000 * 3000 * 8 / 4


def test_says_when_the_ranking_is_noise():
    with pytest.warns(ConvergenceWarning, match=r"reg=1e\+06 leaves 2 columns .* fewer than the 8 .* other 6 is noise"):
        UDFS(8, reg=1e6, n_clusters=2).fit(data(60, 20))


def test_says_when_it_did_not_converge():
    with pytest.warns(ConvergenceWarning, match=r"the last of 2 rounds lowered the objective by .*tol=1e-05"):
        UDFS(2, max_iter=2, random_state=0).fit(data(20, 120))


@pytest.mark.parametrize("failures", [2, 3])
def test_eigenvectors_are_looked_for_three_times(failures, monkeypatch):
    """With more vectors each time; then it is an error that says what to change."""
    asked = []

    def failing(*arguments, ncv, tol, search=udfs.lanczos):
        asked.append(ncv)
        if len(asked) <= failures:
            raise ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))
        return search(*arguments, ncv=ncv, tol=tol)

    monkeypatch.setattr(udfs, "lanczos", failing)
    solver = _LowRank(data(20, 150), _local_scatter(data(20, 150), 5, 1.0), 4, np.random.RandomState(0))
    diagonal = np.linspace(0.3, 1, 150)
    if failures == 3:
        with pytest.raises(ValueError, match=r"The 4 smallest eigenvectors .*no convergence.*smaller n_clusters"):
            solver(diagonal)
    else:
        W, _ = solver(diagonal)
        np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-8)
    assert asked[:3] == sorted(set(asked[:3]))


@pytest.mark.parametrize("d", [1, 2, 4])
def test_fewer_columns_than_clusters(d):
    assert len(UDFS(1, n_clusters=5).fit(data(30, d)).selected_features_) == 1


def test_finds_the_useful_columns_of_madelon(real_data):
    X, _ = real_data("Madelon")
    useful = {28, 48, 64, 105, 128, 153, 241, 281, 318, 336, 338, 378, 433, 442, 451, 453, 455, 472, 475, 493}
    assert set(UDFS(20).fit(X).selected_features_) == useful
