"""Ridge regressions on selected features, against solutions by brute force."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from homophily.regression import ROWS, Regression


def draw(n, d, seed=0):
    """Standardised correlated data."""
    generator = np.random.RandomState(seed)
    X = generator.randn(n, d) @ generator.randn(d, d)
    return torch.from_numpy((X - X.mean(0)) / X.std(0))


def brute_force(regression, chosen, weights):
    """Sum over the features of what their regression on the chosen ones explains, feature by feature."""
    Z = regression.Z
    if not len(chosen):
        return 0.0
    explained = 0.0
    for f, weight in enumerate(weights.tolist()):
        fitted = Ridge(alpha=regression.ridge, fit_intercept=False).fit(Z[:, chosen], Z[:, f])
        # z' (I - M) z, the inner product of a feature with its prediction
        explained += weight * float(Z[:, f] @ torch.from_numpy(fitted.predict(Z[:, chosen])))
    return explained / float(Z.square().sum())


@pytest.mark.parametrize("n", [12, 60])  # fewer rows than features, and more
@pytest.mark.parametrize("chosen", [[], [3], [0, 7, 19, 4]])
def test_explained_and_gains_are_those_of_ridge_regressions(n, chosen):
    regression = Regression(draw(n, 20), noise=0.3)
    weights = torch.rand(20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    index = torch.tensor(chosen, dtype=torch.long)
    expected = brute_force(regression, chosen, weights)
    assert float(regression.explained(index, weights)) == pytest.approx(expected, abs=1e-12)
    regression.weigh(weights)
    explained, gains = regression.gains(index)
    assert float(explained) == pytest.approx(expected, abs=1e-12)
    for feature in set(range(20)) - set(chosen):
        assert float(gains[feature]) == pytest.approx(
            brute_force(regression, [*chosen, feature], weights) - expected, abs=1e-12
        )


def test_one_feature_after_the_other_takes_the_largest_gain():
    regression = Regression(draw(40, 10))
    ones = torch.ones(10, dtype=torch.float64)
    chosen = []
    for feature in regression.greedy(5).tolist():
        candidates = [f for f in range(10) if f not in chosen]
        best = max(candidates, key=lambda f: float(regression.explained(torch.tensor([*chosen, f]), ones)))
        assert feature == best
        chosen.append(feature)


def test_a_copy_adds_less_than_something_new():
    Z = draw(100, 6)
    Z[:, 1] = Z[:, 0]
    regression = Regression(Z)
    regression.weigh(torch.ones(6, dtype=torch.float64))
    _, gains = regression.gains(torch.tensor([0]))
    assert gains[1] < gains[2:].min()


def test_features_that_do_not_count_are_not_explained():
    regression = Regression(draw(30, 8))
    assert float(regression.explained(torch.tensor([2, 5]), torch.zeros(8, dtype=torch.float64))) == 0
    regression.weigh(torch.zeros(8, dtype=torch.float64))
    explained, gains = regression.gains(torch.tensor([2, 5]))
    assert float(explained) == pytest.approx(0, abs=1e-12)
    assert gains.abs().max() < 1e-12


def test_of_many_rows_a_sample_is_taken_and_it_is_no_stretch_of_them():
    Z = torch.arange(4.0 * ROWS).repeat(2, 1).T
    sample = Regression(Z).Z
    assert sample.shape == (ROWS, 2)
    assert len(sample[:, 0].unique()) == ROWS
    assert sample[:, 0].min() < ROWS
    assert sample[:, 0].max() > 3 * ROWS


def test_data_without_variance_explain_nothing_and_are_no_reason_to_fail():
    regression = Regression(torch.zeros(5, 3))
    regression.weigh(torch.ones(3))
    explained, gains = regression.gains(torch.tensor([1]))
    assert float(explained) == 0
    assert gains.tolist() == [0, 0, 0]
