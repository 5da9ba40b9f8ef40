"""DUFS: the loss against its formula, its gradient, the scale-free descent."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning

from homophily.baselines import DUFS
from homophily.baselines.dufs import _loss
from homophily.datasets import make_toy


def problem(n=12, d=5, seed=0):
    rng = np.random.RandomState(seed)
    return rng.randn(n, d), 0.3 * rng.randn(d), rng.randn(n, d)


def loss_by_definition(X, mu, noise, C, k):
    """Entry by entry, with the matrix P^2 itself; k counts the sample."""
    gated = X * np.clip(mu + 0.5 + 0.5 * noise, 0, 1)
    n = len(X)
    E = np.array([[((a - b) ** 2).sum() for b in gated] for a in gated])
    s = np.sort([np.sort(row)[k - 1] for row in E])[(n - 1) // 2]
    W = np.exp(-E / (C * s))
    P = W / W.sum(1, keepdims=True)
    smooth = np.linalg.matrix_power(P, 2) @ gated
    return -(smooth * gated).mean() / (norm.cdf((mu + 0.5) / 0.5).mean() + 1e-6)


@pytest.mark.parametrize("C", [2.0, 5.0, 0.3])
@pytest.mark.parametrize("k", [2, 5])
def test_the_loss_is_the_formula(C, k):
    X, mu, noise = problem()
    found = _loss(*map(torch.from_numpy, (X, mu, noise)), C, k - 1)
    np.testing.assert_allclose(float(found), loss_by_definition(X, mu, noise, C, k), rtol=1e-10)


def test_the_gradient_passes_through_the_graph():
    """All but the unit of distances, which is held fixed: differences of the loss with that unit fixed agree."""
    X, mu, noise = problem()
    point = torch.from_numpy(mu).requires_grad_()
    (gradient,) = torch.autograd.grad(_loss(torch.from_numpy(X), point, torch.from_numpy(noise), 5.0, 1), point)
    gated = X * np.clip(mu + 0.5 + 0.5 * noise, 0, 1)
    E = ((gated[:, None] - gated) ** 2).sum(-1)
    s = np.sort(np.sort(E)[:, 1])[(len(X) - 1) // 2]

    def fixed_unit(mu):
        gated = X * np.clip(mu + 0.5 + 0.5 * noise, 0, 1)
        W = np.exp(-((gated[:, None] - gated) ** 2).sum(-1) / (5 * s))
        P = W / W.sum(1, keepdims=True)
        return -((P @ P @ gated) * gated).mean() / (norm.cdf((mu + 0.5) / 0.5).mean() + 1e-6)

    step = 1e-6
    expected = [(fixed_unit(mu + step * e) - fixed_unit(mu - step * e)) / (2 * step) for e in np.eye(len(mu))]
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-5, atol=1e-8)


def test_copies_of_rows_have_a_unit_of_distance():
    X = torch.from_numpy(np.repeat(np.random.RandomState(0).randn(3, 4), 5, axis=0))
    mu = torch.full((4,), 5.0, dtype=torch.float64)  # gates open, so the copies stay copies
    for data in (X, torch.zeros_like(X)):
        assert torch.isfinite(_loss(data, mu, torch.zeros_like(data), 5.0, 1))


@pytest.mark.parametrize("name", ["blobs", "moons"])
@pytest.mark.parametrize("seed", [0, 1])
def test_opens_the_gates_of_the_informative_columns(name, seed):
    X, _ = make_toy(name, random_state=seed)
    assert set(DUFS(2, random_state=seed).fit(X).selected_features_) == {0, 1}


def test_scale_free_steps_do_not_depend_on_the_size_of_the_gradient(monkeypatch):
    X = np.random.RandomState(0).randn(20, 4)
    expected = DUFS(2, max_iter=20, random_state=0).fit(X).scores_
    monkeypatch.setattr("homophily.baselines.dufs._loss", lambda *args: 1e-4 * _loss(*args))
    np.testing.assert_allclose(DUFS(2, max_iter=20, random_state=0).fit(X).scores_, expected, rtol=1e-4)


def test_the_papers_descent_hardly_moves_and_says_so():
    X = np.random.RandomState(0).randn(60, 100)
    with pytest.warns(ConvergenceWarning, match=r"no gate moved by more than 0\.0\d+ in 50 updates.*scale_free=True"):
        selector = DUFS.from_paper(5, max_iter=50, random_state=0).fit(X)
    assert selector.learning_rate is None
    np.testing.assert_allclose(selector.scores_, 0.5, atol=0.02)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_batches_of_rows():
    X = np.random.RandomState(0).randn(50, 4)
    whole = DUFS(2, batch_size=50, max_iter=3, random_state=0).fit(X)
    assert (DUFS(2, batch_size=20, max_iter=3, random_state=0).fit(X).scores_ != whole.scores_).any()
    np.testing.assert_array_equal(DUFS(2, batch_size=500, max_iter=3, random_state=0).fit(X).scores_, whole.scores_)
    with pytest.raises(ValueError, match="n_neighbors=20 must be less"):
        DUFS(2, batch_size=20, n_neighbors=20).fit(X)
