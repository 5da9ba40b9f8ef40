"""Graphs of selections that differ in one feature, exact on a fixed sample of rows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .nn import NeighborGraph, cross_squared_distances
from .nn.knn_graph import negligible

__all__ = ["AMONG", "BLOCK", "Criterion", "Rest", "Trials", "energies", "similarities"]

AMONG = 8192  # samples among which neighbours are looked for
WIDTH = 16  # nearest in the other features among which the neighbours are looked for first
WIDE = 3  # times k: nearest in the other features that a new one is to tell apart
BLOCK = 2**21  # entries of distances worked on at once: what stays in the cache is several times faster


class Rest(NamedTuple):
    """The selection without the feature at turn."""

    D: Tensor  # (B, A) squared distances
    E: Tensor  # (B, c) the smallest of each row, ascending
    near: Tensor  # (B, c) whose they are


class Trials:
    """Graphs of selections that differ in one feature, on a fixed sample of B rows among A.

    A feature adds a square to each distance, so the k + 1 nearest of a row are seldom far from those in the other
    features: they are looked for among the ``width`` nearest in these. Where the last of the k + 1 is farther than the
    nearest point left out can be, the whole row is searched, so what is found is exact.
    """

    def __init__(self, X: Tensor, k: int, m: int, *, n_rows: int, n_among: int = AMONG) -> None:
        n = len(X)
        # Always the same rows: there is nothing to gain from chance here.
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(X.device)
        self.X, self.k, self.m = X, k, m
        self.among = torch.arange(n, device=X.device) if n <= n_among else order[:n_among].sort().values  # (A,)
        self.rows = order[: min(n_rows, n_among)]  # (B,)
        self.own = torch.searchsorted(self.among, self.rows)  # their places among the A
        self.columns = X.T[:, self.among].contiguous()  # (d, A): a feature is read in one piece
        self.queries = self.columns[:, self.own]  # (d, B)
        self.Q = X[self.rows]  # (B, d)
        A = len(self.among)
        self.n_edges = min(k + 1, A - 1)
        # Copies are neighbours in an order that is left to chance: the first ones would be everybody's.
        chance = torch.rand(len(self.rows), A, generator=torch.Generator().manual_seed(2), dtype=X.dtype)
        # No more than rounding of single precision, but more than that of sums in double precision.
        self.ties = chance.mul_(max(8 * torch.finfo(X.dtype).eps, 1e-10)).to(X.device)
        self.width = A - 1 if m == 1 else min(max(WIDTH, 2 * (k + 1)), A - 1)

    def distances(self, features: list[int]) -> Tensor:
        """Squared distances (B, A) in ``features``, infinite between a row and itself."""
        return self.apart_from_itself(self.sums(features))

    def sums(self, features: list[int]) -> Tensor:
        """Squared distances (B, A) in ``features``, in double precision where there is one: to take one away from."""
        index = torch.tensor(features, dtype=torch.long, device=self.X.device)
        dtype = self.X.dtype if self.X.device.type == "mps" else torch.float64
        return cross_squared_distances(self.queries[index].T.to(dtype), self.columns[index].T.to(dtype))

    def apart_from_itself(self, D: Tensor) -> Tensor:
        """``D (B, A)`` with the distance of each row to itself made infinite, and copies in an order of chance."""
        D = D.to(self.X.dtype)
        D = D + (D + self.m) * self.ties
        D[torch.arange(len(D), device=D.device), self.own] = torch.inf
        return D

    def differences(self, feature: int, dtype: torch.dtype | None = None) -> Tensor:
        """Squared differences (B, A) in one feature."""
        column = self.columns[feature].to(dtype)
        return (column[self.own][:, None] - column).square_()

    def without(self, sums: Tensor, chosen: list[int], at: int) -> Tensor:
        """Squared distances in the others, given the :meth:`sums` in all that are chosen.

        Where samples are copies in the others, rounding decides who is near. It must not know of the feature that is
        taken away, or this would explain itself, or the opposite.
        """
        if sums.dtype != torch.float64:
            return self.distances(chosen[:at] + chosen[at + 1 :])
        return self.apart_from_itself((sums - self.differences(chosen[at], sums.dtype)).clamp_min_(0))

    def rest(self, D: Tensor) -> Rest:
        """What is asked again and again about the other features, whose squared distances are given."""
        c = max(self.n_edges, self.width, min(WIDE * self.k, D.shape[1] - 1))
        return Rest(D, *D.topk(c, largest=False))

    def graph(self, D: Tensor) -> tuple[Tensor, Tensor]:
        """Similarities and neighbours (B, k) for the squared distances ``D (B, A)``."""
        E, near = D.topk(self.n_edges, largest=False)
        return similarities(E, self.k), near[:, : self.k]

    def smoothness(self, S: Tensor, neighbors: Tensor, order: Tensor | None = None) -> Tensor:
        r""":math:`\sum_{ij} s_{ij} (x_{if} - x_{jf})^2` of every feature f, for any weights ``S (B, c)``; (d,).

        With ``order (A,)``, neighbour j is taken to be the sample that stands at ``order[j]``.
        """
        among = self.among if order is None else self.among[order]
        return energies(S, among[neighbors], self.X, self.Q)

    def smoothness_by(self, rest: Rest) -> Tensor:
        """That of every feature on the graph of the others; (d,)."""
        return self.smoothness(similarities(rest.E[:, : self.n_edges], self.k), rest.near[:, : self.k])

    def telling(self, rest: Rest, target: Tensor, chosen: list[int], count: int) -> Tensor:
        """The ``count`` features which, added to the others, would best keep apart what ``target (B, A)`` keeps apart.

        That is, whose squared differences go along with the target among the nearest of each row in the others.
        """
        near = rest.near[:, : max(self.n_edges, min(WIDE * self.k, rest.near.shape[1]))]
        T = target.gather(1, near)
        rounding = 16 * torch.finfo(T.dtype).eps * T.abs().amax(1, keepdim=True)
        T = T - T.mean(1, keepdim=True)
        scale = T.square().mean(1, keepdim=True).sqrt()
        T = torch.where(scale > rounding, T / scale, 0)  # what is equally far up to rounding tells nothing
        scores = self.smoothness(T, near)
        scores[chosen] = -torch.inf
        return scores.topk(count).indices

    def smoothest(self, rest: Rest, chosen: list[int], count: int) -> Tensor:
        """The ``count`` features that are smoothest on the graph of the others."""
        scores = self.smoothness_by(rest)
        scores[chosen] = torch.inf
        return scores.topk(count, largest=False).indices

    def graphs(self, rest: Rest, trial: Tensor) -> tuple[NeighborGraph, int]:
        """Graphs (G, B, k) with each feature of ``trial (G,)`` beside the others, and how many entries that took."""
        near, E = rest.near[:, : self.width], rest.E[:, : self.width]
        G, B, A, c = len(trial), *rest.D.shape, near.shape[1]
        V, Q = self.columns[trial], self.queries[trial]  # (G, A), (G, B)
        D = V.index_select(1, near.flatten()).view(G, B, c)
        D, place = D.sub_(Q[:, :, None]).square_().add_(E).topk(self.n_edges, largest=False)  # (G, B, k + 1)
        indices = near.expand(G, B, c).gather(2, place)
        cost = G * near.numel()
        if c < A - 1:
            doubtful = (D[..., -1] > E[:, -1]).nonzero()  # (P, 2)
            for g, b in (part.unbind(1) for part in doubtful.split(max(1, BLOCK // A))):
                whole = (V[g] - Q[g, b][:, None]).square_().add_(rest.D[b])
                D[g, b], indices[g, b] = whole.topk(self.n_edges, largest=False)
            if len(doubtful) * A > cost:  # a wider search costs less than what it saves
                self.width = min(2 * self.width, A - 1)
            cost += len(doubtful) * A
        S = similarities(D, self.k)
        return NeighborGraph(indices[..., : self.k], S, D[..., : self.k], A), cost


class Criterion(Protocol):
    """An objective of selections that differ in one feature, to be asked place by place, pass after pass."""

    min_passes: int  # even if nothing changes

    def begin(self, chosen: list[int], sums: Tensor) -> None:
        """Start a pass over the places, with the :meth:`Trials.sums` of the chosen features."""

    def shortlist(self, rest: Rest, chosen: list[int], at: int, count: int) -> Tensor:
        """``count`` features that may do well in the place ``at``, which is now at turn."""

    def values(self, graph: NeighborGraph, trial: Tensor) -> Tensor:
        """Objective (G,) with each feature of ``trial (G,)`` in the place at turn, whose graphs are given."""

    def settle(self, feature: int) -> None:
        """Put ``feature`` in the place at turn."""


def energies(S: Tensor, neighbors: Tensor, X: Tensor, Q: Tensor) -> Tensor:
    r""":math:`\sum_{ij} s_{ij} (q_{if} - x_{jf})^2` of every column f, for weights and rows of X ``(B, c)``; (d,).

    Expanded, so that no tensor of differences is made:
    :math:`\sum_i q_i^2 \sum_j s_{ij} + \sum_j x_j^2 \sum_i s_{ij} - 2 \sum_i q_i (S x)_i`.
    """
    mean = embedding_bag(neighbors, X, per_sample_weights=S, mode="sum")  # (B, d)
    points, place = neighbors.unique(return_inverse=True)
    mass = torch.zeros(len(points), dtype=S.dtype, device=S.device).index_add_(0, place.flatten(), S.flatten())
    return S.sum(1) @ Q.square() + mass @ X.index_select(0, points).square_() - 2 * mean.mul_(Q).sum(0)


def similarities(E: Tensor, k: int) -> Tensor:
    """Those of the k nearest as in :func:`~homophily.nn.exact_similarities`, for ascending rows: sorting is dear."""
    if E.shape[-1] == k:
        return torch.full_like(E, 1 / k)
    threshold = E[..., k:]
    gap = threshold - E[..., :k]
    total = gap.sum(-1, keepdim=True)
    usable = total > negligible(threshold)  # otherwise all are equally far up to rounding
    return torch.where(usable, gap / torch.where(usable, total, 1), 1 / k)
