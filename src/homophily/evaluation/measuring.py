"""What a worker does: fit a selector on the training rows of a split and judge what it chose on the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from .cell import METRICS, Cell
from .selectors import chosen_features, prepared
from .tasks import (
    classification_accuracy,
    clustering_accuracy,
    one_core,
    reconstruction_rmse,
    spectral_clustering_accuracy,
    standardize_by_training,
)

__all__ = ["MEASURES", "Judge", "measure"]

MEASURES = (*METRICS, "spectral", "distinct")
SPLIT, SELECT, JUDGE = range(3)  # what a seed is for


@dataclass(frozen=True)
class Judge:
    """The splits of a data set and the tasks on them: all but the data and the selector that a cell depends on."""

    y: np.ndarray | None  # (n,) whole numbers
    n_classes: int
    seed: int = 0
    test_size: float = 0.2
    stratify: bool = False
    n_estimators: int = 1000
    max_updates: int | None = None
    tasks: tuple[str, ...] = METRICS

    def rows(self, n: int, split: int, *, tuning: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Training and test rows; those of ``tuning`` are both of the training rows, or of split -1."""
        if split < 0:
            return self._divided(np.arange(n), self.seed_for(SPLIT, split, tuning=True))
        train, test = self._divided(np.arange(n), self.seed_for(SPLIT, split))
        return self._divided(train, self.seed_for(SPLIT, split, tuning=True)) if tuning else (train, test)

    def _divided(self, rows: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        classes = None if self.y is None or not self.stratify else self.y[rows]
        train, test = train_test_split(rows, test_size=self.test_size, random_state=seed, stratify=classes)
        return train, test

    def seed_for(self, purpose: int, split: int, draw: int = 0, *, tuning: bool = False) -> int:
        """A seed of its own for every purpose, split and draw; the same for all methods."""
        place = [purpose + 3, split + 1] if tuning else [purpose, split]
        return int(np.random.SeedSequence([self.seed, *place, draw]).generate_state(1)[0])

    def score(self, X: Any, cell: Cell, features: Sequence[int], selector: Any) -> dict[str, Any]:
        """What the tasks find; a cell that only serves to tune is classified and no more."""
        train, test = self.rows(X.shape[0], cell.split, tuning=cell.tuning)
        seed = self.seed_for(JUDGE, cell.split, tuning=cell.tuning)  # the same for all methods and draws
        tasks = ("accuracy",) if cell.tuning else self.tasks
        scores: dict[str, Any] = {}
        if "reconstruction" in tasks:
            scores["reconstruction"] = reconstruction_rmse(
                X[train], X[test], features, max_updates=self.max_updates, random_state=seed
            )
        if "distinct" in tasks and hasattr(selector, "logits_"):
            scores["distinct"] = len(np.unique(selector.logits_.argmax(0)))
        if self.y is None:
            return scores
        y_train, y_test = self.y[train], self.y[test]
        if "spectral" in tasks and getattr(selector, "graph_", None) is not None:
            scores["spectral"] = spectral_clustering_accuracy(
                selector.graph_, y_train, n_clusters=self.n_classes, random_state=seed
            )
        if "accuracy" in tasks or "clustering" in tasks:
            Z_train, Z_test, _ = standardize_by_training(X[train][:, features], X[test][:, features])
        if "accuracy" in tasks:
            scores["accuracy"] = classification_accuracy(
                Z_train, y_train, Z_test, y_test, n_estimators=self.n_estimators, random_state=seed
            )
        if "clustering" in tasks:
            scores["clustering"] = clustering_accuracy(Z_test, y_test, n_clusters=self.n_classes, random_state=seed)
        return scores


def measure(X: Any, judge: Judge, selector: Any, cells: Sequence[Cell]) -> list[Cell]:
    """Fit once and judge the first m selected features for each of ``cells``, which differ in m only."""
    with one_core():
        _warm_up()
        messages: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                fitted, seconds = _fit(X, judge, selector, cells[-1], messages)
                features = chosen_features(fitted, cells[-1].m)
            except Exception as error:
                results = [_failed(cell, error) for cell in cells]
            else:
                results = [_judged(X, judge, cell, features[: cell.m], fitted, seconds) for cell in cells]
    return [replace(cell, warnings=messages) for cell in results]


def _judged(X: Any, judge: Judge, cell: Cell, features: Sequence[int], fitted: Any, seconds: float) -> Cell:
    started = time.process_time()
    try:
        scores = judge.score(X, cell, features, fitted)
    except Exception as error:
        return _failed(cell, error)
    return replace(cell, seconds=seconds, judging=time.process_time() - started, features=features, **scores)


def _failed(cell: Cell, error: Exception) -> Cell:
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return replace(cell, failed=f"{kind}{error}", by_chance=isinstance(error, MemoryError | OSError))


def _fit(X: Any, judge: Judge, selector: Any, cell: Cell, messages: list[str]) -> tuple[Any, float]:
    """The fitted selector and the seconds of one core that it took; warnings go to ``messages``."""
    train, _ = judge.rows(X.shape[0], cell.split, tuning=cell.tuning)
    seed = judge.seed_for(SELECT, cell.split, cell.draw, tuning=cell.tuning)
    fresh = prepared(selector, cell.m, seed, dict(cell.params))
    X = X[train]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.process_time()
        fresh.fit(X)
        seconds = time.process_time() - started
    messages += dict.fromkeys(" ".join(str(w.message).split()) for w in caught)
    return fresh, seconds


@cache
def _warm_up() -> None:
    """Let torch load what its first optimiser needs, which takes seconds, before any method's time is taken."""
    parameter = torch.ones(1, requires_grad=True)
    for kind in (torch.optim.Adam, torch.optim.SGD):
        optimizer = kind([parameter], lr=0.1)
        (parameter**2).sum().backward()
        optimizer.step()
