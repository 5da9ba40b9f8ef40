"""Feature medoids: one column of each cluster of columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from scipy.cluster.hierarchy import linkage

from .. import memory
from ..progress import Steps
from .base import Baseline

__all__ = ["FeatureMedoids"]

BLOCK = 2**22  # entries that are worked on at once


class FeatureMedoids(Baseline):
    r"""Select one column of each of m clusters of correlated columns: the one that is most correlated with the others.

    .. math::
        \arg\max_{j \in C} \; \sum_{i \in C} |\rho_{ij}|

    for each cluster :math:`C` of columns, with :math:`\rho_{ij}` the correlation of two columns. The clusters come from
    average linkage on the distances :math:`1 - |\rho_{ij}|`: the two closest clusters are merged until m are left.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    random_state : int, RandomState or None, default=None
        Not used: nothing is drawn.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        Of a selected column the sum of its absolute correlations with the columns of its cluster, itself included: the
        number of columns that it stands for, so at least 1. Of the others the absolute correlation with the column that
        was selected from their cluster, at most 1. 0 for the constant columns.

    Notes
    -----
    All d (d - 1) / 2 correlations are held twice: 0.8 GB for 10,000 columns.

    References
    ----------
    P. Mitra, C. A. Murthy and S. K. Pal, Unsupervised feature selection using feature similarity, IEEE Transactions on
    Pattern Analysis and Machine Intelligence, 2002, for the idea; the clustering is the usual one.

    Examples
    --------
    >>> import numpy as np
    >>> from homophily.baselines import FeatureMedoids
    >>> a, b = np.random.RandomState(0).randn(2, 100)
    >>> X = np.c_[a + 0.1 * b, a, a - 0.1 * b, b]
    >>> FeatureMedoids(2).fit(X).selected_features_.tolist()
    [1, 3]
    """

    nested: ClassVar[bool] = False
    score_meaning: ClassVar[str] = (
        "of a chosen column the sum of its absolute correlations with its cluster, of another that with the one chosen "
        "from its cluster"
    )

    def __init__(self, n_features_to_select: int | None = None, *, random_state: Any = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        X = X.astype(np.float64)
        d = X.shape[1]
        labels = clusters(X, m)
        scores = np.empty(d)
        medoids = []
        for label in range(m):
            members = np.flatnonzero(labels == label)
            sums = np.concatenate([block.sum(1) for _, block in correlations(X[:, members])])
            at = int(sums.argmax())
            scores[members] = next(correlations(X[:, members], at))[1][0]
            scores[members[at]] = sums[at]
            medoids.append(members[at])
        return np.array(medoids), scores


def correlations(X: np.ndarray, start: int = 0) -> Iterator[tuple[int, np.ndarray]]:
    """Absolute correlations ``(b, d)`` of some columns of standardised ``X (n, d)`` with all, from ``start`` on."""
    n, d = X.shape
    width = max(1, memory.scaled(BLOCK) // d)
    for first in range(start, d, width):
        block = np.minimum(np.abs(X[:, first : first + width].T @ X) / n, 1)
        block[np.arange(len(block)), np.arange(first, first + len(block))] = 1
        yield first, block


def clusters(X: np.ndarray, m: int) -> np.ndarray:
    """Labels 0 to m - 1 of the columns of ``X (n, d)`` once average linkage has left ``m`` clusters; (d,)."""
    d = X.shape[1]
    if m == d:
        return np.arange(d)
    pairs = d * (d - 1) // 2
    memory.require(2 * 8 * pairs, f"The correlations of {d:,} columns", "Raise the limit, or leave out columns.")
    distances = np.empty(pairs)
    at = 0
    for first, block in correlations(X):
        for i, row in enumerate(block, start=first):
            distances[at : at + d - i - 1] = 1 - row[i + 1 :]
            at += d - i - 1
    merges = linkage(distances, "average")[: d - m, :2].astype(int)  # two clusters each, the i-th makes cluster d + i
    cluster = np.arange(2 * d - m)  # the last cluster that each is part of
    for i in reversed(range(len(merges))):
        cluster[merges[i]] = cluster[d + i]
    return np.unique(cluster[:d], return_inverse=True)[1]
