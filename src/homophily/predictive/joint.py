"""A structure of few columns that no regression sees, such as circles."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import ndtri

from ..graph import adaptive_knn_graph, dirichlet_energy
from ..objectives import Energy
from ..refinement import exchange_features

__all__ = ["FEW", "ROWS", "joint_selection", "unseen_share"]

FEW = 4  # columns among which neighbours still tell near from far
ROWS = 1024  # that energies are measured on
DRAWS = 4  # of columns that are only correlated
TIES = 0.1  # share of equal values above which a column's energy says nothing


def joint_selection(Z: np.ndarray, m: int, k: int, rng: np.random.Generator) -> list[int]:
    """The m columns of ``Z (n, d)`` that exchanges lead to from a random start while the paper's energy falls."""
    X = torch.from_numpy(Z.astype(np.float32))
    start = rng.permutation(Z.shape[1])[:m]
    return exchange_features(X, start, k, Energy(X), max_passes=2).tolist()


def unseen_share(Z: np.ndarray, chosen: list[int], k: int, rng: np.random.Generator) -> float:
    """Energy of the chosen columns on their own graph, relative to that of columns that are only correlated.

    That is the mean energy of random columns with the same values and the same correlations of ranks. 1 if the
    columns have nothing else in common, the less the more of their structure no regression sees; also 1 for columns
    with many equal values, whose energy is small whatever they have in common.
    """
    X = Z[:, chosen]
    n, m = X.shape
    in_order = np.sort(X, axis=0)
    if (np.diff(in_order, axis=0) == 0).mean(0).max() > TIES:
        return 1.0
    normal = ndtri((_ranks(X) + 0.5) / n)
    root = np.linalg.cholesky(np.corrcoef(normal, rowvar=False) + 1e-6 * np.eye(m))
    drawn = (_ranks(rng.standard_normal((n, m)) @ root.T) for _ in range(DRAWS))
    expected = np.mean([_energy(np.take_along_axis(in_order, ranks, 0), k) for ranks in drawn])
    return min(1.0, _energy(X, k) / max(float(expected), np.finfo(float).tiny))


def _ranks(X: np.ndarray) -> np.ndarray:
    return X.argsort(0).argsort(0)


def _energy(X: np.ndarray, k: int) -> float:
    return dirichlet_energy(X, adaptive_knn_graph(X, k, method="exact"))
