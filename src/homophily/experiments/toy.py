"""Fig. 3: whether the two informative columns of Blobs, Moons and Circles are found, and which graph they give."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.base import clone

from ..datasets import TOY_NAMES, make_toy
from ..evaluation import Cell, RunStore
from ..evaluation.comparison import versions
from ..evaluation.running import Backend, Job, execute
from ..evaluation.selectors import described
from ..evaluation.tables import ResultTable
from ..evaluation.tasks import one_core
from ..figures import ToyResult
from ..graph import adaptive_knn_graph, heat_kernel_graph
from ..joint import DirichletSelector
from ..preprocessing import standardize
from ..wording import counted
from .experiment import Results
from .settings import Settings, ours

__all__ = ["ToyExperiment", "toy_results"]

OURS, TRAINED, REPEATING, PAPER, HEAT = "homophily", "training alone", "w/o UFS", "paper's settings", "Heat"
N_SAMPLES = 200
NEIGHBORS = 5
M = 2  # informative columns, the first two


@dataclass(frozen=True)
class Toy:
    """One of the toy data sets; what the jobs on it belong to."""

    dataset: str
    selector: DirichletSelector | None  # None: no selection, but the Heat graph
    shape: ClassVar[tuple[int, int]] = (N_SAMPLES, 20)


class ToyExperiment:
    """Success rates, learned graphs and selection matrices on the toy data, with and without UFS, and the Heat graph.

    Parameters
    ----------
    settings : Settings
        ``quick`` draws each data set 10 times, else 100 times, or as often as ``splits`` says; ``datasets`` and
        ``methods`` may name some of them.
    """

    name: ClassVar[str] = "toy"
    title: ClassVar[str] = "Fig. 3: toy data"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        wanted = [name.lower() for name in settings.datasets or TOY_NAMES]
        unknown = [name for name in wanted if name not in TOY_NAMES]
        if unknown:
            raise ValueError(f"There is no toy data set {', '.join(unknown)}; known are {', '.join(TOY_NAMES)}.")
        self.datasets = list(dict.fromkeys(wanted))
        self.missing: list[str] = []
        # The paper's settings take about a minute a draw.
        self.methods: dict[str, DirichletSelector | None] = {
            OURS: ours(),
            TRAINED: ours(refine=False),
            REPEATING: ours(refine=False, unique=False),
            HEAT: None,
            **({} if settings.quick else {PAPER: DirichletSelector.from_paper(solver="newton")}),
        }
        draws = settings.splits or (10 if settings.quick else 100)
        self.places = [
            (dataset, Cell(method, M, draw))
            for draw in range(draws)
            for dataset in self.datasets
            for method in self.methods
        ]
        self.draws = draws

    @property
    def cells(self) -> list[Cell]:
        """Everything that is to be done."""
        return [cell for _, cell in self.places]

    def key(self, dataset: str, cell: Cell) -> dict[str, Any]:
        """All that the result of ``cell`` depends on."""
        selector = self.methods[cell.method]
        return {
            "experiment": self.name,
            "dataset": dataset,
            "versions": versions(),
            "method": cell.method,
            **({} if selector is None else described(selector)),
            "n_samples": N_SAMPLES,
            "m": M,
            "split": cell.split,
            "seed": self.settings.seed,
        }

    def done(self, store: RunStore) -> int:
        """How many of ``cells`` are in the store."""
        return len(self._found(store))

    def run(
        self, store: RunStore, backend: Backend, on_start: Callable[[Job], object] | None = None
    ) -> Generator[tuple[Job, list[Cell]], None, None]:
        """Do what is not in the store; yields jobs with their cells as they finish or fail."""
        yield from execute(self.jobs_left(store), store, backend, on_start)

    def jobs_left(self, store: RunStore) -> list[Job]:
        """What is not in the store."""
        jobs = []
        for dataset, cell in self.places:
            key = self.key(dataset, cell)
            if store.get(key) is None:
                selector = self.methods[cell.method]
                arguments = (dataset, self.settings.seed, selector)
                jobs.append(Job([cell], [key], measure, None, arguments, Toy(dataset, selector)))
        return jobs

    def _found(self, store: RunStore) -> list[tuple[str, Cell]]:
        values = ((dataset, cell, store.get(self.key(dataset, cell))) for dataset, cell in self.places)
        return [(dataset, cell.finished(value)) for dataset, cell, value in values if value is not None]

    def results(self, store: RunStore) -> Results:
        """Success rates; and the graphs and selection matrices of the first draw, for figures."""
        found = self._found(store)
        cells = pd.DataFrame(
            {
                "dataset": dataset,
                "method": cell.method,
                "draw": cell.split,
                "seconds": cell.seconds,
                "success": None if cell.method == HEAT else set(cell.features) == set(range(M)),
                "distinct": cell.distinct,
                "within": cell.extra["within"],
                "features": " ".join(map(str, cell.features)),
            }
            for dataset, cell in found
        )
        if cells.empty:
            return Results([], {"cells": cells})
        graphs = pd.DataFrame(
            [(dataset, cell.method, *edge) for dataset, cell in found for edge in cell.extra.get("graph", ())],
            columns=["dataset", "method", "i", "j", "weight"],
        )
        matrices = pd.DataFrame(
            [
                (dataset, cell.method, column + 1, feature, weight)
                for dataset, cell in found
                for column, weights in enumerate(cell.extra.get("F", ()))
                for feature, weight in enumerate(weights)
            ],
            columns=["dataset", "method", "column", "feature", "weight"],
        )
        notes = [
            f"{counted(self.draws, 'draw')} of {N_SAMPLES} samples, 2 informative columns and 18 of noise; seed "
            f"{self.settings.seed} and on."
        ]
        return Results([_table(cells)], {"toy": cells, "graphs": graphs, "F": matrices}, notes)


def measure(_: None, dataset: str, seed: int, selector: DirichletSelector | None, cells: Sequence[Cell]) -> list[Cell]:
    """Draw the data, select, and look at what was found; the data set is drawn anew for each cell."""
    results = []
    with one_core():
        for cell in cells:
            X, y = make_toy(dataset, N_SAMPLES, random_state=seed + cell.split)
            try:
                results.append(_measured(X, y, seed, selector, cell))
            except Exception as error:
                results.append(replace(cell, failed=f"{type(error).__name__}: {error}"))
    return results


def _measured(X: np.ndarray, y: np.ndarray, seed: int, selector: DirichletSelector | None, cell: Cell) -> Cell:
    started = time.process_time()
    points = standardize(X).values  # noqa: PD011
    extra: dict[str, Any] = {}
    if selector is None:
        graph = heat_kernel_graph(points, NEIGHBORS)
        features: list[int] = []
        distinct = None
    else:
        fitted = clone(selector).set_params(n_features_to_select=M, random_state=seed + cell.split).fit(X)
        named = fitted.logits_.argmax(0)  # without UFS both columns may name one feature
        distinct = len(np.unique(named))
        features = (named if cell.method == REPEATING else fitted.selected_features_).tolist()
        graph = adaptive_knn_graph(points[:, features], NEIGHBORS) if cell.method == REPEATING else fitted.graph_
        if cell.split == 0:
            extra["F"] = softmax(fitted.logits_, axis=0).T.round(6).tolist()
    edges = graph.tocoo()
    i, j = edges.coords
    extra["within"] = float(edges.data[y[i] == y[j]].sum() / edges.data.sum())
    if cell.split == 0:
        extra["graph"] = [[int(a), int(b), round(float(s), 6)] for a, b, s in zip(i, j, edges.data, strict=True)]
    return replace(cell, seconds=time.process_time() - started, features=features, distinct=distinct, extra=extra)


def toy_results(frames: Mapping[str, pd.DataFrame], seed: int) -> list[ToyResult]:
    """What Fig. 3 shows: the first draw of each data set, if ``frames`` of :meth:`ToyExperiment.results` have it."""
    graphs, matrices = frames["graphs"], frames["F"]

    def graph(dataset: str, method: str) -> sp.csr_array:
        own = graphs[(graphs["dataset"] == dataset) & (graphs["method"] == method)]
        return sp.csr_array((own["weight"], (own["i"], own["j"])), shape=(N_SAMPLES, N_SAMPLES))

    def matrix(dataset: str, method: str) -> np.ndarray:
        own = matrices[(matrices["dataset"] == dataset) & (matrices["method"] == method)]
        return own.pivot_table("weight", "column", "feature").to_numpy()  # (2, d)

    there = set(zip(graphs["dataset"], graphs["method"], strict=True))
    return [
        ToyResult(
            name,
            *make_toy(name, N_SAMPLES, random_state=seed),
            graph(name, HEAT),
            graph(name, OURS),
            matrix(name, OURS),
            graph(name, REPEATING),
            matrix(name, REPEATING),
        )
        for name in TOY_NAMES
        if all((name, method) in there for method in (HEAT, OURS, REPEATING))
    ]


def _table(cells: pd.DataFrame) -> ResultTable:
    datasets = list(cells["dataset"].unique())
    rows = []
    for method in cells["method"].unique():
        row = [method]
        for dataset in datasets:
            own = cells[(cells["dataset"] == dataset) & (cells["method"] == method)]
            found = "" if method == HEAT or own.empty else f"{int(own['success'].sum())}/{len(own)}"
            repeated = "" if method == HEAT or own.empty else f"{int((own['distinct'] < M).sum())}"
            row += [found, repeated, "" if own.empty else f"{own['within'].mean():.3f}"]
        rows.append(row)
    return ResultTable(
        "Toy data",
        ["method", *["found", "repeats", "within"] * len(datasets)],
        rows,
        [
            "found: draws in which the two informative columns were selected; repeats: draws in which both columns of "
            "F name one feature; within: share of the graph's weight on edges inside a class.",
        ],
        groups=["", *(name.capitalize() for name in datasets for _ in range(3))],
    )
