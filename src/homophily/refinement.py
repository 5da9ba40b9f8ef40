"""Finish what training began: exchange single features while the exact objective falls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .nn import NeighborGraph, cross_squared_distances
from .nn.knn_graph import negligible
from .objectives import Objective

__all__ = ["BUDGET", "ROWS", "exchange_features"]

ROWS = 256, 1024  # samples on which exchanges are judged, first and in the end
AMONG = 8192  # samples among which their neighbours are looked for
SHORTLIST = 32  # replacements that are tried for a feature
WIDTH = 16  # nearest in the other features among which the neighbours are looked for first
BUDGET = 2**30  # entries of data and distances that are looked at for all restarts: seconds, not minutes
BLOCK = 2**21  # of them at once: what stays in the cache is worked on several times faster


@torch.no_grad()
def exchange_features(
    X: Tensor,
    features: np.ndarray,
    k: int,
    objective: Objective,
    *,
    budget: int = BUDGET,
    max_passes: int = 5,
    should_stop: Callable[[int], bool] = lambda turn: False,
    n_rows: int = ROWS[0],
    n_among: int = AMONG,
) -> tuple[np.ndarray, int]:
    """Coordinate descent over the features: replace one at a time if that lowers the exact objective.

    For each feature, those that are smoothest on the graph of the other m - 1 are tried in its place, or all if they
    are few. Judged on a fixed sample of rows, on which the result is never worse than the start. Ends when a pass over
    all m features changes nothing, after ``max_passes``, when ``budget`` entries have been looked at, or when
    ``should_stop``, asked with the number of the turn, says so.

    Parameters
    ----------
    X : Tensor (n, d)
        Standardised data, on any device.
    features : ndarray (m,)
        Distinct columns to start from.
    k : int
        Number of neighbours.
    objective : Objective
        What is to fall.
    budget, max_passes, should_stop
        When to end, see above.
    n_rows : int
        Size of that sample.
    n_among : int
        The rows look for their neighbours among all samples, or among a fixed sample of that many if there are more,
        so that the cost does not depend on n.

    Returns
    -------
    features : ndarray (m,)
        Place by place what became of the given ones.
    left : int
        What is left of the budget.
    """
    d, m = X.shape[1], len(features)
    if m == d or budget <= 0:
        return features, budget
    if n_among < k + 1:
        raise ValueError(f"n_among={n_among} must be greater than k={k}.")
    trials = _Trials(X, k, m, objective, n_among, n_rows)
    chosen = [int(f) for f in features]
    D = trials.distances(chosen)  # (B, A)
    unchanged = 0
    for turn in range(max_passes * m):
        at = turn % m
        if at == 0:  # anew, so that the rounding of many additions cannot grow
            D = trials.distances(chosen)
        D_rest = (D - trials.differences(chosen[at])).clamp_min_(0) if m > 1 else trials.distances([])
        best, spent = trials.best(D_rest, chosen, at, budget)
        budget -= spent
        if best == chosen[at]:
            unchanged += 1
        else:
            chosen[at] = best
            D = D_rest + trials.differences(best)
            unchanged = 0
        # A single feature has been tried against all the others, and nothing else can change.
        if should_stop(turn) or unchanged == m or m == 1 or budget <= 0:
            break
    return np.array(chosen), budget


class _Trials:
    """Exact objective of selections that differ in one feature, on a fixed sample of B rows.

    A feature adds a square to each distance, so the k + 1 nearest of a row are seldom far from those in the other
    features: they are looked for among the ``width`` nearest in these. Where the last of the k + 1 is farther than the
    nearest point left out can be, the whole row is searched, so what is found is exact.
    """

    def __init__(self, X: Tensor, k: int, m: int, objective: Objective, n_among: int, n_rows: int) -> None:
        n, d = X.shape
        # Always the same rows: there is nothing to gain from chance here.
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(X.device)
        self.X, self.k, self.m = X, k, m
        self.among = torch.arange(n, device=X.device) if n <= n_among else order[:n_among].sort().values  # (A,)
        self.rows = order[: min(n_rows, n_among)]  # (B,)
        self.objective = objective.on(self.rows, self.among)
        self.own = torch.searchsorted(self.among, self.rows)  # their places among the A
        self.columns = X.T[:, self.among].contiguous()  # (d, A): a feature is read in one piece
        self.queries = self.columns[:, self.own]  # (d, B)
        self.Q = X[self.rows]  # (B, d)
        self.norms = self.Q.square().sum(0)  # (d,)
        self.exhaustive = d - m <= SHORTLIST or m == 1  # a single feature has no others to make a graph with
        A = len(self.among)
        self.n_edges = min(k + 1, A - 1)
        self.width = A - 1 if m == 1 else min(max(WIDTH, 2 * (k + 1)), A - 1)

    def distances(self, features: list[int]) -> Tensor:
        """Squared distances (B, A) in ``features``, infinite between a row and itself."""
        index = torch.tensor(features, dtype=torch.long, device=self.X.device)
        D = cross_squared_distances(self.queries[index].T, self.columns[index].T)
        D[torch.arange(len(D), device=D.device), self.own] = torch.inf
        return D

    def differences(self, feature: int) -> Tensor:
        """Squared differences (B, A) in one feature."""
        return (self.queries[feature][:, None] - self.columns[feature]).square_()

    def best(self, D_rest: Tensor, chosen: list[int], at: int, budget: int) -> tuple[int, int]:
        """The best feature for the place ``at`` beside the others, whose squared distances are given, and the cost."""
        E, near = D_rest.topk(max(self.n_edges, self.width), largest=False)  # (B, c)
        spent = 2 * D_rest.numel()
        if self.exhaustive:
            allowed = torch.ones(self.X.shape[1], dtype=torch.bool, device=self.X.device)
            allowed[chosen] = False
            others = allowed.nonzero().squeeze(-1)
        else:
            others = self._shortlist(E[:, : self.n_edges], near[:, : self.k], chosen)
            spent += (self.k + 1) * self.queries.numel()
        trial = torch.cat([torch.tensor([chosen[at]], device=self.X.device), others])
        values = []
        for part in trial.split(max(1, BLOCK // near.numel())):
            value, cost = self._values(D_rest, E, near, part)
            values.append(value)
            spent += cost
            if spent >= budget:
                break
        found = torch.cat(values)
        best = int(found.argmin())
        return (int(trial[best]) if found[best] < found[0] * (1 - 1e-6) else chosen[at]), spent

    def _shortlist(self, E: Tensor, neighbors: Tensor, chosen: list[int]) -> Tensor:
        r"""The features that are smoothest on the graph of the rest, given by its distances and neighbours.

        With rows of S that sum to 1, :math:`\sum_{ij} s_{ij} (q_i - x_j)^2 = \sum_i q_i^2 + \sum_j x_j^2 \sum_i s_{ij}
        - 2 \sum_i q_i (S x)_i`.
        """
        S = _similarities(E, self.k)  # (B, k)
        mean = embedding_bag(self.among[neighbors], self.X, per_sample_weights=S, mode="sum")  # (B, d)
        points, place = neighbors.unique(return_inverse=True)
        mass = torch.zeros(len(points), dtype=S.dtype, device=S.device).index_add_(0, place.flatten(), S.flatten())
        squares = self.X.index_select(0, self.among[points]).square_()
        smoothness = self.norms + mass @ squares - 2 * mean.mul_(self.Q).sum(0)  # (d,)
        smoothness[chosen] = torch.inf
        return smoothness.topk(SHORTLIST, largest=False).indices

    def _values(self, D_rest: Tensor, E: Tensor, near: Tensor, trial: Tensor) -> tuple[Tensor, int]:
        """Objective (G,) with each feature of ``trial (G,)`` beside the others, and what it cost."""
        G, B, A, c = len(trial), *D_rest.shape, near.shape[1]
        V, Q = self.columns[trial], self.queries[trial]  # (G, A), (G, B)
        D = V.index_select(1, near.flatten()).view(G, B, c)
        D, place = D.sub_(Q[:, :, None]).square_().add_(E).topk(self.n_edges, largest=False)  # (G, B, k + 1)
        indices = near.expand(G, B, c).gather(2, place)
        cost = G * near.numel()
        if c < A - 1:
            doubtful = (D[..., -1] > E[:, -1]).nonzero()  # (P, 2)
            for g, b in (part.unbind(1) for part in doubtful.split(max(1, BLOCK // A))):
                whole = (V[g] - Q[g, b][:, None]).square_().add_(D_rest[b])
                D[g, b], indices[g, b] = whole.topk(self.n_edges, largest=False)
            if len(doubtful) * A > cost:  # a wider search costs less than what it saves
                self.width = min(2 * self.width, A - 1)
            cost += len(doubtful) * A
        graph = NeighborGraph(indices[..., : self.k], _similarities(D, self.k), D[..., : self.k], A)
        return self.objective(graph, self.m, self.rows, self.among), cost


def _similarities(E: Tensor, k: int) -> Tensor:
    """Those of the k nearest as in :func:`~homophily.nn.exact_similarities`, for ascending rows: sorting is dear."""
    if E.shape[-1] == k:
        return torch.full_like(E, 1 / k)
    threshold = E[..., k:]
    gap = threshold - E[..., :k]
    total = gap.sum(-1, keepdim=True)
    usable = total > negligible(threshold)  # otherwise all are equally far up to rounding
    return torch.where(usable, gap / torch.where(usable, total, 1), 1 / k)
