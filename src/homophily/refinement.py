"""Finish what training began: exchange single features while the exact objective falls."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .objectives import Objective
from .trials import AMONG, BLOCK, Criterion, Rest, Trials

__all__ = ["BUDGET", "ROWS", "exchange_features"]

ROWS = 256, 1024  # samples on which exchanges are judged, first and in the end
SHORTLIST = 32  # replacements that are tried for a feature
# Entries of data and distances that are looked at for all starts: seconds, not minutes.
BUDGET = {"energy": 2**30, "coverage": 2**31, "screened": 2**34}


@torch.no_grad()
def exchange_features(
    X: Tensor,
    features: np.ndarray,
    k: int,
    objective: Objective,
    *,
    budget: int = BUDGET["energy"],
    max_passes: int = 5,
    should_stop: Callable[[int], bool] = lambda turn: False,
    n_rows: int = ROWS[0],
    n_among: int = AMONG,
) -> tuple[np.ndarray, int]:
    """Coordinate descent over the features: replace one at a time if that lowers the exact objective.

    For each feature, those that look best beside the other m - 1 are tried in its place, or all if they are few. Judged
    on a fixed sample of rows, on which a sum over edges never ends worse than it began. Ends when a pass over all m
    features changes nothing, after ``max_passes``, when ``budget`` entries have been looked at, or when
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
    trials = Trials(X, k, m, n_rows=n_rows, n_among=n_among)
    criterion = objective.criterion(trials)
    chosen = [int(f) for f in features]
    sums = trials.sums(chosen)  # (B, A)
    unchanged = 0
    for turn in range(max_passes * m):
        at = turn % m
        if at == 0:  # anew, so that the rounding of many additions cannot grow
            sums = trials.sums(chosen)
            criterion.begin(chosen, sums)
        rest = trials.rest(trials.without(sums, chosen, at))
        best, spent = _best(trials, criterion, rest, chosen, at, budget)
        budget -= spent
        if best == chosen[at]:
            unchanged += 1
        else:
            sums += trials.differences(best, sums.dtype) - trials.differences(chosen[at], sums.dtype)
            chosen[at] = best
            criterion.settle(best)
            unchanged = 0
        # A single feature has been tried against all the others, and nothing else can change.
        settled = unchanged >= m and turn + 1 >= criterion.min_passes * m
        if should_stop(turn) or settled or m == 1 or budget <= 0:
            break
    return np.array(chosen), budget


def _best(trials: Trials, criterion: Criterion, rest: Rest, chosen: list[int], at: int, budget: int) -> tuple[int, int]:
    """The best feature for the place ``at`` beside the others, and how many entries it took to find it."""
    d, device = trials.X.shape[1], trials.X.device
    n_others = d - len(chosen)
    # A single feature has no others to make a graph with, so all are tried.
    count = n_others if n_others <= SHORTLIST or len(chosen) == 1 else SHORTLIST
    others = criterion.shortlist(rest, chosen, at, count)
    spent = 2 * rest.D.numel() + rest.near.shape[1] * trials.queries.numel()
    trial = torch.cat([torch.tensor([chosen[at]], device=device), others])
    values = []
    for part in trial.split(max(1, BLOCK // rest.near.numel())):
        graph, cost = trials.graphs(rest, part)
        values.append(criterion.values(graph, part))
        spent += cost
        if spent >= budget:
            break
    found = torch.cat(values)
    best = int(found.argmin())
    return (int(trial[best]) if found[best] < found[0] - 1e-6 * found[0].abs() else chosen[at]), spent
