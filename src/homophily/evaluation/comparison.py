"""Many selectors on many splits of one data set, each judged by the three tasks."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import groupby
from operator import index
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array

from ..base import BaseSelector, refuse_non_finite, refuse_non_numeric
from ..baselines import AllFeatures
from ..io import InputError
from ..methods import METHODS
from ..preprocessing import standardize
from .store import RunStore
from .tasks import (
    classification_accuracy,
    clustering_accuracy,
    one_core,
    reconstruction_rmse,
    standardize_by_training,
)

__all__ = ["METRICS", "RANDOM", "Cell", "Comparison", "summary"]

METRICS = ("accuracy", "clustering", "reconstruction")
RANDOM = "random"  # the method that all others are measured against
SPLIT, SELECT, JUDGE = range(3)  # what a seed is for
PLACE = ("method", "m", "split", "draw")  # the fields of a cell that say which it is
COLUMNS = [
    *("m", "method", "n_features", "splits", "seconds"),
    *(f"{metric}{part}" for metric in METRICS for part in ("", "_sd", "_gain", "_gain_se")),
    *("failed_splits", "failure"),
]
PACKAGES = ("homophily", "numpy", "scipy", "scikit-learn", "torch")  # whose versions may change a result
# Parameters that Comparison sets itself or that do not change the result.
NOT_IN_KEY = {"n_features_to_select", "random_state", "verbose", "n_jobs"}


@dataclass(frozen=True)
class Cell:
    """One method with m features on one split: planned, finished or failed."""

    method: str
    m: int | None  # None for AllFeatures, which has no choice
    split: int
    draw: int = 0  # which of the random selections
    seconds: float | None = None  # of the fit, on one core
    accuracy: float | None = None
    clustering: float | None = None
    reconstruction: float | None = None
    features: Sequence[int] = ()  # selected columns, the best first
    warnings: Sequence[str] = ()
    failed: str | None = None  # why


class Comparison:
    """Compare selectors on random splits: fitted on the training rows without labels, judged on the test rows.

    Everything that can be checked without fitting is checked here, so that mistakes come to light before the work.

    Parameters
    ----------
    X : array, data frame or sparse matrix (n, d)
        Finite numbers.
    labels : array or Series (n,), optional
        Classes. Without them there is no accuracy and no clustering.
    methods : iterable of str, or dict of str to selector
        Names of :data:`homophily.methods.METHODS`, or selectors under names of your own. ``"random"`` is always added.
    ms : iterable of int
        Numbers of features.
    splits : int
        Random splits.
    test_size : float
        Fraction of the rows to test on.
    stratify : bool
        Whether both parts hold the classes in equal proportion.
    seed : int
        Of splits, selectors and tasks. All methods meet the same splits and the same seeds on them.
    n_estimators : int
        Trees of the forest that classifies.
    random_draws : int
        Random selections a split, over which ``"random"`` is averaged.

    Attributes
    ----------
    cells : list of Cell
        What is to be done, split by split, so that a run that was stopped has about as much of each method.

    Examples
    --------
    >>> from homophily.datasets import make_toy
    >>> from homophily.evaluation import Comparison, summary
    >>> X, y = make_toy("blobs", random_state=0)
    >>> comparison = Comparison(X, y, methods=["ls"], ms=[2], splits=1, n_estimators=20, random_draws=1)
    >>> sorted(summary(comparison.run())["method"])
    ['ls', 'random']
    """

    def __init__(
        self,
        X: Any,
        labels: Any = None,
        *,
        methods: Iterable[str] | Mapping[str, BaseSelector],
        ms: Iterable[int],
        splits: int = 5,
        test_size: float = 0.2,
        stratify: bool = False,
        seed: int = 0,
        n_estimators: int = 1000,
        random_draws: int = 5,
    ) -> None:
        self.selectors = _selectors(methods)
        self.ms = sorted({index(m) for m in ms})
        self.splits, self.test_size, self.stratify, self.seed = splits, test_size, stratify, seed
        self.n_estimators, self.random_draws = n_estimators, random_draws
        names = list(map(str, X.columns)) if hasattr(X, "columns") else None
        self.X = _numbers(X, names)
        self.y: np.ndarray | None = None  # (n,)
        if labels is not None:
            self.y, self.n_classes = _classes(labels, self.X.shape[0])
        self.fingerprint = _fingerprint(self.X, names, labels)
        self._check_splits()
        self.cells = [
            Cell(method, m, split, draw)
            for split in range(splits)
            for method, selector in self.selectors.items()
            for draw in range(random_draws if method == RANDOM else 1)
            for m in ([None] if isinstance(selector, AllFeatures) else self.ms)
        ]

    def _check_splits(self) -> None:
        if not self.ms or self.ms[0] < 1:
            raise ValueError(f"ms={self.ms}: expected numbers of features, each at least 1.")
        if not 0 < self.test_size < 1:
            raise ValueError(f"test_size={self.test_size} must be between 0 and 1: the fraction of rows to test on.")
        if self.stratify and self.y is None:
            raise InputError("stratify keeps the proportions of the classes, and there are no labels.")
        for split in range(self.splits):
            try:
                train, _ = self._rows(split)
            except ValueError as error:  # too few rows, or rows of a class, to split
                raise InputError(f"The {self.X.shape[0]} rows cannot be split: {error}") from error
            usable = len(standardize(self.X[train]).kept)
            if self.ms[-1] > usable:
                raise InputError(
                    f"n_features_to_select={self.ms[-1]}, but only {usable} of {self.X.shape[1]} columns vary over "
                    f"the {len(train)} training rows of split {split + 1}."
                )

    def _rows(self, split: int) -> tuple[np.ndarray, np.ndarray]:
        """Training and test rows of a split."""
        train, test = train_test_split(
            np.arange(self.X.shape[0]),
            test_size=self.test_size,
            random_state=self._seed(SPLIT, split),
            stratify=self.y if self.stratify else None,
        )
        return train, test

    def _seed(self, purpose: int, split: int, draw: int = 0) -> int:
        return int(np.random.SeedSequence([self.seed, purpose, split, draw]).generate_state(1)[0])

    def key(self, cell: Cell) -> dict[str, Any]:
        """All that the result of ``cell`` depends on."""
        selector = self.selectors[cell.method]
        return {
            "experiment": "compare",
            "versions": _versions(),
            "data": self.fingerprint,
            "class": f"{type(selector).__module__}.{type(selector).__qualname__}",
            "params": {name: value for name, value in selector.get_params().items() if name not in NOT_IN_KEY},
            **{name: getattr(cell, name) for name in PLACE},
            "seed": self.seed,
            "test_size": self.test_size,
            "stratify": self.stratify,
            "n_estimators": self.n_estimators,
        }

    def finished(self, store: RunStore) -> list[Cell]:
        """Those of ``cells`` that are in the store, with their results."""
        found = ((cell, store.get(self.key(cell))) for cell in self.cells)
        return [replace(cell, **value) for cell, value in found if value is not None]

    def run(
        self,
        store: RunStore | None = None,
        *,
        n_jobs: int | None = 1,
        on_start: Callable[[Sequence[Cell]], object] | None = None,
    ) -> Generator[Cell, None, None]:
        """Do what is not yet in the store and yield the cells as they finish or fail; only finished ones are stored.

        Parameters
        ----------
        store : RunStore, optional
            Where finished cells are kept.
        n_jobs : int, optional
            Processes; -1: one a core. The results do not depend on it.
        on_start : callable, optional
            Called with the cells that one fit serves when that begins, not always in the thread of the caller.
        """
        done = set() if store is None else {_place(cell) for cell in self.finished(store)}

        def calls() -> Iterator[Any]:
            for group in self._fits(cell for cell in self.cells if _place(cell) not in done):
                if on_start is not None:
                    on_start(group)
                yield delayed(self._measure)(group)

        parallel = Parallel(
            n_jobs,
            backend="loky",
            return_as="generator_unordered",
            batch_size=1,  # every result comes back, and is stored, at once
            pre_dispatch="n_jobs",
            initializer=signal.signal,  # Ctrl-C is for the driver, which then ends the workers
            initargs=(signal.SIGINT, signal.SIG_IGN),
        )
        try:
            with _sigint_ignored():
                finished = parallel(calls())  # starts the workers
            for cells in finished:
                for cell in cells:
                    if store is not None and cell.failed is None:
                        store.put(self.key(cell), {k: v for k, v in asdict(cell).items() if k not in PLACE})
                    yield cell
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "A worker process was ended from outside, most likely because memory ran out; try fewer jobs."
            ) from error

    def _fits(self, cells: Iterable[Cell]) -> Iterator[list[Cell]]:
        """Group cells that one fit serves: all m of a nested method, whose best m are the first of any more."""

        def fit(cell: Cell) -> tuple:
            nested = getattr(self.selectors[cell.method], "nested", False)
            return cell.split, cell.method, cell.draw, None if nested else cell.m

        return (list(group) for _, group in groupby(cells, fit))

    def _measure(self, cells: Sequence[Cell]) -> list[Cell]:
        """Fit once and judge the first m selected features for each of ``cells``, which differ in m only."""
        _warm_up()
        messages: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                features, seconds = self._fit(cells[-1], messages)
                results = [
                    replace(cell, seconds=seconds, features=features[: cell.m], **self._judge(cell, features[: cell.m]))
                    for cell in cells
                ]
            except Exception as error:
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                results = [replace(cell, failed=f"{kind}{error}") for cell in cells]
        return [replace(cell, warnings=messages) for cell in results]

    def _fit(self, cell: Cell, messages: list[str]) -> tuple[list[int], float]:
        """Selected columns, the best first, and the seconds of one core that it took; warnings go to ``messages``."""
        train, _ = self._rows(cell.split)
        selector = clone(self.selectors[cell.method])
        selector.set_params(n_features_to_select=cell.m, random_state=self._seed(SELECT, cell.split, cell.draw))
        X = self.X[train]
        with one_core(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            started = time.process_time()
            selector.fit(X)
            seconds = time.process_time() - started
        messages += dict.fromkeys(" ".join(str(w.message).split()) for w in caught)
        return selector.selected_features_.tolist(), seconds

    def _judge(self, cell: Cell, features: Sequence[int]) -> dict[str, Any]:
        train, test = self._rows(cell.split)
        seed = self._seed(JUDGE, cell.split)  # the same for all methods and draws
        X_train, X_test = self.X[train], self.X[test]
        scores = {"reconstruction": reconstruction_rmse(X_train, X_test, features, random_state=seed)}
        if self.y is not None:
            Z_train, Z_test, _ = standardize_by_training(X_train[:, features], X_test[:, features])
            y_train, y_test = self.y[train], self.y[test]
            scores["accuracy"] = classification_accuracy(
                Z_train, y_train, Z_test, y_test, n_estimators=self.n_estimators, random_state=seed
            )
            scores["clustering"] = clustering_accuracy(Z_test, y_test, n_clusters=self.n_classes, random_state=seed)
        return scores


@cache
def _versions() -> dict[str, str]:
    """Read once: each is a file of the installation, and every cell's key holds them."""
    return {package: version(package) for package in PACKAGES}


