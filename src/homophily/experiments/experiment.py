"""What the experiments share: comparisons on data sets, done through one store, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd

from ..datasets import PAPER_DATASETS, available, load, paper_dataset
from ..evaluation import Cell, Comparison, RunStore, summary
from ..evaluation.cell import METRICS
from ..evaluation.comparison import run_all
from ..evaluation.running import Backend, Job
from ..evaluation.tables import TASKS, ResultTable
from ..io import InputError
from .settings import Settings

__all__ = ["Experiment", "Results", "Study", "long_table"]

TASK_OF = dict(zip(METRICS, TASKS, strict=True))  # the paper's word for each metric


@dataclass
class Results:
    """What an experiment found so far."""

    tables: list[ResultTable]
    frames: dict[str, pd.DataFrame]  # by the name of the file that they go to
    notes: list[str] = field(default_factory=list)


class Study(Protocol):
    """What can be run and shown: an experiment with the settings that it was made with."""

    name: ClassVar[str]
    title: ClassVar[str]
    datasets: list[str]
    missing: list[str]  # data sets of the paper that are not here

    @property
    def cells(self) -> list[Cell]:
        """Everything that is to be done."""
        ...

    def done(self, store: RunStore) -> int:
        """How many of ``cells`` are in the store."""
        ...

    def jobs_left(self, store: RunStore) -> list[Job]:
        """What is not in the store."""
        ...

    def run(
        self, store: RunStore, backend: Backend, on_start: Callable[[Job], object] | None = None
    ) -> Generator[tuple[Job, list[Cell]], None, None]:
        """Do what is not in the store; yields jobs with their cells as they finish or fail."""
        ...

    def results(self, store: RunStore) -> Results:
        """The tables of what is in the store."""
        ...


class Experiment:
    """An experiment of the paper on its real data; subclasses say which comparisons and which tables.

    Parameters
    ----------
    settings : Settings
        How much of it to run.

    Attributes
    ----------
    datasets : list of str
        Names of the data sets.
    comparisons : list of Comparison
        All that is to be measured.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    datasets_of_paper: ClassVar[Sequence[str]] = tuple(PAPER_DATASETS)
    quick_datasets: ClassVar[Sequence[str]]

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.datasets, self.missing = self._found()
        self.comparisons: list[Comparison] = []
        for name in self.datasets:
            try:
                self.comparisons += self._comparisons(name)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error

    def _found(self) -> tuple[list[str], list[str]]:
        """The data sets to work on, small ones first, and those that are not here though the paper has them."""
        own = self.settings
        if own.datasets is not None:
            wanted = list(dict.fromkeys(paper_dataset(name).name for name in own.datasets))
            return sorted(wanted, key=_size), []
        wanted = list(self.quick_datasets if own.quick else self.datasets_of_paper)
        here = available(own.data_dir)
        missing = [name for name in wanted if name not in here]
        if len(missing) == len(wanted):
            load(wanted[0], data_dir=own.data_dir)  # says how to get it
        return sorted((name for name in wanted if name in here), key=_size), missing

    def _load(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return load(name, data_dir=self.settings.data_dir)

    def _comparisons(self, dataset: str) -> Iterator[Comparison]:
        raise NotImplementedError

    def results(self, store: RunStore) -> Results:
        """The tables of what is in the store."""
        raise NotImplementedError

    @property
    def cells(self) -> list[Cell]:
        """Everything that is to be done, including what only serves to choose parameters."""
        return [cell for each in self.comparisons for cell in (*each.tuning_cells, *each.cells)]

    def done(self, store: RunStore) -> int:
        """How many of ``cells`` are in the store."""
        return sum(
            sum(store.get(each.key(cell)) is not None for cell in (*each.tuning_cells, *each.planned(store)))
            for each in self.comparisons
        )

    def jobs_left(self, store: RunStore) -> list[Job]:
        """What is not in the store; cells that wait for tuning are among them with the parameters that they have."""
        return [job for each in self.comparisons for job in each.jobs(_left(each, store))]

    def run(
        self, store: RunStore, backend: Backend, on_start: Callable[[Job], object] | None = None
    ) -> Generator[tuple[Job, list[Cell]], None, None]:
        """Do what is not in the store; yields jobs with their cells as they finish or fail."""
        yield from run_all(self.comparisons, store, backend, on_start)

    def finished(self, store: RunStore) -> pd.DataFrame:
        """``cells.csv``: what is in the store, one row a cell."""
        return pd.DataFrame(_row(each, cell) for each in self.comparisons for cell in each.finished(store))


def long_table(comparison: Comparison, cells: Sequence[Cell]) -> pd.DataFrame:
    """Means of the three tasks over the splits, one row a method, m and task.

    Columns dataset, method, m, task, mean, std, splits, seconds, and the difference ``gain`` to random selection with
    its standard error ``gain_se``.
    """
    found = summary(cells)
    alone = {cell.method for cell in cells if cell.m is None}  # shown at every m, and having none
    frames = [
        pd.DataFrame(
            {
                "dataset": comparison.dataset,
                "method": found["method"],
                "m": found["m"].where(~found["method"].isin(alone)),
                "task": task,
                "mean": found[metric],
                "std": found[f"{metric}_sd"],
                "splits": found["splits"],
                # Of a method without choice there is no random selection of the same size.
                "gain": found[f"{metric}_gain"].where(~found["method"].isin(alone)),
                "gain_se": found[f"{metric}_gain_se"].where(~found["method"].isin(alone)),
                "seconds": found["seconds"],
            }
        )
        for metric, task in TASK_OF.items()
    ]
    table = pd.concat(frames, ignore_index=True).astype({"m": "Int64"})
    return table.drop_duplicates(["dataset", "method", "m", "task"], ignore_index=True)


def _left(comparison: Comparison, store: RunStore) -> list[Cell]:
    planned = comparison.planned(store)
    sure = {cell.place[:4] for cell in planned}  # all but the parameters
    waiting = [cell for cell in comparison.cells if cell.place[:4] not in sure]
    known = (*comparison.tuning_cells, *planned)
    return [cell for cell in known if store.get(comparison.key(cell)) is None] + waiting


def _row(comparison: Comparison, cell: Cell) -> dict[str, Any]:
    return {
        "dataset": comparison.dataset,
        "method": cell.method,
        "params": " ".join(f"{name}={value}" for name, value in cell.params),
        "m": cell.m,
        "split": cell.split,
        "draw": cell.draw,
        "seconds": cell.seconds,
        "judging": cell.judging,
        **{name: getattr(cell, name) for name in (*METRICS, "spectral", "distinct")},
        "features": "" if cell.m is None else " ".join(map(str, cell.features)),
        "warnings": " | ".join(cell.warnings),
    }


def _size(name: str) -> int:
    """Rows times columns: small data sets come first, so that there is something to see."""
    data = PAPER_DATASETS[name]
    return data.n_samples * data.n_features
