"""Standardised data that several test modules draw."""

import numpy as np
import torch

F64 = torch.float64


def scaled(X):
    """Columns of mean 0 and deviation 1."""
    X = torch.as_tensor(X, dtype=F64)
    return (X - X.mean(0)) / X.std(0, correction=0)


def standardized(n, d, seed=0):
    """Noise."""
    return scaled(torch.randn(n, d, dtype=F64, generator=torch.Generator().manual_seed(seed)))


def heavy_tailed(n, d, seed=0):
    """Columns whose outliers upset the order of the neighbours in the other columns."""
    return scaled(standardized(n, d, seed) ** 3)


def planted(n, d, n_planted, seed=0, *, n_clusters=4, reach=2.25):
    """Columns that each show the clusters in another order, from -reach to reach, then noise."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(n_clusters, size=n)
    X = rng.standard_normal((n, d))
    for f in range(n_planted):
        X[:, f] += rng.permutation(np.linspace(-reach, reach, n_clusters))[cluster]
    return scaled(X)
