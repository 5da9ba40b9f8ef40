"""KNNGraph and the Dirichlet energy against brute force, limits and invariants."""

import warnings

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from homophily.nn import (
    KNNGraph,
    cross_squared_distances,
    dirichlet_energy,
    exact_similarities,
    laplacian,
    nearest,
    soft_similarities,
    soft_topk,
    squared_distances,
)

F64 = torch.float64


def points(n=40, m=3, seed=0, dtype=F64):
    return torch.randn(n, m, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def brute_force_exact(X, k):
    """Eq. (9), entry by entry."""
    n = len(X)
    S = np.zeros((n, n))
    for i in range(n):
        e = ((X[i] - X) ** 2).sum(1)
        others = [j for j in np.argsort(e, kind="stable") if j != i]
        far = e[others[k]]
        for j in others[:k]:
            S[i, j] = (far - e[j]) / (k * far - sum(e[o] for o in others[:k]))
    return S


@pytest.mark.parametrize("k", [1, 3, 10])
def test_exact_graph_is_equation_9(k):
    X = points()
    S = KNNGraph(k, exact=True)(X).to_dense()
    np.testing.assert_allclose(S.numpy(), brute_force_exact(X.numpy(), k), atol=1e-12)
    assert ((S > 0).sum(1) == k).all()


@pytest.mark.parametrize(
    "options",
    [
        {"reg": 1.0},
        {"reg": 3.0, "solver": "projection", "scale": "none"},
        {"reg": 2.0, "solver": "bregman", "n_iter": 2},  # far from converged, so that the number matters
    ],
)
@pytest.mark.parametrize("normalize", [True, False])
def test_soft_graph_is_equation_s10(normalize, options):
    E = points(6, 15).square().requires_grad_()
    k = 4
    plan = soft_topk(E, k, **options)
    delta, xi = plan[..., :k].sum(-1), plan[..., k]
    threshold = (E * xi).sum(-1, keepdim=True)
    expected = (threshold - E).clamp_min(0) / (k * threshold - (E * delta).sum(-1, keepdim=True))
    if normalize:
        expected = expected / expected.sum(-1, keepdim=True)
    S = soft_similarities(E, k, **options, normalize=normalize)
    torch.testing.assert_close(S, expected)
    graph = KNNGraph(k, **options, normalize=normalize)(points())
    again = soft_similarities(graph.distances, k, **options, normalize=normalize)
    torch.testing.assert_close(graph.weights, again)
    (a,) = torch.autograd.grad(S.square().sum(), E)
    (b,) = torch.autograd.grad(expected.square().sum(), E)
    torch.testing.assert_close(a, b)


def test_literal_soft_rows_sum_to_more_than_one():
    """Fact: Eq. (9) with soft indicators is not normalised; that is why we normalise."""
    X = points(200, 5)
    sums = KNNGraph(5, reg=0.3, normalize=False)(X).weights.sum(-1)
    assert sums.min() > 0.99
    assert sums.max() > 1.02


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_rows_sum_to_one_without_self_loops(exact, dtype):
    graph = KNNGraph(5, exact=exact)(points(dtype=dtype))
    torch.testing.assert_close(graph.weights.sum(-1), torch.ones(40, dtype=dtype))
    assert (graph.weights >= 0).all()
    assert not graph.to_dense().diagonal().any()
    assert graph.weights.dtype == dtype


@pytest.mark.parametrize("solver", ["newton", "projection"])
def test_reg_to_zero_approaches_the_exact_graph(solver):
    X = points(80, 4)
    exact = KNNGraph(5, exact=True)(X).to_dense()
    soft = [KNNGraph(5, reg=reg, solver=solver)(X).to_dense() for reg in (1, 0.1, 0.01, 0.001)]
    errors = [(S - exact).abs().max() for S in soft]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("solver", ["newton", "projection"])
def test_gradient_approaches_the_exact_graphs(solver):
    X = points(30, 3)

    def gradient(layer):
        x = X.clone().requires_grad_()
        S = layer(x)
        (S.weights * S.distances).sum().backward()
        return x.grad

    exact = gradient(KNNGraph(4, exact=True))
    errors = [(gradient(KNNGraph(4, reg=reg, solver=solver)) - exact).norm() / exact.norm() for reg in (1, 1e-2, 1e-5)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-6


@pytest.mark.parametrize(
    "kind",
    [
        {"exact": True},
        {"solver": "newton"},
        {"solver": "projection"},
        {"solver": "bregman", "reg": 3.0, "n_iter": 300},  # its backward is the converged plan's
    ],
)
@pytest.mark.parametrize("normalize", [True, False])
def test_gradcheck(kind, normalize):
    X = points(10, 2).requires_grad_()
    layer = KNNGraph(3, **kind, normalize=normalize, scale="none", n_candidates=9)
    assert gradcheck(lambda x: layer(x).to_dense(), X)


@pytest.mark.parametrize("batch", [(), (1,), (2,), (2, 3)])
def test_squared_distances_of_pairs(batch):
    """Values and first and second derivatives, where a query is a point, is none, and a pair is named twice."""
    generator = torch.Generator().manual_seed(0)
    P = torch.randn(*batch, 7, 3, dtype=F64, generator=generator, requires_grad=True)
    Q = torch.randn(*batch, 4, 3, dtype=F64, generator=generator, requires_grad=True)
    indices = torch.randint(7, (*batch, 4, 5), generator=generator)
    expected = torch.cdist(Q, P).square().gather(-1, indices)
    torch.testing.assert_close(squared_distances(Q, P, indices), expected)
    assert gradcheck(lambda q, p: squared_distances(q, p, indices), (Q, P))
    assert gradgradcheck(lambda q, p: squared_distances(q, p, indices).sin(), (Q, P))
    assert gradcheck(lambda q: squared_distances(q, P.detach(), indices), Q)
    assert gradcheck(lambda p: squared_distances(Q.detach(), p, indices), P)


@pytest.mark.parametrize("exact", [True, False])
def test_permuting_points_permutes_the_graph(exact):
    X = points()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    layer = KNNGraph(5, exact=exact)
    torch.testing.assert_close(layer(X[order]).to_dense(), layer(X).to_dense()[order][:, order])


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_scaling_points_changes_nothing(factor):
    X = points()
    torch.testing.assert_close(KNNGraph(5)(factor * X).to_dense(), KNNGraph(5)(X).to_dense(), atol=1e-7, rtol=0)


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 1e3), (F64, 1e8)])
def test_moving_points_changes_nothing(dtype, offset):
    X = (points(100) * 64).round() / 64  # so that the sum is exact
    moved = (X + offset).to(dtype)
    torch.testing.assert_close(
        KNNGraph(5, exact=True)(moved).to_dense().to(F64), KNNGraph(5, exact=True)(X).to_dense(), atol=1e-4, rtol=0
    )


