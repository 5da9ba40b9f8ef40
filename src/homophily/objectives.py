"""What training minimises and restarts are judged by: one class an objective, one line in the registry."""

from __future__ import annotations

import torch
from torch import Tensor

from .nn import NeighborGraph, cross_squared_distances, squared_distances

__all__ = ["OBJECTIVES", "Coverage", "Energy", "Objective"]

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

    def on(self, rows: Tensor, among: Tensor) -> Energy:
        """The same, to be asked many times about the same samples."""
        return self


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

    def on(self, rows: Tensor, among: Tensor) -> Coverage | _CoverageOn:
        """As :meth:`Energy.on`."""
        if self.D is not None:
            return self
        return _CoverageOn(cross_squared_distances(self.X[rows], self.X[among]) / self.X.shape[1])

    @torch.no_grad()
    def _distances(self, neighbors: Tensor, rows: Tensor) -> Tensor:
        """Mean squared difference over all features between ``rows (B,)`` and ``neighbors (R, B, c)``."""
        if self.D is not None:
            return self.D[rows[:, None], neighbors]
        d = self.X.shape[1]
        chunk = max(1, BUDGET // (neighbors.shape[-1] * d))
        parts = [
            squared_distances(self.X[rows[i : i + chunk]], self.X, indices[i : i + chunk])
            for indices in neighbors
            for i in range(0, len(rows), chunk)
        ]
        return torch.cat(parts).view(neighbors.shape) / d


class _CoverageOn:
    """Coverage of fixed rows and candidates, whose mean squared differences ``D (B, A)`` are known."""

    def __init__(self, D: Tensor) -> None:
        self.D = D

    def __call__(self, graph: NeighborGraph, m: int, rows: Tensor, among: Tensor) -> Tensor:
        D = self.D.expand(*graph.indices.shape[:-2], *self.D.shape)
        return (graph.weights * D.gather(-1, graph.indices)).sum((-2, -1))


Objective = Energy | Coverage
OBJECTIVES: dict[str, type[Objective]] = {"energy": Energy, "coverage": Coverage}
