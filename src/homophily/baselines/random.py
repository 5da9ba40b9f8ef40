"""Random and AllFea: the two rows without which no table says anything."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from ..preprocessing import Standardized
from ..progress import Steps
from .base import Baseline, best

__all__ = ["AllFeatures", "RandomSelector"]


class RandomSelector(Baseline):
    """Select columns at random, without replacement: what any method has to beat.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    random_state : int, RandomState or None
        Seed of the draw.

    Examples
    --------
    >>> from homophily.baselines import RandomSelector
    >>> RandomSelector(2, random_state=0).fit([[0, 1, 2], [1, 0, 5], [2, 2, 2]]).transform([[7, 8, 9]]).shape
    (1, 2)
    """

    score_meaning: ClassVar[str] = "a number drawn between 0 and 1"

    def __init__(self, n_features_to_select: int | None = None, *, random_state: Any = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        scores = check_random_state(self.random_state).uniform(size=X.shape[1])
        return best(scores, m), scores


class AllFeatures(Baseline):
    """Select every column that varies (the paper's AllFea).

    Parameters
    ----------
    n_features_to_select : int, optional
        Not used; here so that every selector is made alike.
    random_state : int, RandomState or None
        Not used.
    """

    score_meaning: ClassVar[str] = "1 for every column that varies"

    def __init__(self, n_features_to_select: int | None = None, *, random_state: Any = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.random_state = random_state

    def _number_to_select(self, data: Standardized) -> int:
        return len(data.kept)

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        d = X.shape[1]
        return np.arange(d), np.ones(d)
