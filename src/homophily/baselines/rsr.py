"""RSR: regularised self-representation of Zhu et al. (Pattern Recognition 2015)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

from ..base import BaseSelector
from ..progress import Steps
from ..shapes import Of
from .base import DECADES, Baseline, best
from .reweighting import SMOOTHING, settle

__all__ = ["RSR"]

RIDGE = 1e-10  # a penalty below this fraction of the trace does not make a system safe to factorise
ALIKE = 0.01  # weights that differ by less than this fraction rank nothing


class RSR(Baseline):
    r"""Select the columns from which all columns can be represented linearly.

    .. math::
        \min_W \; \|X - XW\|_{2,1} + \lambda \|W\|_{2,1}

    by iterative reweighting: with :math:`G_R = \mathrm{diag}(2\|w^i\|)` and :math:`G_L = \mathrm{diag}(1 / 2\|e^i\|)`
    of the last round, :math:`W = G_R X^\top (X G_R X^\top + \lambda G_L^{-1})^{-1} X`. The objective never increases.
    Columns are ranked by :math:`\|w^i\|`.

    With more columns than samples the n×n system is solved, and neither :math:`W` nor any other d×d matrix is formed:
    the norms of its rows follow from n×n matrices. Otherwise the d×d system is solved.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    reg : float, optional
        The penalty λ. By default half of ``reg_max_``, or 0.8 of it where there are more samples than columns: there,
        if it is small, every column represents itself and the ranking is meaningless. From ``reg_max_`` on the solution
        is W = 0, and the ranking tells which rows approach it last.
    max_iter : int
        Rounds of reweighting at most.
    tol : float
        Stop when a round lowers the objective by less than this fraction of it.
    verbose : bool
        Show progress.
    random_state : int, RandomState or None
        Not used: nothing is drawn.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        :math:`\|w^i\|`; 0 for the constant columns.
    reg_max_ : float
        The smallest λ at which W = 0 is the solution.
    history_ : dict
        ``objective`` after each round.

    Examples
    --------
    >>> import numpy as np
    >>> from homophily.baselines import RSR
    >>> rng = np.random.RandomState(0)
    >>> X = np.hstack([rng.randn(200, 1) + 0.5 * rng.randn(200, 4), rng.randn(200, 6)])
    >>> RSR(4).fit(X).get_support(indices=True).tolist()  # the first four have something in common
    [0, 1, 2, 3]
    """

    _fitted: ClassVar[dict[str, Of]] = {**Baseline._fitted, "reg_max_": Of("f")}

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "reg": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
    }
    param_grid: ClassVar[dict[str, list]] = {"reg": [*DECADES]}
    paper_params: ClassVar[dict[str, Any]] = {"reg": 1.0, "max_iter": 50}
    score_meaning: ClassVar[str] = "weight of the column in the linear representation of all columns"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        reg: float | None = None,
        max_iter: int = 500,
        tol: float = 1e-5,
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.reg = reg
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        X = X.astype(np.float64)
        n, d = X.shape
        self.reg_max_ = _reg_max(X)
        reg = self.reg or (0.5 if d > n else 0.8) * self.reg_max_
        w = settle(_rounds(X, reg), steps, method="RSR", max_iter=self.max_iter, tol=self.tol)
        if 1 < d <= n and reg < self.reg_max_ and w.max() - w.min() < ALIKE * w.max():
            warnings.warn(
                f"RSR with reg={reg:g} ranks nothing: every column represents itself, the weights lie between "
                f"{w.min():.4g} and {w.max():.4g}. Raise reg; reg_max_ = {self.reg_max_:.4g} is the largest that "
                "leaves any weight.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return best(w, m), w


def _rounds(X: np.ndarray, reg: float) -> Iterator[tuple[float, np.ndarray]]:
    """Objective and norms of the rows of W after each round of reweighting."""
    n, d = X.shape
    reweight = _by_samples if d > n else _by_columns
    G_R, G_L = np.ones(d), np.ones(n)
    while True:
        norms = reweight(X, G_R, G_L, reg)
        w, e = (np.hypot(norm, SMOOTHING) for norm in norms)
        G_R, G_L = 2 * w, 1 / (2 * e)
        yield e.sum() + reg * w.sum(), norms[0]


def _by_samples(X: np.ndarray, G_R: np.ndarray, G_L: np.ndarray, reg: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Norms of the rows of W (d,) and of E = X - XW (n,), from n×n matrices.

    With :math:`A = G_L^{1/2} X` and :math:`B = (A G_R A^\top + \lambda I)^{-1} A` it is :math:`W = G_R A^\top B`,
    so :math:`\|w^i\|^2 = g_i^2\, a_i^\top B B^\top a_i` and :math:`E = \lambda G_L^{-1/2} B`.
    """
    scale = np.sqrt(G_L)
    A = X * scale[:, None]
    B = _solve((A * G_R) @ A.T, A, reg)
    return G_R * _quadratic(A, B @ B.T), reg / scale * np.linalg.norm(B, axis=1)


def _by_columns(X: np.ndarray, G_R: np.ndarray, G_L: np.ndarray, reg: float) -> tuple[np.ndarray, np.ndarray]:
    r"""The same from d×d matrices: :math:`W = G_R^{1/2} (G_R^{1/2} C G_R^{1/2} + \lambda I)^{-1} G_R^{1/2} C`,
    :math:`C = X^\top G_L X`.
    """  # noqa: D205
    scale = np.sqrt(G_R)[:, None]
    C = X.T @ (X * G_L[:, None])
    W = scale * _solve(scale * C * scale.T, scale * C, reg)
    return np.linalg.norm(W, axis=1), np.linalg.norm(X - X @ W, axis=1)


def _solve(K: np.ndarray, B: np.ndarray, reg: float) -> np.ndarray:
    """``(K + reg I)^-1 B`` for positive semi-definite ``K`` and ``B`` in its range, also where ``reg`` is no help."""
    if reg > RIDGE * np.trace(K):
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(K + reg * np.eye(len(K))), B)
    values, vectors = scipy.linalg.eigh(K)
    kept = values > np.finfo(np.float64).eps * len(K) * values[-1]  # the rest is rounding
    return vectors[:, kept] @ ((vectors[:, kept].T @ B) / (values[kept] + reg)[:, None])


def _quadratic(A: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """``sqrt(a' Q a)`` for each column ``a`` of ``A``, Q positive semi-definite; (d,)."""
    return np.sqrt(np.maximum(np.einsum("if,if->f", A, Q @ A), 0))


def _reg_max(X: np.ndarray) -> float:
    r"""The smallest λ at which W = 0 is optimal: the largest row norm of :math:`X^\top \mathrm{diag}(1/\|x_j\|) X`."""
    scaled = X / np.hypot(np.linalg.norm(X, axis=1), SMOOTHING)[:, None]
    n, d = X.shape
    norms = _quadratic(scaled, X @ X.T) if d > n else np.linalg.norm(scaled.T @ X, axis=1)
    return float(norms.max())
