"""What every selector shares: input checks with messages that help, support, scores, seeds, files."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted, validate_data

from . import memory
from .distributed import Team
from .frames import frame_numbers, is_polars
from .persistence import load_estimator, save_estimator
from .preprocessing import Standardized, standardize_rows
from .shapes import Of
from .sources import ArrayRows, RowSource, is_on_disk, open_rows
from .wording import counted, listing

__all__ = ["BaseSelector", "check_numbers", "refuse_non_finite"]


class BaseSelector(SelectorMixin, BaseEstimator):
    """A scikit-learn selector whose ``fit`` sets ``selected_features_`` and ``scores_``.

    Attributes
    ----------
    selected_features_ : ndarray (m,)
        Indices of the selected columns, the most certain first.
    scores_ : ndarray (n_features_in_,)
        Strength of every column, larger is better; 0 for the constant ones.
    dropped_features_ : ndarray
        Indices of the constant columns, which are never selected.
    """

    param_grid: ClassVar[dict[str, list]] = {}
    """What the paper searches, as :class:`sklearn.model_selection.ParameterGrid` takes it."""

    nested: ClassVar[bool] = False
    """Whether the m best of one fit are also the first m of a fit that selects more."""

    score_meaning: ClassVar[str] = ""
    """What ``scores_`` are, in words."""

    _parameter_constraints: ClassVar[dict] = {
        "n_features_to_select": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    _fitted: ClassVar[dict[str, Of]] = {
        "n_features_in_": Of("i"),
        "feature_names_in_": Of("s", ("d",), optional=True),
        "selected_features_": Of("i", ("m",), below="d", distinct=True),
        "scores_": Of("f", ("d",)),
        "dropped_features_": Of("i", (None,), below="d", distinct=True),
    }
    """The attributes that ``fit`` sets, for :meth:`load`; subclasses add their own. d: ``n_features_in_``."""

    selected_features_: np.ndarray
    scores_: np.ndarray

    def _validate_params(self) -> None:
        """As scikit-learn does, which takes True for the number 1."""
        super()._validate_params()
        flags = ("boolean", "verbose")
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, bool) and not any(kind in flags for kind in self._parameter_constraints[name]):
                raise ValueError(
                    f"The {name!r} parameter of {type(self).__name__} must be a number. Got {value} instead."
                )

    def _check_and_standardize(self, X: Any) -> Standardized:
        """Refuse what cannot be worked on, in words; standardise the rest without touching ``X``."""
        return self._standardize(self._open(X))

    def _open(self, X: Any) -> RowSource:
        """Check what can be checked without reading the rows of a file."""
        if is_on_disk(X):
            source = open_rows(X)
            memory.hold(0)
            n, d = source.shape
            if n < 2 or d < 1:
                raise ValueError(f"X has {n} samples and {d} features; at least 2 samples and 1 feature are needed.")
            self.n_features_in_ = d
            if source.names is not None:
                self.feature_names_in_ = np.array(source.names, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return source
        given, numbers = X, frame_numbers(X)
        if numbers is X:
            X = validate_data(self, X, ensure_min_samples=2, **CHECKS)
        else:
            validate_data(self, X, skip_check_array=True)  # names and number of columns
            X = check_array(numbers, ensure_min_samples=2, estimator=self, input_name="X", **CHECKS)
        refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        memory.hold(_bytes(X) * (1 if numbers is given else 2))  # beside those of a data frame
        return ArrayRows(X)

    def _standardize(
        self, source: RowSource, n_sampled: int | None = None, *, seed: int = 0, team: Team | None = None
    ) -> Standardized:
        """Standardise a sample of the rows by the mean and deviation of all; constant columns are found on the way."""

        def check(block: np.ndarray, row: int, columns: slice) -> None:
            names = None if source.names is None else source.names[columns]
            refuse_non_finite(block, names, first_row=row, n_columns=source.shape[1])

        checked = isinstance(source, ArrayRows)
        data = standardize_rows(source, n_sampled, seed=seed, team=team, check=None if checked else check)
        if not len(data.kept):
            n, d = source.shape
            raise ValueError(
                f"All {d} columns of X are constant over its {n} samples, so there is nothing to "
                "select. Check that the right rows and columns were read."
            )
        self.dropped_features_ = data.dropped
        return data

    def _check_neighbors(self, n: int) -> None:
        if self.n_neighbors >= n:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} must be less than the number of samples, n_samples = {n}: "
                f"set it to {n - 1} or less."
            )

    def _number_to_select(self, data: Standardized) -> int:
        """``n_features_to_select``, by default half of the columns that vary."""
        usable = len(data.kept)
        m = self.n_features_to_select
        if m is None:
            return max(1, usable // 2)
        if m < 1:
            return max(1, int(m * usable))
        if m > usable:
            n_dropped = len(data.dropped)
            constant = f"; {n_dropped} more are constant and never selected" if n_dropped else ""
            raise ValueError(f"n_features_to_select={m}, but X has {usable} columns to choose from{constant}.")
        return int(m)

    def _set_selection(self, data: Standardized, features: np.ndarray, scores: np.ndarray) -> None:
        """Translate ``features (m,)`` and ``scores (d',)`` of the standardised data back to the columns of X."""
        order = np.argsort(-scores[features], kind="stable")
        self.selected_features_ = data.kept[features[order]]
        self.scores_ = np.zeros(len(data.kept) + len(data.dropped))
        self.scores_[data.kept] = scores

    def _seeds(self, count: int) -> list[int]:
        """Independent seeds, one for each unit of work, whatever order or process it runs in."""
        rng = check_random_state(self.random_state)
        return rng.randint(np.iinfo(np.int32).max, size=count).tolist()

    def transform(self, X: Any) -> Any:
        """The selected columns of ``X (n, d)``, in their order there: (n, m), sparse if ``X`` is.

        ``set_output(transform="pandas")`` or ``"polars"`` asks for a data frame; columns of one keep their types.
        """
        if not is_polars(X) or _get_output_config("transform", self)["dense"] == "default":
            return super().transform(X)
        check_is_fitted(self)
        validate_data(self, X, skip_check_array=True, reset=False)
        return X[:, self.get_support(indices=True).tolist()]

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.selected_features_] = True
        return mask

    def __sklearn_tags__(self):  # noqa: ANN204
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def save(self, folder: str | Path) -> Path:
        """Write the fitted selector to a new ``folder``: ``model.safetensors`` and ``model.json``, no pickle."""
        check_is_fitted(self)
        return save_estimator(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        return load_estimator(cls, Path(folder))


CHECKS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": False}


def _bytes(X: Any) -> int:
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes


def check_numbers(X: Any, names: Any = None) -> Any:
    """``X`` as an array or CSR matrix of finite numbers; refuses anything else in words.

    Its columns have the ``names``, if given, or those of a data frame.
    """
    numbers = check_array(frame_numbers(X), input_name="X", **CHECKS)
    refuse_non_finite(numbers, getattr(X, "columns", None) if names is None else names)
    return numbers


def refuse_non_finite(
    X: Any,
    names: Sequence[Any] | np.ndarray | None = None,
    *,
    first_row: int | None = None,
    n_columns: int | None = None,
) -> None:
    """Raise if ``X`` holds NaN or infinity: how many, in which columns how many of them, what to do.

    ``first_row`` is the number of its first row if ``X`` is a part of a file, which has ``n_columns``.
    """
    if sp.issparse(X):
        bad = ~np.isfinite(X.data)
        columns = X.tocoo().col[bad] if bad.any() else np.empty(0, dtype=int)
        values = X.data
    else:
        values = X
        # The sum is finite unless an entry is not (or it overflows, which the full check sorts out).
        with np.errstate(all="ignore"):
            if np.isfinite(X.sum()):
                return
        bad = ~np.isfinite(X)
        columns = np.nonzero(bad)[1]
    if not len(columns):
        return
    n_nan = int(np.isnan(values[bad]).sum())
    n_inf = int(bad.sum()) - n_nan
    what = " and ".join(text for count, text in ((n_nan, f"{n_nan} NaN"), (n_inf, f"{n_inf} infinity (inf)")) if count)
    where, counts = np.unique(columns, return_counts=True)
    named = listing(
        f"{i if names is None else repr(str(names[i]))} ({counted(count, 'row')})"
        for i, count in zip(where, counts, strict=True)
    )
    part = "" if first_row is None else f" in rows {first_row} to {first_row + X.shape[0] - 1}"
    raise ValueError(
        f"Input X contains {what} entries{part}, in {len(where)} of {n_columns or X.shape[1]} columns: {named}. "
        "Fill them in (for example with sklearn.impute.SimpleImputer) or leave out those columns or rows."
    )