def test_batches_are_independent():
    X = torch.stack([points(seed=s) for s in range(3)])
    batch = KNNGraph(5)(X).to_dense()
    for one, x in zip(batch, X, strict=True):
        torch.testing.assert_close(one, KNNGraph(5)(x).to_dense())


def test_queries_are_rows_of_the_whole_graph():
    X = points()
    rows = torch.tensor([3, 17, 39])
    part = KNNGraph(5)(X, X[rows], rows).to_dense()
    torch.testing.assert_close(part, KNNGraph(5)(X).to_dense()[rows])


def test_queries_that_are_no_points_may_neighbour_every_point():
    X = points()
    S = KNNGraph(3, exact=True)(X, X[:5].clone())
    assert (S.indices[:, 0] == torch.arange(5)).all()  # its own copy is the nearest


def test_search_in_chunks_changes_nothing(monkeypatch):
    import sys

    X = points(100, 3)
    whole = nearest(X, X, 7, torch.arange(100))
    monkeypatch.setattr(sys.modules["homophily.nn.knn_graph"], "SEARCH_BUDGET", 900)
    assert torch.equal(nearest(X, X, 7, torch.arange(100)), whole)
    distances = torch.cdist(X, X).fill_diagonal_(torch.inf)
    assert torch.equal(whole, distances.topk(7, largest=False).indices)


