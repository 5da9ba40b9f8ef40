"""The training loop and its parts against direct computations."""

import itertools

import numpy as np
import pytest
import torch

from homophily.nn import KNNGraph, dirichlet_energy
from homophily.objectives import OBJECTIVES, Coverage
from homophily.refinement import exchange_features
from homophily.training import _backward, judge, pick_features, selection_strength

F64 = torch.float64


def standardized(n, d, seed=0):
    X = torch.randn(n, d, dtype=F64, generator=torch.Generator().manual_seed(seed))
    return (X - X.mean(0)) / X.std(0, correction=0)


@pytest.fixture(name="problem")
def small_problem():
    X = standardized(60, 7)
    F = torch.randn(2, 7, 3, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    return X, F, torch.arange(60)


def by_autograd(X, F, graph, name, *, logarithm=True):
    """Loss of all rows in one piece, differentiated by autograd."""
    points = X @ F
    S = graph(points)
    if name == "energy":
        value = torch.stack([(s * e).sum() for s, e in zip(S.weights, S.distances, strict=True)]) / F.shape[-1]
    else:
        D = (X[:, None] - X).square().mean(-1)
        value = (S.to_dense() * D).sum((-2, -1))
    value = value / len(X)
    (grad,) = torch.autograd.grad((value.log() if logarithm else value).sum(), F)
    return value, grad


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("logarithm", [True, False])
@pytest.mark.parametrize("chunk", [2**22, 900])
def test_chunked_backward_equals_autograd(problem, monkeypatch, name, exact, logarithm, chunk):
    X, F, everyone = problem
    graph = KNNGraph(4, exact=exact)
    expected_value, expected_grad = by_autograd(X, F, graph, name, logarithm=logarithm)
    monkeypatch.setattr("homophily.training.CHUNK", chunk)
    value, energy = _backward(X, F, graph, OBJECTIVES[name](X), everyone, everyone, logarithm=logarithm)
    torch.testing.assert_close(value, expected_value.detach())
    torch.testing.assert_close(F.grad, expected_grad)
    torch.testing.assert_close(energy, dirichlet_energy((X @ F).detach(), graph((X @ F).detach())))


def test_row_batches_average_to_the_full_gradient(problem):
    X, F, everyone = problem
    graph = KNNGraph(4)
    objective = OBJECTIVES["energy"](X)
    _backward(X, F, graph, objective, everyone, everyone, logarithm=False)
    full, F.grad = F.grad, None
    batches = torch.randperm(60, generator=torch.Generator().manual_seed(0)).split(15)
    for rows in batches:
        _backward(X, F, graph, objective, rows, everyone, logarithm=False)
    torch.testing.assert_close(F.grad / len(batches), full)


def test_anchors_are_the_only_neighbours(problem):
    X, F, _ = problem
    rows, anchors = torch.tensor([0, 5, 10, 33]), torch.tensor([5, 10, 20, 21, 22, 40, 41, 50])
    graph = KNNGraph(3, exact=True)
    value, _ = _backward(X, F, graph, OBJECTIVES["energy"](X), rows, anchors, logarithm=False)
    P = (X @ F).detach()
    for r in range(2):
        total = 0.0
        for i in rows.tolist():
            e = (P[r, i] - P[r, [j for j in anchors.tolist() if j != i]]).square().sum(-1).sort().values
            s = (e[3] - e[:3]) / (e[3] - e[:3]).sum()
            total += float(s @ e[:3]) / 3
        assert float(value[r]) == pytest.approx(total / 4)


def test_coverage_without_the_distance_matrix(problem, monkeypatch):
    X, F, everyone = problem
    S = KNNGraph(4)((X @ F).detach())
    with_matrix = Coverage(X)(S, 3, everyone, everyone)
    monkeypatch.setattr("homophily.objectives.BUDGET", 500)
    without = Coverage(X)
    assert without.D is None
    torch.testing.assert_close(without(S, 3, everyone, everyone), with_matrix)


def test_pick_features_is_the_best_assignment():
    rng = np.random.RandomState(0)
    for _ in range(20):
        logits = 3 * rng.randn(6, 3)
        log_p = logits - np.log(np.exp(logits).sum(0))
        best = max(itertools.permutations(range(6), 3), key=lambda f: sum(log_p[f[j], j] for j in range(3)))
        assert tuple(pick_features(logits)) == best


def test_pick_features_never_repeats_even_if_all_columns_agree():
    logits = np.zeros((9, 9))
    logits[4] = 50
    assert sorted(pick_features(logits)) == list(range(9))


def test_selection_strength_is_a_probability_of_a_draw():
    logits = np.random.RandomState(0).randn(5, 2)
    p = np.exp(logits) / np.exp(logits).sum(0)
    np.testing.assert_allclose(selection_strength(logits), p[:, 0] + p[:, 1] - p[:, 0] * p[:, 1])
    certain = np.zeros((4, 1))
    certain[2] = 800
    np.testing.assert_allclose(selection_strength(certain), [0, 0, 1, 0], atol=1e-12)


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
    assert left < 2**31
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
