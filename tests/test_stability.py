"""Stability of selections against definitions written out."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from homophily.baselines import LaplacianScore, RandomSelector
from homophily.datasets import make_toy
from homophily.sources import open_rows
from homophily.stability import stability, stability_index


def drawn(M, d, k, seed=0):
    """Selections of k of d features, those with small numbers more likely."""
    rng = np.random.default_rng(seed)
    weight = 1 / (1 + np.arange(d))
    Z = np.zeros((M, d), dtype=bool)
    for row in Z:
        row[rng.choice(d, k, replace=False, p=weight / weight.sum())] = True
    return Z


@pytest.mark.parametrize(("M", "d", "k"), [(2, 5, 2), (7, 20, 4), (12, 30, 15)])
def test_index_of_equal_sizes_is_the_mean_of_kunchevas_over_pairs(M, d, k):
    Z = drawn(M, d, k)
    pairs = [(np.sum(a & b) - k * k / d) / (k - k * k / d) for a, b in combinations(Z, 2)]
    assert stability_index(Z)[0] == pytest.approx(np.mean(pairs), abs=1e-12)


def test_index_of_different_sizes_is_one_minus_observed_over_expected_variance():
    Z = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]])
    observed = np.var(Z, axis=0, ddof=1).mean()
    assert stability_index(Z)[0] == pytest.approx(1 - observed / (0.5 * 0.5))


@pytest.mark.parametrize("value", [0, 1])
def test_selections_that_cannot_differ_are_stable(value):
    assert stability_index(np.full((3, 4), value)) == (1.0, 0.0)


def test_selections_that_are_the_same_are_stable():
    index, variance = stability_index(np.tile([True, False, True, False], (5, 1)))
    assert index == pytest.approx(1)
    assert variance == pytest.approx(0, abs=1e-20)


def test_random_selections_have_an_index_near_zero():
    rng = np.random.default_rng(0)
    Z = np.stack([rng.permutation(200) < 20 for _ in range(200)])
    index, variance = stability_index(Z)
    assert abs(index) < 5 * max(np.sqrt(variance), 1e-3)


def test_variance_is_that_of_repeated_experiments():
    """The index over many experiments spreads as each one says it does."""
    outcomes = [stability_index(drawn(40, 30, 6, seed)) for seed in range(400)]
    indices, variances = np.array(outcomes).T
    assert np.mean(variances) == pytest.approx(np.var(indices), rel=0.2)


class FirstOfTheRows(BaseEstimator):
    """Selects a column by the least row that it is given."""

    def fit(self, X):
        first = X[:, :1].toarray() if sp.issparse(X) else np.asarray(X)[:, :1]
        self.chosen_ = int(first.min()) // 5
        return self

    def get_support(self):
        return np.arange(5) == self.chosen_ % 5


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, lambda X: pd.DataFrame(X, columns=list("abcde"))])
def test_refits_see_parts_of_the_rows(kind):
    X = kind(np.arange(50.0).reshape(10, 5))
    result = stability(FirstOfTheRows(), X, n_subsamples=30, fraction=0.5, random_state=0)
    assert result.selections.shape == (30, 5)
    assert 0 < result.frequency[0] < 1
    np.testing.assert_array_equal(result.frequency, result.selections.mean(0))
    assert result.index == stability_index(result.selections)[0]
    low, high = result.interval
    assert low < result.index < high <= 1


def test_found_structure_is_stable_and_chance_is_not():
    X, _ = make_toy("blobs", random_state=0)
    found = stability(LaplacianScore(2), X, n_subsamples=10, random_state=0)
    assert found.index == 1
    assert found.frequency[:2].tolist() == [1, 1]
    unstable = stability(RandomSelector(2), X, n_subsamples=10, random_state=0)  # another seed each time
    assert unstable.index < 0.5


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_rows_of_a_file_as_in_memory(tmp_path, kind, monkeypatch):
    X, _ = make_toy("moons", n_samples=60, random_state=0)
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, X)
    else:
        pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).to_parquet(path)
    monkeypatch.setattr("homophily.sources.BLOCK", 7 * X.shape[1])
    whole, on_disk = (stability(LaplacianScore(3), Z, n_subsamples=4, random_state=0) for Z in (X, open_rows(path)))
    assert 0 < whole.index < 1
    np.testing.assert_array_equal(on_disk.selections, whole.selections)


def test_the_callback_counts():
    X, _ = make_toy("blobs", n_samples=40, random_state=0)
    seen = []
    stability(LaplacianScore(2), X, n_subsamples=3, random_state=0, callback=seen.append)
    assert seen == [1, 2, 3]


def test_same_seed_same_answer_whatever_the_processes():
    X, _ = make_toy("moons", random_state=0)
    one, two = (stability(LaplacianScore(5), X, n_subsamples=4, n_jobs=n, random_state=3) for n in (1, 2))
    np.testing.assert_array_equal(one.selections, two.selections)
    assert one.interval == two.interval


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_subsamples": 1}, "n_subsamples=1 must be at least 2"),
        ({"fraction": 1.0}, r"fraction=1.0 must lie between 0 and 1"),
        ({"confidence": 0.0}, r"confidence=0.0 must lie between 0 and 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        stability(LaplacianScore(2), np.eye(4), **arguments)
