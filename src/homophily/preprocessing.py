"""Zero mean, unit standard deviation, no constant columns: what every method here starts from (Sec. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["Standardized", "standardize"]

BLOCK = 2**24  # entries that are worked on at once


@dataclass(frozen=True)
class Standardized:
    """Standardised data and the way back: ``values[:, a]`` is the column ``kept[a]`` of the input."""

    values: np.ndarray  # (n, d'), float32, C-contiguous
    kept: np.ndarray  # (d',) indices of the columns that are not constant
    dropped: np.ndarray  # (d - d',) indices of those that are


def standardize(X: Any) -> Standardized:
    """Standardise the columns of ``X (n, d)`` and leave out the constant ones.

    A column is constant when its standard deviation is no more than the rounding of its largest entry. Columns are
    scaled by that entry first, so neither 1e-200 nor 1e200 under- or overflows. The result is float32 whatever comes
    in: training is stochastic, and the exact energy is computed in float64 from the chosen columns.

    Sparse input is read block by block and becomes dense here: a standardised matrix has no zeros left.
    """
    n, d = X.shape
    source = X.tocsc() if sp.issparse(X) else X
    eps = np.finfo(X.dtype).eps if X.dtype.kind == "f" else np.finfo(np.float64).eps
    values = np.empty((n, d), dtype=np.float32)
    keep = np.zeros(d, dtype=bool)
    width = max(1, BLOCK // max(1, n))
    for start in range(0, d, width):
        block = source[:, start : start + width]
        Z = np.array(block.toarray() if sp.issparse(block) else block, dtype=np.float64)
        largest = np.abs(Z).max(0)
        Z /= np.where(largest > 0, largest, 1)
        Z -= Z.mean(0)
        std = np.sqrt(np.mean(Z**2, 0))
        varies = std > 4 * eps
        values[:, start : start + width] = Z / np.where(varies, std, 1)
        keep[start : start + width] = varies
    kept = np.flatnonzero(keep)
    if len(kept) < d:
        values = np.ascontiguousarray(values[:, kept])
    return Standardized(values, kept, np.flatnonzero(~keep))
