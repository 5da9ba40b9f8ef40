"""Fixed graphs as SciPy CSR arrays: heat kernel, exact adaptive k-NN (CLR), Laplacian."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_array

from .nn import exact_similarities, nearest, squared_distances

__all__ = ["adaptive_knn_graph", "heat_kernel_graph", "k_nearest", "laplacian", "symmetrize"]

BUDGET = 2**24  # entries held at once


def heat_kernel_graph(X: Any, k: int = 5, sigma: float | None = 1.0) -> sp.csr_array:
    r"""The paper's Heat graph (Appendix S6.1.4): :math:`s_{ij} = \exp(-\|x_i - x_j\|^2 / 2\sigma^2)` for the k nearest.

    ``sigma=None`` takes the mean distance to the neighbours, which suits data of any scale.

    Returns
    -------
    S : csr_array (n, n)
        Not symmetric; see :func:`symmetrize`.
    """
    if sigma is not None and not sigma > 0:
        raise ValueError(f"sigma must be positive or None, got {sigma}.")
    X = check_array(X, dtype=np.float64)
    neighbors, E = _neighbors(X, k, k)
    if sigma is None:
        sigma = float(np.sqrt(E).mean()) or 1.0  # where all neighbours are copies any width gives weights of 1
    return _csr(neighbors, np.exp(-E / (2 * sigma**2)))


def adaptive_knn_graph(X: Any, k: int = 5) -> sp.csr_array:
    r"""Adaptive k-NN similarities in closed form (Eq. 9, as in CLR): the hard twin of :class:`homophily.nn.KNNGraph`.

    .. math::
        s_{i\sigma_j} = \frac{e_{i\sigma_{k+1}} - e_{i\sigma_j}}{k\,e_{i\sigma_{k+1}} - \sum_{p \le k} e_{i\sigma_p}},
        \quad j \le k

    Rows sum to 1. If the k + 1 nearest are equally far, or there are only k others, each of the k gets ``1 / k``.
    """
    X = check_array(X, dtype=np.float64)
    neighbors, E = _neighbors(X, k, min(k + 1, len(X) - 1))
    S = exact_similarities(torch.from_numpy(E), k).numpy()
    return _csr(neighbors[:, :k], S[:, :k])


def k_nearest(X: Any, k: int = 5) -> np.ndarray:
    """Indices of the ``k`` nearest other rows of each row of ``X``, nearest first; (n, k)."""
    return _neighbors(check_array(X, dtype=np.float64), k, k)[0]


def symmetrize(S: Any) -> Any:
    """``(S + S') / 2``, sparse if ``S`` is."""
    return (S + S.T) / 2


def laplacian(S: Any) -> Any:
    """``D - (S + S') / 2`` with D the degrees, sparse if ``S`` is (the paper's footnote 2)."""
    S = symmetrize(S)
    degrees = np.asarray(S.sum(axis=1)).ravel()
    return sp.csr_array(sp.diags_array(degrees) - S) if sp.issparse(S) else np.diag(degrees) - S


def _neighbors(X: np.ndarray, k: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``c`` nearest others of each row, nearest first, and their squared distances; both (n, c)."""
    n = len(X)
    if not 1 <= k < n:
        raise ValueError(f"k={k} neighbours need at least {max(k, 1) + 1} samples, got {n}: lower k.")
    points = torch.from_numpy(np.ascontiguousarray(X))
    indices = nearest(points, points, c, torch.arange(n))
    chunk = max(1, BUDGET // (c * X.shape[1]))
    E = [squared_distances(points[i : i + chunk], points, indices[i : i + chunk]) for i in range(0, n, chunk)]
    return indices.numpy(), torch.cat(E).numpy()


def _csr(neighbors: np.ndarray, weights: np.ndarray) -> sp.csr_array:
    n, k = neighbors.shape
    indptr = np.arange(0, n * k + 1, k)
    S = sp.csr_array((weights.ravel(), neighbors.ravel().astype(np.int32), indptr.astype(np.int32)), shape=(n, n))
    S.sort_indices()
    return S