@cache
def _warm_up() -> None:
    """Let torch load what its first optimiser needs, which takes seconds, before any method's time is taken."""
    parameter = torch.ones(1, requires_grad=True)
    for kind in (torch.optim.Adam, torch.optim.SGD):
        optimizer = kind([parameter], lr=0.1)
        (parameter**2).sum().backward()
        optimizer.step()


def summary(cells: Iterable[Cell]) -> pd.DataFrame:
    """Means over the splits, one row for each m and method; at each m the best first: by accuracy, if there is any.

    For each of ``METRICS`` there are its mean, its standard deviation ``_sd`` over the splits, and ``_gain``: its
    difference to random selection on the same split, with the standard error ``_gain_se`` of that mean (both NaN where
    there are too few splits). Random draws of one split are averaged first. A method without m is shown at every m.
    ``failed_splits`` counts those on which a method failed, and ``failure`` is the first reason.
    """
    cells = sorted(cells, key=lambda cell: (cell.method, cell.split, cell.draw))
    rows = []
    for m in sorted({cell.m for cell in cells if cell.m is not None}):
        here = [cell for cell in cells if cell.m in (m, None)]
        random = _by_split(cell for cell in here if cell.method == RANDOM)
        for method in dict.fromkeys(cell.method for cell in here):
            own = [cell for cell in here if cell.method == method]
            scores = _by_split(own)
            gains = (scores - random).dropna(how="all")
            failures = [cell for cell in own if cell.failed is not None]
            row: dict[str, Any] = {
                "m": m,
                "method": method,
                "n_features": scores["n_features"].mean(),
                "splits": len(scores),
                "seconds": scores["seconds"].mean(),
            }
            for metric in METRICS:
                row |= {
                    metric: scores[metric].mean(),
                    f"{metric}_sd": scores[metric].std(),
                    f"{metric}_gain": gains[metric].mean(),
                    f"{metric}_gain_se": gains[metric].sem(),
                }
            row["failed_splits"] = len({cell.split for cell in failures})
            row["failure"] = failures[0].failed if failures else ""
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS).sort_values(
        ["m", "accuracy", "reconstruction", "method"], ascending=[True, False, True, True], ignore_index=True
    )


