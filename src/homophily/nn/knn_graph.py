"""Differentiable k-NN Graph Learner (Sec. 3.2): points to adaptive k-NN similarities, soft or exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from ..memory import scaled
from .soft_topk import least_distance, soft_indicators

__all__ = [
    "KNNGraph",
    "NeighborGraph",
    "cross_squared_distances",
    "exact_similarities",
    "nearest",
    "soft_similarities",
    "squared_distances",
]

# Entries of the distance matrix that are held at once: never more than the first (128 MB of float32); on a processor
# the second, which its cache holds, unless that leaves the matrix product fewer rows than the third.
SEARCH_BUDGET, SEARCH_CACHE, SEARCH_ROWS = 2**25, 2**20, 64


@dataclass
class NeighborGraph:
    r"""Sparse similarities: row ``i`` has weight ``weights[..., i, a]`` on point ``indices[..., i, a]``.

    Leading dimensions are independent graphs. ``distances`` are the squared distances of the same pairs, ``n_points``
    the number of points that ``indices`` refers to.
    """

    indices: Tensor  # (..., n, c)
    weights: Tensor  # (..., n, c)
    distances: Tensor  # (..., n, c)
    n_points: int

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        """``(edge_index, edge_weight)`` as in PyTorch Geometric: column ``(j, i)`` carries messages from j to i.

        ``s_ij`` is the weight with which row i hears its neighbour j, so that a sum over incoming messages is ``S X``,
        and ``edge_index`` is (column, row) of ``S``. With queries, sources are points and targets are queries: a
        bipartite graph, for layers that take ``(x_points, x_queries)``.

        Edges of weight 0 are left out. The weights stay differentiable.
        """
        if self.indices.ndim != 2:
            raise ValueError(f"to_edge_index needs one graph, got a batch of shape {tuple(self.indices.shape[:-2])}.")
        keep = self.weights.detach() > 0
        target = torch.arange(len(self.indices), device=self.indices.device)[:, None].expand_as(self.indices)
        return torch.stack([self.indices[keep], target[keep]]), self.weights[keep]

    def to_dense(self) -> Tensor:
        """``S`` as a dense ``(..., n, n_points)`` tensor, differentiable."""
        S = self.weights.new_zeros(*self.weights.shape[:-1], self.n_points)
        return S.scatter_add(-1, self.indices, self.weights)

    def to_sparse(self) -> Tensor:
        """``S`` as a sparse COO tensor ``(n, n_points)``, differentiable."""
        (source, target), weight = self.to_edge_index()
        shape = (len(self.indices), self.n_points)
        return torch.sparse_coo_tensor(torch.stack([target, source]), weight, shape, check_invariants=False).coalesce()


class KNNGraph(nn.Module):
    r"""k-NN graph of points as a differentiable layer.

    .. math::
        s_{ij} = \frac{(e_i \cdot \xi_i - e_{ij})_+}{k\, e_i \cdot \xi_i - e_i \cdot \delta_i},
        \qquad e_{ij} = \|x_i - x_j\|^2

    (Eq. 9 in the form S10), with :math:`\delta_i, \xi_i` from :func:`soft_topk`, or hard if ``exact``.

    Parameters
    ----------
    k : int
        Number of neighbours.
    reg, solver, scale, n_iter
        As in :func:`soft_topk`.
    n_candidates : int, optional
        The nearest points of each row that the soft selection sees; the others have no weight. They are found without
        gradient, then their distances are computed again with it: memory is ``O(n n_candidates)``. By default
        ``max(12, 2 (k + 1))``. ``exact`` needs ``k + 1`` and ignores this.
    exact : bool
        Hard neighbours; the gradient flows through the values :math:`e_{ij}` only.
    normalize : bool
        With soft :math:`\delta, \xi` the rows of Eq. (9) sum to more than 1. By default they are divided by their sum,
        which leaves :math:`s_{ij} \propto (e_i \cdot \xi_i - e_{ij})_+`; ``False`` keeps the paper's literal values.

    Notes
    -----
    Samples never neighbour themselves: the paper puts a large value on the diagonal, here the entry is left out, which
    keeps the transport problem well scaled. Where Eq. (9) is 0/0, because the k + 1 nearest are equally far, the
    weights are ``delta / k``. With ``k = n - 1`` there is no (k+1)-th neighbour, :math:`\alpha_i` of Eq. (8) has no
    upper bound, and its limit gives every neighbour the weight ``1 / k``.

    Examples
    --------
    >>> import torch
    >>> X = torch.randn(100, 3, requires_grad=True)
    >>> S = KNNGraph(k=5)(X)
    >>> edge_index, edge_weight = S.to_edge_index()
    >>> edge_weight.max().backward()
    """

    def __init__(
        self,
        k: int,
        *,
        reg: float = 0.3,
        solver: str = "newton",
        scale: str = "row",
        n_iter: int = 200,
        n_candidates: int | None = None,
        exact: bool = False,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}.")
        if n_candidates is not None and n_candidates < k + 1:
            raise ValueError(f"n_candidates must be at least k + 1 = {k + 1}, got {n_candidates}.")
        self.k, self.reg, self.solver, self.scale, self.n_iter = k, reg, solver, scale, n_iter
        self.n_candidates, self.exact, self.normalize = n_candidates, exact, normalize

    def forward(self, points: Tensor, queries: Tensor | None = None, own: Tensor | None = None) -> NeighborGraph:
        """Graph of ``points (..., n, m)``.

        With ``queries (..., B, m)`` only these get rows, and look for their neighbours among ``points``. ``own (B,)``
        is the place of each query among the points, which it must not neighbour, or -1 if it is none of them.
        """
        if not isinstance(points, Tensor) or not points.is_floating_point() or points.ndim < 2:
            raise TypeError(f"points must be a floating-point tensor (..., n, m), got {_describe(points)}.")
        n = points.shape[-2]
        if queries is None:
            queries, own = points, torch.arange(n, device=points.device)
        elif own is None:
            own = torch.full((queries.shape[-2],), -1, device=points.device)
        n_others = n
        # With more points than candidates it does not matter whether a query is one of them, and to ask stalls a GPU.
        if self.width(n - 1) < self.width(n) and bool((own >= 0).any()):
            n_others -= 1
        if n_others < self.k:
            raise ValueError(
                f"k={self.k} neighbours need at least that many other points, got {n_others}: "
                "lower k or give more points."
            )
        indices = nearest(queries, points, self.width(n_others), own, ascending=self.exact)
        E = squared_distances(queries, points, indices)  # (..., B, c)
        if self.exact:
            S = exact_similarities(E, self.k)
        else:
            S = soft_similarities(
                E,
                self.k,
                reg=self.reg,
                solver=self.solver,
                scale=self.scale,
                n_iter=self.n_iter,
                normalize=self.normalize,
            )
        return NeighborGraph(indices, S, E, n)

    def width(self, n_others: int) -> int:
        """Number of candidates that a row gets when there are ``n_others`` other points."""
        wanted = self.k + 1 if self.exact else self.n_candidates or max(12, 2 * (self.k + 1))
        return min(wanted, n_others)

    def extra_repr(self) -> str:  # noqa: D102
        return f"k={self.k}, " + ("exact" if self.exact else f"reg={self.reg:g}, solver={self.solver!r}")


def _describe(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


@torch.no_grad()
def nearest(queries: Tensor, points: Tensor, c: int, own: Tensor, *, ascending: bool = True) -> Tensor:
    """Indices ``(..., B, c)`` of the nearest points of each query, without point ``own[i]`` (-1: none).

    Brute force over chunks of rows; the chunks depend on the sizes alone.
    """
    shape, (n, m) = queries.shape, points.shape[-2:]
    center = points.mean(-2, keepdim=True)  # far from the origin |x_j|^2 - 2 x_i x_j would be all rounding
    queries, points = (queries - center).reshape(-1, shape[-2], m), (points - center).reshape(-1, n, m)
    n_graphs, n_rows = len(queries), shape[-2]
    # Points are dealt out to n_groups groups of n_blocks; of a block, one place in every group, only the smallest entry
    # is looked at first. At least one place stays empty: the point that a query without a place of its own avoids.
    n_groups = max(1, round(math.sqrt(n / c)))
    n_blocks = n // n_groups + 1
    width = n_groups * n_blocks
    # |x_j|^2 - 2 x_i x_j orders as the squared distance does, and is one product: (x_i, 1) (-2 x_j, |x_j|^2)'.
    left = torch.cat([queries, queries.new_ones(n_graphs, n_rows, 1)], -1)
    right = points.new_zeros(n_graphs, m + 1, width)
    right[:, :m, :n] = points.mT
    torch.sum(points.square(), -1, out=right[:, m, :n])
    right[:, :m] *= -2
    right[:, m, n:] = torch.inf
    avoid = torch.where(own < 0, n, own)[:, None]

    budget = scaled(SEARCH_BUDGET)
    if points.device.type == "cpu":
        budget = min(budget, max(SEARCH_CACHE, SEARCH_ROWS * width))
    chunk = max(1, budget // width)
    chunk = -(-n_rows // -(-n_rows // chunk))  # no small one at the end
    at_once = max(1, budget // (chunk * width))  # graphs
    found = torch.empty(n_graphs, n_rows, c, dtype=torch.long, device=points.device)
    room = points.new_empty(min(at_once, n_graphs) * chunk * width)
    for g in range(0, n_graphs, at_once):
        for i in range(0, n_rows, chunk):
            graphs, rows = slice(g, g + at_once), slice(i, i + chunk)
            Q = left[graphs, rows]
            D = room[: Q.shape[0] * Q.shape[1] * width].view(*Q.shape[:2], width)
            torch.bmm(Q, right[graphs], out=D)
            D.scatter_(-1, avoid[rows].expand(len(Q), -1, -1), torch.inf)
            found[graphs, rows] = _smallest(D, c, n_groups, ascending)
    return found.view(*shape[:-1], c)


def _smallest(D: Tensor, c: int, n_groups: int, ascending: bool) -> Tensor:
    """Places of the ``c`` smallest entries of each row of ``D (..., n_groups n_blocks)``.

    They lie in the c blocks whose minima are the smallest. With n_groups = sqrt(n / c) that leaves twice sqrt(n c)
    entries a row to choose from instead of n; the minima of blocks are cheap, being taken along whole groups.
    """
    if n_groups == 1:
        return D.topk(c, largest=False, sorted=ascending).indices
    D = D.unflatten(-1, (n_groups, -1))  # (..., n_groups, n_blocks)
    blocks = D.amin(-2).topk(c, largest=False, sorted=False).indices  # (..., c)
    inside = D.gather(-1, blocks.unsqueeze(-2).expand(*D.shape[:-1], c)).flatten(-2)  # (..., n_groups c)
    place = inside.topk(c, largest=False, sorted=ascending).indices
    return blocks.gather(-1, place % c).add_(place.div_(c, rounding_mode="floor"), alpha=D.shape[-1])


def squared_distances(queries: Tensor, points: Tensor, indices: Tensor) -> Tensor:
    """``|x_i - x_j|^2`` for the pairs that ``indices (..., B, c)`` names; differentiable."""
    batch = points.shape[:-2]
    flat = points.reshape(-1, points.shape[-1])  # (G n, m)
    if batch.numel() > 1:
        first = torch.arange(batch.numel(), device=points.device) * points.shape[-2]
        indices = indices + first.view(*batch, 1, 1)
    return _PairDistances.apply(queries, flat, indices)


class _PairDistances(torch.autograd.Function):
    """Distances between ``queries (..., B, m)`` and the rows of ``points (n, m)`` that ``indices (..., B, c)`` names.

    The differences, the only large tensor, are computed again in the backward rather than kept.
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, points: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(queries, points, indices)
        return embedding(indices, points).sub_(queries.unsqueeze(-2)).square_().sum(-1)  # (..., B, c)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, points, indices = ctx.saved_tensors
        pull = embedding(indices, points).sub_(queries.unsqueeze(-2))  # (..., B, c, m)
        twice = (2 * grad).unsqueeze(-1)
        # In place, as fresh memory costs more than the product, unless this is to be differentiated again.
        pull = pull * twice if torch.is_grad_enabled() else pull.mul_(twice)
        grad_queries = pull.sum(-2).neg() if ctx.needs_input_grad[0] else None
        grad_points = None
        if ctx.needs_input_grad[1]:
            start = torch.zeros_like(points)
            grad_points = start.index_put((indices.reshape(-1),), pull.flatten(0, -2), accumulate=True)
        return grad_queries, grad_points, None


