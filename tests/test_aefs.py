"""AEFS: true zeros, the optimality of the group lasso, the order of what was removed."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from homophily.baselines import AEFS
from homophily.baselines.aefs import _ProximalAdam


def data(n=200, seed=0):
    """Four columns with something in common, then six of noise."""
    rng = np.random.RandomState(seed)
    return np.hstack([rng.randn(n, 1) + 0.5 * rng.randn(n, 4), rng.randn(n, 6)])


def test_removed_columns_are_true_zeros():
    selector = AEFS(4, n_hidden=1, reg=0.03, max_iter=300, random_state=0).fit(data())
    assert set(selector.selected_features_) == {0, 1, 2, 3}
    assert (selector.scores_[4:] == 0.0).all()
    assert (selector.scores_[:4] > 0.01).all()
    assert selector.history_["columns"][0] == 10
    assert selector.history_["columns"][-1] == 4


def test_proximal_adam_solves_the_group_lasso():
    """On a least-squares problem: the conditions of optimality, with rows that are zero exactly."""
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    B = A[:, :2] @ torch.randn(2, 3, generator=generator, dtype=torch.float64)
    W = torch.randn(6, 3, generator=generator, dtype=torch.float64).requires_grad_()
    reg = 0.3
    for rate in (1e-2, 1e-3, 1e-4):
        optimizer = _ProximalAdam(W, rate, reg)
        for _ in range(1000):
            W.grad = None
            ((A @ W - B) ** 2).mean().backward()
            optimizer.step()
    W.grad = None
    ((A @ W - B) ** 2).mean().backward()
    norms = torch.linalg.vector_norm(W.detach(), dim=1)
    left = norms > 0
    assert 0 < int(left.sum()) < 6
    gradient = W.grad.detach()
    pull = reg * W.detach()[left] / norms[left, None]
    torch.testing.assert_close(gradient[left], -pull, atol=1e-3, rtol=0)
    assert (torch.linalg.vector_norm(gradient[~left], dim=1) <= reg + 1e-3).all()


def test_no_penalty_is_plain_descent():
    selector = AEFS(3, reg=0.0, max_iter=20, random_state=0).fit(data())
    assert (selector.scores_ > 0).all()


def test_collapse_is_told_and_ranked_by_what_lasted_longest():
    with pytest.warns(ConvergenceWarning, match=r"reg=1 left 0 of 10 columns, fewer than the 3 to select; the other 3"):
        selector = AEFS(3, reg=1.0, max_iter=50, random_state=0).fit(data())
    assert (selector.scores_ == 0).all()
    alive = selector.history_["columns"]
    assert alive[0] > 0
    # Ended while the three that are to be selected were still there: they are the same.
    last = int(np.flatnonzero(alive >= 3)[-1]) + 1
    stopped = AEFS(int(alive[last - 1]), reg=1.0, max_iter=last, random_state=0).fit(data())
    assert set(selector.selected_features_) <= set(np.flatnonzero(stopped.scores_ > 0))


def test_columns_that_vanish_at_once_are_not_taken_in_the_order_of_the_file():
    """At the first update; then those come first at which the loss pulls most, the ones with something in common."""
    rng = np.random.RandomState(0)
    X = np.hstack([rng.randn(600, 20), rng.randn(600, 1) + 0.3 * rng.randn(600, 10)])
    with pytest.warns(ConvergenceWarning, match="left 0 of 30 columns"):
        selector = AEFS(10, reg=1e3, n_hidden=4, max_iter=3, random_state=0).fit(X)
    assert selector.selected_features_.tolist() != list(range(10))
    assert len(set(selector.selected_features_) & set(range(20, 30))) >= 8


def test_the_second_layer_decays():
    """Its penalty holds the output back, so the error stays larger."""
    free, held = (
        AEFS(3, reg=0.0, decay=decay, n_hidden=4, max_iter=150, random_state=0).fit(data()).history_["loss"][-1]
        for decay in (0.0, 1.0)
    )
    assert held > free + 0.05


def test_the_loss_falls():
    loss = AEFS(3, max_iter=100, n_hidden=4, random_state=0).fit(data()).history_["loss"]
    assert loss[-1] < loss[0]
    assert np.isfinite(loss).all()
