"""What the methods that we compare with share: one fit, the paper's settings."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import _fit_context

from ..base import BaseSelector
from ..datasets import paper_dataset
from ..preprocessing import Standardized
from ..progress import StepCallback, Steps, step_progress
from ..shapes import Of

__all__ = ["DECADES", "Baseline", "best"]

DECADES = (1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9)  # the grid that the paper searches for every penalty


class Baseline(BaseSelector):
    """A selector that finds a score for every column; subclasses implement ``_select`` or ``_select_from``.

    Attributes
    ----------
    selected_features_ : ndarray (m,)
        Indices of the selected columns, the best first.
    scores_ : ndarray (n_features_in_,)
        Score of every column, larger is better; 0 for the constant ones.
    dropped_features_ : ndarray
        Indices of the constant columns, which are never selected.
    history_ : dict of ndarray
        What the method watched after each iteration or epoch.
    n_iter_ : int
        Iterations or epochs done.
    interrupted_ : bool
        Whether a callback ended the fit early.
    """

    paper_params: ClassVar[dict[str, Any]] = {}
    """What the paper, or the public code that it runs, sets on every data set where that is not our default."""

    dataset_params: ClassVar[dict[str, dict[str, Any]]] = {}
    """What the paper sets on single data sets, by their names in ``PAPER_DATASETS``."""

    nested: ClassVar[bool] = True

    _fitted: ClassVar[dict[str, Of]] = {
        **BaseSelector._fitted,
        "history_": Of("n", (None,), each=True),
        "n_iter_": Of("i"),
        "interrupted_": Of("b"),
    }

    @classmethod
    def from_paper(cls, n_features_to_select: int | None = None, *, dataset: str | None = None, **others: Any) -> Self:
        """The settings of the paper's Appendix S6.1.2 and of the codes that it names, on ``dataset`` if it has its own.

        What the paper searches is in ``param_grid``; it does not say what it found, so our default or the middle of the
        grid stands in. ``others`` are parameters of the class that override these.
        """
        there = {} if dataset is None else cls.dataset_params.get(paper_dataset(dataset).name, {})
        return cls(n_features_to_select, **{**cls.paper_params, **there, **others})

    @classmethod
    def for_dataset(cls, dataset: str, n_features_to_select: int | None = None) -> Self:
        """Our defaults, but for what the paper sets on this data set alone."""
        return cls(n_features_to_select, **cls.dataset_params.get(paper_dataset(dataset).name, {}))

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, callback: StepCallback | None = None) -> Self:
        """Score the columns of ``X (n, d)`` and select the best.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n, d)
            Finite numbers. It is standardised inside, which makes a dense copy in single precision, and not changed.
        y : ignored
        callback : callable, optional
            Called after each iteration or epoch with a :class:`~homophily.progress.Step`; the fit ends when it returns
            True, and what has been found until then is kept.
        """
        data = self._check_and_standardize(X)
        m = self._number_to_select(data)
        with step_progress(getattr(self, "verbose", False), callback) as steps:
            features, scores = self._select_from(data, m, steps)
        self._set_selection(data, features, scores)
        self.history_ = steps.history
        self.n_iter_ = steps.step
        self.interrupted_ = steps.stopped
        return self

    def _select_from(self, data: Standardized, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        """As ``_select``, for methods that need more than the standardised values."""
        return self._select(data.values, m, steps)

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        """Choose ``features (m,)``, all distinct, and ``scores (d,)`` of the standardised ``X (n, d)``."""
        raise NotImplementedError


def best(scores: np.ndarray, m: int) -> np.ndarray:
    """The ``m`` columns with the largest ``scores``, of equal ones the first; (m,)."""
    return np.argsort(-scores, kind="stable")[:m]
