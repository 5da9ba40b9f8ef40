"""What the report shows beyond the selection itself: histograms, the graph, near-copies, and a look at chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.manifold import TSNE

from ..graph import adaptive_knn_graph
from ..sources import SomeRows, column_groups, is_on_disk, open_rows

__all__ = ["Chance", "Drawn", "Insight", "look"]

DRAWN = 512  # samples of the graph in the picture
JUDGED = 256  # samples on which selections are compared with random ones
COUNTED = 2048  # samples of histograms, correlations and the mean image
POOL = 1024  # features from which random selections are drawn
RANDOM = 100  # of them
LEFT_OUT = 8  # of the selected features, to see what the others explain of them; of many fewer
BINS = 14
MAPPED = 150  # features of the redundancy map
CLASSES = 12  # labels beyond which they are taken for measurements


@dataclass(frozen=True)
class Drawn:
    """The graph of the chosen features, in the plane."""

    points: np.ndarray  # (n', 2)
    graph: sp.csr_array  # (n', n')
    codes: np.ndarray | None  # (n',) of the labels
    classes: list[str]  # what the codes mean


@dataclass(frozen=True)
class Chance:
    """A measure of the selection, and of random ones of its size."""

    value: float
    random: np.ndarray  # (100,)

    @property
    def lower(self) -> int:
        """How many of the random ones are lower, more than by rounding."""
        return int((self.random < self.value - 1e-9 * abs(self.value)).sum())

    @property
    def higher(self) -> int:
        """How many are higher."""
        return int((self.random > self.value + 1e-9 * abs(self.value)).sum())


@dataclass(frozen=True)
class Insight:
    """All of it."""

    histograms: np.ndarray  # (m, 14) heights of the bars, at most 1
    correlations: np.ndarray  # (m', m') of the first chosen features
    drawn: Drawn | None
    energy: Chance | None  # of the chosen features on their graph, a sample and feature; 1 if they are unrelated
    explained: Chance | None  # share of all features
    mean: np.ndarray | None  # (d,) mean of every feature, where asked for


def look(X: Any, features: np.ndarray, k: int, labels: pd.Series | None, *, mean: bool = False) -> Insight:
    """Look at the selected ``features (m,)`` of the samples ``X (n, d)``; with many rows, on random samples of them.

    Parameters
    ----------
    X : data frame, array, sparse matrix or rows on disk (n, d)
        As a selector's ``fit`` takes it.
    features : array (m,)
        The selection, the best first.
    k : int
        Neighbours in the graphs.
    labels : Series (n,), optional
        Colours of the samples.
    mean : bool
        Whether the mean of every feature is wanted.
    """
    n, d = X.shape
    rng = np.random.RandomState(0)
    order = rng.permutation(n)
    rows, drawn, judged = (np.sort(order[:size]) for size in (COUNTED, DRAWN, JUDGED))
    pool = np.union1d(features, rng.permutation(d)[:POOL])
    columns = np.arange(d) if mean else pool
    values = _part(X, rows, columns)  # all at once: of a file on disk every row is read
    chosen = values[:, np.searchsorted(columns, features)]
    mapped = _standardized(chosen[:, :MAPPED])
    trial = values[np.searchsorted(rows, judged)][:, np.searchsorted(columns, pool)]
    return Insight(
        np.stack([_histogram(column) for column in chosen.T]),
        mapped.T @ mapped / len(mapped),
        _drawn(_standardized(chosen[np.searchsorted(rows, drawn)]), k, None if labels is None else labels.iloc[drawn]),
        *_beside_chance(_standardized(trial), np.searchsorted(pool, features), k, rng),
        values.mean(0) if mean else None,
    )


def _part(X: Any, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Some rows of some columns as float64."""
    if is_on_disk(X):
        source = SomeRows(open_rows(X), rows)
        groups = column_groups(source, columns.tolist())
        part = np.concatenate([np.concatenate(list(source.blocks(columns=group))) for group in groups], axis=1)
    elif hasattr(X, "iloc"):
        part = X.iloc[rows, columns].to_numpy()
    else:
        part = X[rows][:, columns]
        part = part.toarray() if sp.issparse(part) else part
    return np.asarray(part, dtype=np.float64)


