"""The exchange of features against brute force."""

import numpy as np
import pytest
import torch
from samples import heavy_tailed, standardized

from homophily import refinement
from homophily.nn import KNNGraph, NeighborGraph, exact_similarities
from homophily.objectives import OBJECTIVES
from homophily.refinement import WIDE, Trials, _best, exchange_features
from homophily.training import judge

F64 = torch.float64


def brute_force(X, features, k, objective, rows):
    """Objective on ``rows``."""
    P = X[:, torch.as_tensor(features)]
    return float(objective(KNNGraph(k, exact=True)(P, P[rows], rows), len(features), rows, torch.arange(len(X))))


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_exchange_ends_where_no_single_exchange_helps(name, m):
    X = standardized(80, 8, seed=m)
    X[:, 5] = X[:, 2] + 0.1 * X[:, 5]
    start = np.arange(m)
    objective = OBJECTIVES[name](X)
    features = exchange_features(X, start, 4, objective)
    value = judge(X, features, 4, objective)
    assert len(set(features.tolist())) == m
    assert value <= judge(X, start, 4, objective)
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
    features = exchange_features(X, start, 5, OBJECTIVES["energy"](X))
    assert set(features.tolist()) == set(range(12))


def test_exchange_stops_when_asked_and_after_its_passes():
    X = standardized(80, 60)
    start, objective = np.arange(5), OBJECTIVES["energy"](X)
    turns = []
    features = exchange_features(X, start, 4, objective, should_stop=lambda turn: turns.append(turn) or turn == 2)
    assert turns == [0, 1, 2]
    assert np.array_equal(features[3:], start[3:])  # their turns never came
    assert not np.array_equal(features[:3], start[:3])
    turns.clear()
    exchange_features(X, start, 4, objective, max_passes=1, should_stop=turns.append)
    assert turns == [0, 1, 2, 3, 4]


def test_exchange_leaves_nothing_to_choose_alone():
    X = standardized(30, 4)
    features = exchange_features(X, np.array([2, 0, 3, 1]), 3, OBJECTIVES["energy"](X))
    assert features.tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize("name", ["energy", "coverage"])
def test_neighbours_among_all_others(name):
    """With k = n - 1 every graph has all edges: coverage cannot fall, energy still can."""
    X = standardized(12, 50)
    start, objective = np.arange(3), OBJECTIVES[name](X)
    features = exchange_features(X, start, 11, objective)
    assert len(set(features.tolist())) == 3
    if name == "coverage":
        assert np.array_equal(features, start)
    else:
        assert judge(X, features, 11, objective) <= judge(X, start, 11, objective) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("d", [20, 60])  # all the others are tried, or those of a shortlist
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_the_best_of_the_shortlist_takes_the_place(name, d, dtype):
    """Also where the nearest in the other features do not suffice and whole rows are searched."""
    X = heavy_tailed(500, d).to(dtype)
    objective = OBJECTIVES[name](X)
    trials = Trials(X, 5, 4, n_rows=256)
    target = objective.target(trials.rows, torch.arange(500))
    chosen, at = [3, 8, 11, 14], 1
    rest = trials.rest([3, 11, 14])
    tried = [8, *trials.shortlist(rest, target, chosen, min(d - 4, refinement.SHORTLIST)).tolist()]
    assert len(set(tried) - set(chosen)) == min(d - 4, refinement.SHORTLIST)
    values = [brute_force(X, [3, f, 11, 14], 5, objective, trials.rows) for f in tried]
    assert _best(trials, target, chosen, at) == tried[int(np.argmin(values))]


