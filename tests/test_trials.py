"""Graphs of selections that differ in one feature, against brute force."""

import numpy as np
import pytest
import torch
from samples import heavy_tailed, standardized

from homophily.nn import KNNGraph, exact_similarities
from homophily.trials import WIDE, Trials, energies, similarities

F64 = torch.float64


def exact_graph(trials, features):
    """Graph of ``features`` on the rows of ``trials``."""
    P = trials.X[:, torch.as_tensor(features)]
    return KNNGraph(trials.k, exact=True)(P[trials.among], P[trials.rows], trials.own)


def searched_whole(trials, rest, feature):
    """Dense similarities and distances of the nearest, with ``feature`` beside the others: all A are looked at."""
    column = trials.X[:, feature]
    D = rest.D + (column[trials.rows][:, None] - column[trials.among]).square()
    E, near = D.sort(1)
    S = exact_similarities(E[:, : trials.k + 1], trials.k)[:, : trials.k]
    return torch.zeros_like(D).scatter_(1, near[:, : trials.k], S), E[:, : trials.k]


def sparse(n, d, share=0.02, seed=0):
    """Columns that few rows have, so that most rows are copies of each other in some of them."""
    generator = torch.Generator().manual_seed(seed)
    X = (torch.rand(n, d, generator=generator) < share).to(F64)
    return (X - X.mean(0)) / X.std(0, correction=0)


def naive_smoothness(points, queries, S, neighbors):
    scores = np.zeros(points.shape[1])
    for i, (weights, row) in enumerate(zip(S, neighbors, strict=True)):
        for s, j in zip(weights, row, strict=True):
            scores += s * (queries[i] - points[j]) ** 2
    return scores


