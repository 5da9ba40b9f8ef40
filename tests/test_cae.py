"""CAE: planted features, convergence and its report, distinct features."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from homophily.baselines import ConcreteAutoencoder


def planted(n=200, seed=0):
    """Three sources, each with a clean column and two noisy copies; the clean ones reconstruct best."""
    rng = np.random.RandomState(seed)
    sources = rng.randn(n, 3)
    return np.hstack([sources, sources + rng.randn(n, 3), sources + rng.randn(n, 3)])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_recovers_planted_features(seed):
    selector = ConcreteAutoencoder(3, random_state=seed).fit(planted(seed=seed))
    assert set(selector.selected_features_) == {0, 1, 2}
    assert selector.confidence_ > 0.95
    assert selector.n_iter_ == 300
    assert selector.history_["loss"][-1] < 0.7 * selector.history_["loss"][0]
    assert selector.history_["confidence"][-1] == selector.confidence_
    assert (selector.scores_[:3] > 0.9).all()


def test_converges_with_few_rows_and_many_columns():
    """Where the public code's logits end as they began."""
    X = np.random.RandomState(0).randn(40, 3) @ np.random.RandomState(1).randn(3, 300)
    X += 0.1 * np.random.RandomState(2).randn(*X.shape)
    ours = ConcreteAutoencoder(5, random_state=0).fit(X)
    assert ours.confidence_ > 0.95
    with pytest.warns(ConvergenceWarning, match=r"the largest probability of its 5 columns is 0\.0\d+ in the mean"):
        theirs = ConcreteAutoencoder.from_paper(5, max_tries=1, random_state=0).fit(X)
    assert theirs.confidence_ < 0.1
    assert len(set(theirs.selected_features_)) == 5


def test_tries_again_with_twice_the_epochs():
    with pytest.warns(ConvergenceWarning, match=r"below confidence=1, after 14 epochs in 3 tries"):
        selector = ConcreteAutoencoder(2, max_iter=2, max_tries=3, confidence=1.0, random_state=0).fit(planted())
    assert selector.n_iter_ == 2 + 4 + 8
    assert len(selector.history_["loss"]) == 14
    converged = ConcreteAutoencoder(2, max_iter=2, max_tries=3, confidence=0.0, random_state=0).fit(planted())
    assert converged.n_iter_ == 2


def test_temperature_falls_exponentially(monkeypatch):
    seen = []

    def record(logits, temperature, noise):
        seen.append(temperature)
        return (logits / temperature).softmax(0)

    monkeypatch.setattr("homophily.baselines.cae.gumbel_softmax", record)
    ConcreteAutoencoder(2, max_iter=5, temperature=(8.0, 0.5), confidence=0.0, random_state=0).fit(planted(40))
    assert len(seen) == 5 * 3  # 40 rows in batches of 16
    np.testing.assert_allclose(seen, 8 * (0.5 / 8) ** (np.arange(15) / 15))


@pytest.mark.parametrize("temperature", [(1.0,), (1.0, 0.0), (1.0, "cold"), (1.0, np.inf)])
def test_bad_temperatures(temperature):
    with pytest.raises(ValueError, match="temperature must be two positive numbers"):
        ConcreteAutoencoder(2, temperature=temperature).fit(planted())


def test_the_result_does_not_depend_on_the_number_of_threads():
    before = torch.get_num_threads()
    scores = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            scores.append(ConcreteAutoencoder(3, max_iter=3, confidence=0.0, random_state=0).fit(planted()).scores_)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*scores)
