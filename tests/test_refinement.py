"""The exchange of features against brute force."""

import numpy as np
import pytest
import torch

from homophily.nn import KNNGraph, NeighborGraph, exact_similarities
from homophily.objectives import OBJECTIVES
from homophily.refinement import BUDGET, SHORTLIST, _similarities, _Trials, exchange_features
from homophily.training import judge

F64 = torch.float64


def standardized(n, d, seed=0):
    X = torch.randn(n, d, dtype=F64, generator=torch.Generator().manual_seed(seed))
    return (X - X.mean(0)) / X.std(0, correction=0)


def heavy_tailed(n, d, seed=0):
    """Columns whose outliers upset the order of the neighbours in the other columns."""
    X = standardized(n, d, seed) ** 3
    return (X - X.mean(0)) / X.std(0, correction=0)


class Spy:
    """An objective that takes note of the samples it is asked about."""

    def __init__(self, objective):
        self.objective = objective
        self.seen = []

    def __call__(self, graph, m, rows, among):
        self.seen.append((rows, among))
        return self.objective(graph, m, rows, among)

    def on(self, rows, among):
        return self


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
    assert left < BUDGET
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
def test_neighbours_are_exact_where_the_first_ones_do_not_suffice(name, dtype):
    X = heavy_tailed(500, 60).to(dtype)
    chosen, at = [3, 8, 21, 34], 1
    objective = OBJECTIVES[name](X)
    trials = _Trials(X, 5, 4, objective, 8192, 256)
    width = trials.width
    assert width < 100
    D_rest = trials.distances([3, 21, 34])
    E, near = D_rest.topk(width, largest=False)
    trial = torch.tensor([8, 40, 41, 50])
    values, cost = trials._values(D_rest, E, near, trial)
    assert cost > near.numel() * len(trial)  # some rows had to be searched whole
    for f, value in zip(trial.tolist(), values.tolist(), strict=True):
        expected = brute_force(X, [3, f, 21, 34], 5, objective, trials.rows, trials.among)
        assert value == pytest.approx(expected, rel=1e-5 if dtype == torch.float32 else 1e-12)
    best, _ = trials.best(D_rest, chosen, at, BUDGET)
    assert best not in {3, 21, 34}


def test_the_search_widens_where_whole_rows_cost_more():
    X = heavy_tailed(500, 60)
    trials = _Trials(X, 5, 2, OBJECTIVES["energy"](X), 8192, 256)
    width = trials.width
    trials.best(trials.distances([3]), [3, 8], 1, BUDGET)
    assert trials.width == 2 * width


def test_shortlist_is_smoothest_on_the_graph_of_the_others():
    X = standardized(300, 80)
    X[:, 40:] = X[:, :40] + torch.linspace(0.1, 3, 40) * X[:, 40:]
    trials = _Trials(X, 5, 6, OBJECTIVES["energy"](X), 8192, 256)
    chosen = [1, 2, 3, 4, 5, 6]
    E, near = trials.distances(chosen[1:]).topk(6, largest=False)
    found = trials._shortlist(E, near[:, :5], chosen)
    S = torch.zeros(len(trials.rows), 300, dtype=F64).scatter_(1, near, exact_similarities(E, 5))
    smoothness = torch.stack([(S * (X[trials.rows, f][:, None] - X[:, f]).square()).sum() for f in range(80)])
    smoothness[chosen] = torch.inf
    assert found.tolist() == smoothness.argsort()[:SHORTLIST].tolist()


@pytest.mark.parametrize("k", [1, 4, 5])
def test_similarities_of_sorted_distances(k):
    E = torch.rand(7, 6, dtype=F64, generator=torch.Generator().manual_seed(0)).sort(-1).values[:, : k + 1]
    E[0] = 0.5  # equally far
    E[1] = 0  # copies
    E[2] *= 1e-200  # next to copies
    torch.testing.assert_close(_similarities(E, k), exact_similarities(E, k)[:, :k], rtol=0, atol=0)
    torch.testing.assert_close(_similarities(E[:, :k], k), exact_similarities(E[:, :k], k), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("n_among", [100, 400])
def test_neighbours_are_looked_for_among_a_sample(name, n_among):
    X = heavy_tailed(1000, 60)
    objective = Spy(OBJECTIVES[name](X))
    start = np.arange(20, 26)
    features, _ = exchange_features(X, start, 5, objective, n_among=n_among)
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


@pytest.mark.parametrize("name", ["energy", "coverage"])
def test_distances_do_not_drift(name, monkeypatch):
    """The distances that a turn starts from, however many exchanges came before, are those of its features."""
    X = heavy_tailed(150, 120).float()
    best = _Trials.best
    errors = []

    def checked(trials, D_rest, chosen, at, budget):
        expected = trials.distances(chosen[:at] + chosen[at + 1 :])
        finite = expected.isfinite()
        errors.append(float((D_rest - expected)[finite].abs().max() / expected[finite].max()))
        return best(trials, D_rest, chosen, at, budget)

    monkeypatch.setattr(_Trials, "best", checked)
    exchange_features(X, np.arange(30), 5, OBJECTIVES[name](X))
    assert len(errors) > 60
    assert max(errors) < 1e-5


def test_coverage_on_fixed_samples_is_coverage(monkeypatch):
    X = torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("homophily.objectives.BUDGET", 500)
    coverage = OBJECTIVES["coverage"](X)
    rows, among = torch.tensor([3, 40, 7]), torch.arange(0, 50, 2)
    indices = torch.tensor([[[0, 5, 6], [1, 2, 3], [24, 9, 8]], [[4, 3, 2], [7, 8, 9], [1, 0, 2]]])  # (2, 3, 3)
    weights = torch.rand(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    graph = NeighborGraph(indices, weights, torch.zeros_like(weights), len(among))
    fixed = coverage.on(rows, among)
    assert fixed is not coverage
    torch.testing.assert_close(fixed(graph, 2, rows, among), coverage(graph, 2, rows, among))