@pytest.mark.parametrize(
    ("n", "n_among", "n_rows", "n_expected"), [(50, 80, 30, 30), (90, 40, 30, 30), (90, 20, 30, 20)]
)
def test_samples(n, n_among, n_rows, n_expected):
    X = standardized(n, 4)
    trials = Trials(X, 3, 2, n_rows=n_rows, n_among=n_among)
    assert len(trials.rows.unique()) == len(trials.rows) == n_expected
    assert len(trials.among.unique()) == len(trials.among) == min(n, n_among)
    assert torch.equal(trials.among[trials.own], trials.rows)
    expected = (X[trials.rows][:, None] - X[trials.among])[..., [3, 1]].square().sum(-1)
    expected[trials.rows[:, None] == trials.among] = torch.inf
    torch.testing.assert_close(trials.distances([3, 1]), expected)
    itself = trials.differences(3) + trials.differences(1)
    torch.testing.assert_close(trials.apart_from_itself(itself), expected)
    assert itself.isfinite().all()  # what was given stays as it is
    torch.testing.assert_close(trials.sums([3, 1]), itself, rtol=1e-12, atol=1e-12)


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
    S, near = trials.graph(trials.distances(features))
    rest = trials.rest(trials.distances(features[1:]))
    graph, _ = trials.graphs(rest, torch.tensor([0]))  # the same with the first beside the others
    for weights, neighbors in ((S, near), (graph.weights[0], graph.indices[0])):
        assert torch.equal(neighbors % 3, (trials.rows % 3)[:, None].expand(-1, 5))  # nothing but copies
        assert neighbors.flatten().bincount(minlength=300).max() < 20  # 4.3 expected
        weight = torch.zeros(300, dtype=dtype).index_add_(0, neighbors.flatten(), weights.flatten())
        assert weight.max() < 5
        torch.testing.assert_close(weights.sum(1), torch.ones(256, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("m", [2, 5, 12])
def test_order_of_copies_does_not_know_the_feature_that_is_taken_away(m, dtype):
    """Distances from which a feature is taken away have the neighbours of those in which it never was."""
    trials = Trials(sparse(400, m).to(dtype), 5, m, n_rows=256)
    chosen = list(range(m))
    sums = trials.sums(chosen)
    for at in (0, m - 1):
        found, expected = (
            trials.graph(D)[1]
            for D in (trials.without(sums, chosen, at), trials.distances(chosen[:at] + chosen[at + 1 :]))
        )
        assert (found == expected).float().mean() > 0.99
    torch.testing.assert_close(sums, trials.sums(chosen), rtol=0, atol=0)


@pytest.mark.parametrize(("k", "n_among"), [(4, 8192), (4, 30), (29, 30)])
def test_graph_is_exact(k, n_among):
    trials = Trials(heavy_tailed(60, 6), k, 3, n_rows=40, n_among=n_among)
    S, near = trials.graph(trials.distances([5, 0, 2]))
    found = torch.zeros(len(S), len(trials.among), dtype=F64).scatter_(1, near, S)
    torch.testing.assert_close(found, exact_graph(trials, [5, 0, 2]).to_dense())


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_graphs_are_exact_where_the_first_neighbours_do_not_suffice(dtype):
    trials = Trials(heavy_tailed(500, 60).to(dtype), 5, 4, n_rows=256)
    assert trials.width < 100
    rest = trials.rest(trials.distances([3, 21, 34]))
    trial = torch.tensor([8, 40, 41, 50])
    graph, cost = trials.graphs(rest, trial)
    assert cost > 256 * trials.width * len(trial)  # some rows had to be searched whole
    for place, f in enumerate(trial.tolist()):
        S, E = searched_whole(trials, rest, f)
        torch.testing.assert_close(graph.to_dense()[place], S)
        torch.testing.assert_close(graph.distances[place], E)
        close = exact_graph(trials, [3, f, 21, 34]).to_dense()  # copies or not: chance changes little
        torch.testing.assert_close(S, close, rtol=0, atol=0.01 if dtype == torch.float32 else 1e-6)


def test_the_search_widens_where_whole_rows_cost_more():
    trials = Trials(heavy_tailed(500, 60), 5, 2, n_rows=256)
    rest = trials.rest(trials.distances([3]))
    width, trial = trials.width, torch.arange(8, 40)
    _, cost = trials.graphs(rest, trial)
    assert cost > 2 * 256 * width * len(trial)  # more than half of it for whole rows
    assert trials.width == 2 * width
    rest = trials.rest(rest.D)
    assert rest.near.shape == (256, 2 * width)
    graph, less = trials.graphs(rest, trial)
    assert less < cost
    torch.testing.assert_close(graph.to_dense()[5], searched_whole(trials, rest, 13)[0])


def test_the_search_does_not_widen_in_vain():
    X = standardized(500, 10)
    X[:, 2:] = X[:, :1] + 0.01 * X[:, 2:]  # near-copies hardly change who is near
    trials = Trials(X, 5, 3, n_rows=256)
    width = trials.width
    _, cost = trials.graphs(trials.rest(trials.distances([0, 1])), torch.arange(2, 10))
    assert cost < 2 * 256 * width * 8
    assert trials.width == width


@pytest.mark.parametrize("relabelled", [False, True])
@pytest.mark.parametrize("n_among", [60, 35])
def test_smoothness_of_any_weights(relabelled, n_among):
    """Signed weights whose rows do not sum to 1, on neighbours that may be the row itself or occur twice."""
    generator = torch.Generator().manual_seed(1)
    trials = Trials(heavy_tailed(60, 7), 3, 2, n_rows=25, n_among=n_among)
    S = torch.randn(25, 6, dtype=F64, generator=generator)
    neighbors = torch.randint(n_among, (25, 6), generator=generator)
    order = torch.randperm(n_among, generator=generator) if relabelled else None
    points = trials.X[trials.among].numpy()
    queries = points[trials.own]  # the rows keep their place, whatever their neighbours do
    if relabelled:
        points = np.stack([points[order[place]] for place in range(n_among)])
    expected = naive_smoothness(points, queries, S.numpy(), neighbors.numpy())
    before = trials.X.clone(), trials.Q.clone(), trials.columns.clone()
    np.testing.assert_allclose(trials.smoothness(S, neighbors, order), expected, rtol=1e-10, atol=1e-10)
    assert all(map(torch.equal, before, (trials.X, trials.Q, trials.columns)))


def test_energies_of_any_points():
    generator = torch.Generator().manual_seed(1)
    X, Q = heavy_tailed(40, 5), standardized(9, 5) + 3
    S = torch.randn(9, 4, dtype=F64, generator=generator)
    neighbors = torch.randint(40, (9, 4), generator=generator)
    before = X.clone(), Q.clone()
    expected = naive_smoothness(X.numpy(), Q.numpy(), S.numpy(), neighbors.numpy())
    np.testing.assert_allclose(energies(S, neighbors, X, Q), expected, rtol=1e-10, atol=1e-10)
    found = energies(S.float(), neighbors, X.float(), Q.float())
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert all(map(torch.equal, before, (X, Q)))


def test_smoothest_on_the_graph_of_the_others():
    X = standardized(300, 80)
    X[:, 40:] = X[:, :40] + torch.linspace(0.1, 3, 40) * X[:, 40:]
    trials = Trials(X, 5, 6, n_rows=256)
    chosen = [1, 2, 3, 4, 5, 6]
    rest = trials.rest(trials.distances(chosen[1:]))
    found = trials.smoothest(rest, chosen, 32)
    E, near = rest.D.topk(6, largest=False)
    S = torch.zeros(len(trials.rows), 300, dtype=F64).scatter_(1, near, exact_similarities(E, 5))
    smoothness = torch.stack([(S * (X[trials.rows, f][:, None] - X[:, f]).square()).sum() for f in range(80)])
    smoothness[chosen] = torch.inf
    assert found.tolist() == smoothness.argsort()[:32].tolist()


@pytest.mark.parametrize(("k", "n_among", "n_near"), [(4, 8192, 12), (1, 8192, 3), (4, 10, 9), (9, 10, 9)])
def test_telling_goes_along_with_the_target(k, n_among, n_near):
    """Sum over rows of the products of squared differences with the standardised target, among the nearest."""
    assert WIDE == 3
    trials = Trials(heavy_tailed(60, 12), k, 3, n_rows=25, n_among=n_among)
    B, A = len(trials.rows), len(trials.among)
    target = torch.rand(B, A, dtype=F64, generator=torch.Generator().manual_seed(2))
    target[4] = 0.3  # nothing to tell apart
    chosen = [7, 2, 9]
    D = trials.distances([7, 9])
    points, expected = trials.X[trials.among].numpy(), np.zeros(12)
    for i, own in enumerate(trials.own.tolist()):
        near = np.argsort(D[i].numpy(), kind="stable")[:n_near]
        assert own not in near
        t = target[i, near].numpy()
        if np.ptp(t) > 0:
            expected += ((t - t.mean()) / t.std()) @ (points[near] - points[own]) ** 2
    expected[chosen] = -np.inf
    found = trials.telling(trials.rest(D), target, chosen, 9)
    assert found.tolist() == np.argsort(-expected)[:9].tolist()
    assert trials.telling(trials.rest(D), 100 * target, chosen, 4).tolist() == found[:4].tolist()


@pytest.mark.parametrize("k", [1, 4, 5])
def test_similarities_of_sorted_distances(k):
    E = torch.rand(7, 6, dtype=F64, generator=torch.Generator().manual_seed(0)).sort(-1).values[:, : k + 1]
    E[0] = 0.5  # equally far
    E[1] = 0  # copies
    E[2] *= 1e-200  # next to copies
    torch.testing.assert_close(similarities(E, k), exact_similarities(E, k)[:, :k], rtol=0, atol=0)
    torch.testing.assert_close(similarities(E[:, :k], k), exact_similarities(E[:, :k], k), rtol=0, atol=0)