def _by_split(cells: Iterable[Cell]) -> pd.DataFrame:
    """What finished cells of one method measured, averaged over the draws; one row a split."""
    rows = [
        (cell.split, len(cell.features), cell.seconds, *(getattr(cell, metric) for metric in METRICS))
        for cell in cells
        if cell.failed is None
    ]
    columns = ["split", "n_features", "seconds", *METRICS]
    return pd.DataFrame(rows, columns=columns).astype(float).groupby("split").mean()


@contextmanager
def _sigint_ignored() -> Iterator[None]:
    """Ignore Ctrl-C; processes that are started meanwhile do so even before their initializer has run."""
    if threading.current_thread() is not threading.main_thread():  # where handlers cannot be set
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _place(cell: Cell) -> tuple:
    return tuple(getattr(cell, name) for name in PLACE)


def _selectors(methods: Iterable[str] | Mapping[str, BaseSelector]) -> dict[str, BaseSelector]:
    """Unfitted selectors by name, with ``RANDOM`` among them."""
    if isinstance(methods, Mapping):
        chosen = dict(methods)
    else:
        methods = list(dict.fromkeys(methods))
        unknown = [name for name in methods if name not in METHODS]
        if unknown:
            raise ValueError(f"There is no method {', '.join(map(repr, unknown))}; known are {', '.join(METHODS)}.")
        chosen = {name: METHODS[name]() for name in methods}
    return chosen if RANDOM in chosen else {**chosen, RANDOM: METHODS[RANDOM]()}


