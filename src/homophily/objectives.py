"""What training and the exchange of features minimise."""

from __future__ import annotations

from torch import Tensor

from .nn import NeighborGraph, cross_squared_distances

__all__ = ["OBJECTIVES", "Coverage", "Energy", "Objective"]

KEPT = 2**24  # squared distances between all rows that are kept rather than computed again


class Energy:
    r"""The paper's Eq. (3) per feature: :math:`\frac1m \sum_i \sum_j s_{ij} \|\hat x_i - \hat x_j\|^2`.

    An unrelated standardised feature adds 2 per row. It is a sum over rows, so a batch estimates it without bias.
    """

    def __init__(self, X: Tensor, *, keep: bool = True) -> None:
        pass

    def __call__(self, graph: NeighborGraph, m: int, rows: Tensor, among: Tensor) -> Tensor:
        """Sum over the samples ``rows``, whose neighbours ``graph`` numbers within ``among``; (R,)."""
        return (graph.weights * graph.distances).sum((-2, -1)) / m

    def target(self, rows: Tensor, among: Tensor) -> Tensor | None:
        """Squared distances (B, A) that the graph keeps small; None where they are those of the selection itself."""
        return None


class Coverage:
    r"""Energy of *all* features on the graph of the selected ones: :math:`\mathrm{tr}(X^\top L_S X)/d`.

    The gradient flows through :math:`S` alone. It asks that samples which are close in the selected features be close
    in all of them, so a near-copy of a feature that is already selected gains nothing.
    """

    def __init__(self, X: Tensor, *, keep: bool = True) -> None:
        self.X = X
        self.D = None  # (n, n) mean squared difference per feature, if it is used often and small enough to keep
        if keep and len(X) ** 2 <= KEPT:
            self.D = cross_squared_distances(X, X) / X.shape[1]

    def __call__(self, graph: NeighborGraph, m: int, rows: Tensor, among: Tensor) -> Tensor:
        """As :meth:`Energy.__call__`."""
        if self.D is not None:
            E = self.D[rows[:, None], among[graph.indices]]  # (R, B, c)
        else:
            E = self.target(rows, among).expand(*graph.indices.shape[:-2], -1, -1).gather(-1, graph.indices)
        return (graph.weights * E).sum((-2, -1))

    def target(self, rows: Tensor, among: Tensor) -> Tensor:
        """The mean squared difference per feature; (B, A)."""
        if self.D is not None:
            return self.D[rows[:, None], among]
        return cross_squared_distances(self.X[rows], self.X[among]) / self.X.shape[1]


Objective = Energy | Coverage
OBJECTIVES: dict[str, type[Objective]] = {"energy": Energy, "coverage": Coverage}
