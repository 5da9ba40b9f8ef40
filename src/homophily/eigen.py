"""Some eigenvectors of symmetric matrices, the same ones every time."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, eigh
from scipy.sparse.linalg import LinearOperator, eigsh

__all__ = ["eigenvectors", "lanczos", "largest_eigenvectors"]


def eigenvectors(A: np.ndarray, first: int, last: int) -> np.ndarray:
    """Vectors ``(n, last - first)`` of the eigenvalues ``first`` to ``last`` of ``A (n, n)``, in ascending order.

    LAPACK's fast way to a few vectors (MRRR) fails on some matrices whose eigenvalues are tied or far apart; iterating
    for all of them (QR) does not.
    """
    try:
        return eigh(A, subset_by_index=[first, last - 1])[1]
    except LinAlgError:
        return eigh(A, driver="ev")[1][:, first:last]


def lanczos(A: Any, k: int, start: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` largest eigenvalues of ``A (n, n)``, ascending, and their vectors ``(n, k)``, by SciPy's ``eigsh``.

    Where ``start (n,)`` leads nowhere new, ARPACK draws another vector; of SciPy's own that is another one each time,
    unless it is given a seed (SciPy 1.17; before, it has one of its own).
    """
    if "rng" in inspect.signature(eigsh).parameters:
        options["rng"] = np.random.default_rng(0)
    return eigsh(A, k, which="LA", v0=start, **options)


def largest_eigenvectors(A: Any, k: int, start: np.ndarray) -> np.ndarray:
    """Vectors ``(n, k)`` of the ``k`` largest eigenvalues of ``A (n, n)``, whose eigenvalues are from -1 to 1.

    Lanczos' method sees an eigenvalue that several vectors share once, and again only through rounding. So what it has
    found is taken out of the matrix, and as long as something larger is left than the smallest found, that comes in.
    """
    values, vectors = lanczos(A, k, start)
    for _ in range(k):
        found = vectors  # with eigenvalues of at most -1 in what follows

        def rest(x: np.ndarray, found: np.ndarray = found) -> np.ndarray:
            return A @ x - 2 * (found @ (found.T @ x))

        left, vector = lanczos(LinearOperator(A.shape, matvec=rest, dtype=A.dtype), 1, start)
        if left[0] <= values[0] + 1e-8:
            break
        order = np.argsort([left[0], *values[1:]], kind="stable")
        values = np.concatenate([left, values[1:]])[order]
        vectors = np.hstack([vector, vectors[:, 1:]])[:, order]
    return vectors
