"""The exchange of features against brute force."""

import numpy as np
import pytest
import torch
from samples import heavy_tailed, standardized

from homophily import refinement
from homophily.nn import KNNGraph, NeighborGraph
from homophily.objectives import OBJECTIVES
from homophily.refinement import BUDGET, _best, exchange_features
from homophily.training import judge
from homophily.trials import Trials

F64 = torch.float64


class Spy:
    """An objective that takes note of the samples it is asked about."""

    def __init__(self, objective):
        self.objective = objective
        self.seen = []

    def criterion(self, trials):
        criterion = self.objective.criterion(trials)
        values = criterion.values

        def noted(graph, trial):
            assert graph.n_points == len(trials.among)
            assert graph.indices.shape[:2] == (len(trial), len(trials.rows))
            self.seen.append((trials.rows.clone(), trials.among.clone()))
            return values(graph, trial)

        criterion.values = noted
        return criterion


def brute_force(X, features, k, objective, rows, among):
    """Objective on ``rows`` whose neighbours are looked for among ``among``."""
    P = X[:, torch.as_tensor(features)]
    own = torch.searchsorted(among, rows)
    return float(objective(KNNGraph(k, exact=True)(P[among], P[rows], own), len(features), rows, among))


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_exchange_ends_where_no_single_exchange_helps(name, m):
    X = standardized(80, 8, seed=m)
    X[:, 5] = X[:, 2] + 0.1 * X[:, 5]
    start = np.arange(m)
    objective = OBJECTIVES[name](X)
    features, left = exchange_features(X, start, 4, objective)
    value = judge(X, features, 4, objective)
    assert len(set(features.tolist())) == m
    assert value <= judge(X, start, 4, objective)
    assert left < BUDGET["energy"]
    for at in range(m):
        for other in set(range(8)) - set(features.tolist()):
            trial = features.copy()
            trial[at] = other
            assert judge(X, trial, 4, objective) >= value * (1 - 1e-5)


