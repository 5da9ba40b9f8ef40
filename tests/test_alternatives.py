"""Near-copies of selected features against correlations written out."""

import numpy as np
import pytest
import torch

from homophily import DirichletSelector
from homophily.alternatives import ALIKE, MOST, near_copies


def standardized(X):
    return torch.from_numpy(((X - X.mean(0)) / X.std(0)).astype(np.float32))


def families(n=200, sizes=(4, 1, 14, 2), seed=0):
    """Columns in groups: all of a group are one column and a little noise, from less to more of it."""
    rng = np.random.RandomState(seed)
    X = [np.outer(rng.randn(n), np.ones(size)) + rng.randn(n, size) * np.linspace(0, 0.6, size) for size in sizes]
    X = np.concatenate(X, axis=1) * rng.choice([-1, 1], size=sum(sizes))
    return X[:, rng.permutation(X.shape[1])] * 7 + 3


@pytest.mark.parametrize("seed", range(5))
def test_as_correlations_say(seed):
    X = families(seed=seed)
    features = np.random.RandomState(seed).permutation(X.shape[1])[:5]
    alike = np.abs(np.corrcoef(X, rowvar=False))
    expected = []
    for feature in features:
        others = [f for f in np.argsort(-alike[feature]) if f not in features and alike[feature, f] >= ALIKE]
        expected.append(others[:MOST])
    found = near_copies(standardized(X), features)
    assert [[f for f in row if f >= 0] for row in found.tolist()] == expected
    assert found.shape == (5, max(map(len, expected)))
    assert found.shape[1] > 1


def test_ten_at_most_and_the_rest_of_a_row_is_minus_one():
    rng = np.random.RandomState(0)
    X = rng.randn(100, 1) + 0.1 * rng.randn(100, 14)
    X[:, 3] = rng.randn(100)
    found = near_copies(standardized(X), np.array([3, 5]))
    assert found.shape == (2, MOST)
    assert found[0].tolist() == [-1] * MOST
    assert (found[1] >= 0).all()


def test_the_opposite_is_a_copy():
    x, noise = np.random.RandomState(0).randn(2, 100)
    found = near_copies(standardized(np.stack([x, noise, -x], 1)), np.array([0, 1]))
    assert found.tolist() == [[2], [-1]]


@pytest.mark.parametrize("features", [[0], [0, 1, 2], [2, 0]])
def test_none(features):
    found = near_copies(standardized(np.random.RandomState(0).randn(100, 3)), np.array(features))
    assert found.shape == (len(features), 0)


def test_what_is_selected_is_no_alternative():
    x = np.random.RandomState(0).randn(50)
    X = standardized(np.stack([x, x, x, x], 1))
    assert near_copies(X, np.arange(4)).shape == (4, 0)
    assert near_copies(X, np.array([3, 1])).tolist() in ([[0, 2]] * 2, [[2, 0]] * 2)


def test_alternatives_of_a_fit_count_the_columns_that_were_given(tmp_path):
    """Constant columns are dropped inside; numbers are those of the data, also after a detour over a file."""
    rng = np.random.RandomState(0)
    x, noise = rng.randn(2, 60)
    X = np.stack([np.ones(60), x, np.zeros(60), x + 0.01 * rng.randn(60), -x + 0.02 * rng.randn(60), noise], 1)
    selector = DirichletSelector(2, max_iter=2, refine=False, random_state=0).fit(X)
    chosen = selector.selected_features_.tolist()
    left = {1, 3, 4} - set(chosen)
    assert len(left) < 3  # two of four columns that vary: at least one of them has copies
    for feature, row in zip(chosen, selector.alternatives_.tolist(), strict=True):
        assert {column for column in row if column >= 0} == (set() if feature == 5 else left)
    loaded = DirichletSelector.load(selector.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.alternatives_, selector.alternatives_)


def test_a_fit_without_alternatives_is_saved_too(tmp_path):
    X = np.random.RandomState(0).randn(60, 4)
    selector = DirichletSelector(2, max_iter=2, refine=False, random_state=0).fit(X)
    assert selector.alternatives_.shape == (2, 0)
    assert DirichletSelector.load(selector.save(tmp_path / "model")).alternatives_.shape == (2, 0)
