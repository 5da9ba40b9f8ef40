"""Finish what training began: exchange single features while the exact objective falls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .nn import NeighborGraph, cross_squared_distances, exact_similarities
from .objectives import Objective

__all__ = ["exchange_features"]

ROWS = 256  # samples on which exchanges are judged
SHORTLIST = 32  # replacements that are tried for a feature
BUDGET = 2**31  # entries of data and distances that are looked at for all restarts: seconds, not minutes
BLOCK = 2**23  # of them at once


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
) -> tuple[np.ndarray, int]:
    """Coordinate descent over the features: replace one at a time if that lowers the exact objective.

    For each feature, those that are smoothest on the graph of the other m - 1 are tried in its place, or all if they
    are few. Judged on a fixed sample of rows, whose neighbours are looked for among all samples. Ends when a pass over
    all m features changes nothing, after ``max_passes``, when ``budget`` entries have been looked at, or when
    ``should_stop``, asked with the number of the turn, says so.

    Returns
    -------
    features : ndarray (m,)
        Place by place what became of the given ones.
    left : int
        What is left of the budget.
    """
    n, d = X.shape
    m = len(features)
    if m == d or budget <= 0:
        return features, budget
    # Always the same rows: there is nothing to gain from chance here.
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(0))[:ROWS].to(X.device)
    Q = X[rows]  # (B, d)
    among = torch.arange(n, device=X.device)
    chosen = [int(f) for f in features]

    def values(D_rest: Tensor, trial: Tensor) -> Tensor:
        """Objective (G,) with each feature of ``trial (G,)`` beside the others, whose squared distances are given."""
        D = D_rest + (Q[:, trial].T[:, :, None] - X[:, trial].T[:, None, :]).square()  # (G, B, n)
        return objective(_exact_graph(D, k), m, rows, among)

    unchanged = 0
    for turn in range(max_passes * m):
        at = turn % m
        rest = torch.tensor(chosen[:at] + chosen[at + 1 :], dtype=torch.long, device=X.device)
        D_rest = cross_squared_distances(Q[:, rest], X[:, rest])  # (B, n)
        D_rest[torch.arange(len(rows), device=X.device), rows] = torch.inf
        if d - m <= SHORTLIST or m == 1:  # a single feature has no others to make a graph with
            others = _all_but(d, chosen, X.device)
        else:
            others = _shortlist(X, Q, D_rest, k, chosen)
            budget -= Q.numel() * k
        trial = torch.cat([torch.tensor([chosen[at]], device=X.device), others])
        found = torch.cat([values(D_rest, part) for part in trial.split(max(1, BLOCK // D_rest.numel()))])
        budget -= D_rest.numel() * len(trial)
        best = int(found.argmin())
        if found[best] < found[0] * (1 - 1e-6):
            chosen[at] = int(trial[best])
            unchanged = 0
        else:
            unchanged += 1
        if unchanged == m or budget <= 0 or should_stop(turn):
            break
    return np.array(chosen), budget


def _exact_graph(D: Tensor, k: int) -> NeighborGraph:
    """Exact k-NN graph from whole rows of squared distances ``(G, B, n)``, infinite where no edge may be."""
    n = D.shape[-1]
    E, indices = D.topk(min(k + 1, n - 1), largest=False)
    return NeighborGraph(indices, exact_similarities(E, k), E, n)


def _all_but(d: int, chosen: list[int], device: torch.device) -> Tensor:
    mask = torch.ones(d, dtype=torch.bool, device=device)
    mask[chosen] = False
    return mask.nonzero().squeeze(-1)


def _shortlist(X: Tensor, Q: Tensor, D_rest: Tensor, k: int, chosen: list[int]) -> Tensor:
    """The features that are smoothest on the graph of the other chosen ones, whose squared distances ``D_rest`` are."""
    S = _exact_graph(D_rest, k)
    smoothness = torch.zeros(X.shape[1], dtype=X.dtype, device=X.device)
    for a in range(k):  # one neighbour at a time: (B, d)
        smoothness += S.weights[:, a] @ (Q - X[S.indices[:, a]]).square()
    smoothness[chosen] = torch.inf
    return smoothness.topk(SHORTLIST, largest=False).indices
