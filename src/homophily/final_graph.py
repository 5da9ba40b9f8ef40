"""The k-NN graph of the selected columns over all samples, once they are known."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np
import scipy.sparse as sp

from . import memory
from .graph import adaptive_knn_graph, dirichlet_energy, graph_method
from .preprocessing import Standardized

__all__ = ["final_graph", "planned_graph"]

SLOW_GRAPH = 200_000  # rows up to which an exact graph takes minutes
AUTO = 64  # features that "auto" may find, to tell how much memory their graph takes


def planned_graph(wanted: str, n: int, d: int, m: int | float | str | None, k: int) -> str:
    """How the graph of ``n`` samples will be found, decided and told before the work begins.

    Parameters
    ----------
    wanted : {"auto", "exact", "faiss", "none"}
        The parameter ``final_graph`` of a selector.
    n, d : int
        Shape of the data.
    m : int, float, "auto" or None
        The selector's ``n_features_to_select``.
    k : int
        Neighbours per sample.

    Returns
    -------
    method : {"exact", "faiss", "none"}
    """
    if wanted == "faiss" and find_spec("faiss") is None:
        raise ImportError('final_graph="faiss" needs faiss: pip install "homophily[faiss]", or use "exact".')
    m = d // 2 if m is None else AUTO if isinstance(m, str) else int(m * d) if m < 1 else m
    # The chosen columns, some copies of them, and of each edge its ends, length and weight, some of them twice.
    needed = n * (24 * int(m) + 80 * (k + 1))
    if wanted != "auto":
        if wanted != "none":
            memory.require(needed, f"The graph of {n:,} samples", 'Raise the limit, or set final_graph="none".')
        return wanted
    room = memory.room()
    if room is not None and needed > room:
        _warn(
            n,
            f"it would take about {memory.in_words(needed)}, and the memory limit leaves {memory.in_words(room)}. "
            'Raise the limit, or set final_graph="none" to be silent.',
        )
        return "none"
    method = graph_method(n)
    if method == "faiss" or n <= SLOW_GRAPH:
        return method
    _warn(
        n,
        'that would take hours without faiss. Install it with pip install "homophily[faiss]", set final_graph="exact" '
        'to make it all the same, or "none" to be silent.',
    )
    return "none"


def final_graph(data: Standardized, places: np.ndarray, k: int, method: str) -> tuple[sp.csr_array, float]:
    """The adaptive k-NN graph of the standardised columns ``places``, and their Dirichlet energy on it."""
    chosen = data.columns(places).astype(np.float64)
    graph = adaptive_knn_graph(chosen, k, method=method)
    return graph, dirichlet_energy(chosen, graph)


def _warn(n: int, why: str) -> None:
    warnings.warn(f"The k-NN graph of {n:,} samples will not be made: {why}", UserWarning, stacklevel=5)