@pytest.mark.parametrize("kept", [500, 10_000])  # too few to keep all distances, and enough
def test_coverage_is_a_sum_over_edges_of_its_target(kept, monkeypatch):
    X = torch.randn(50, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("homophily.objectives.KEPT", kept)
    coverage = OBJECTIVES["coverage"](X)
    assert (coverage.D is None) == (kept == 500)
    rows, among = torch.tensor([4, 40, 7]), torch.arange(10, 35)
    indices = torch.tensor([[[0, 5, 6], [1, 2, 3], [24, 9, 8]], [[4, 3, 2], [7, 8, 9], [1, 0, 2]]])  # (2, 3, 3)
    weights = torch.rand(2, 3, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
    E = (X[rows][:, None] - X[among[indices]]).square().mean(-1)
    target = coverage.target(rows, among)
    torch.testing.assert_close(target.expand(2, 3, 25).gather(-1, indices), E)
    for w, i in ((weights, indices), (weights[0], indices[0])):
        graph = NeighborGraph(i, w, torch.zeros_like(w), 25)
        found = coverage(graph, 2, rows, among)
        torch.testing.assert_close(found, (w * (E if w is weights else E[0])).sum((-2, -1)))


def exact_graph(trials, features):
    """Graph of ``features`` on the rows of ``trials``."""
    P = trials.X[:, torch.as_tensor(features)]
    return KNNGraph(trials.k, exact=True)(P, P[trials.rows], trials.rows)


def searched_whole(trials, rest, feature):
    """Dense similarities and distances of the nearest, with ``feature`` beside the others: all A are looked at."""
    column = trials.X[:, feature]
    D = rest.D + (column[trials.rows][:, None] - column).square()
    E, near = D.sort(1)
    S = exact_similarities(E[:, : trials.k + 1], trials.k)[:, : trials.k]
    return torch.zeros_like(D).scatter_(1, near[:, : trials.k], S), E[:, : trials.k]


def naive_smoothness(points, queries, S, neighbors):
    scores = np.zeros(points.shape[1])
    for i, (weights, row) in enumerate(zip(S, neighbors, strict=True)):
        for s, j in zip(weights, row, strict=True):
            scores += s * (queries[i] - points[j]) ** 2
    return scores


@pytest.mark.parametrize(("n_rows", "n_expected"), [(30, 30), (80, 50)])
def test_distances(n_rows, n_expected):
    X = standardized(50, 4)
    trials = Trials(X, 3, 2, n_rows=n_rows)
    assert len(trials.rows.unique()) == len(trials.rows) == n_expected
    expected = (X[trials.rows][:, None] - X)[..., [3, 1]].square().sum(-1)
    expected[torch.arange(n_expected), trials.rows] = torch.inf
    torch.testing.assert_close(trials.distances([3, 1]), expected)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 16 * torch.finfo(torch.float32).eps), (F64, 1.1e-10)])
def test_distances_change_by_no_more_than_rounding(dtype, most):
    X = heavy_tailed(200, 9).to(dtype)
    trials = Trials(X, 3, 4, n_rows=50)
    features = [8, 0, 3, 5]
    P = X[:, features].double()
    exact = (P[trials.rows][:, None] - P).square().sum(-1)
    D = trials.distances(features)
    assert D.dtype == dtype
    others = D.isfinite()
    assert torch.equal((~others).nonzero(), torch.stack([torch.arange(50), trials.rows], 1))
    change = ((D.double() - exact) / (exact + 4))[others]
    assert change.abs().max() < most
    assert change.max() > most / 4  # but it is there
    assert torch.equal(D, Trials(X, 3, 4, n_rows=50).distances(features))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("m", [1, 2])
def test_copies_are_neighbours_by_chance(m, dtype):
    """Three points, 100 samples each: were they taken in their order, the first would be in 85 graphs or more."""
    X = torch.tensor([[-1.2, 0.3], [0.0, -1.3], [1.2, 1.0]], dtype=dtype).repeat(100, 1)
    trials = Trials(X, 5, m, n_rows=256)
    features = list(range(m))
    graph = trials.graphs(trials.rest(features[1:]), torch.tensor([0]))  # the first beside the others
    weights, neighbors = graph.weights[0], graph.indices[0]
    assert torch.equal(neighbors % 3, (trials.rows % 3)[:, None].expand(-1, 5))  # nothing but copies
    assert neighbors.flatten().bincount(minlength=300).max() < 20  # 4.3 expected
    weight = torch.zeros(300, dtype=dtype).index_add_(0, neighbors.flatten(), weights.flatten())
    assert weight.max() < 5
    torch.testing.assert_close(weights.sum(1), torch.ones(256, dtype=dtype))


@pytest.mark.parametrize("k", [4, 59])
def test_graph_is_exact(k):
    trials = Trials(heavy_tailed(60, 6), k, 3, n_rows=40)
    graph = trials.graphs(trials.rest([5, 0]), torch.tensor([2]))
    torch.testing.assert_close(graph.to_dense()[0], exact_graph(trials, [5, 0, 2]).to_dense())


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_graphs_are_exact_where_the_first_neighbours_do_not_suffice(dtype):
    trials = Trials(heavy_tailed(500, 60).to(dtype), 5, 4, n_rows=256)
    width = trials.width
    assert width < 100
    rest = trials.rest([3, 21, 34])
    trial = torch.tensor([8, 40, 41, 50])
    graph = trials.graphs(rest, trial)
    assert (graph.distances[..., -1] > rest.E[:, width - 1]).any()  # some rows had to be searched whole
    for place, f in enumerate(trial.tolist()):
        S, E = searched_whole(trials, rest, f)
        torch.testing.assert_close(graph.to_dense()[place], S)
        torch.testing.assert_close(graph.distances[place], E)
        close = exact_graph(trials, [3, f, 21, 34]).to_dense()  # copies or not: chance changes little
        torch.testing.assert_close(S, close, rtol=0, atol=0.01 if dtype == torch.float32 else 1e-6)


