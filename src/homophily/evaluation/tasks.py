"""The tasks by which the paper judges selected features and graphs (Sec. 4): classify, cluster, reconstruct."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils import check_array, check_random_state
from threadpoolctl import threadpool_limits
from torch import nn

from ..eigen import eigenvectors, largest_eigenvectors
from ..graph import symmetrize
from ..preprocessing import standardize
from ..runtime import one_thread

__all__ = [
    "aligned_accuracy",
    "classification_accuracy",
    "clustering_accuracy",
    "one_core",
    "reconstruct",
    "reconstruction_rmse",
    "spectral_clustering_accuracy",
    "standardize_by_training",
]

MAX_HIDDEN = 1024  # hidden units of the network that reconstructs
DENSE_ROWS = 4096  # up to so many an exact eigendecomposition takes seconds
MAX_SEED = np.iinfo(np.int32).max


@contextmanager
def one_core() -> Iterator[None]:
    """Let torch, BLAS and OpenMP use one thread: sums are taken in one order, and seconds are of one core."""
    with one_thread(), threadpool_limits(1):
        yield


def classification_accuracy(
    X_train: Any,
    y_train: Any,
    X_test: Any,
    y_test: Any,
    *,
    n_estimators: int = 1000,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> float:
    """Accuracy on the test rows of a random forest that was grown on the training rows.

    Parameters
    ----------
    X_train, X_test : array or sparse matrix (n_train, m), (n_test, m)
        The selected columns. Their scale does not matter to a forest.
    y_train, y_test : array (n_train,), (n_test,)
        Classes.
    n_estimators : int
        Trees.
    random_state : int, RandomState or None
        Seed of the forest.
    n_jobs : int, optional
        Threads that grow trees. The result does not depend on it.
    """
    forest = RandomForestClassifier(n_estimators, random_state=random_state, n_jobs=n_jobs).fit(X_train, y_train)
    forest.set_params(n_jobs=1)  # threads would add up the votes in any order, and rounding would break ties
    return float(forest.score(X_test, y_test))


def clustering_accuracy(
    X_test: Any,
    y_test: Any,
    *,
    n_clusters: int | None = None,
    n_init: int = 10,
    n_repeats: int = 10,
    random_state: Any = None,
) -> float:
    """Accuracy of k-means on the test rows, clusters matched to classes in the best way; mean of several seeds.

    Parameters
    ----------
    X_test : array (n, m)
        The selected columns, standardised (:func:`standardize_by_training`).
    y_test : array (n,)
        Classes.
    n_clusters : int, optional
        Classes in the whole data, of which some may have no test row. By default those in ``y_test``. With fewer rows
        than that each row is a cluster.
    n_init, n_repeats : int
        Starts of k-means, of which the tightest counts, and seeds over which the accuracy is averaged.
    random_state : int, RandomState or None
        Seed of all that.
    """
    n_clusters = min(n_clusters or len(np.unique(y_test)), len(y_test))
    seeds = check_random_state(random_state).randint(MAX_SEED, size=n_repeats)
    with one_core(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters: some stay empty
        return float(
            np.mean(
                [
                    aligned_accuracy(y_test, KMeans(n_clusters, n_init=n_init, random_state=seed).fit_predict(X_test))
                    for seed in seeds
                ]
            )
        )


def spectral_clustering_accuracy(
    graph: Any, y: Any, *, n_clusters: int | None = None, n_repeats: int = 10, random_state: Any = None
) -> float:
    """Accuracy of spectral clustering of a graph, clusters matched to classes in the best way; mean of several seeds.

    Parameters
    ----------
    graph : array or sparse matrix (n, n)
        Similarities, not negative; symmetrised here.
    y : array (n,)
        Classes.
    n_clusters : int, optional
        By default the number of classes in ``y``.
    n_repeats : int
        Seeds over which the accuracy is averaged.
    random_state : int, RandomState or None
        Seed of all that.
    """
    S = symmetrize(check_array(graph, accept_sparse="csr", dtype=np.float64))  # (n, n)
    n_clusters = min(n_clusters or len(np.unique(y)), len(y))
    with one_core():
        embedding = _spectral_embedding(S, n_clusters)
    return clustering_accuracy(
        embedding, y, n_clusters=n_clusters, n_init=10, n_repeats=n_repeats, random_state=random_state
    )


def _spectral_embedding(S: Any, n_vectors: int) -> np.ndarray:
    """Rows of the leading eigenvectors of :math:`D^{-1/2} S D^{-1/2}`, of length 1 (Ng, Jordan and Weiss); (n, c).

    scikit-learn's inverts a shifted Laplacian, which does not end in reasonable time where weights underflow, as those
    of the paper's Heat graph do. This multiplies only, and for some thousand rows is a dense and exact computation.
    """
    degrees = np.asarray(S.sum(axis=1)).ravel()
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros_like(degrees), where=degrees > 0)  # 0 where nothing is near
    n = len(degrees)
    if not degrees.any():  # no edge, and nothing to tell the rows apart
        return np.zeros((n, n_vectors))
    if n <= DENSE_ROWS:
        A = (S.toarray() if sp.issparse(S) else S) * scale[:, None] * scale
        vectors = eigenvectors(A, n - n_vectors, n)
    else:
        A = sp.diags_array(scale) @ S @ sp.diags_array(scale)
        start = np.random.RandomState(0).normal(size=n)  # an eigenvector, such as sqrt(degrees), would end the search
        vectors = largest_eigenvectors(A, n_vectors, start)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def aligned_accuracy(y: Any, clusters: Any) -> float:
    """Fraction of samples in the right class ``y (n,)`` once ``clusters (n,)`` are matched to classes one to one.

    Of all matchings the best counts. Clusters beyond the number of classes match none.

    Examples
    --------
    >>> from homophily.evaluation import aligned_accuracy
    >>> aligned_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    """
    counts = contingency_matrix(y, clusters)  # (classes, clusters)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / counts.sum())


def reconstruction_rmse(
    X_train: Any,
    X_test: Any,
    features: Any,
    *,
    n_epochs: int = 200,
    max_updates: int | None = None,
    learning_rate: float = 1e-3,
    max_hidden: int = MAX_HIDDEN,
    random_state: Any = None,
) -> float:
    r"""Error of a small network that predicts all columns from the selected ones.

    .. math::
        \mathrm{RMSE} = \sqrt{\tfrac{1}{nd} \textstyle\sum_i \|x_i - \hat x_i\|^2}

    over the test rows, standardised by the training rows: always predicting the mean has about 1. The network has one
    hidden layer of :math:`3m/2` ReLUs, or d if all columns are selected, and is trained by Adam on batches of
    ``max(n // 256, 16)`` rows.

    Parameters
    ----------
    X_train, X_test : array or sparse matrix (n_train, d), (n_test, d)
        All columns. They are standardised here; columns that are constant in ``X_train`` are left out.
    features : array (m,)
        Indices of the selected columns, in any order.
    n_epochs : int
        Passes over the training rows.
    max_updates : int, optional
        Stop after the pass in which so many steps of Adam are reached. The paper has no such bound; with thousands of
        rows 200 passes are tens of thousands of steps.
    learning_rate : float
        Of Adam.
    max_hidden : int
        Most hidden units. The paper has no such bound, but with all of 10,000 columns selected the network would
        have 2·10⁸ weights.
    random_state : int, RandomState or None
        Seed of the initial weights and the batches.
    """
    train, test, kept = standardize_by_training(X_train, X_test)
    predict = _predictor(
        train,
        np.flatnonzero(np.isin(kept, features)),
        n_epochs=n_epochs,
        max_updates=max_updates,
        learning_rate=learning_rate,
        max_hidden=max_hidden,
        random_state=random_state,
    )
    errors = predict(test) - torch.from_numpy(test)  # (n_test, d)
    return float(errors.double().square().mean().sqrt())


def reconstruct(X_train: Any, X_test: Any, features: Any, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """What the network of :func:`reconstruction_rmse` makes of the selected columns, in the data's units."""
    train, test, kept = standardize_by_training(X_train, X_test)
    predict = _predictor(train, np.flatnonzero(np.isin(kept, features)), random_state=random_state)
    known = _dense(X_train)
    mean, std = known[:, kept].mean(0), known[:, kept].std(0)
    rebuilt = []
    for part in (train, test):
        whole = np.tile(known.mean(0), (len(part), 1))  # columns that do not vary are known
        whole[:, kept] = predict(part).double().numpy() * std + mean
        rebuilt.append(whole)
    return rebuilt[0], rebuilt[1]


def _predictor(
    train: np.ndarray,
    chosen: np.ndarray,
    *,
    n_epochs: int = 200,
    max_updates: int | None = None,
    learning_rate: float = 1e-3,
    max_hidden: int = MAX_HIDDEN,
    random_state: Any = None,
) -> Callable[[np.ndarray], torch.Tensor]:
    """Train the network; returns what predicts all columns of standardised rows from the ``chosen`` ones."""
    if not len(chosen):
        raise ValueError("None of the features varies over the training rows, so there is nothing to predict from.")
    n, d = train.shape
    hidden = min(d if len(chosen) == d else max(1, 3 * len(chosen) // 2), max_hidden)
    generator = torch.Generator().manual_seed(int(check_random_state(random_state).randint(MAX_SEED)))
    network = nn.Sequential(_linear(len(chosen), hidden, generator), nn.ReLU(), _linear(hidden, d, generator))
    optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, fused=True)
    inputs, targets = torch.from_numpy(train[:, chosen]), torch.from_numpy(train)  # (n, m), (n, d)
    batch_size = max(n // 256, 16)
    if max_updates is not None:
        n_epochs = min(n_epochs, ceil(max_updates / ceil(n / batch_size)))
    with one_thread():
        for _ in range(n_epochs):
            for rows in torch.randperm(n, generator=generator).split(batch_size):
                optimizer.zero_grad()
                nn.functional.mse_loss(network(inputs[rows]), targets[rows]).backward()
                optimizer.step()

    @torch.no_grad()
    def predict(rows: np.ndarray) -> torch.Tensor:
        with one_thread():
            return network(torch.from_numpy(rows[:, chosen]))

    return predict


def _linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    """``nn.Linear`` with its usual start, but drawn from ``generator``."""
    layer = nn.utils.skip_init(nn.Linear, n_in, n_out)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -(n_in**-0.5), n_in**-0.5, generator=generator)
    return layer


def standardize_by_training(X_train: Any, X_test: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardise both by the means and standard deviations of ``X_train``.

    Returns
    -------
    train, test : ndarray (n_train, d'), (n_test, d')
        float32, without the columns that are constant in ``X_train``.
    kept : ndarray (d',)
        Indices of the columns that are left.
    """
    X_train, X_test = (check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32]) for X in (X_train, X_test))
    data = standardize(X_train)
    known, new = (_dense(X[:, data.kept]) for X in (X_train, X_test))
    largest = np.abs(known).max(0)  # as in standardize, so that nothing under- or overflows
    known /= largest
    new /= largest
    return data.values, ((new - known.mean(0)) / known.std(0)).astype(np.float32), data.kept


def _dense(X: Any) -> np.ndarray:
    return np.array(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
