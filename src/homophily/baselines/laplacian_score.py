"""LS: the Laplacian score of He, Cai and Niyogi (NIPS 2005)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval

from ..base import BaseSelector, check_numbers
from ..graph import heat_kernel_graph
from ..preprocessing import standardize
from ..progress import Steps
from .base import Baseline, best

__all__ = ["LaplacianScore", "laplacian_score", "laplacian_smoothness"]

BLOCK = 2**24  # entries that are worked on at once


class LaplacianScore(Baseline):
    r"""Select the columns that vary least between neighbours, each judged alone.

    .. math::
        \mathrm{LS}_f = \frac{\tilde f^\top L \tilde f}{\tilde f^\top D \tilde f}, \qquad
        \tilde f = f - \frac{f^\top D 1}{1^\top D 1} 1

    with :math:`W` the k-NN graph of all columns, symmetrised by the larger weight, :math:`w_{ij} = \exp(-\|x_i -
    x_j\|^2 / 2\sigma^2)`, :math:`D` its degrees and :math:`L = D - W`.

    The width matters: on standardised data :math:`\sigma = 1` lets every weight underflow, all scores become equal and
    the "ranking" is the order of the columns. The default is the mean distance of neighbours.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    n_neighbors : int
        Neighbours k in the graph.
    sigma : float, optional
        Width of the heat kernel. By default the mean distance between neighbours.
    random_state : int, RandomState or None
        Not used: nothing is drawn.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        :math:`1 - \mathrm{LS}_f / 2`, between 0 and 1, larger is better; 0 for the constant columns.

    Examples
    --------
    >>> from homophily.baselines import LaplacianScore
    >>> from homophily.datasets import make_toy
    >>> X, y = make_toy("blobs", random_state=0)
    >>> sorted(LaplacianScore(2).fit(X).selected_features_.tolist())
    [0, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "sigma": [Interval(Real, 0, None, closed="neither"), None],
    }
    score_meaning: ClassVar[str] = "1 minus half of the Laplacian score: 1 is perfectly smooth on the neighbour graph"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        n_neighbors: int = 5,
        sigma: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        self._check_neighbors(len(X))
        scores = 1 - _scores(X, self.n_neighbors, self.sigma) / 2
        return best(scores, m), scores


def laplacian_score(X: Any, *, n_neighbors: int = 5, sigma: float | None = None) -> np.ndarray:
    """Laplacian score of every column of ``X (n, d)``: between 0 and 2, *smaller* is better; 2 for constant columns.

    Columns are standardised first; see :class:`LaplacianScore` for the parameters.
    """
    X = check_numbers(X)
    data = standardize(X)
    scores = np.full(X.shape[1], 2.0)
    if len(data.kept):
        scores[data.kept] = _scores(data.values, n_neighbors, sigma)
    return scores


def laplacian_smoothness(X: Any, y: Any = None) -> np.ndarray:
    """``1 - laplacian_score(X) / 2``, larger is better: a ``score_func`` for scikit-learn's ``SelectKBest``.

    Examples
    --------
    >>> from sklearn.feature_selection import SelectKBest
    >>> from homophily.baselines import laplacian_smoothness
    >>> from homophily.datasets import make_toy
    >>> X, y = make_toy("blobs", random_state=0)
    >>> SelectKBest(laplacian_smoothness, k=2).fit(X).get_support(indices=True).tolist()
    [0, 1]
    """
    return 1 - laplacian_score(X) / 2


def _scores(X: np.ndarray, k: int, sigma: float | None) -> np.ndarray:
    """Laplacian scores of the columns of standardised ``X (n, d)``; (d,)."""
    S = heat_kernel_graph(X, k, sigma)
    W = sp.csr_array(S.maximum(S.T))
    degrees = W.sum(axis=1)  # (n,)
    if not degrees.any():
        raise ValueError(f"sigma={sigma} is so small that every weight of the graph is 0: raise it, or leave it out.")
    scores = np.empty(X.shape[1])
    width = max(1, BLOCK // len(X))
    for start in range(0, X.shape[1], width):
        F = X[:, start : start + width].astype(np.float64)
        F -= degrees @ F / degrees.sum()
        spread = degrees @ F**2
        unsmooth = spread - (F * (W @ F)).sum(0)
        # A column that is constant wherever the graph has any weight tells nothing: the worst score.
        known = spread > np.finfo(np.float64).eps * degrees.sum()
        scores[start : start + width] = np.where(known, unsmooth / np.where(known, spread, 1), 2)
    return np.clip(scores, 0, 2)
