"""Fixed graphs as SciPy CSR arrays: heat kernel, exact adaptive k-NN (CLR), Laplacian."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_array

from .memory import scaled
from .nn import exact_similarities, nearest, squared_distances

__all__ = ["adaptive_knn_graph", "graph_method", "heat_kernel_graph", "k_nearest", "laplacian", "symmetrize"]

BUDGET = 2**24  # entries held at once
EXACT_ROWS = 50_000  # beyond them a search of all pairs takes minutes
RECALL = 0.97  # share of the true neighbours that an approximate search must find on a sample of rows
SAMPLE = 512  # of so many
CHUNK = 2**16  # rows searched at once


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


def adaptive_knn_graph(X: Any, k: int = 5, method: str = "auto") -> sp.csr_array:
    r"""Adaptive k-NN similarities in closed form (Eq. 9, as in CLR): the hard twin of :class:`homophily.nn.KNNGraph`.

    .. math::
        s_{i\sigma_j} = \frac{e_{i\sigma_{k+1}} - e_{i\sigma_j}}{k\,e_{i\sigma_{k+1}} - \sum_{p \le k} e_{i\sigma_p}},
        \quad j \le k

    Rows sum to 1. If the k + 1 nearest are equally far, or there are only k others, each of the k gets ``1 / k``.

    Parameters
    ----------
    X : array (n, m)
        Points.
    k : int
        Number of neighbours.
    method : {"auto", "exact", "faiss"}
        ``"exact"`` compares all pairs, in chunks. ``"faiss"`` looks for the neighbours in an inverted file, whose
        search is widened until it finds 97 % of them on a sample of rows; the distances to those found are exact, and
        the same points give the same graph. It needs ``pip install "homophily[faiss]"``. ``"auto"`` is what
        :func:`graph_method` says.

    Returns
    -------
    S : csr_array (n, n)
        Not symmetric; see :func:`symmetrize`.
    """
    if method not in {"auto", "exact", "faiss"}:
        raise ValueError(f'method must be "auto", "exact" or "faiss", got {method!r}.')
    X = check_array(X, dtype=np.float64)
    if method == "auto":
        method = graph_method(len(X))
    neighbors, E = _neighbors(X, k, min(k + 1, len(X) - 1), method)
    S = exact_similarities(torch.from_numpy(E), k).numpy()
    return _csr(neighbors[:, :k], S[:, :k])


def graph_method(n: int) -> str:
    """How ``method="auto"`` finds the neighbours of ``n`` points: with faiss beyond 50,000, if it is installed."""
    return "faiss" if n > EXACT_ROWS and find_spec("faiss") is not None else "exact"


def k_nearest(X: Any, k: int = 5) -> np.ndarray:
    """Indices of the ``k`` nearest other rows of each row of ``X``, nearest first; (n, k)."""
    return _neighbors(check_array(X, dtype=np.float64), k, k)[0]


def dirichlet_energy(X: np.ndarray, S: sp.csr_array) -> float:
    r""":math:`\mathrm{tr}(X^\top L_S X) = \frac12 \sum_{ij} s_{ij} \|x_i - x_j\|^2` of the columns of ``X (n, m)``."""
    edges = S.tocoo()
    chunk = max(1, scaled(BUDGET) // X.shape[1])
    total = 0.0
    for start in range(0, len(edges.data), chunk):
        i, j, s = (part[start : start + chunk] for part in (*edges.coords, edges.data))
        # Not by BLAS, whose sum of many edges depends on how many threads it has.
        total += float(np.einsum("e,e->", s, np.square(X[i] - X[j]).sum(1)))
    return total / 2


def symmetrize(S: Any) -> Any:
    """``(S + S') / 2``, sparse if ``S`` is."""
    return (S + S.T) / 2


def laplacian(S: Any) -> Any:
    """``D - (S + S') / 2`` with D the degrees, sparse if ``S`` is (the paper's footnote 2)."""
    S = symmetrize(S)
    degrees = np.asarray(S.sum(axis=1)).ravel()
    return sp.csr_array(sp.diags_array(degrees) - S) if sp.issparse(S) else np.diag(degrees) - S


def _neighbors(X: np.ndarray, k: int, c: int, method: str = "exact") -> tuple[np.ndarray, np.ndarray]:
    """The ``c`` nearest others of each row, nearest first, and their squared distances; both (n, c)."""
    n = len(X)
    if not 1 <= k < n:
        raise ValueError(f"k={k} neighbours need at least {max(k, 1) + 1} samples, got {n}: lower k.")
    points = torch.from_numpy(np.ascontiguousarray(X))
    if method == "faiss":
        indices = torch.from_numpy(_approximately_nearest(X, c))
    else:
        indices = nearest(points, points, c, torch.arange(n))
    chunk = max(1, scaled(BUDGET) // (c * X.shape[1]))
    parts = [squared_distances(points[i : i + chunk], points, indices[i : i + chunk]) for i in range(0, n, chunk)]
    # The search orders by rounded distances: coarsely with faiss, in float32, and among near-copies far from the centre
    # also without it. Who is nearest and who is the farthest of the c is told by the distances themselves.
    E, order = torch.cat(parts).sort(dim=1, stable=True)
    return indices.gather(1, order).numpy(), E.numpy()


def _approximately_nearest(X: np.ndarray, c: int) -> np.ndarray:
    """Indices (n, c) of close others of each row, found in an inverted file (IVF-Flat).

    How many of its lists have to be probed for a given recall depends on the data: 8 of 1264 for 10 columns in
    clusters, hundreds for 50 of pure noise. So their number is raised until a sample of rows finds its true
    neighbours.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError('method="faiss" needs faiss: pip install "homophily[faiss]", or use "exact".') from error
    n, m = X.shape
    Z = np.ascontiguousarray(X - X.mean(0), dtype=np.float32)  # far from the origin float32 would round the rest away
    order = np.random.RandomState(0).permutation(n)
    n_lists = max(1, min(int(4 * np.sqrt(n)), n // 39))  # k-means of faiss wants 39 points a list
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(m), m, n_lists)
    index.cp.seed, index.cp.niter = 0, 10
    index.cp.min_points_per_centroid = 1
    index.train(Z[order[: 64 * n_lists]])
    index.add(Z)

    sample = order[:SAMPLE]
    points = torch.from_numpy(Z)
    truth = nearest(points[sample], points, c, torch.from_numpy(sample)).numpy()  # (SAMPLE, c)
    farthest = _squared(Z, sample, truth).max(1, keepdims=True)
    index.nprobe = 1
    while index.nprobe < n_lists:
        found = _search(index, Z, sample, c)
        # By distance, not by index: a copy of a neighbour is as good.
        if np.mean((found >= 0) & (_squared(Z, sample, found) <= farthest)) >= RECALL:
            break
        index.nprobe = min(index.nprobe * 3 // 2 + 1, n_lists)

    everyone = np.arange(n)
    indices = np.concatenate([_search(index, Z, everyone[i : i + CHUNK], c) for i in range(0, n, CHUNK)])
    short = np.flatnonzero((indices < 0).any(1))  # their lists held too few
    if len(short):
        indices[short] = nearest(points[short], points, c, torch.from_numpy(short)).numpy()
    return indices


def _search(index: Any, Z: np.ndarray, rows: np.ndarray, c: int) -> np.ndarray:
    """What a faiss ``index`` of ``Z`` finds for ``rows (B,)``, without themselves; (B, c), -1 where it ran out."""
    found = index.search(Z[rows], c + 1)[1]
    drop = found == rows[:, None]
    drop[~drop.any(1), -1] = True  # a row with many copies may not have found itself
    return found[~drop].reshape(len(rows), c)


def _squared(Z: np.ndarray, rows: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
    return ((Z[rows][:, None] - Z[neighbors]) ** 2).sum(-1)


def _csr(neighbors: np.ndarray, weights: np.ndarray) -> sp.csr_array:
    n, k = neighbors.shape
    dtype = _index_dtype(n * k)
    indptr = np.arange(0, n * k + 1, k, dtype=dtype)
    S = sp.csr_array((weights.ravel(), neighbors.ravel().astype(dtype), indptr), shape=(n, n))
    S.sort_indices()
    return S


def _index_dtype(n_entries: int) -> type[np.integer]:
    return np.int32 if n_entries < 2**31 else np.int64
