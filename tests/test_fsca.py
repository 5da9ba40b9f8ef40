"""FSCA against refits by least squares, and its exchanges."""

from itertools import combinations

import numpy as np
import pytest

from homophily.baselines import FSCA
from homophily.baselines.fsca import Explained, exchange
from homophily.baselines.greedy import reduced


def data(n, d, seed=0):
    """Standardised columns, some of which have much in common."""
    rng = np.random.RandomState(seed)
    X = rng.randn(n, 4) @ rng.randn(4, d) + rng.randn(n, d)
    return (X - X.mean(0)) / X.std(0)


def left(X, columns):
    """Share of the variance of all columns that regressions on these leave."""
    residuals = X - X[:, columns] @ np.linalg.lstsq(X[:, columns], X, rcond=None)[0]
    return (residuals**2).sum() / (X**2).sum()


def greedily(X, m):
    chosen = []
    for _ in range(m):
        others = [j for j in range(X.shape[1]) if j not in chosen]
        chosen.append(min(others, key=lambda j: left(X, [*chosen, j])))
    return chosen


@pytest.mark.parametrize("shape", [(60, 9), (12, 30), (10, 10)])
def test_greedy_is_least_squares(shape):
    X = data(*shape)
    selector = FSCA(6, refine=False).fit(X)
    expected = greedily(X, 6)
    assert selector.selected_features_.tolist() == expected
    before = [1.0, *(left(X, expected[:t]) for t in range(1, 6))]
    np.testing.assert_allclose(selector.scores_[expected], before, atol=1e-6)
    for j in set(range(shape[1])) - set(expected):
        gain = left(X, expected) - left(X, [*expected, j])
        np.testing.assert_allclose(selector.scores_[j], gain, atol=1e-6)


@pytest.mark.parametrize("shape", [(60, 9), (12, 30)])
@pytest.mark.parametrize("seed", range(5))
def test_exchanges_end_where_no_single_one_helps(shape, seed):
    X = data(*shape, seed)
    plain, refined = (FSCA(4, refine=refine).fit(X).selected_features_.tolist() for refine in (False, True))
    best = left(X, refined)
    assert best <= left(X, plain) + 1e-9
    for out in refined:
        for into in set(range(shape[1])) - set(refined):
            assert left(X, [into if j == out else j for j in refined]) >= best - 1e-6


def test_exchanges_find_the_best_pair_where_greedy_does_not():
    """A noisy sum of two columns is the best single one, and not among the best two."""
    a, b, noise = np.linalg.qr(np.c_[np.ones(50), np.random.RandomState(0).randn(50, 3)])[0].T[1:]
    X = np.c_[a, b, a + b + 0.5 * noise, a, b]
    X = (X - X.mean(0)) / X.std(0)
    assert 2 in FSCA(2, refine=False).fit(X).selected_features_
    found = FSCA(2).fit(X).selected_features_
    assert 2 not in found
    np.testing.assert_allclose(
        left(X, found), min(left(X, list(pair)) for pair in combinations(range(5), 2)), atol=1e-6
    )


def test_exchanged_columns_are_in_greedy_order():
    X = data(40, 12, 3)
    chosen = FSCA(5).fit(X).selected_features_.tolist()
    for t in range(5):
        assert min(chosen[t:], key=lambda j: left(X, [*chosen[:t], j])) == chosen[t]


@pytest.mark.parametrize("shape", [(15, 6), (8, 20)])
def test_removing_a_column_undoes_adding_it(shape):
    basis = Explained(reduced(data(*shape)))
    for j in (2, 0, 5):
        basis.add(j)
    once = Explained(basis.X)
    for j in (2, 5):
        once.add(j)
    basis.remove(0)
    np.testing.assert_allclose(basis.squares, once.squares, atol=1e-10)
    np.testing.assert_allclose(basis.reach, once.reach, atol=1e-8)
    np.testing.assert_allclose(basis.gains(), once.gains(), atol=1e-10)
    np.testing.assert_allclose(basis.Q @ basis.R, basis.X[:, basis.chosen], atol=1e-10)
    np.testing.assert_allclose(np.where(basis.independent, [basis.gain(j) for j in range(shape[1])], 0), once.gains())


def test_an_exchange_never_loses_what_is_explained():
    basis = Explained(reduced(data(30, 15, 1)))
    for j in (3, 7, 11):  # any start
        basis.add(j)
    before = left(basis.X, basis.chosen)
    exchange(basis)
    assert len(set(basis.chosen)) == 3
    assert left(basis.X, basis.chosen) < before


@pytest.mark.parametrize("refine", [False, True])
def test_what_adds_nothing_comes_last(refine):
    """Three sources, their copies and sums: from the fourth column on there is nothing left."""
    sources = np.random.RandomState(0).randn(30, 3)
    X = np.hstack([sources, sources, sources[:, :1] + sources[:, 1:2]])
    selector = FSCA(5, refine=refine).fit(X)
    assert np.linalg.matrix_rank(X[:, selector.selected_features_[:3]]) == 3
    assert len(set(selector.selected_features_)) == 5
    np.testing.assert_allclose(selector.scores_[selector.selected_features_[3:]], 0, atol=1e-6)


def test_selections_are_nested_without_exchanges():
    X = data(20, 40)
    most = FSCA(12, refine=False).fit(X).selected_features_
    for m in (1, 5, 11):
        np.testing.assert_array_equal(FSCA(m, refine=False).fit(X).selected_features_, most[:m])


def test_columns_that_explain_everything_are_not_exchanged():
    """Two rows of near-constant columns, which rounding leaves off centre, have rank 2."""
    X = np.random.RandomState(0).randn(2, 5).astype(np.float32)
    features, scores = FSCA()._select(X, 2, None)
    assert len(set(features)) == 2
    assert np.isfinite(scores).all()
