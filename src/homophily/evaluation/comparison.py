"""Many selectors on many splits of one data set, each judged by the tasks; with tuning, if a protocol asks for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from itertools import groupby
from operator import index
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.model_selection import ParameterGrid

from ..base import check_numbers
from ..io import InputError
from ..preprocessing import standardize
from ..wording import counted
from .cell import METRICS, RANDOM, Cell
from .measuring import MEASURES, Judge, measure
from .running import Backend, Job, execute
from .selectors import described, is_nested, named_selectors, number_parameter, unknown_parameters
from .store import RunStore

__all__ = ["PROTOCOLS", "Comparison", "run_all", "versions"]

PROTOCOLS = {
    "default": "no parameter is tuned",
    "nested": "parameters by accuracy on an inner split of the training rows of each split",
    "paper": "parameters by accuracy on the test rows of one split, as the paper does; the figures are optimistic",
}
TUNING_SPLIT = -1
PACKAGES = ("homophily", "numpy", "scipy", "scikit-learn", "torch")  # whose versions may change a result


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
        Names of :data:`homophily.methods.METHODS`, or selectors under names of your own: whatever has ``fit(X)`` and
        ``get_support``. ``"random"`` is added.
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
    with_random : bool
        Whether to add ``"random"``, to which the summary takes differences.
    protocol : {"default", "nested", "paper"}
        How parameters are chosen. ``"default"``: not at all. ``"paper"`` (Alg. S1 and S2): for each method and m, those
        with the best accuracy on the test rows of one further split, which then serve on all splits. ``"nested"``: for
        each split anew, by an inner split of its training rows, so that no test row is looked at.
    grids : dict of str to dict, optional
        Values to try for each method, as :class:`sklearn.model_selection.ParameterGrid` takes them. By default the
        ``param_grid`` of the selector, which is what the paper searches. A method without is not tuned.
    tasks : iterable of str
        What to measure: some of ``"accuracy"``, ``"clustering"``, ``"reconstruction"``, ``"spectral"`` (accuracy of
        spectral clustering of the selector's ``graph_``) and ``"distinct"`` (features that the columns of its
        ``logits_`` name).
    max_updates : int, optional
        Bound on the training of the network that reconstructs, see
        :func:`~homophily.evaluation.reconstruction_rmse`.
    experiment, dataset : str
        Names under which a store keeps the results.

    Attributes
    ----------
    cells : list of Cell
        What is to be measured, split by split, so that a run that was stopped has about as much of each method.
    tuning_cells : list of Cell
        What has to be measured before, to choose parameters.

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
        methods: Iterable[str] | Mapping[str, Any],
        ms: Iterable[int],
        splits: int = 5,
        test_size: float = 0.2,
        stratify: bool = False,
        seed: int = 0,
        n_estimators: int = 1000,
        random_draws: int = 5,
        with_random: bool = True,
        protocol: str = "default",
        grids: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
        tasks: Iterable[str] = METRICS,
        max_updates: int | None = None,
        experiment: str = "compare",
        dataset: str = "",
    ) -> None:
        self.selectors = named_selectors(methods, with_random=with_random)
        self.ms = sorted({index(m) for m in ms})
        self.splits, self.random_draws = splits, random_draws
        self.protocol, self.experiment, self.dataset = protocol, experiment, dataset
        names = list(map(str, X.columns)) if hasattr(X, "columns") else None
        self.X = check_numbers(X, names)
        y, n_classes = (None, 0) if labels is None else _classes(labels, self.X.shape[0])
        self.judge = Judge(y, n_classes, seed, test_size, stratify, n_estimators, max_updates, tuple(tasks))
        self.fingerprint = _fingerprint(self.X, names, labels)
        self._shared: dict[tuple, dict[str, Any]] = {}  # what the keys of many cells have in common
        self.grids = self._checked_grids(grids)
        self._check_splits()
        self.cells = [
            Cell(method, m, split, draw)
            for split in range(splits)
            for method, selector in self.selectors.items()
            for draw in range(random_draws if method == RANDOM else 1)
            for m in self._numbers_of(selector)
        ]
        # By params before m, so that one fit of a nested method serves every m.
        self.tuning_cells = [
            Cell(method, m, split, params=params, tuning=True)
            for split in ([TUNING_SPLIT] if protocol == "paper" else range(splits))
            for method, grid in self.grids.items()
            for params in grid
            for m in self._numbers_of(self.selectors[method])
        ]

    def _numbers_of(self, selector: Any) -> Sequence[int | None]:
        return [None] if number_parameter(selector) is None else self.ms

    def _checked_grids(self, grids: Mapping[str, Mapping[str, Sequence[Any]]] | None) -> dict[str, list[tuple]]:
        """The combinations of parameters to try for each method that is tuned."""
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol={self.protocol!r} is none of {', '.join(PROTOCOLS)}.")
        unknown = [task for task in self.judge.tasks if task not in MEASURES]
        if unknown or not self.judge.tasks:
            raise ValueError(f"tasks={self.judge.tasks}: expected some of {', '.join(MEASURES)}.")
        if grids is None:
            grids = {name: getattr(selector, "param_grid", {}) for name, selector in self.selectors.items()}
        strangers = [name for name in grids if name not in self.selectors]
        if strangers:
            raise ValueError(f"grids has {strangers}, which are none of the methods {list(self.selectors)}.")
        for name, grid in grids.items():
            tried = (param for params in ParameterGrid(grid) for param in params)
            unknown = unknown_parameters(self.selectors[name], tried)
            if unknown:
                raise ValueError(f"The grid of {name!r} has {', '.join(unknown)}, which are no parameters of it.")
            fixed = {number_parameter(self.selectors[name]), "random_state"} & set(grid)
            if fixed:
                raise ValueError(f"The grid of {name!r} has {', '.join(map(str, fixed))}, set by ms and seed.")
        if self.protocol == "default":
            return {}
        if self.judge.y is None:
            raise InputError(f"protocol={self.protocol!r} chooses parameters by accuracy, and there are no labels.")
        return {
            name: [tuple(sorted(params.items())) for params in ParameterGrid(grids[name])]
            for name in self.selectors
            if grids.get(name)
        }

    def _check_splits(self) -> None:
        if not self.ms or self.ms[0] < 1:
            raise ValueError(f"ms={self.ms}: expected numbers of features, each at least 1.")
        if self.splits < 1:
            raise ValueError(f"splits={self.splits}: at least 1 is needed.")
        judge, n = self.judge, self.X.shape[0]
        if not 0 < judge.test_size < 1:
            raise ValueError(f"test_size={judge.test_size} must be between 0 and 1: the fraction of rows to test on.")
        if judge.stratify and judge.y is None:
            raise InputError("stratify keeps the proportions of the classes, and there are no labels.")
        places = [(split, False) for split in range(self.splits)]
        if self.protocol == "paper":
            places.append((TUNING_SPLIT, True))
        elif self.protocol == "nested":
            places += [(split, True) for split in range(self.splits)]
        for split, tuning in places:
            try:
                train, _ = judge.rows(n, split, tuning=tuning)
            except ValueError as error:  # too few rows, or rows of a class, to split
                why = str(error)
                if "train set will be empty" in why:
                    why = (
                        f"test_size={judge.test_size} leaves none to select on. Give more rows, or a smaller fraction."
                    )
                raise InputError(f"{counted(n, 'row')} cannot be split: {why}") from error
            usable = len(standardize(self.X[train]).kept)
            if self.ms[-1] > usable:
                where = "to tune with" if split < 0 else f"of split {split + 1}"
                raise InputError(
                    f"n_features_to_select={self.ms[-1]}, but only {usable} of {self.X.shape[1]} columns vary over "
                    f"the {len(train)} training rows {where}."
                )

    def key(self, cell: Cell) -> dict[str, Any]:
        """All that the result of ``cell`` depends on."""
        place = (cell.method, repr(cell.params), cell.tuning)
        if place not in self._shared:
            judge = {name: value for name, value in asdict(replace(self.judge, y=None)).items() if name != "y"}
            if cell.tuning:
                judge |= {"tasks": ["accuracy"], "max_updates": None}
            self._shared[place] = {
                "experiment": self.experiment,
                "dataset": self.dataset,
                "versions": versions(),
                "data": self.fingerprint,
                **described(self.selectors[cell.method], dict(cell.params)),
                **judge,
            }
        return self._shared[place] | {name: getattr(cell, name) for name in ("method", "m", "split", "draw", "tuning")}

    def planned(self, store: RunStore) -> list[Cell]:
        """The ``cells`` with the parameters that were chosen; without those whose tuning is not in the store yet."""
        if not self.grids:
            return self.cells
        chosen = self.chosen(store)
        planned = []
        for cell in self.cells:
            params = chosen.get((cell.method, cell.m, cell.split)) if cell.method in self.grids else ()
            if params is not None:
                planned.append(replace(cell, params=params))
        return planned

    def chosen(self, store: RunStore) -> dict[tuple[str, int | None, int], tuple]:
        """The parameters with the best accuracy for each method, m and split, once all were tried (Alg. S1).

        Of equally good ones the first counts. Combinations that failed are left out; where all did, the selector keeps
        its own parameters.
        """
        tried: dict[tuple[str, int | None, int], list[Cell | None]] = {}
        for cell in self.tuning_cells:
            value = store.get(self.key(cell))
            found = None if value is None else cell.finished(value)
            for split in range(self.splits) if cell.split == TUNING_SPLIT else [cell.split]:
                tried.setdefault((cell.method, cell.m, split), []).append(found)
        return {place: _best(found) for place, found in tried.items() if None not in found}

    def finished(self, store: RunStore) -> list[Cell]:
        """Those of ``cells`` that are in the store, with their results."""
        found = ((cell, store.get(self.key(cell))) for cell in self.planned(store))
        return [cell.finished(value) for cell, value in found if value is not None]

    def jobs(self, cells: Iterable[Cell]) -> Iterator[Job]:
        """Group cells that one fit serves: all m of a nested method, whose best m are the first of any more."""

        def fit(cell: Cell) -> tuple:
            nested = is_nested(self.selectors[cell.method])
            return cell.split, cell.method, cell.draw, cell.params, None if nested else cell.m

        for _, group in groupby(cells, fit):
            own = list(group)
            arguments = (self.judge, self.selectors[own[0].method])
            yield Job(own, [self.key(cell) for cell in own], measure, self.X, arguments, self)

    def run(
        self,
        store: RunStore | None = None,
        *,
        n_jobs: int | None = 1,
        on_start: Callable[[Job], object] | None = None,
    ) -> Generator[Cell, None, None]:
        """Do what is not yet in the store and yield the cells as they finish or fail; only finished ones are stored.

        Cells that only serve to choose parameters are not among them.

        Parameters
        ----------
        store : RunStore, optional
            Where finished cells are kept.
        n_jobs : int, optional
            Processes; -1: one a core. The results do not depend on it.
        on_start : callable, optional
            Called with each :class:`~homophily.evaluation.running.Job` when it begins, not always in the thread of the
            caller.
        """
        backend = Backend(1 if n_jobs is None else n_jobs)
        if store is None:
            with RunStore(":memory:") as store:
                yield from self.run(store, n_jobs=n_jobs, on_start=on_start)
            return
        for _, cells in run_all([self], store, backend, on_start):
            yield from (cell for cell in cells if not cell.tuning)


def run_all(
    comparisons: Sequence[Comparison],
    store: RunStore,
    backend: Backend,
    on_start: Callable[[Job], object] | None = None,
) -> Generator[tuple[Job, list[Cell]], None, None]:
    """Tune, then measure, on all data sets at once, split by split; yields jobs with their cells as they finish.

    Cells that are in the store when this begins are neither done nor yielded.
    """
    for tuning in (True, False):
        jobs = [job for comparison in comparisons for job in comparison.jobs(_left(comparison, store, tuning))]
        jobs.sort(key=lambda job: job.cells[0].split)  # stable: of each split all data sets in their order
        yield from execute(jobs, store, backend, on_start)


def _best(tried: Sequence[Cell | None]) -> tuple:
    """The parameters of the cell with the highest accuracy, of equal ones the first; none if all failed."""
    scored = [(cell.accuracy, cell.params) for cell in tried if cell is not None and cell.accuracy is not None]
    return max(scored, key=lambda pair: pair[0])[1] if scored else ()  # of equal ones max takes the first


def _left(comparison: Comparison, store: RunStore, tuning: bool) -> list[Cell]:
    cells = comparison.tuning_cells if tuning else comparison.planned(store)
    return [cell for cell in cells if store.get(comparison.key(cell)) is None]


@cache
def versions() -> dict[str, str]:
    """Of the packages that may change a result. Read once: each is a file, and every cell's key holds them."""
    return {package: version(package) for package in PACKAGES}


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
