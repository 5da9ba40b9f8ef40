"""WAST: the sparsity, the importance, the rewiring."""

import numpy as np
import pytest
import torch

from homophily.baselines import WAST
from homophily.baselines.wast import _SparseLayer


def layer(d=9, h=7, density=0.3, seed=0):
    made = _SparseLayer(d, h, density, torch.Generator().manual_seed(seed))
    made.importance += torch.rand(d, generator=torch.Generator().manual_seed(seed + 1))
    return made


@pytest.mark.parametrize("density", [0.01, 0.2, 1.0])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_rewiring_keeps_the_number_of_connections(density, fraction):
    sparse = layer(density=density)
    count = int(sparse.mask.sum())
    assert count == sparse.n_connections == max(1, round(density * 63))
    for _ in range(5):
        with torch.no_grad():
            sparse.rewire(fraction, torch.rand(7))
            assert int(sparse.mask.sum()) == count
            assert not (sparse.W[~sparse.mask] != 0).any()
            sparse.W += 0.01 * torch.randn(sparse.W.shape) * sparse.mask  # a training step


def test_rewiring_removes_the_least_and_adds_the_most_important():
    sparse = layer()
    before, mask = sparse.W.detach().clone(), sparse.mask.clone()
    hidden = torch.rand(7, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        kept = sparse.rewire(0.3, hidden)
    values = (before * sparse.importance[:, None]).numpy()
    for sign in (1, -1):
        here = np.argwhere(sign * values > 0)
        order = sorted(map(tuple, here), key=lambda place: sign * values[place])
        gone = order[: int(0.3 * len(order))]
        assert {place for place in map(tuple, here) if not kept[place]} == set(gone)
    assert not (kept & ~mask).any()
    wanted = np.outer(sparse.importance, hidden)
    added = sparse.mask & ~kept
    free = ~sparse.mask
    assert wanted[added].min() >= wanted[free].max()
    assert (sparse.W[added] == 0).all()
    assert torch.equal(sparse.W[kept], before[kept])


def test_training_never_leaves_the_mask(monkeypatch):
    layers = []
    original = _SparseLayer.rewire

    def watch(self, fraction, hidden):
        assert not (self.W[~self.mask] != 0).any()  # the optimiser has moved nothing that does not exist
        assert int(self.mask.sum()) == self.n_connections
        layers.append(self)
        return original(self, fraction, hidden)

    monkeypatch.setattr(_SparseLayer, "rewire", watch)
    selector = WAST(3, random_state=0).fit(np.random.RandomState(0).randn(50, 8))
    assert len(layers) == 2 * 10 * 10  # two layers, ten batches of five rows, ten epochs
    assert selector.n_connections_ == (320, 320)


def test_the_importance_is_the_formula(monkeypatch):
    """One update: error and weights as the network had them, mixed by ``attention``."""
    X = np.random.RandomState(0).randn(20, 4)
    X = (X - X.mean(0)) / X.std(0)
    params = {"max_iter": 1, "batch_size": 20, "random_state": 0, "learning_rate": 1e-12}
    seen = []
    original = _SparseLayer.__init__

    def watch(self, *args):
        original(self, *args)
        seen.append(self)

    monkeypatch.setattr(_SparseLayer, "__init__", watch)
    error = WAST(2, attention=1.0, **params).fit(X).scores_
    np.testing.assert_allclose(error, np.abs(X).mean(0), rtol=0.05)  # the untrained output is near 0
    seen.clear()
    strength = WAST(2, attention=0.0, rewire=0.0, **params).fit(X).scores_
    np.testing.assert_allclose(strength, seen[0].W.detach().abs().sum(1), rtol=1e-5)
    mixed = WAST(2, attention=0.25, rewire=0.0, **params).fit(X).scores_
    np.testing.assert_allclose(mixed, 0.25 * error + 0.75 * strength, rtol=1e-5)


def test_the_target_is_the_clean_input(monkeypatch):
    seen = []

    def loss(output, target):
        seen.append(target)
        return ((output - target) ** 2).mean()

    monkeypatch.setattr("homophily.baselines.wast.functional.mse_loss", loss)
    X = np.random.RandomState(0).randn(10, 4)
    WAST(2, noise=5.0, max_iter=1, batch_size=10, random_state=0).fit(X)
    (target,) = seen
    np.testing.assert_allclose(np.sort(target, axis=0), np.sort((X - X.mean(0)) / X.std(0), axis=0), atol=1e-5)


def test_a_hidden_neuron_matters_by_its_weights(monkeypatch):
    hidden = []
    original = _SparseLayer.rewire

    def watch(self, fraction, importance):
        hidden.append((self, self.W.detach().abs().sum(0), importance.clone()))
        return original(self, fraction, importance)

    monkeypatch.setattr(_SparseLayer, "rewire", watch)
    WAST(2, max_iter=1, batch_size=20, rewire=0.0, random_state=0).fit(np.random.RandomState(0).randn(20, 5))
    (_, first, given), (_, second, again) = hidden
    torch.testing.assert_close(given, first + second)
    torch.testing.assert_close(again, given)


def test_small_data_still_gets_a_hundred_updates(monkeypatch):
    calls = []
    monkeypatch.setattr(WAST, "_rewire", lambda self, *args: calls.append(1))
    WAST(2, random_state=0).fit(np.random.RandomState(0).randn(40, 5))
    assert len(calls) == 100
    calls.clear()
    WAST.from_paper(2, random_state=0).fit(np.random.RandomState(0).randn(40, 5))
    assert len(calls) == 10


def test_divergence_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r"diverged in epoch \d+: the loss is .*Lower learning_rate=1e\+10"):
        WAST(2, learning_rate=1e10, random_state=0).fit(np.random.RandomState(0).randn(60, 5))
