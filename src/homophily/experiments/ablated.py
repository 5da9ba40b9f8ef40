"""The paper's method with parts taken out (Sec. 4.4): a fixed graph, no selection, as selectors to compare with."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..base import BaseSelector
from ..baselines import Baseline
from ..baselines.base import best
from ..graph import adaptive_knn_graph, heat_kernel_graph, symmetrize
from ..progress import Steps

__all__ = ["FixedGraphSelector", "GraphOfAllFeatures"]


class FixedGraphSelector(Baseline):
    r"""The method without DGL: the graph is the Heat graph of all features, and only the features are chosen.

    With the graph fixed, Eq. (3) is a sum over the selected features of :math:`x_f^\top L x_f`, so its minimum is known
    without training: the m features with the smallest energy.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    n_neighbors : int
        Neighbours in the graph.
    sigma : float or None
        Width of the heat kernel on standardised data; None: the mean distance between neighbours. The paper tunes it
        in 1, ..., 5, where with hundreds of columns most weights are almost 0 and few edges count.
    random_state : int, RandomState or None
        Not used.
    """

    param_grid: ClassVar[dict[str, list]] = {"sigma": [1.0, 2.0, 3.0, 4.0, 5.0]}
    score_meaning: ClassVar[str] = "energy on the fixed graph, negative"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        n_neighbors: int = 5,
        sigma: float | None = 1.0,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        X = X.astype(np.float64)
        S = symmetrize(heat_kernel_graph(X, self.n_neighbors, self.sigma))
        degrees = np.asarray(S.sum(axis=1)).ravel()
        # x'Lx of each column. Tiny weights only scale it; where all are 0 every column is as good, and the first win.
        energies = (degrees[:, None] * X**2).sum(0) - (X * (S @ X)).sum(0)  # (d,)
        scores = -energies / (degrees.max() or 1.0)
        return best(scores, m), scores


class GraphOfAllFeatures(BaseSelector):
    """The method without selection: every column that varies, and the graph of all of them.

    Parameters
    ----------
    kind : {"adaptive", "heat"}
        The paper's "DGL only" and "Heat".
    n_neighbors : int
        Neighbours in the graph.
    sigma : float or None
        Width of the heat kernel; None: the mean distance between neighbours.
    """

    def __init__(self, *, kind: str = "adaptive", n_neighbors: int = 5, sigma: float | None = 1.0) -> None:
        self.kind = kind
        self.n_neighbors = n_neighbors
        self.sigma = sigma

    def fit(self, X: Any, y: Any = None) -> Self:
        """Make the graph of ``X (n, d)``."""
        data = self._check_and_standardize(X)
        d = data.values.shape[1]
        self._set_selection(data, np.arange(d), np.ones(d))
        if self.kind == "heat":
            self.graph_ = heat_kernel_graph(data.values, self.n_neighbors, self.sigma)
        else:
            self.graph_ = adaptive_knn_graph(data.values, self.n_neighbors)
        return self