def _standardized(X: np.ndarray) -> np.ndarray:
    """With mean 0 and standard deviation 1; 0 where a column does not vary among these rows."""
    X = X / np.maximum(np.abs(X).max(0), np.finfo(float).tiny)  # so that nothing under- or overflows
    X = X - X.mean(0)
    std = X.std(0)
    return np.divide(X, std, out=np.zeros_like(X), where=std > 1e-12)


def _histogram(column: np.ndarray) -> np.ndarray:
    low, high = column.min(), column.max()
    if not high > low or not np.isfinite(high - low):
        return np.eye(1, BINS, BINS // 2)[0]
    counts = np.bincount(((column - low) / (high - low) * BINS).astype(int).clip(max=BINS - 1), minlength=BINS)
    return counts / counts.max()


def _drawn(points: np.ndarray, k: int, labels: pd.Series | None) -> Drawn | None:
    n, m = points.shape
    if n < 5:
        return None
    graph = adaptive_knn_graph(points, min(k, n - 1))
    if m == 1:
        place = np.column_stack([points[:, 0], np.random.RandomState(0).uniform(-1, 1, n)])
    elif m == 2:
        place = points
    else:
        place = TSNE(init="pca", perplexity=min(30, (n - 1) / 3), random_state=0).fit_transform(points)
    codes, classes = None, []
    if labels is not None:
        found, names = pd.factorize(labels, sort=True)
        if 1 < len(names) <= CLASSES:
            codes, classes = found, [str(name) for name in names]
    return Drawn(place, graph, codes, classes)


def _beside_chance(
    Z: np.ndarray, chosen: np.ndarray, k: int, rng: np.random.RandomState
) -> tuple[Chance | None, Chance | None]:
    """Energy of the chosen columns of ``Z (n', d')`` on their graph, and what is explained of all columns."""
    (n, d), m = Z.shape, len(chosen)
    if n < 5 or m == d:
        return None, None
    found = [_measured(Z, rng.permutation(chosen), k)]
    found += [_measured(Z, rng.permutation(d)[:m], k) for _ in range(RANDOM)]
    energy, explained = np.array(found).T
    return Chance(energy[0], energy[1:]), Chance(explained[0], explained[1:])


def _measured(Z: np.ndarray, features: np.ndarray, k: int) -> tuple[float, float]:
    """Energy, a sample and feature, and the share of all features that is explained.

    Of a selected feature what the graph of the others explains, so that none explains itself; judged by some of them.
    """
    n, m = len(Z), len(features)
    S = adaptive_knn_graph(Z[:, features], min(k, n - 1))
    energies = _energies(S, Z)
    r = 1 - energies / (2 * n)  # where neighbours have nothing in common a standardised feature has 2 n
    total, some = r.sum() - r[features].sum(), features[: max(1, min(LEFT_OUT, 400 // m))]
    if m > 1:
        others = (adaptive_knn_graph(Z[:, features[features != f]], min(k, n - 1)) for f in some)
        by_others = [_energies(S, Z[:, [f]])[0] / (2 * n) for f, S in zip(some, others, strict=True)]
        total += m * (1 - np.mean(by_others))
    return float(energies[features].mean() / (2 * n)), float(total / Z.shape[1])


def _energies(S: sp.csr_array, Z: np.ndarray) -> np.ndarray:
    """Sum of s_ij (z_i - z_j)^2 for each column; rows of S sum to 1."""
    squares = Z * Z
    return squares.sum(0) + S.sum(0) @ squares - 2 * (Z * (S @ Z)).sum(0)