def test_exchange_with_a_shortlist_recovers_planted_features():
    """12 informative columns among 120: from 6 of them and 6 of noise to all 12."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 120, dtype=F64, generator=generator)
    cluster = torch.randint(4, (200,), generator=generator)
    X[:, :12] = 5 * torch.randn(4, 12, dtype=F64, generator=generator)[cluster] + X[:, :12]
    X = (X - X.mean(0)) / X.std(0, correction=0)
    start = np.array([0, 1, 2, 3, 4, 5, 50, 51, 52, 53, 54, 55])
    features, _ = exchange_features(X, start, 5, OBJECTIVES["energy"](X))
    assert set(features.tolist()) == set(range(12))


def test_exchange_stops_with_its_budget():
    X = standardized(80, 8)
    start = np.arange(3)
    features, left = exchange_features(X, start, 4, OBJECTIVES["energy"](X), budget=0)
    assert np.array_equal(features, start)
    assert left == 0
    _, left = exchange_features(X, start, 4, OBJECTIVES["energy"](X), budget=1)
    assert left <= 0


def test_exchange_stops_when_asked_and_after_its_passes():
    X = standardized(80, 60)
    start, objective = np.arange(5), OBJECTIVES["energy"](X)
    turns = []
    features, _ = exchange_features(X, start, 4, objective, should_stop=lambda turn: turns.append(turn) or turn == 2)
    assert turns == [0, 1, 2]
    assert np.array_equal(features[3:], start[3:])  # their turns never came
    assert not np.array_equal(features[:3], start[:3])
    turns.clear()
    exchange_features(X, start, 4, objective, max_passes=1, should_stop=turns.append)
    assert turns == [0, 1, 2, 3, 4]


def test_exchange_leaves_nothing_to_choose_alone():
    X = standardized(30, 4)
    features, left = exchange_features(X, np.array([2, 0, 3, 1]), 3, OBJECTIVES["energy"](X), budget=7)
    assert features.tolist() == [2, 0, 3, 1]
    assert left == 7


@pytest.mark.parametrize("name", ["energy", "coverage"])
def test_neighbours_among_all_others(name):
    """With k = n - 1 every graph has all edges: coverage cannot fall, energy still can."""
    X = standardized(12, 50)
    start, objective = np.arange(3), OBJECTIVES[name](X)
    features, _ = exchange_features(X, start, 11, objective)
    assert len(set(features.tolist())) == 3
    if name == "coverage":
        assert np.array_equal(features, start)
    else:
        assert judge(X, features, 11, objective) <= judge(X, start, 11, objective) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_values_are_exact_where_the_first_neighbours_do_not_suffice(name, dtype):
    X = heavy_tailed(500, 60).to(dtype)
    objective = OBJECTIVES[name](X)
    trials = Trials(X, 5, 4, n_rows=256)
    criterion = objective.criterion(trials)
    rest = trials.rest(trials.distances([3, 21, 34]))
    trial = torch.tensor([8, 40, 41, 50])
    graph, cost = trials.graphs(rest, trial)
    assert cost > 256 * trials.width * len(trial)  # some rows had to be searched whole
    for f, value in zip(trial.tolist(), criterion.values(graph, trial).tolist(), strict=True):
        expected = brute_force(X, [3, f, 21, 34], 5, objective, trials.rows, trials.among)
        assert value == pytest.approx(expected, rel=1e-4 if dtype == torch.float32 else 1e-8)  # copies by chance


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("d", [20, 60])  # all the others are tried, or those of a shortlist
def test_the_best_of_the_shortlist_takes_the_place(name, d):
    X = heavy_tailed(200, d)
    objective = OBJECTIVES[name](X)
    trials = Trials(X, 5, 4, n_rows=256)
    criterion = objective.criterion(trials)
    chosen, at = [3, 8, 11, 14], 1
    rest = trials.rest(trials.distances([3, 11, 14]))
    best, spent = _best(trials, criterion, rest, chosen, at, BUDGET["energy"])
    tried = [8, *criterion.shortlist(rest, chosen, at, min(d - 4, refinement.SHORTLIST)).tolist()]
    assert len(set(tried) - set(chosen)) == min(d - 4, refinement.SHORTLIST)
    values = [brute_force(X, [3, f, 11, 14], 5, objective, trials.rows, trials.among) for f in tried]
    assert best == tried[int(np.argmin(values))]
    assert spent > rest.D.numel()


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("n_among", [100, 400])
def test_neighbours_are_looked_for_among_a_sample(name, n_among):
    X = heavy_tailed(1000, 60)
    objective = Spy(OBJECTIVES[name](X))
    start = np.arange(20, 26)
    features, _ = exchange_features(X, start, 5, objective, n_among=n_among)
    assert len(objective.seen) >= len(start)
    rows, among = objective.seen[0]
    assert len(rows) == min(256, n_among)
    assert len(among.unique()) == n_among
    assert torch.isin(rows, among).all()
    assert all(torch.equal(r, rows) and torch.equal(a, among) for r, a in objective.seen)
    assert len(set(features.tolist())) == len(start)
    before, after = (brute_force(X, f, 5, objective.objective, rows, among) for f in (start, features))
    assert after < before
    again, _ = exchange_features(X, start, 5, objective.objective, n_among=n_among)
    assert np.array_equal(again, features)


def test_too_few_to_look_among():
    X = standardized(30, 8)
    with pytest.raises(ValueError, match="n_among=5 must be greater than k=5"):
        exchange_features(X, np.arange(3), 5, OBJECTIVES["energy"](X), n_among=5)


@pytest.mark.parametrize("name", ["energy", "coverage", "screened"])
def test_distances_do_not_drift(name, monkeypatch):
    """The distances that a turn starts from, however many exchanges came before, are those of its features."""
    X = heavy_tailed(150, 120).float()
    errors = []

    def checked(trials, criterion, rest, chosen, at, budget):
        expected = trials.distances(chosen[:at] + chosen[at + 1 :])
        finite = expected.isfinite()
        errors.append(float((rest.D - expected)[finite].abs().max() / expected[finite].max()))
        return _best(trials, criterion, rest, chosen, at, budget)

    monkeypatch.setattr(refinement, "_best", checked)
    exchange_features(X, np.arange(30), 5, OBJECTIVES[name](X))
    assert len(errors) > 60
    assert max(errors) < 1e-5


@pytest.mark.parametrize("budget", [500, 10_000])  # of entries: too few to keep all distances, and enough
def test_coverage_on_fixed_samples_is_coverage(budget, monkeypatch):
    X = torch.randn(50, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("homophily.objectives.BUDGET", budget)
    coverage = OBJECTIVES["coverage"](X)
    assert (coverage.D is None) == (budget == 500)
    trials = Trials(X, 3, 2, n_rows=3, n_among=25)
    indices = torch.tensor([[[0, 5, 6], [1, 2, 3], [24, 9, 8]], [[4, 3, 2], [7, 8, 9], [1, 0, 2]]])  # (2, 3, 3)
    weights = torch.rand(2, 3, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
    graph = NeighborGraph(indices, weights, torch.zeros_like(weights), 25)
    values = coverage.criterion(trials).values(graph, torch.tensor([0, 1]))
    torch.testing.assert_close(values, coverage(graph, 2, trials.rows, trials.among))