@pytest.mark.parametrize("n_graphs", [1, 7])
@pytest.mark.parametrize(("n_rows", "budget"), [(100, 900), (100, 5000), (10, 5000), (100, 50), (1, 10**6)])
def test_search_holds_no_more_distances_than_it_may(n_graphs, n_rows, budget, monkeypatch):
    """Nor fewer than it need: rows of a graph first, then graphs, in equal parts."""
    import sys

    module = sys.modules["homophily.nn.knn_graph"]
    X = torch.stack([points(100, 3, seed) for seed in range(n_graphs)])
    expected = nearest(X[:, :n_rows], X, 7, torch.arange(n_rows))
    shapes, rooms = [], []

    def noted(*arguments, out, multiply=torch.bmm):
        shapes.append(out.shape)
        rooms.append(out.untyped_storage().nbytes() // out.element_size())
        return multiply(*arguments, out=out)

    monkeypatch.setattr(torch, "bmm", noted)
    monkeypatch.setattr(module, "SEARCH_BUDGET", budget)
    monkeypatch.setattr(module, "SEARCH_CACHE", budget)
    found = nearest(X[:, :n_rows], X, 7, torch.arange(n_rows))
    assert torch.equal(found, expected)
    width = shapes[0][-1]
    assert 100 < width < 120  # a little more than the points
    rows = max(1, min(n_rows, budget // width))  # that fit
    parts = -(-n_rows // rows)
    graphs = max(1, min(n_graphs, budget // (width * -(-n_rows // parts))))
    assert len(shapes) == parts * -(-n_graphs // graphs)
    heights = [shape[1] for shape in shapes]
    assert max(heights) - min(heights) < parts
    assert max(rooms) <= max(budget, width)  # one row at least


def test_search_on_a_processor_stays_in_its_cache(monkeypatch):
    """But for rows so long that fewer than 64 of them would be multiplied at once."""
    import sys

    module = sys.modules["homophily.nn.knn_graph"]
    heights = []

    def noted(*arguments, out, multiply=torch.bmm):
        heights.append(out.shape[1])
        return multiply(*arguments, out=out)

    monkeypatch.setattr(torch, "bmm", noted)
    X = points(1000, 2, dtype=torch.float32)
    for cache, height in {2**20: 1000, 250_000: 200, 1000: 63}.items():  # of 1000 rows, in 1, 5 and 16 parts
        monkeypatch.setattr(module, "SEARCH_CACHE", cache)
        heights.clear()
        nearest(X, X, 5, torch.arange(1000))
        assert heights[0] == height


def test_all_squared_distances():
    X, Y = points(9, 4), points(6, 4, seed=1)
    pairs = torch.stack([torch.stack([(x - y).square().sum() for y in Y]) for x in X])
    torch.testing.assert_close(cross_squared_distances(X, Y), pairs)
    far = points(30, 3, dtype=torch.float32) + 1e3  # where rounding would make some of them negative
    assert (cross_squared_distances(far, far) >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize(("n", "c"), [(2, 1), (7, 6), (50, 1), (500, 3), (1000, 17), (1001, 40)])
def test_search_equals_a_full_sort(n, c, dtype):
    """Whatever the blocks: the rows of several graphs, with and without a place of their own."""
    P = torch.stack([points(n, 4, seed, dtype) for seed in range(3)])
    own = torch.arange(n)
    own[::2] = -1
    D = torch.cdist(P.double(), P.double(), compute_mode="donot_use_mm_for_euclid_dist")
    D[:, own >= 0, own[own >= 0]] = torch.inf
    found = nearest(P, P, c, own)
    assert found.shape == (3, n, c)
    ascending, order = D.sort(-1)
    torch.testing.assert_close(D.gather(-1, found), ascending[..., :c], atol=1e-3, rtol=0)
    if dtype == F64:
        assert torch.equal(found, order[..., :c])


def test_points_that_are_many_copies_are_all_found():
    """More equal entries than candidates, in the same block and in others."""
    P = points(300, 3).repeat_interleave(4, 0)
    found = nearest(P, P, 3, torch.arange(1200))
    assert torch.equal((found // 4).sort(-1).values, torch.arange(1200)[:, None].expand(-1, 3) // 4)
    assert (found != torch.arange(1200)[:, None]).all()


@pytest.mark.parametrize("exact", [True, False])
def test_copies_and_ties_give_equal_weights(exact):
    layer = KNNGraph(3, exact=exact)
    S = layer(torch.zeros(6, 2, dtype=F64, requires_grad=True))
    torch.testing.assert_close(S.weights.sum(-1), torch.ones(6, dtype=F64))
    S.weights.square().sum().backward()
    square = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]], dtype=F64)
    weights = KNNGraph(2, exact=exact)(square).to_dense()
    torch.testing.assert_close(weights[0, [1, 2]], torch.tensor([0.5, 0.5], dtype=F64))


@pytest.mark.parametrize("n_copies", [2, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_rows_of_all_but_copies_have_a_finite_gradient(n_copies, dtype):
    """Distances of black pixels under almost hard columns: 0, or so small that their inverse overflows."""
    tiny = torch.finfo(dtype).tiny ** 0.6 * torch.logspace(0, 4, 12 - n_copies, dtype=dtype)
    E = torch.cat([torch.zeros(n_copies, dtype=dtype), tiny]).unsqueeze(0).requires_grad_()
    S = soft_similarities(E, 5)
    torch.testing.assert_close(S.sum(-1), torch.ones(1, dtype=dtype))
    (S * torch.linspace(0, 1, 12, dtype=dtype)).sum().backward()
    assert torch.isfinite(E.grad).all()


@pytest.mark.parametrize("exact", [True, False])
def test_all_others_as_neighbours(exact):
    S = KNNGraph(9, exact=exact)(points(10)).to_dense()
    torch.testing.assert_close(S, (1 - torch.eye(10, dtype=F64)) / 9)


@pytest.mark.parametrize("exact", [True, False])
def test_too_few_points_is_an_error(exact):
    X = points(5)
    layer = KNNGraph(5, exact=exact)
    with pytest.raises(ValueError, match="k=5 neighbours need at least that many other points, got 4"):
        layer(X)
    with pytest.raises(ValueError, match="got 4"):
        layer(X, X[:2], torch.tensor([-1, 0]))
    # Queries that are no points may have all five.
    torch.testing.assert_close(layer(X, points(2, seed=1)).to_dense(), torch.full((2, 5), 0.2, dtype=F64))
    assert layer(points(6)).indices.shape == (6, 5)


def test_number_of_candidates():
    """Of k + 1 at least, so that there is a farthest; exact graphs need no more."""
    for k, wanted in {1: 12, 5: 12, 6: 14, 30: 62}.items():
        assert [KNNGraph(k).width(n) for n in (10**6, wanted, wanted - 1)] == [wanted, wanted, wanted - 1]
        assert KNNGraph(k, exact=True, n_candidates=99).width(10**6) == k + 1
    assert KNNGraph(5, n_candidates=6).width(1000) == 6
    assert KNNGraph(5, n_candidates=40)(points(50)).indices.shape == (50, 40)
    assert KNNGraph(5)(points(13)).indices.shape == (13, 12)
    assert KNNGraph(5)(points(12)).indices.shape == (12, 11)


def test_printed_layer_says_its_kind():
    assert str(KNNGraph(4)) == "KNNGraph(k=4, reg=0.3, solver='newton')"
    assert str(KNNGraph(4, exact=True)) == "KNNGraph(k=4, exact)"


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_gaps_of_nothing_but_rounding_are_none(dtype, unit):
    """Entries that differ in their last digits weigh the same; a thousand times that is a difference."""
    eps = torch.finfo(dtype).eps
    steps = torch.tensor([[0.0, 1, 2, 1, 0, 2, 3, 4]], dtype=dtype)
    for similarities in (exact_similarities, soft_similarities):
        rounding = similarities(unit * (1 + eps * steps), 3)
        assert rounding.sum() == pytest.approx(1)
        assert similarities(unit * (1 + 1000 * eps * steps), 3).std() > 1.1 * rounding.std()
    nearest_three = exact_similarities(unit * (1 + eps * steps), 3)
    torch.testing.assert_close(nearest_three[nearest_three > 0], torch.full((3,), 1 / 3, dtype=dtype))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (torch.arange(12).view(6, 2), r"torch.int64 \(6, 2\)"),
        (torch.rand(6), r"torch.float32 \(6,\)"),
        (np.ones((6, 2)), "ndarray"),
    ],
)
def test_points_must_be_a_floating_point_matrix(wrong, told):
    with pytest.raises(TypeError, match=f"points must be a floating-point tensor .*, got {told}"):
        KNNGraph(2)(wrong)


def test_energy_needs_the_graphs_own_rows():
    X = points()
    with pytest.raises(ValueError, match="joins 40 rows to 40 points, but X has 7 rows"):
        dirichlet_energy(X[:7], KNNGraph(3)(X))
    with pytest.raises(ValueError, match="joins 40 rows to 30 points, but X has 40 rows"):
        dirichlet_energy(X, torch.ones(40, 30, dtype=F64))
    with pytest.raises(ValueError, match="joins 7 rows to 40 points, but X has 7 rows"):  # queries, not all points
        dirichlet_energy(X[:7], KNNGraph(3)(X, X[:7], torch.arange(7)))
    with pytest.raises(TypeError, match="NeighborGraph or a tensor"):
        dirichlet_energy(X, np.eye(40))


@pytest.mark.parametrize(("arguments", "message"), [({"k": 0}, "at least 1"), ({"k": 5, "n_candidates": 5}, "k \\+ 1")])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        KNNGraph(**arguments)


def test_edge_index_carries_messages_from_neighbour_to_sample():
    X = points()
    graph = KNNGraph(5)(X)
    (source, target), weight = graph.to_edge_index()
    S = graph.to_dense()
    torch.testing.assert_close(S[target, source], weight)
    signal = points(m=1, seed=2)
    gathered = torch.zeros_like(signal).index_add(0, target, weight[:, None] * signal[source])
    torch.testing.assert_close(gathered, S @ signal)
    assert (weight > 0).all()
    assert len(weight) == (S > 0).sum() < graph.weights.numel()
    sparse = graph.to_sparse()
    assert sparse.is_coalesced()
    torch.testing.assert_close(sparse.to_dense(), S)
    some = KNNGraph(5)(X, X[:7], torch.arange(7))
    assert some.to_sparse().shape == some.to_dense().shape == (7, 40)
    torch.testing.assert_close(some.to_sparse().to_dense(), S[:7])
    with pytest.raises(ValueError, match="one graph"):
        KNNGraph(5)(X[None]).to_edge_index()


def test_energy_by_rows_equals_the_laplacian():
    X = points(50, 6)
    for layer in (KNNGraph(5), KNNGraph(5, exact=True)):
        S = layer(X)
        by_rows = dirichlet_energy(X, S)
        L = laplacian(S)
        assert by_rows > 0
        torch.testing.assert_close(by_rows, dirichlet_energy(X, S, method="laplacian"))
        torch.testing.assert_close(by_rows, torch.trace(X.T @ L @ X))
        torch.testing.assert_close(by_rows, dirichlet_energy(X, S.to_dense()))
        torch.testing.assert_close(by_rows, dirichlet_energy(X, S.to_sparse()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls its CSR support a beta
            torch.testing.assert_close(by_rows, dirichlet_energy(X, S.to_sparse().to_sparse_csr()))
        torch.testing.assert_close(by_rows, (S.weights * S.distances).sum() / 2)
        torch.testing.assert_close(L, L.T)
        torch.testing.assert_close(laplacian(S.to_sparse()), L)
        torch.testing.assert_close(L.sum(1), torch.zeros(50, dtype=F64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_energy_of_every_graph_of_a_batch(batch):
    """Double sums written out, of signals and graphs that differ; also a graph that is not symmetric."""
    signals = points(torch.Size(batch).numel() * 20, 4).view(*batch, 20, 4)
    S = KNNGraph(5)(points(torch.Size(batch).numel() * 20, 2, seed=1).view(*batch, 20, 2))
    dense = S.to_dense()
    assert not torch.allclose(dense, dense.mT)
    pairs = torch.cdist(signals, signals, compute_mode="donot_use_mm_for_euclid_dist").square()
    expected = torch.stack([(s * d).sum() / 2 for s, d in zip(dense.flatten(0, -3), pairs.flatten(0, -3), strict=True)])
    for graph in (S, dense):
        for method in ("rows", "laplacian"):
            found = dirichlet_energy(signals, graph, method=method)
            assert found.shape == batch
            torch.testing.assert_close(found.flatten(), expected)
        L = laplacian(graph)
        torch.testing.assert_close(L, L.mT)
        torch.testing.assert_close(L @ torch.ones(20, 1, dtype=F64), torch.zeros(*batch, 20, 1, dtype=F64))
        off_diagonal = ~torch.eye(20, dtype=torch.bool)
        torch.testing.assert_close(L[..., off_diagonal], -(dense + dense.mT)[..., off_diagonal] / 2)


def test_energy_of_a_constant_signal_is_zero():
    assert dirichlet_energy(torch.ones(40, 2, dtype=F64), KNNGraph(5)(points())) == 0


def test_unknown_energy_method():
    with pytest.raises(ValueError, match="method must be"):
        dirichlet_energy(points(), KNNGraph(5)(points()), method="magic")


@pytest.mark.parametrize("similarities", [exact_similarities, soft_similarities])
def test_similarities_of_rows_in_any_shape(similarities):
    E = points(2 * 4, 9).square()
    for k in (2, 4, 9):  # as many as graphs, as rows, as entries
        batch = similarities(E.view(2, 4, 9), k)
        torch.testing.assert_close(batch.view(8, 9), similarities(E, k))
        torch.testing.assert_close(batch.sum(-1), torch.ones(2, 4, dtype=F64))


def test_the_first_of_equal_entries_are_the_neighbours():
    weights = exact_similarities(torch.ones(2, 500, dtype=F64), 3)
    assert weights.nonzero().tolist() == [[row, j] for row in (0, 1) for j in (0, 1, 2)]


def test_exact_similarities_do_not_need_sorted_input():
    E = points(5, 12).square()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(exact_similarities(E[:, order], 4), exact_similarities(E, 4)[:, order])
