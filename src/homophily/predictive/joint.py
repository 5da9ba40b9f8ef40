"""A structure that only the joint distribution of few columns shows, such as circles."""

from __future__ import annotations

import numpy as np
import torch

from ..graph import adaptive_knn_graph, dirichlet_energy
from ..objectives import Energy
from ..refinement import exchange_features

__all__ = ["FEW", "joint_selection", "unrelated_share"]

FEW = 4  # columns among which neighbours still tell near from far
ROWS = 1024  # that energies are measured on
DRAWS = 4  # of shuffled columns


def joint_selection(Z: np.ndarray, m: int, k: int, rng: np.random.Generator) -> list[int]:
    """The m columns of ``Z (n, d)`` that exchanges lead to from a random start while the paper's energy falls."""
    X = torch.from_numpy(Z[:ROWS].astype(np.float32))
    start = rng.permutation(Z.shape[1])[:m]
    return exchange_features(X, start, k, Energy(X), max_passes=2).tolist()


def unrelated_share(Z: np.ndarray, chosen: list[int], k: int, rng: np.random.Generator) -> float:
    """Energy of the chosen columns on their own graph, as a share of that of the same columns shuffled one by one.

    1 if they have nothing to do with each other, the less the closer their joint distribution.
    """
    X = Z[:ROWS, chosen]
    shuffled = [_energy(np.stack([rng.permutation(x) for x in X.T], 1), k) for _ in range(DRAWS)]
    return min(1.0, _energy(X, k) / max(float(np.mean(shuffled)), np.finfo(float).tiny))


def _energy(X: np.ndarray, k: int) -> float:
    return dirichlet_energy(X, adaptive_knn_graph(X, k, method="exact"))
