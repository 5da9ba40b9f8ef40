"""MCFS: multi-cluster feature selection of Cai, Zhang and He (KDD 2010)."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lars_path
from sklearn.utils._param_validation import Interval

from ..base import BaseSelector
from ..eigen import eigenvectors, largest_eigenvectors
from ..graph import heat_kernel_graph
from ..progress import Steps
from .base import Baseline

__all__ = ["MCFS"]

DENSE_ROWS = 1000  # up to here all eigenvalues of a dense matrix take no time


class MCFS(Baseline):
    r"""Select the columns that best explain the clusters of the samples, by sparse regressions on eigenvectors.

    .. math::
        L y_k = \lambda_k D y_k, \qquad
        a_k = \arg\min_a \|y_k - X a\|^2 \;\text{ with at most } m \text{ non-zeros (LARS)}, \qquad
        s_j = \max_k |a_{kj}|

    with :math:`W` the k-NN graph of all columns, symmetrised by the larger weight, :math:`w_{ij} = \exp(-\|x_i -
    x_j\|^2 / 2\sigma^2)`, :math:`\sigma` the mean distance of neighbours, :math:`D` its degrees, :math:`L = D - W`, and
    :math:`y_1, \dots, y_K` the eigenvectors of the smallest eigenvalues but for the constant one. The columns with the
    largest :math:`s_j` are selected.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    n_clusters : int, default=5
        Eigenvectors K, "the number of clusters"; at most one less than the samples.
    n_neighbors : int, default=5
        Neighbours k in the graph.
    random_state : int, RandomState or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        :math:`s_j`, larger is better; 0 for columns that no regression takes and for the constant ones.

    Notes
    -----
    The eigenvectors are standardised as the columns are, so that the coefficients of all K regressions can be compared.
    The constant vector is left out by name: the components of a graph share its eigenvalue, and "the first eigenvector"
    could be any of theirs. Where fewer than m columns have a coefficient, those that
    correlate most with an eigenvector follow.

    References
    ----------
    D. Cai, C. Zhang and X. He, Unsupervised feature selection for multi-cluster data, KDD 2010.

    Examples
    --------
    >>> from homophily.baselines import MCFS
    >>> from homophily.datasets import make_toy
    >>> X, y = make_toy("blobs", random_state=0)
    >>> sorted(MCFS(2, n_clusters=2).fit(X).selected_features_.tolist())
    [0, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    }
    nested: ClassVar[bool] = False
    score_meaning: ClassVar[str] = "largest coefficient of the column in the regressions on the eigenvectors"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        n_clusters: int = 5,
        n_neighbors: int = 5,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        n = len(X)
        self._check_neighbors(n)
        X = X.astype(np.float64)
        S = heat_kernel_graph(X, self.n_neighbors, sigma=None)
        Y = embedding(sp.csr_array(S.maximum(S.T)), min(self.n_clusters, n - 1))  # (n, K)
        scores = np.max([np.abs(coefficients(X, y, m)) for y in Y.T], axis=0)  # (d,)
        correlations = np.abs(X.T @ Y).max(1)
        return np.lexsort((-correlations, -scores))[:m], scores


def embedding(W: sp.csr_array, K: int) -> np.ndarray:
    r"""The solutions of :math:`L y = \lambda D y` with the smallest λ, without the constant one, standardised; (n, K).

    These are :math:`y = D^{-1/2} z` with z the eigenvectors of :math:`D^{-1/2} W D^{-1/2}` with the largest
    eigenvalues; :math:`D^{1/2} 1`, whose eigenvalue is 1, is moved to -1. Samples without an edge have y = 0.
    """
    n = W.shape[0]
    degrees = np.asarray(W.sum(axis=1)).ravel()
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(n), where=degrees > 0)
    A = sp.csr_array(sp.diags_array(scale) @ W @ sp.diags_array(scale))
    trivial = np.sqrt(degrees / degrees.sum())
    if n <= DENSE_ROWS or n <= 2 * K:
        Z = eigenvectors(A.toarray() - 2 * np.outer(trivial, trivial), n - K, n)
    else:
        rest = LinearOperator((n, n), matvec=lambda x: A @ x - 2 * trivial * (trivial @ x), dtype=np.float64)
        start = np.random.RandomState(0).normal(size=n)  # the eigenvectors do not depend on it
        Z = largest_eigenvectors(rest, K, start)
    Y = Z * scale[:, None]
    Y -= Y.mean(0)
    spread = Y.std(0)
    return np.divide(Y, spread, out=np.zeros_like(Y), where=spread > 0)


def coefficients(X: np.ndarray, y: np.ndarray, m: int) -> np.ndarray:
    """Coefficients (d,) of the regression of ``y (n,)`` on ``X (n, d)`` after at most ``m`` steps of LARS."""
    X, y = X / np.sqrt(len(X)), y / np.sqrt(len(X))  # columns of length 1, by which scikit-learn knows copies
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # copies of columns are dropped, as they should be
        return lars_path(X, y, method="lar", max_iter=m, return_path=False)[2]
