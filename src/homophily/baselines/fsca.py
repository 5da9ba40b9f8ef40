"""FSCA: forward selection component analysis, or greedy column subset selection, with exchanges."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..base import BaseSelector
from ..progress import Steps
from .base import Baseline
from .greedy import TOLERANCE, OrthogonalBasis, greedy, reduced

__all__ = ["FSCA"]


class FSCA(Baseline):
    r"""Select the columns on which linear regressions leave least of all columns.

    .. math::
        \min_{|S| = m} \; \min_B \; \|X - X_S B\|_F^2

    where :math:`X_S` holds the selected columns. Greedily: with :math:`R` the residuals of all columns, :math:`r_j`
    that of column j, the next column is

    .. math::
        \arg\max_j \frac{\|R^\top r_j\|^2}{\|r_j\|^2}.

    Then each selected column in turn is exchanged for the column that lowers the objective most, if there is one, until
    no single exchange lowers it.

    The numerators follow from those of the last step, so a step costs O(n d), and so does a trial of an exchange. No
    d×d matrix is formed when there are more columns than samples.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    refine : bool, default=True
        Exchange columns after the greedy selection. Without it, the first columns of a selection are the selection of
        fewer.
    random_state : int, RandomState or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        Share of the variance of all columns: of each selected column what those before it leave, of the others what
        they would add. Between 0 and 1, larger is better; 0 for the constant columns.

    Notes
    -----
    The selected columns are ordered as the greedy rule orders them among themselves. Once the selected columns explain
    everything, as when there are fewer samples than m, the first of the others follow.

    References
    ----------
    L. Puggini and S. McLoone, Forward selection component analysis: algorithms and applications, IEEE Transactions on
    Pattern Analysis and Machine Intelligence, 2017. A. K. Farahat, A. Ghodsi and M. S. Kamel, An efficient greedy
    method for unsupervised feature selection, ICDM 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from homophily.baselines import FSCA
    >>> rng = np.random.RandomState(0)
    >>> X = np.hstack([rng.randn(200, 1) + 0.5 * rng.randn(200, 4) for _ in range(2)])  # two groups of four
    >>> sorted((FSCA(2).fit(X).selected_features_ // 4).tolist())
    [0, 1]
    """

    _parameter_constraints: ClassVar[dict] = {**BaseSelector._parameter_constraints, "refine": ["boolean"]}
    nested: ClassVar[bool] = False
    score_meaning: ClassVar[str] = (
        "share of the variance of all columns: of a chosen one what those before it leave, of another what it would add"
    )

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        refine: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.refine = refine
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        basis = Explained(reduced(X))
        features, scores = greedy(basis, m)
        if not self.refine or m >= len(basis.X) or len(basis.chosen) < m:  # what explains everything cannot be improved
            return features, scores
        exchange(basis)
        chosen = np.zeros(X.shape[1], dtype=bool)
        chosen[basis.chosen] = True
        return greedy(Explained(basis.X), m, chosen)


class Explained(OrthogonalBasis):
    """The variance of all columns that the chosen ones explain by linear regression."""

    def __init__(self, X: np.ndarray) -> None:
        super().__init__(X)
        self.total = self.squares.sum()
        self.reach = np.einsum("if,if->f", X, (X @ X.T) @ X)  # (d,) squared norms of R' r_j

    def gains(self) -> np.ndarray:
        independent = self.independent
        # A column explains at least itself, which rounding does not know.
        reach = np.maximum(self.reach / np.where(independent, self.squares, 1), self.squares)
        return np.where(independent, reach, 0) / self.total

    def gain(self, j: int) -> float:
        return float(np.sum((self.X.T @ self.direction(j)) ** 2) / self.total)

    def _update(self, q: np.ndarray, omega: np.ndarray, sign: int) -> None:
        r"""With q in the basis, :math:`\|R^\top r_j\|^2` is smaller than without by what is below."""
        super()._update(q, omega, sign)
        Q = self.Q if sign < 0 else np.column_stack([self.Q, q])
        v = self.X @ omega
        v -= Q @ (Q.T @ v)
        self.reach += sign * omega * (2 * (self.X.T @ v) + (omega @ omega) * omega)


def exchange(basis: Explained) -> None:
    """Exchange single columns of the basis while that explains more."""
    improved = True
    while improved:
        improved = False
        for j in list(basis.chosen):
            basis.remove(j)
            least = basis.gain(j) + TOLERANCE
            gains = basis.gains()
            better = int(gains.argmax())
            if gains[better] <= 0 or basis.gain(better) <= least:
                better = j
            basis.add(better)
            improved |= better != j