def _numbers(X: Any, names: list[str] | None) -> Any:
    """``X`` as an array or CSR matrix of finite numbers; refuses anything else in words."""
    refuse_non_numeric(X)
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False)
    refuse_non_finite(X, None if names is None else np.array(names, dtype=object))
    return X


def _classes(labels: Any, n: int) -> tuple[np.ndarray, int]:
    """``labels`` as whole numbers (n,) and how many classes there are; refuses what are no classes."""
    labels = pd.Series(np.asarray(labels))
    if len(labels) != n:
        raise InputError(f"There are {len(labels)} labels for {n} samples.")
    missing = int(labels.isna().sum())
    if missing:
        raise InputError(f"{missing} of {n} labels are missing (NaN or empty); leave out those rows.")
    codes, classes = pd.factorize(labels)
    if len(classes) < 2:
        raise InputError(f"All labels are {classes[0]}; accuracy needs at least 2 classes.")
    if 2 * len(classes) > n:
        raise InputError(
            f"The labels have {len(classes)} distinct values in {n} rows, so they are no classes but measurements or "
            "names; name another column, or none to compare without labels."
        )
    return codes, len(classes)


def _fingerprint(X: Any, names: list[str] | None, labels: Any) -> str:
    """SHA-256 of the values, the names and the labels."""
    digest = hashlib.sha256()
    known = None if labels is None else [str(label) for label in np.asarray(labels)]
    digest.update(json.dumps([X.shape, str(X.dtype), sp.issparse(X), names, known]).encode())
    for part in (X.indptr, X.indices, X.data) if sp.issparse(X) else (X,):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
