"""Finish what training began: exchange single features while the exact objective falls."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .nn import NeighborGraph, exact_similarities
from .objectives import Objective

__all__ = ["exchange_features"]

ROWS = 256  # samples on which exchanges are judged
SHORTLIST = 32  # replacements that are tried for a feature
BUDGET = 2**31  # entries of distance matrices that are looked at for all restarts: seconds, not minutes
BLOCK = 2**23  # of them at once


@torch.no_grad()
def exchange_features(
    X: Tensor, features: np.ndarray, k: int, objective: Objective, *, budget: int = BUDGET, max_passes: int = 5
) -> tuple[np.ndarray, int]:
    """Coordinate descent over the features: replace one at a time if that lowers the exact objective.

    For each feature, those that are smoothest on the graph of the other m - 1 are tried in its place, or all if they
    are few. Judged on a fixed sample of rows, whose neighbours are looked for among all samples. Ends when a pass over
    all m features changes nothing, after ``max_passes``, or when ``budget`` entries of distances have been looked at.

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
    among = torch.arange(n, device=X.device)
    chosen = [int(f) for f in features]

    def value(D: Tensor) -> Tensor:
        """Objective of the graphs with squared distances ``D (G, B, n)``."""
        return objective(_exact_graph(D, k), m, rows, among)

    def distances(columns: Tensor) -> Tensor:
        return (X[rows][:, columns].T[:, :, None] - X[:, columns].T[:, None, :]).square()  # (G, B, n)

    unchanged = 0
    for turn in range(max_passes * m):
        at = turn % m
        rest = torch.tensor(chosen[:at] + chosen[at + 1 :], dtype=torch.long, device=X.device)
        D_rest = _squared_distances(X[rows][:, rest], X[:, rest])
        D_rest[torch.arange(len(rows), device=X.device), rows] = torch.inf
        others = _shortlist(X, D_rest, k, rows, chosen) if d - m > SHORTLIST else _all_but(d, chosen, X.device)
        trial = torch.cat([torch.tensor([chosen[at]], device=X.device), others])
        width = max(1, BLOCK // D_rest.numel())
        values = torch.cat([value(D_rest + distances(part)) for part in trial.split(width)])
        best = int(values.argmin())
        if values[best] < values[0] * (1 - 1e-6):
            chosen[at] = int(trial[best])
            unchanged = 0
        else:
            unchanged += 1
        budget -= D_rest.numel() * len(trial)
        if unchanged == m or budget <= 0:
            break
    return np.array(chosen), budget


def _squared_distances(Q: Tensor, P: Tensor) -> Tensor:
    """All squared distances between rows; (B, n)."""
    D = torch.addmm(P.square().sum(1)[None, :], Q, P.T, alpha=-2)
    return D.add_(Q.square().sum(1)[:, None]).clamp_min_(0)


def _exact_graph(D: Tensor, k: int) -> NeighborGraph:
    """Exact k-NN graph from whole rows of squared distances ``(G, B, n)``, infinite where no edge may be."""
    n = D.shape[-1]
    E, indices = D.topk(min(k + 1, n - 1), largest=False)
    return NeighborGraph(indices, exact_similarities(E, k), E, n)


def _all_but(d: int, chosen: list[int], device: torch.device) -> Tensor:
    mask = torch.ones(d, dtype=torch.bool, device=device)
    mask[chosen] = False
    return mask.nonzero().squeeze(-1)


def _shortlist(X: Tensor, D_rest: Tensor, k: int, rows: Tensor, chosen: list[int]) -> Tensor:
    """The features that are smoothest on the graph of the other chosen ones, whose squared distances ``D_rest`` are."""
    S = _exact_graph(D_rest, k)
    smoothness = torch.zeros(X.shape[1], dtype=X.dtype, device=X.device)
    for a in range(k):  # one neighbour at a time: (B, d)
        smoothness += (S.weights[:, a, None] * (X[rows] - X[S.indices[:, a]]).square()).sum(0)
    smoothness[chosen] = torch.inf
    return smoothness.topk(SHORTLIST, largest=False).indices
