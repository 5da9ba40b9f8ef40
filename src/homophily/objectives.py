"""What training minimises and restarts are judged by: one class an objective, one line in the registry."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .nn import NeighborGraph, cross_squared_distances, squared_distances
from .regression import Regression
from .screening import Screen
from .trials import Criterion, Rest, Trials

__all__ = ["OBJECTIVES", "Coverage", "Energy", "Objective", "Screened"]

BUDGET = 2**24  # entries held at once


class Energy:
    r"""The paper's Eq. (3), a feature: :math:`\frac1m \sum_i \sum_j s_{ij} \|\hat x_i - \hat x_j\|^2`.

    An unrelated standardised feature adds 2 a row. Rows enter one by one, so a batch of them estimates it without bias.
    """

    def __init__(self, X: Tensor, *, keep: bool = True) -> None:
        pass

    def __call__(self, graph: NeighborGraph, m: int, rows: Tensor, among: Tensor) -> Tensor:
        """Sum over the samples ``rows``, whose neighbours ``graph`` numbers within ``among``; (R,)."""
        return (graph.weights * graph.distances).sum((-2, -1)) / m

    def criterion(self, trials: Trials) -> Criterion:
        """The same, to be asked many times about selections that differ in one feature."""
        return _EdgeSum(self, trials)

    def target(self, trials: Trials) -> Tensor | None:
        """Fixed squared distances (B, A) that the graph is to keep small; the energy's change with the selection."""
        return None


class Coverage:
    r"""Energy of *all* features on the graph of the selected ones: :math:`\mathrm{tr}(X^\top L_S X)/d`.

    The gradient flows through :math:`S` alone. It asks that samples which are close in the selected features be close
    in all of them, so a near-copy of a feature that is already selected gains nothing.
    """

    def __init__(self, X: Tensor, *, keep: bool = True) -> None:
        self.X = X
        n, d = X.shape
        self.D = None  # (n, n) mean squared difference a feature, where it is used often and small enough to keep
        if keep and n * n <= BUDGET:
            self.D = cross_squared_distances(X, X) / d

    def __call__(self, graph: NeighborGraph, m: int, rows: Tensor, among: Tensor) -> Tensor:
        """As :meth:`Energy.__call__`."""
        return (graph.weights * self._distances(among[graph.indices], rows)).sum((-2, -1))

    def criterion(self, trials: Trials) -> Criterion:
        """As :meth:`Energy.criterion`."""
        return _EdgeSum(self, trials)

    def target(self, trials: Trials) -> Tensor:
        """As :meth:`Energy.target`: the mean squared difference a feature."""
        if self.D is not None:
            return self.D[trials.rows[:, None], trials.among]
        return cross_squared_distances(self.X[trials.rows], self.X[trials.among]) / self.X.shape[1]

    @torch.no_grad()
    def _distances(self, neighbors: Tensor, rows: Tensor) -> Tensor:
        """Mean squared difference over all features between ``rows (B,)`` and ``neighbors (..., B, c)``."""
        if self.D is not None:
            return self.D[rows[:, None], neighbors]
        d = self.X.shape[1]
        chunk = max(1, BUDGET // (neighbors.shape[-1] * d))
        parts = [
            squared_distances(self.X[rows[i : i + chunk]], self.X, indices[i : i + chunk])
            for indices in neighbors.reshape(-1, *neighbors.shape[-2:])
            for i in range(0, len(rows), chunk)
        ]
        return torch.cat(parts).view(neighbors.shape) / d


class Screened(Coverage):
    """Coverage while training; after it, only of features that are explained beyond chance, and by others.

    See :mod:`homophily.screening`. Training is a sum over rows, which what needs thresholds, permutations and graphs
    without one feature is not.
    """

    def __init__(self, X: Tensor, *, keep: bool = True) -> None:
        super().__init__(X, keep=keep)
        self.screen: Screen | None = None  # for the last m, k and number of rows
        self.known_by = (0, 0, 0)

    def criterion(self, trials: Trials) -> Criterion:
        """As :meth:`Energy.criterion`."""
        return Screen(trials)

    def surest(self, m: int, k: int, n_rows: int) -> np.ndarray:
        """The m features that the graph of all features explains most surely; (m,)."""
        trials = Trials(self.X, k, self.X.shape[1], n_rows=n_rows)
        return Screen(trials).surest(m).cpu().numpy()

    def linear(self, m: int) -> np.ndarray:
        """Features (m,), each the one that adds most to what regressions on those before it explain."""
        return Regression(self.X).greedy(m).cpu().numpy()

    def judge(self, features: np.ndarray, k: int, n_rows: int) -> float:
        """Screened coverage of ``features`` on a fixed sample of ``n_rows`` samples; free of units."""
        if self.screen is None or self.known_by != (len(features), k, n_rows):
            self.known_by = len(features), k, n_rows
            self.screen = Screen(Trials(self.X, k, len(features), n_rows=n_rows))
        return self.screen.judge([int(f) for f in features])


class _EdgeSum:
    """:class:`~homophily.trials.Criterion` of an objective that is a sum over edges."""

    min_passes = 1

    def __init__(self, objective: Energy | Coverage, trials: Trials) -> None:
        self.trials, self.m = trials, trials.m
        self.target = objective.target(trials)  # (B, A)

    def begin(self, chosen: list[int], sums: Tensor) -> None:
        """Nothing depends on the pass."""

    def shortlist(self, rest: Rest, chosen: list[int], at: int, count: int) -> Tensor:
        """The smoothest on the graph of the others, or those that tell apart what the target keeps apart."""
        if self.target is None:
            return self.trials.smoothest(rest, chosen, count)
        return self.trials.telling(rest, self.target, chosen, count)

    def values(self, graph: NeighborGraph, trial: Tensor) -> Tensor:
        """Sums over the edges, one a graph."""
        if self.target is None:
            return (graph.weights * graph.distances).sum((-2, -1)) / self.m
        T = self.target.expand(len(trial), *self.target.shape)
        return (graph.weights * T.gather(-1, graph.indices)).sum((-2, -1))

    def settle(self, feature: int) -> None:
        """Nothing is remembered."""


Objective = Energy | Coverage
OBJECTIVES: dict[str, type[Objective]] = {"energy": Energy, "coverage": Coverage, "screened": Screened}
