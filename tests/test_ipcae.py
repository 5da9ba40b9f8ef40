"""IP-CAE: planted columns, and what it shares with CAE."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from homophily.baselines import ConcreteAutoencoder, IndirectConcreteAutoencoder, ipcae
from homophily.baselines.autoencoder import glorot


def planted(n=200, seed=0):
    """Three sources, each with a clean column and two noisy copies; the clean ones reconstruct best."""
    rng = np.random.RandomState(seed)
    sources = rng.randn(n, 3)
    return np.hstack([sources, sources + rng.randn(n, 3), sources + rng.randn(n, 3)])


@pytest.mark.parametrize("seed", [0, 1])
def test_recovers_planted_features(seed):
    selector = IndirectConcreteAutoencoder(3, max_iter=150, random_state=seed).fit(planted(seed=seed))
    assert set(selector.selected_features_) == {0, 1, 2}
    assert selector.confidence_ > 0.95
    assert selector.history_["loss"][-1] < 0.7 * selector.history_["loss"][0]


def test_logits_are_a_product():
    generator = torch.Generator().manual_seed(0)
    selector = IndirectConcreteAutoencoder(3, embedding_size=5)
    W, embeddings = selector._start(9, 3, generator)
    assert (W.shape, embeddings.shape) == ((9, 5), (5, 3))
    torch.testing.assert_close(selector._logits([W, embeddings]), W @ embeddings)


@pytest.mark.parametrize(("d", "p"), [(7, 7), (20, 10)])
def test_embeddings_are_as_long_as_the_columns_are_many_up_to_a_bound(d, p, monkeypatch):
    monkeypatch.setattr(ipcae, "EMBEDDING", 10)
    assert IndirectConcreteAutoencoder()._start(d, 2, torch.Generator())[0].shape == (d, p)


def test_with_the_identity_it_is_the_concrete_autoencoder(monkeypatch):
    """W = I with a learning rate of 0 for it would be CAE; here both matrices learn, so only the start is the same."""
    steps = []
    for cls in (ConcreteAutoencoder, IndirectConcreteAutoencoder):
        if cls is IndirectConcreteAutoencoder:
            monkeypatch.setattr(cls, "_start", lambda self, d, m, generator: [torch.eye(d), glorot(d, m, generator)])
        selector = cls(2, max_iter=1, batch_size=40, confidence=0.0, random_state=0).fit(planted(40))
        steps.append(selector.history_["loss"][0])
    assert steps[0] == pytest.approx(steps[1], rel=1e-6)


def test_says_its_own_name_if_it_did_not_converge():
    with pytest.warns(ConvergenceWarning, match=r"IP-CAE did not converge: .* after 14 epochs in 3 tries"):
        IndirectConcreteAutoencoder(2, max_iter=2, max_tries=3, confidence=1.0, random_state=0).fit(planted(30))
