"""UDFS: unsupervised discriminative feature selection of Yang et al. (IJCAI 2011)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from ..base import BaseSelector
from ..eigen import eigenvectors, lanczos
from ..graph import k_nearest
from ..progress import Steps
from .base import DECADES, Baseline, best
from .reweighting import SMOOTHING, settle

__all__ = ["UDFS"]

NEGLIGIBLE = 1e-4  # rows of W below this fraction of the largest one rank nothing
BLOCK = 2**24  # entries that are worked on at once


class UDFS(Baseline):
    r"""Select the columns of a sparse projection under which neighbours stay close and the local spread is large.

    .. math::
        \min_{W^\top W = I_c} \; \mathrm{tr}(W^\top X^\top M X W) + \gamma \|W\|_{2,1}, \qquad
        M = \sum_i S_i H (\tilde X_i^\top \tilde X_i + \lambda I)^{-1} H S_i^\top

    where :math:`\tilde X_i` holds sample i and its k neighbours, centred, :math:`S_i` puts them in their places and
    :math:`H` centres. By iterative reweighting: with :math:`D = \mathrm{diag}(1 / 2\|w^i\|)` of the last round, W holds
    the c eigenvectors of :math:`X^\top M X + \gamma D` with the smallest eigenvalues. The objective never increases.
    Columns are ranked by :math:`\|w^i\|`.

    With more columns than samples the matrix is a diagonal one plus one of rank n, and the eigenvectors come from
    Lanczos iterations on its inverse (Woodbury) without any d×d matrix. The first round then has many solutions: any
    frame that is orthogonal to the rows of the data. One is drawn, and the result depends on it: expect a different
    selection for another ``random_state``.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    reg : float
        The penalty γ. If it is large, about as many rows of W as it has columns are left, and the rest of the ranking
        is noise.
    n_clusters : int
        Columns c of W, "the number of clusters"; at most one less than the columns of the data.
    n_neighbors : int
        Neighbours k of each sample.
    ridge : float
        λ, added to the local scatter.
    max_iter : int
        Rounds of reweighting at most.
    tol : float
        Stop when a round lowers the objective by less than this fraction of it.
    verbose : bool
        Show progress.
    random_state : int, RandomState or None
        Seed of the start where there are more columns than samples.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        :math:`\|w^i\|`; 0 for the constant columns.
    history_ : dict
        ``objective`` after each round.

    Examples
    --------
    >>> from homophily.baselines import UDFS
    >>> from homophily.datasets import make_toy
    >>> X, y = make_toy("blobs", random_state=0)
    >>> sorted(UDFS(2, n_clusters=2).fit(X).selected_features_.tolist())
    [0, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "reg": [Interval(Real, 0, None, closed="neither")],
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
    }
    param_grid: ClassVar[dict[str, list]] = {"reg": [*DECADES]}
    paper_params: ClassVar[dict[str, Any]] = {"max_iter": 36}
    score_meaning: ClassVar[str] = "weight of the column in the discriminative projection"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        reg: float = 1e-3,
        n_clusters: int = 5,
        n_neighbors: int = 5,
        ridge: float = 1000.0,
        max_iter: int = 500,
        tol: float = 1e-5,
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.reg = reg
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        X = X.astype(np.float64)
        n, d = X.shape
        self._check_neighbors(n)
        c = min(self.n_clusters, max(1, d - 1))
        M = _local_scatter(X, self.n_neighbors, self.ridge)
        smallest: _Dense | _LowRank
        if d < n + c or d <= 2 * _lanczos_vectors(c):  # little to gain, or too few columns for Lanczos
            smallest = _Dense(X.T @ (M @ X), c)
        else:
            smallest = _LowRank(X, M, c, check_random_state(self.random_state))
        w = settle(_rounds(smallest, self.reg, d), steps, method="UDFS", max_iter=self.max_iter, tol=self.tol)
        left = int((w > NEGLIGIBLE * w.max()).sum())
        if left < m:
            warnings.warn(
                f"UDFS with reg={self.reg:g} leaves {left} columns with a weight, fewer than the {m} to select: the "
                f"ranking of the other {m - left} is noise. Lower reg.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return best(w, m), w


def _rounds(smallest: _Dense | _LowRank, reg: float, d: int) -> Iterator[tuple[float, np.ndarray]]:
    """Objective and norms of the rows of W after each round of reweighting."""
    D = np.ones(d)
    while True:
        W, energy = smallest(reg * D)
        w = np.linalg.norm(W, axis=1)
        smooth = np.hypot(w, SMOOTHING)
        D = 1 / (2 * smooth)
        yield energy + reg * smooth.sum(), w


def _local_scatter(X: np.ndarray, k: int, ridge: float) -> sp.csr_array:
    """The matrix M (n, n), with ``(k + 1)^2`` entries a sample."""
    n, d = X.shape
    members = np.hstack([np.arange(n)[:, None], k_nearest(X, k)])  # (n, k+1)
    H = np.eye(k + 1) - 1 / (k + 1)
    parts = np.empty((n, k + 1, k + 1))
    step = max(1, BLOCK // ((k + 1) * d))
    for start in range(0, n, step):
        local = H @ X[members[start : start + step]]  # (b, k+1, d), centred
        scatter = local @ local.transpose(0, 2, 1) + ridge * np.eye(k + 1)
        parts[start : start + step] = H @ np.linalg.inv(scatter) @ H
    rows = np.repeat(members, k + 1, axis=1).ravel()
    columns = np.tile(members, (1, k + 1)).ravel()
    return sp.csr_array((parts.ravel(), (rows, columns)), shape=(n, n))  # sums what falls together


class _Dense:
    """The c eigenvectors of ``A + diag`` with the smallest eigenvalues, and ``tr(W' A W)``."""

    def __init__(self, A: np.ndarray, c: int) -> None:
        self.A, self.c = A, c

    def __call__(self, diagonal: np.ndarray) -> tuple[np.ndarray, float]:
        W = eigenvectors(self.A + np.diag(diagonal), 0, self.c)
        return W, float(np.sum(W * (self.A @ W)))


class _LowRank:
    r"""The same for :math:`A = X^\top M X = U U^\top` of rank at most n < d, by Lanczos iterations on the inverse.

    With :math:`\Delta` the diagonal, :math:`(\Delta + U U^\top)^{-1} = \Delta^{-1} - \Delta^{-1} U
    (I + U^\top \Delta^{-1} U)^{-1} U^\top \Delta^{-1}` (Woodbury).
    """

    def __init__(self, X: np.ndarray, M: sp.csr_array, c: int, rng: np.random.RandomState) -> None:
        values, vectors = scipy.linalg.eigh(M.toarray())
        kept = values > np.finfo(np.float64).eps * len(values) * values[-1]
        self.U = X.T @ (vectors[:, kept] * np.sqrt(values[kept]))  # (d, r)
        self.c = c
        self.rng = rng
        self.start = np.ones(X.shape[1])

    def __call__(self, diagonal: np.ndarray) -> tuple[np.ndarray, float]:
        constant = diagonal.min() == diagonal.max()
        W = self._orthogonal_to_data() if constant else self._lanczos(diagonal)
        self.start = W.sum(1)  # the next round's matrix differs little
        return W, float(np.sum((self.U.T @ W) ** 2))

    def _orthogonal_to_data(self) -> np.ndarray:
        """Where the diagonal is constant: c eigenvectors, drawn from the (d - r)-fold smallest eigenvalue's space."""
        drawn = self.rng.standard_normal((len(self.U), self.c))
        basis, _ = np.linalg.qr(self.U)
        return np.linalg.qr(drawn - basis @ (basis.T @ drawn))[0]

    def _lanczos(self, diagonal: np.ndarray) -> np.ndarray:
        U, d = self.U, len(diagonal)
        inverse = diagonal.min() / diagonal  # in units in which its largest entry is 1
        scaled = U * inverse[:, None]
        core = diagonal.min() * np.eye(U.shape[1]) + U.T @ scaled
        factor = scipy.linalg.cho_factor(core)

        def apply(x: np.ndarray) -> np.ndarray:
            x = x.ravel()
            return inverse * x - scaled @ scipy.linalg.cho_solve(factor, scaled.T @ x)

        operator = LinearOperator((d, d), matvec=apply, dtype=np.float64)
        for more, tol in ((1, 0), (2, 0), (4, 1e-6)):
            try:
                vectors = min(d, more * _lanczos_vectors(self.c))
                return lanczos(operator, self.c, self.start, ncv=vectors, tol=tol)[1]
            except ArpackNoConvergence as error:
                reason = error
        raise ValueError(
            f"The {self.c} smallest eigenvectors of UDFS could not be found ({reason}); try a smaller n_clusters or "
            "another reg."
        ) from reason


def _lanczos_vectors(c: int) -> int:
    return max(4 * c, 40)
