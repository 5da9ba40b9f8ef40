"""Data frames of pandas and polars as numbers; columns that hold none are refused by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from .wording import not_numeric

__all__ = ["frame_numbers", "is_polars"]


def is_polars(X: Any) -> bool:
    """Whether ``X`` is a polars data frame. Asking does not import polars."""
    return _is_a(X, "polars", "DataFrame")


def frame_numbers(X: Any) -> Any:
    """A data frame as an array (n, d) if it holds more than NumPy's own types; anything else as it is.

    Whole numbers, floats and booleans are numbers, also the nullable kinds of pandas, Arrow and polars; missing ones
    become NaN. Raises if there are columns of text, categories, dates or the like, and names all of them.
    """
    if is_polars(X):
        return _polars_numbers(X)
    if _is_a(X, "pandas", "DataFrame"):
        return _pandas_numbers(X)
    if _is_a(X, "polars", "LazyFrame"):
        raise TypeError("X is a polars LazyFrame, whose rows are not there yet: give X.collect().")
    return X


def _is_a(X: Any, package: str, kind: str) -> bool:
    loaded = sys.modules.get(package)
    return loaded is not None and isinstance(X, getattr(loaded, kind))


def _polars_numbers(X: Any) -> np.ndarray:
    import polars as pl

    wrong = [
        (name, str(kind).lower())
        for name, kind in X.schema.items()
        if not kind.is_numeric() and kind not in (pl.Boolean, pl.Null)  # Null: nothing but missing values
    ]
    if wrong:
        raise ValueError(not_numeric(wrong, X.width))
    single = all(kind == pl.Float32 for kind in X.dtypes)
    return _side_by_side(X.shape, single, (column.cast(pl.Float64).to_numpy() for column in X.iter_columns()))


def _pandas_numbers(X: Any) -> Any:
    kinds = [_not_a_number(column) for column in _columns(X)]
    wrong = [(name, kind) for name, kind in zip(X.columns, kinds, strict=True) if kind is not None]
    if wrong:
        raise ValueError(not_numeric(wrong, X.shape[1]))
    of_numpy = all(isinstance(kind, np.dtype) and kind.kind != "O" for kind in X.dtypes)
    if of_numpy or all(hasattr(kind, "fill_value") for kind in X.dtypes):  # sparse columns are to stay so
        return X
    single = all(kind.kind == "f" and kind.itemsize == 4 for kind in X.dtypes)
    return _side_by_side(X.shape, single, (c.to_numpy(dtype=np.float64, na_value=np.nan) for c in _columns(X)))


def _not_a_number(column: Any) -> str | None:
    """What a pandas column holds, unless it is numbers and missing values."""
    kind = str(column.dtype).lower()
    if column.dtype.kind in "biuf" or kind.startswith("decimal") or kind == "null[pyarrow]":
        return None
    if column.dtype != object:
        return kind
    for value in column[column.notna()]:
        try:
            if isinstance(value, str | bytes):  # "7" may be a number, or the name of something
                return "text"
            float(value)
        except (TypeError, ValueError):
            return type(value).__name__
    return None


def _columns(X: Any) -> Iterator[Any]:
    """In order; several may have the same name."""
    return (X.iloc[:, i] for i in range(X.shape[1]))


def _side_by_side(shape: tuple[int, int], single: bool, columns: Iterable[np.ndarray]) -> np.ndarray:
    values = np.empty(shape, np.float32 if single else np.float64)
    for place, column in enumerate(columns):
        values[:, place] = column
    return values
