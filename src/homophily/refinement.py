"""Finish what training began: exchange single features while the exact objective falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .nn import NeighborGraph, cross_squared_distances, exact_similarities
from .objectives import Objective

__all__ = ["ROWS", "Rest", "Trials", "exchange_features"]

ROWS = 256, 1024  # samples on which exchanges are judged, first and in the end
SHORTLIST = 32  # candidates for each place
WIDTH = 16  # nearest in the other features among which the neighbours are looked for first
WIDE = 3  # times k: nearest in the other features that a candidate is to tell apart
BLOCK = 2**21  # entries of distances worked on at once: what stays in the cache is several times faster


@torch.no_grad()
def exchange_features(
    X: Tensor,
    features: np.ndarray,
    k: int,
    objective: Objective,
    *,
    max_passes: int = 5,
    should_stop: Callable[[int], bool] = lambda turn: False,
    n_rows: int = ROWS[0],
) -> np.ndarray:
    """Coordinate descent over ``features (m,)`` of ``X (n, d)``: exchange one at a time if that lowers ``objective``.

    In each place, the candidates that look best beside the other m - 1 features are tried, or all if they are few. The
    objective of the exact k-NN graph is evaluated on a fixed sample of ``n_rows`` rows, on which it never rises. The
    exchange ends when m places in a row keep their features, after ``max_passes``, or when ``should_stop``, called with
    the number of places visited before, returns True.
    """
    m = len(features)
    if m == X.shape[1]:
        return features
    trials = Trials(X, k, m, n_rows=n_rows)
    target = objective.target(trials.rows, torch.arange(len(X), device=X.device))
    chosen = [int(f) for f in features]
    unchanged = 0
    for turn in range(max_passes * m):
        at = turn % m
        best = _best(trials, target, chosen, at)
        unchanged = unchanged + 1 if best == chosen[at] else 0
        chosen[at] = best
        if should_stop(turn) or unchanged >= m or m == 1:  # a single feature has been tried against all others
            break
    return np.array(chosen)


class Rest(NamedTuple):
    """The selection without the feature that is to be replaced."""

    D: Tensor  # (B, n) squared distances
    E: Tensor  # (B, c) the smallest of each row, ascending
    near: Tensor  # (B, c) whose they are


class Trials:
    """Graphs of selections that differ in one feature, exact on a fixed sample of B rows.

    A feature adds a square to each distance, so the k + 1 nearest of a row are seldom far from those in the other
    features: they are looked for among the ``width`` nearest in these. Where the last of the k + 1 is farther than the
    nearest point left out can be, the whole row is searched, so what is found is exact.
    """

    def __init__(self, X: Tensor, k: int, m: int, *, n_rows: int) -> None:
        n = len(X)
        self.X, self.k, self.m = X, k, m
        # Always the same rows: there is nothing to gain from chance here.
        self.rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:n_rows].to(X.device)  # (B,)
        self.columns = X.T.contiguous()  # (d, n): a feature is read in one piece
        self.queries = self.columns[:, self.rows]  # (d, B)
        self.n_edges = min(k + 1, n - 1)
        # Copies are neighbours in an order that is left to chance: the first ones would be everybody's.
        chance = torch.rand(len(self.rows), n, generator=torch.Generator().manual_seed(2), dtype=X.dtype)
        # No more than rounding of single precision, but more than that of sums in double precision.
        self.ties = chance.mul_(max(8 * torch.finfo(X.dtype).eps, 1e-10)).to(X.device)
        self.width = n - 1 if m == 1 else min(max(WIDTH, 2 * (k + 1)), n - 1)

    def distances(self, features: list[int]) -> Tensor:
        """Squared distances (B, n) in ``features``, infinite between a row and itself; copies in an order of chance."""
        index = torch.tensor(features, dtype=torch.long, device=self.X.device)
        dtype = self.X.dtype if self.X.device.type == "mps" else torch.float64
        D = cross_squared_distances(self.queries[index].T.to(dtype), self.columns[index].T.to(dtype)).to(self.X.dtype)
        D += (D + self.m) * self.ties
        return D.scatter_(1, self.rows[:, None], torch.inf)

    def rest(self, others: list[int]) -> Rest:
        """What is asked again and again about the other features."""
        D = self.distances(others)
        c = max(self.n_edges, self.width, min(WIDE * self.k, D.shape[1] - 1))
        return Rest(D, *D.topk(c, largest=False))

    def smoothness(self, S: Tensor, neighbors: Tensor) -> Tensor:
        r""":math:`\sum_{ij} s_{ij} (x_{if} - x_{jf})^2` of every feature f, for any weights ``S (B, c)``; (d,).

        Expanded, so that no tensor of differences is made:
        :math:`\sum_i x_i^2 \sum_j s_{ij} + \sum_j x_j^2 \sum_i s_{ij} - 2 \sum_i x_i (S x)_i`.
        """
        Q = self.X[self.rows]  # (B, d)
        mean = embedding_bag(neighbors, self.X, per_sample_weights=S, mode="sum")  # (B, d)
        points, place = neighbors.unique(return_inverse=True)
        mass = torch.zeros(len(points), dtype=S.dtype, device=S.device).index_add_(0, place.flatten(), S.flatten())
        return S.sum(1) @ Q.square() + mass @ self.X[points].square_() - 2 * mean.mul_(Q).sum(0)

    def shortlist(self, rest: Rest, target: Tensor | None, chosen: list[int], count: int) -> Tensor:
        """The ``count`` most promising features that are not ``chosen``.

        Without a target, the smoothest on the graph of the others. With ``target (B, n)``, those that would best keep
        apart what it keeps apart: their squared differences go along with it among the nearest of each row.
        """
        if target is None:
            S = exact_similarities(rest.E[:, : self.n_edges], self.k)[:, : self.k]
            scores = -self.smoothness(S, rest.near[:, : self.k])
        else:
            near = rest.near[:, : max(self.n_edges, min(WIDE * self.k, rest.near.shape[1]))]
            T = target.gather(1, near)
            rounding = 16 * torch.finfo(T.dtype).eps * T.abs().amax(1, keepdim=True)
            T = T - T.mean(1, keepdim=True)
            scale = T.square().mean(1, keepdim=True).sqrt()
            scores = self.smoothness(torch.where(scale > rounding, T / scale, 0), near)  # equally far: tells nothing
        scores[chosen] = -torch.inf
        return scores.topk(count).indices

    def graphs(self, rest: Rest, candidates: Tensor) -> NeighborGraph:
        """Graphs (G, B, k) with each feature of ``candidates (G,)`` beside the others."""
        near, E = rest.near[:, : self.width], rest.E[:, : self.width]
        G, B, n, c = len(candidates), *rest.D.shape, near.shape[1]
        V, Q = self.columns[candidates], self.queries[candidates]  # (G, n), (G, B)
        D = V.index_select(1, near.flatten()).view(G, B, c)
        D, place = D.sub_(Q[:, :, None]).square_().add_(E).topk(self.n_edges, largest=False)  # (G, B, k + 1)
        indices = near.expand(G, B, c).gather(2, place)
        if c < n - 1:
            doubtful = (D[..., -1] > E[:, -1]).nonzero()  # (P, 2)
            for g, b in (part.unbind(1) for part in doubtful.split(max(1, BLOCK // n))):
                whole = (V[g] - Q[g, b][:, None]).square_().add_(rest.D[b])
                D[g, b], indices[g, b] = whole.topk(self.n_edges, largest=False)
            if len(doubtful) * n > G * near.numel():  # a wider search costs less than what it saves
                self.width = min(2 * self.width, n - 1)
        S = exact_similarities(D, self.k)[..., : self.k]
        return NeighborGraph(indices[..., : self.k], S, D[..., : self.k], n)


def _best(trials: Trials, target: Tensor | None, chosen: list[int], at: int) -> int:
    """The best feature in the place ``at`` beside the others."""
    rest = trials.rest(chosen[:at] + chosen[at + 1 :])
    n_others = trials.X.shape[1] - len(chosen)
    count = n_others if len(chosen) == 1 else min(n_others, SHORTLIST)  # without others, no graph to shortlist by
    own = torch.tensor([chosen[at]], device=trials.X.device)
    candidates = torch.cat([own, trials.shortlist(rest, target, chosen, count)])
    values = []
    for part in candidates.split(max(1, BLOCK // rest.near.numel())):
        graph = trials.graphs(rest, part)
        E = graph.distances if target is None else target.expand(len(part), -1, -1).gather(-1, graph.indices)
        values.append((graph.weights * E).sum((-2, -1)))
    found = torch.cat(values)
    best = found.argmin()
    return int(candidates[best]) if found[best] < found[0] - 1e-6 * found[0].abs() else chosen[at]