def test_the_search_widens_where_whole_rows_cost_more():
    trials = Trials(heavy_tailed(500, 60), 5, 2, n_rows=256)
    width, trial = trials.width, torch.arange(8, 40)
    trials.graphs(trials.rest([3]), trial)
    assert trials.width == 2 * width
    rest = trials.rest([3])
    assert rest.near.shape == (256, 2 * width)
    graph = trials.graphs(rest, trial)
    torch.testing.assert_close(graph.to_dense()[5], searched_whole(trials, rest, 13)[0])


def test_the_search_does_not_widen_in_vain():
    X = standardized(500, 10)
    X[:, 2:] = X[:, :1] + 0.01 * X[:, 2:]  # near-copies hardly change who is near
    trials = Trials(X, 5, 3, n_rows=256)
    width = trials.width
    trials.graphs(trials.rest([0, 1]), torch.arange(2, 10))
    assert trials.width == width


def test_smoothness_of_any_weights():
    """Signed weights whose rows do not sum to 1, on neighbours that may be the row itself or occur twice."""
    generator = torch.Generator().manual_seed(1)
    X = heavy_tailed(60, 7)
    S = torch.randn(25, 6, dtype=F64, generator=generator)
    neighbors = torch.randint(60, (25, 6), generator=generator)
    trials = Trials(X, 3, 2, n_rows=25)
    expected = naive_smoothness(X.numpy(), X[trials.rows].numpy(), S.numpy(), neighbors.numpy())
    before = trials.X.clone(), trials.columns.clone()
    np.testing.assert_allclose(trials.smoothness(S, neighbors), expected, rtol=1e-10, atol=1e-10)
    assert all(map(torch.equal, before, (trials.X, trials.columns)))
    single = Trials(X.float(), 3, 2, n_rows=25).smoothness(S.float(), neighbors)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-2)


def test_smoothest_on_the_graph_of_the_others():
    X = standardized(300, 80)
    X[:, 40:] = X[:, :40] + torch.linspace(0.1, 3, 40) * X[:, 40:]
    trials = Trials(X, 5, 6, n_rows=256)
    chosen = [1, 2, 3, 4, 5, 6]
    rest = trials.rest(chosen[1:])
    found = trials.shortlist(rest, None, chosen, 32)
    E, near = rest.D.topk(6, largest=False)
    S = torch.zeros(len(trials.rows), 300, dtype=F64).scatter_(1, near, exact_similarities(E, 5))
    smoothness = torch.stack([(S * (X[trials.rows, f][:, None] - X[:, f]).square()).sum() for f in range(80)])
    smoothness[chosen] = torch.inf
    assert found.tolist() == smoothness.argsort()[:32].tolist()


@pytest.mark.parametrize(("k", "n", "n_near"), [(4, 60, 12), (1, 60, 3), (4, 10, 9), (9, 10, 9)])
def test_shortlist_goes_along_with_the_target(k, n, n_near):
    """Sum over rows of the products of squared differences with the standardised target, among the nearest."""
    assert WIDE == 3
    trials = Trials(heavy_tailed(n, 12), k, 3, n_rows=min(n, 25))
    target = torch.rand(len(trials.rows), n, dtype=F64, generator=torch.Generator().manual_seed(2))
    target[4] = 0.3  # nothing to tell apart
    chosen = [7, 2, 9]
    D = trials.distances([7, 9])
    points, expected = trials.X.numpy(), np.zeros(12)
    for i, own in enumerate(trials.rows.tolist()):
        near = np.argsort(D[i].numpy(), kind="stable")[:n_near]
        assert own not in near
        t = target[i, near].numpy()
        if np.ptp(t) > 0:
            expected += ((t - t.mean()) / t.std()) @ (points[near] - points[own]) ** 2
    expected[chosen] = -np.inf
    rest = trials.rest([7, 9])
    found = trials.shortlist(rest, target, chosen, 9)
    assert found.tolist() == np.argsort(-expected)[:9].tolist()
    assert trials.shortlist(rest, 100 * target, chosen, 4).tolist() == found[:4].tolist()
