"""Laplacian and Dirichlet energy (Sec. 2, Eq. 1 and 3)."""

from __future__ import annotations

import torch
from torch import Tensor

from .knn_graph import NeighborGraph, squared_distances

__all__ = ["dirichlet_energy", "laplacian"]


def dirichlet_energy(X: Tensor, S: NeighborGraph | Tensor, *, method: str = "rows") -> Tensor:
    r"""Energy of the signals ``X (..., n, m)`` on the graph ``S``.

    .. math::
        \mathrm{tr}(X^\top L_S X) = \tfrac12 \sum_i \sum_j s_{ij} \|x_i - x_j\|^2

    Parameters
    ----------
    X : Tensor (..., n, m)
        One signal a column.
    S : NeighborGraph or Tensor (..., n, n)
        Need not be symmetric: squared distances are, so the right-hand side equals the left with
        :math:`(S + S^\top)/2` in its place (the paper's footnote 2).
    method : {"rows", "laplacian"}
        The row sum needs no n x n matrix and splits into batches of rows; the Laplacian is there to check it.
    """
    if not isinstance(S, NeighborGraph | Tensor):
        raise TypeError(f"S must be a NeighborGraph or a tensor (n, n), got {type(S).__name__}.")
    size = (S.indices.shape[-2], S.n_points) if isinstance(S, NeighborGraph) else tuple(S.shape[-2:])
    if size != (X.shape[-2], X.shape[-2]):
        raise ValueError(f"S joins {size[0]} rows to {size[1]} points, but X has {X.shape[-2]} rows.")
    if method == "laplacian":
        L = laplacian(S)
        return (X * (L @ X)).sum((-2, -1))
    if method != "rows":
        raise ValueError(f"method must be 'rows' or 'laplacian', got {method!r}.")
    if isinstance(S, NeighborGraph):
        return (S.weights * squared_distances(X, X, S.indices)).sum((-2, -1)) / 2
    if S.layout is not torch.strided:
        coo = S.to_sparse_coo().coalesce()
        i, j = coo.indices()
        return (coo.values() * (X[i] - X[j]).square().sum(-1)).sum() / 2
    return (S * (X.unsqueeze(-2) - X.unsqueeze(-3)).square().sum(-1)).sum((-2, -1)) / 2


def laplacian(S: NeighborGraph | Tensor) -> Tensor:
    """``D - (S + S')/2`` as a dense tensor ``(..., n, n)``."""
    if isinstance(S, NeighborGraph) or S.layout is not torch.strided:
        S = S.to_dense()
    S = (S + S.mT) / 2
    return torch.diag_embed(S.sum(-1)) - S
