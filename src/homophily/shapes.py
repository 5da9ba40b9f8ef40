"""What arrays from a file should look like: kind of numbers and shape, where letters stand for lengths that agree."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

__all__ = ["Of", "check_sparse", "check_values"]

KINDS = {"f": "real numbers", "i": "whole numbers", "n": "numbers", "b": "booleans", "s": "text", "t": "whole numbers"}
ARRAYS = {"f": "f", "i": "iu", "n": "fiu", "b": "b", "s": "OU"}
PLAIN = {"f": (int, float), "i": (int,), "b": (bool,), "s": (str,), "t": (tuple,)}


class Of(NamedTuple):
    """An array: ``kind`` of its entries, and its ``shape``, with letters for lengths and None for any.

    Whole numbers may be indices: from ``least`` to below the length ``below``, ``distinct`` if they have to be.
    """

    kind: str
    shape: tuple[str | int | None, ...] = ()
    sparse: bool = False
    below: str | None = None
    least: int = 0
    distinct: bool = False
    finite: bool = False
    optional: bool = False  # it may be missing
    nullable: bool = False  # it may be None
    each: bool = False  # a dict of such arrays

    def in_words(self) -> str:
        """For messages."""
        shape = ", ".join("any" if length is None else str(length) for length in self.shape)
        what = f"{KINDS[self.kind]} of shape ({shape})" if self.shape else KINDS[self.kind]
        return f"a dict of {what}" if self.each else f"a sparse matrix of {what}" if self.sparse else what


def check_values(values: dict[str, Any], expected: dict[str, Of], lengths: dict[str, int]) -> None:
    """Raise ValueError unless ``values`` are as ``expected``; ``lengths`` has those of letters, and gets the others."""
    missing = [name for name, of in expected.items() if name not in values and not of.optional]
    if missing:
        raise ValueError(f"{missing[0]!r} is missing, expected {expected[missing[0]].in_words()}")
    for name, of in expected.items():
        if name not in values or (of.nullable and values[name] is None):
            continue
        value = values[name]
        if of.each:
            if not isinstance(value, dict):
                raise ValueError(f"{name!r} is {_found(value)}, expected {of.in_words()}")
            for key, item in value.items():
                _check(f"{name}[{key!r}]", item, of, lengths)
        else:
            _check(name, value, of, lengths)


def _check(name: str, value: Any, of: Of, lengths: dict[str, int]) -> None:
    wrong = ValueError(f"{name!r} is {_found(value)}, expected {of.in_words()}{_where(of, lengths)}")
    if of.sparse != sp.issparse(value) or (of.shape and not of.sparse and not isinstance(value, np.ndarray)):
        raise wrong
    if not of.shape:  # a plain value of JSON
        if not isinstance(value, PLAIN[of.kind]) or (isinstance(value, bool) and of.kind != "b"):
            raise wrong
        if isinstance(value, tuple) and not all(type(number) is int for number in value):
            raise wrong
        return
    if value.dtype.kind not in ARRAYS[of.kind] or len(value.shape) != len(of.shape):
        raise wrong
    for length, wanted in zip(value.shape, of.shape, strict=True):
        if wanted is not None and length != (wanted if isinstance(wanted, int) else lengths.setdefault(wanted, length)):
            raise wrong
    if of.sparse:
        check_sparse(value)
    if of.finite and not np.isfinite(value).all():
        raise ValueError(f"{name!r} holds NaN or infinity, expected finite numbers")
    if of.below is not None and value.size:
        if value.min() < of.least or value.max() >= lengths[of.below]:
            raise ValueError(
                f"{name!r} holds {value.min()} to {value.max()}, expected {of.least} to {lengths[of.below] - 1}"
            )
        if of.distinct and len(np.unique(value)) < value.size:
            raise ValueError(f"{name!r} holds the same number twice, expected distinct ones")


def check_sparse(X: Any) -> None:
    """Raise ValueError unless the parts of a sparse matrix fit together; SciPy would write where it should not."""
    indptr = getattr(X, "indptr", None)
    if indptr is not None and (indptr[0] != 0 or (np.diff(indptr) < 0).any()):  # SciPy looks only if the last is not 0
        raise ValueError("the ends of its rows or columns do not grow")
    if hasattr(X, "check_format"):
        X.check_format(full_check=True)


def _found(value: Any) -> str:
    if isinstance(value, np.ndarray) or sp.issparse(value):
        return f"{'a sparse matrix' if sp.issparse(value) else 'an array'} of {value.dtype} of shape {value.shape}"
    return f"{type(value).__name__} {str(value)[:50]!r}"


def _where(of: Of, lengths: dict[str, int]) -> str:
    known = [f"{letter} = {lengths[letter]}" for letter in of.shape if isinstance(letter, str) and letter in lengths]
    return f" where {', '.join(dict.fromkeys(known))}" if known else ""