def cross_squared_distances(queries: Tensor, points: Tensor) -> Tensor:
    """``|x_i - x_j|^2`` between all rows of ``queries (B, m)`` and ``points (n, m)``; (B, n), not differentiable."""
    D = torch.addmm(points.square().sum(1)[None, :], queries, points.T, alpha=-2)
    return D.add_(queries.square().sum(1)[:, None]).clamp_min_(0)


def exact_similarities(E: Tensor, k: int) -> Tensor:
    """Eq. (9) with hard neighbours. ``E (..., c)`` need not be sorted; ``c = k`` means that there are no others."""
    if E.shape[-1] == k:
        return torch.full_like(E, 1 / k)
    ascending, order = E.sort(dim=-1, stable=True)  # stable, so that among equals the first ones are the neighbours
    threshold = ascending[..., k : k + 1]
    gap = threshold - ascending[..., :k]  # (..., k)
    weights = _normalized(gap, torch.full_like(gap, 1 / k), threshold)
    return torch.zeros_like(E).scatter(-1, order[..., :k], weights)


def soft_similarities(
    E: Tensor,
    k: int,
    *,
    reg: float = 0.3,
    solver: str = "newton",
    scale: str = "row",
    n_iter: int = 200,
    normalize: bool = True,
) -> Tensor:
    """Eq. (9) / (S10) with the soft indicators of :func:`soft_indicators`; ``E (..., c)``."""
    if E.shape[-1] == k:
        return torch.full_like(E, 1 / k)
    delta, xi = soft_indicators(E, k, reg=reg, solver=solver, scale=scale, n_iter=n_iter)  # Eq. (13), (..., c)
    threshold = (E * xi).sum(-1, keepdim=True)  # e_i xi_i
    gap = (threshold - E).clamp_min(0)
    if normalize:
        return _normalized(gap, delta / k, threshold)
    denominator = k * threshold - (E * delta).sum(-1, keepdim=True)
    usable = denominator > negligible(threshold)
    return torch.where(usable, gap / torch.where(usable, denominator, 1), delta / k)


def _normalized(gap: Tensor, fallback: Tensor, threshold: Tensor) -> Tensor:
    """Rows of ``gap`` divided by their sum, or ``fallback`` where that is nothing but rounding."""
    total = gap.sum(-1, keepdim=True)
    usable = total > negligible(threshold)
    return torch.where(usable, gap / torch.where(usable, total, 1), fallback)


def negligible(threshold: Tensor) -> Tensor:
    """What a row's gaps to its ``threshold`` have to exceed in sum to be more than rounding."""
    return 16 * torch.finfo(threshold.dtype).eps * threshold.detach() + least_distance(threshold.dtype)
