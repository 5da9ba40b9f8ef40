"""Variance: what everybody tries first."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..preprocessing import Standardized
from ..progress import Steps
from .base import Baseline, best

__all__ = ["VarianceSelector"]


class VarianceSelector(Baseline):
    r"""Select the columns with the largest variance.

    .. math::
        \mathrm{var}(x_j) = \frac{1}{n} \sum_i (x_{ij} - \bar x_j)^2

    of the columns as they are given, not of the standardised ones: unlike all other methods it depends on the units.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    random_state : int, RandomState or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        The standard deviation, which ranks as the variance does and does not overflow; 0 for the constant columns.

    Examples
    --------
    >>> from homophily.baselines import VarianceSelector
    >>> VarianceSelector(1).fit([[0, 0, 1], [1, 0, 5], [2, 1, 9]]).selected_features_.tolist()
    [2]
    """

    score_meaning: ClassVar[str] = "standard deviation of the column, in its own unit"

    def __init__(self, n_features_to_select: int | None = None, *, random_state: Any = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.random_state = random_state

    def _select_from(self, data: Standardized, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        deviations = data.scaling.unit * data.scaling.std
        return best(deviations, m), deviations
