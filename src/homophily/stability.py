"""Would other samples have led to the same features? Refits on subsamples, and how far they agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import delayed, effective_n_jobs
from scipy.stats import norm
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state

from .sources import H5adRows, NpyRows, ParquetRows, SomeRows
from .workers import results_of

__all__ = ["Stability", "stability", "stability_index"]


@dataclass(frozen=True)
class Stability:
    """How far selections on subsamples agree.

    Attributes
    ----------
    index : float
        1 if all are the same, about 0 if they agree as random ones of their sizes would; by convention above .75 is
        excellent and below .4 poor.
    interval : (float, float)
        Approximate confidence interval of the index.
    frequency : ndarray (d,)
        Share of the selections that hold each feature.
    selections : ndarray of bool (n_subsamples, d)
        The selections themselves.
    """

    index: float
    interval: tuple[float, float]
    frequency: np.ndarray
    selections: np.ndarray


def stability(
    selector: Any,
    X: Any,
    *,
    n_subsamples: int = 20,
    fraction: float = 0.8,
    confidence: float = 0.95,
    n_jobs: int | None = None,
    random_state: Any = None,
    callback: Callable[[int], object] | None = None,
) -> Stability:
    """Fit clones of ``selector`` on random parts of the rows of ``X`` and compare what they select.

    Parameters
    ----------
    selector : selector
        Anything with ``fit(X)`` and ``get_support``. It is not changed. Give it a fixed ``random_state``, so that
        only the samples differ.
    X : array, data frame, sparse matrix or rows of a file (n, d)
        Samples. Those of a file, see :func:`~homophily.sources.open_rows`, stay there; our own selectors take them.
    n_subsamples : int
        Number of refits, at least 2.
    fraction : float
        Share of the rows that each sees, drawn without replacement.
    confidence : float
        Of the interval.
    n_jobs : int, optional
        Processes that fit at the same time.
    random_state : int, RandomState instance or None
        Seed of the subsamples.
    callback : callable, optional
        Called with the number of refits that are done, after each.

    Examples
    --------
    >>> from homophily.baselines import LaplacianScore
    >>> from homophily.datasets import make_toy
    >>> X, _ = make_toy("blobs", random_state=0)
    >>> stability(LaplacianScore(2), X, n_subsamples=5, random_state=0).index
    1.0
    """
    if n_subsamples < 2:
        raise ValueError(f"n_subsamples={n_subsamples} must be at least 2: one selection agrees with itself.")
    if not 0 < fraction < 1:
        raise ValueError(f"fraction={fraction} must lie between 0 and 1.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} must lie between 0 and 1.")
    n = X.shape[0]
    draw = check_random_state(random_state)
    subsamples = [np.sort(draw.permutation(n)[: max(1, round(fraction * n))]) for _ in range(n_subsamples)]
    supports: list[np.ndarray] = []
    calls = (delayed(_support)(selector, X, rows) for rows in subsamples)
    with results_of(calls, min(effective_n_jobs(n_jobs), n_subsamples), in_order=True) as results:
        for support in results:
            supports.append(support)
            if callback is not None:
                callback(len(supports))
    selections = np.stack(supports)
    index, variance = stability_index(selections)
    reach = norm.ppf(0.5 + confidence / 2) * math.sqrt(variance)
    return Stability(index, (index - reach, min(index + reach, 1.0)), selections.mean(0), selections)


def stability_index(selections: np.ndarray) -> tuple[float, float]:
    r"""Nogueira, Sechidis and Brown's stability (JMLR 2018) of ``selections (M, d)``, and its variance.

    .. math::
        \hat\Phi = 1 - \frac{\frac1d \sum_f \frac{M}{M-1} p_f (1 - p_f)}{\frac{\bar k}d (1 - \frac{\bar k}d)},

    with :math:`p_f` the frequency of feature f and :math:`\bar k` the mean size: 1 minus how much the selections vary
    in units of how much random ones would. It is 1 for selections of nothing or of everything, which cannot differ.
    """
    Z = np.asarray(selections, dtype=np.float64)
    M, d = Z.shape
    p, sizes = Z.mean(0), Z.sum(1)
    share = p.mean()
    by_chance = share * (1 - share)
    if by_chance == 0:
        return 1.0, 0.0
    index = 1 - M / (M - 1) * (p * (1 - p)).mean() / by_chance
    # What each selection contributes (their Theorem 7): the variance of a U-statistic.
    own = Z @ p / d - sizes * share / d + index / 2 * (2 * share * sizes / d - sizes / d - share + 1)
    own /= by_chance
    return float(index), float(4 / M**2 * ((own - own.mean()) ** 2).sum())


def _support(selector: Any, X: Any, rows: np.ndarray) -> np.ndarray:
    part = SomeRows(X, rows) if isinstance(X, NpyRows | ParquetRows | H5adRows) else _safe_indexing(X, rows)
    return np.asarray(clone(selector).fit(part).get_support())
