"""The training loop and its parts against direct computations."""

import itertools

import numpy as np
import pytest
import torch
from samples import standardized

from homophily.nn import KNNGraph, dirichlet_energy
from homophily.objectives import OBJECTIVES, Coverage
from homophily.training import (
    Rows,
    Schedule,
    _differentiate,
    _Draws,
    _on_shard,
    judge,
    pick_features,
    selection_strength,
    train,
)

F64 = torch.float64


@pytest.fixture(name="problem")
def small_problem():
    X = standardized(60, 7)
    F = torch.randn(2, 7, 3, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    return X, F, torch.arange(60)


def by_autograd(X, F, graph, name):
    """Objective of all rows in one piece, differentiated by autograd."""
    points = (X @ F).detach().requires_grad_()
    S = graph(points)
    if name == "energy":
        value = torch.stack([(s * e).sum() for s, e in zip(S.weights, S.distances, strict=True)]) / F.shape[-1]
    else:
        D = (X[:, None] - X).square().mean(-1)
        value = (S.to_dense() * D).sum((-2, -1))
    (grad,) = torch.autograd.grad(value.sum(), points)
    return value.detach(), grad


def unpacked(part, points):
    return part[:, 0], part[:, 1], part[:, 2:].view_as(points)


@pytest.mark.parametrize("name", ["energy", "coverage"])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("chunk", [2**22, 900])
def test_chunked_derivative_equals_autograd(problem, monkeypatch, name, exact, chunk):
    X, F, everyone = problem
    graph = KNNGraph(4, exact=exact)
    expected_value, expected_grad = by_autograd(X, F, graph, name)
    monkeypatch.setattr("homophily.training.CHUNK", chunk)
    points = (X @ F).detach()
    value, energy, grad = unpacked(_differentiate(points, 60, everyone, everyone, graph, OBJECTIVES[name](X)), points)
    torch.testing.assert_close(value, expected_value)
    torch.testing.assert_close(grad, expected_grad)
    torch.testing.assert_close(energy / 2, dirichlet_energy(points.detach(), graph(points.detach())))


def test_row_batches_add_up_to_the_full_gradient(problem):
    X, F, everyone = problem
    graph = KNNGraph(4)
    objective = OBJECTIVES["energy"](X)
    full = _differentiate((X @ F).detach(), 60, everyone, everyone, graph, objective)
    batches = torch.randperm(60, generator=torch.Generator().manual_seed(0)).split(15)
    parts = [_differentiate((X @ F).detach(), 60, rows, rows, graph, objective) for rows in batches]
    torch.testing.assert_close(sum(parts), full)


def schedule(**changes):
    """A short training."""
    values = {
        "learning_rate": 0.05,
        "max_iter": 12,
        "temperature": (2.0, 0.3),
        "epsilon": 1e-10,
        "unique": True,
        "init_std": 0.01,
        "batch_size": 20,
        "n_anchors": None,
        "anchor_choice": "random",
        "anchor_refresh": 5,
        "tol": 0.0,
        "literal": False,
    }
    return Schedule(**{**values, **changes})


def rows_of(X):
    return Rows(X, 0, len(X), len(X))


@pytest.mark.parametrize("objective", ["energy", "coverage"])
def test_anchors_are_the_only_neighbours(problem, objective):
    X, F, _ = problem
    draws = _Draws(rows_of(X), schedule(n_anchors=8, batch_size=16), 3)
    graph = KNNGraph(3, exact=True)
    for shard in range(4):
        Z, n_among, at, own = draws.shard(0, shard)
        anchors = draws.anchors.tolist()
        assert n_among == len(set(anchors)) == 8
        torch.testing.assert_close(Z[:8], X[anchors])
        rows = [int((z == X).all(1).nonzero()) for z in Z[8:]]
        assert len(rows) == 4
        assert all(15 * shard <= i < 15 * (shard + 1) for i in rows)
        assert [anchors.index(i) if i in anchors else -1 for i in rows] == own.tolist()
        part = _on_shard((Z, n_among, at, own), F.detach(), graph, OBJECTIVES[objective])
        leaf = F.detach().requires_grad_()
        P = X @ leaf
        expected = []
        for r in range(2):
            total = 0.0
            for i in rows:
                others = torch.tensor([j for j in anchors if j != i])
                e = (P[r, i] - P[r, others]).square().sum(-1)
                order = e.argsort()
                s = (e[order[3]] - e[order[:3]]) / (e[order[3]] - e[order[:3]]).sum()
                apart = e[order[:3]] / 3 if objective == "energy" else (X[i] - X[others[order[:3]]]).square().mean(-1)
                total = total + s @ apart
            expected.append(total)
        expected = torch.stack(expected)
        (grad,) = torch.autograd.grad(expected.sum(), leaf)
        torch.testing.assert_close(part[:, 0], expected.detach())
        torch.testing.assert_close(part[:, 2:].view_as(F), grad)


@pytest.mark.parametrize("choice", ["random", "kmeans++"])
def test_anchors_are_distinct_rows_drawn_anew_after_some_steps(choice):
    draws = _Draws(rows_of(standardized(100, 4)), schedule(n_anchors=10, anchor_choice=choice), 0)
    seen = []
    for step in range(12):
        draws.shard(step, 0)
        seen.append(tuple(draws.anchors.tolist()))
        assert len(set(seen[-1])) == 10
        assert list(seen[-1]) == sorted(seen[-1])
    assert len(set(seen)) == 3
    assert seen[0] == seen[4] != seen[5] == seen[9] != seen[10]
    fixed = _Draws(rows_of(standardized(100, 4)), schedule(n_anchors=10, anchor_refresh=None), 0)
    first = fixed.shard(0, 0)[0][:10]
    assert all(torch.equal(fixed.shard(step, 0)[0][:10], first) for step in range(12))


def test_kmeans_plus_plus_spreads_the_anchors():
    """Of 20 clusters with 2 to 400 rows, far apart, seeding finds all; uniform draws miss the small ones."""
    generator = torch.Generator().manual_seed(0)
    sizes = [2] * 10 + [400] * 10
    X = torch.cat(
        [100 * torch.randn(1, 5, generator=generator) + torch.randn(s, 5, generator=generator) for s in sizes]
    )
    cluster = torch.repeat_interleave(torch.arange(20), torch.tensor(sizes))
    found = {}
    for choice in ("random", "kmeans++"):
        draws = _Draws(rows_of(X), schedule(n_anchors=600, anchor_choice=choice), 0)
        draws.shard(0, 0)
        found[choice] = len(cluster[draws.anchors].unique())
    assert found["kmeans++"] == 20 > found["random"]


def test_an_epoch_looks_at_every_row_once():
    draws = _Draws(rows_of(standardized(60, 4)), schedule(batch_size=20), 0)
    batches = [draws.batch(step) for step in range(6)]
    assert torch.equal(torch.cat(batches[:3]).sort().values, torch.arange(60))
    assert torch.equal(torch.cat(batches[3:]).sort().values, torch.arange(60))
    assert not torch.equal(batches[0], batches[3])
    X = standardized(60, 4)
    shards = _Draws(rows_of(X), schedule(batch_size=20, n_anchors=10), 0)
    epoch = torch.cat([shards.shard(step, number)[0][10:] for step in range(3) for number in range(4)])
    torch.testing.assert_close(epoch.sort(0).values, X.sort(0).values)


@pytest.mark.parametrize("objective", ["energy", "coverage"])
def test_all_rows_as_batch_and_as_anchors_are_the_full_batch(objective):
    """The three ways to take everything into account give the same numbers."""
    X = standardized(48, 6)
    graph = KNNGraph(4)
    runs = [
        train(rows_of(X), 2, graph, OBJECTIVES[objective], schedule(**changes), restarts=(0, 2), seed=5)
        for changes in ({"batch_size": 48}, {"batch_size": 10**6}, {"batch_size": 48, "n_anchors": 48})
    ]
    assert torch.equal(runs[0].logits, runs[1].logits)
    torch.testing.assert_close(runs[0].logits, runs[2].logits)
    assert runs[0].history["loss"].shape == (12, 2)
    assert runs[0].history["temperature"].shape == (12,)


def test_coverage_without_the_distance_matrix(problem, monkeypatch):
    X, F, everyone = problem
    S = KNNGraph(4)((X @ F).detach())
    with_matrix = Coverage(X)(S, 3, everyone, everyone)
    monkeypatch.setattr("homophily.objectives.KEPT", 500)
    without = Coverage(X)
    assert without.D is None
    torch.testing.assert_close(without(S, 3, everyone, everyone), with_matrix)


def test_judging_by_a_sample_scales_it_up():
    X = standardized(60, 5)
    objective = OBJECTIVES["energy"](X)
    features = np.array([1, 3])
    everyone = judge(X, features, 4, objective)
    assert judge(X, features, 4, objective, 60) == everyone
    S = KNNGraph(4, exact=True)(X[:, features])
    expected = float((S.weights * S.distances)[:30].sum()) / 2 * 2
    assert judge(X, features, 4, objective, 30) == pytest.approx(expected)


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


def test_a_step_moves_nothing_off_the_device_but_its_figures(monkeypatch):
    """Every tensor that is read back to Python in the loop is counted: flags of solvers, and one row of figures."""
    moved = []
    to_cpu = torch.Tensor.cpu

    def cpu(self, *args, **kwargs):
        moved.append(tuple(self.shape))
        return to_cpu(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    for name in ("tolist", "numpy"):
        original = getattr(torch.Tensor, name)

        def watched(self, *args, original=original, **kwargs):
            assert self.numel() <= 8, f"{tuple(self.shape)} left the device"
            return original(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, watched)
    for changes in ({}, {"n_anchors": 20}):
        moved.clear()
        train(
            rows_of(standardized(60, 6)),
            2,
            KNNGraph(4),
            OBJECTIVES["energy"],
            schedule(**changes),
            restarts=(0, 2),
            seed=0,
        )
        assert moved == [(4, 2)] * 12
