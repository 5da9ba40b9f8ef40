"""FastCan: greedy selection by canonical correlation with the principal components."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from ..base import BaseSelector
from ..eigen import eigenvectors
from ..progress import Steps
from .base import Baseline
from .greedy import TOLERANCE, OrthogonalBasis, greedy, reduced

__all__ = ["FastCan"]


class FastCan(Baseline):
    r"""Select the columns whose span has the largest canonical correlations with the first principal components.

    .. math::
        \max_{|S| = m} \; \sum_{t=1}^{p} \|Q_S^\top u_t\|^2

    where :math:`u_1, \dots, u_p` are the first left singular vectors of X and :math:`Q_S` is an orthonormal basis of
    the selected columns: the sum of the squared canonical correlations between both. Greedily: with :math:`r_j` the
    part of column j that is orthogonal to the selected ones, the next column is

    .. math::
        \arg\max_j \sum_{t=1}^{p} \frac{(r_j^\top u_t)^2}{\|r_j\|^2}.

    All components count alike, whatever their variance.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    n_components : int, optional
        The number p of principal components. By default m.
    random_state : int, RandomState or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        Share of the components: of each selected column what those before it leave, of the others what they would add.
        Between 0 and 1, larger is better; 0 for the constant columns.

    Notes
    -----
    There are no more components than the rank of X. Once the selected columns span all components, or all columns, the
    first of the others follow.

    References
    ----------
    S. Zhang and Z. Q. Lang, Orthogonal least squares based fast feature selection for linear classification, Pattern
    Recognition, 2022. S. Zhang, T. Wang, K. Worden, L. Sun and E. J. Cross, Canonical-correlation-based fast feature
    selection for structural health monitoring, Mechanical Systems and Signal Processing, 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from homophily.baselines import FastCan
    >>> rng = np.random.RandomState(0)
    >>> X = np.hstack([rng.randn(200, 1) + 0.5 * rng.randn(200, 4) for _ in range(2)])  # two groups of four
    >>> sorted((FastCan(2).fit(X).selected_features_ // 4).tolist())
    [0, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
    }
    nested: ClassVar[bool] = False
    score_meaning: ClassVar[str] = (
        "share of the principal components: of a chosen column what those before it leave, of another what it would add"
    )

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        n_components: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        return greedy(Correlated(reduced(X), self.n_components or m), m)


class Correlated(OrthogonalBasis):
    """Squared canonical correlations of the chosen columns with the first ``p`` principal components."""

    def __init__(self, X: np.ndarray, p: int) -> None:
        super().__init__(X)
        k = len(X)
        U = eigenvectors(X @ X.T, k - min(p, k), k)  # (k, p), the largest last
        A = U.T @ X  # (p, d), its rows have the singular values as norms
        variance = np.einsum("tf,tf->t", A, A)
        kept = variance > TOLERANCE * variance[-1]
        self.U = U[:, kept]
        self.A = A[kept]  # u_t' r_j

    def gains(self) -> np.ndarray:
        independent = self.independent
        correlation = np.einsum("tf,tf->f", self.A, self.A) / np.where(independent, self.squares, 1)
        gains = correlation / len(self.A)
        return np.where(independent & (gains > TOLERANCE), gains, 0)

    def gain(self, j: int) -> float:
        return float(np.sum((self.U.T @ self.direction(j)) ** 2) / len(self.A))

    def _update(self, q: np.ndarray, omega: np.ndarray, sign: int) -> None:
        super()._update(q, omega, sign)
        self.A += sign * np.outer(self.U.T @ q, omega)
