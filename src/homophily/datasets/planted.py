"""Clusters that some columns tell apart, hidden among columns of noise: the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["make_planted"]


def make_planted(
    n_samples: int = 500,
    n_features: int = 60,
    n_planted: int = 8,
    *,
    n_clusters: int = 4,
    spacing: float = 1.5,
    random_state: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Generate clusters that only ``n_planted`` columns know of.

    In each planted column the centres of the clusters stand ``spacing`` apart, in an order of its own, so that all are
    equally strong and no two are copies; to them and everywhere else N(0, 1) is added.

    Parameters
    ----------
    n_samples, n_features, n_planted, n_clusters : int
    spacing : float
        In standard deviations of the noise.
    random_state : int, RandomState instance or None

    Returns
    -------
    X : ndarray (n_samples, n_features)
    y : ndarray (n_samples,)
        The cluster.
    planted : ndarray (n_planted,)
        The columns that tell them apart, ascending.
    """
    if not 1 <= n_planted <= n_features:
        raise ValueError(f"n_planted={n_planted} must lie between 1 and n_features={n_features}.")
    from sklearn.utils import check_random_state  # takes seconds: only for those who draw

    rng = check_random_state(random_state)
    y = rng.randint(n_clusters, size=n_samples)
    planted = np.sort(rng.permutation(n_features)[:n_planted])
    places = (np.arange(n_clusters) - (n_clusters - 1) / 2) * spacing
    centers = np.stack([rng.permutation(places) for _ in planted], axis=1)  # (n_clusters, n_planted)
    X = rng.standard_normal((n_samples, n_features))
    X[:, planted] += centers[y]
    return X, y, planted
