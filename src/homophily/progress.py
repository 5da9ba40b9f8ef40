"""Progress of a fit, shown with rich."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .training import Callback, Progress

__all__ = ["Report", "Step", "StepCallback", "Steps", "refit_progress", "step_progress", "training_progress"]


@dataclass(frozen=True)
class Step:
    """What the callback of a baseline is told after each iteration or epoch. It stops the fit by returning True."""

    step: int  # done so far
    total: int  # at most
    values: dict[str, float]  # what the method watches, such as its loss


StepCallback = Callable[[Step], bool | None]


class Steps:
    """Takes note of the steps of one fit: history, bar, the user's callback, a request to stop."""

    def __init__(self, callback: StepCallback | None, bar: Bar | None) -> None:
        self.callback, self.bar = callback, bar
        self.task = None if bar is None else bar.add_task("", total=None, detail="starting")
        self.step = self.total = 0
        self.stopped = False
        self._history: dict[str, list[float]] = {}

    def plan(self, steps: int) -> range:
        """Announce that at most so many more ``steps`` follow, and count them."""
        self.total = self.step + steps
        return range(steps)

    def __call__(self, **values: float) -> bool:
        """Note a finished step; true if the fit is to stop."""
        self.step += 1
        for name, value in values.items():
            self._history.setdefault(name, []).append(float(value))
        if self.callback is not None and self.callback(Step(self.step, self.total, values)):
            self.stopped = True
        if self.bar is not None and self.task is not None:
            detail = f"{self.step}/{self.total}  " + "  ".join(f"{name} {v:.4g}" for name, v in values.items())
            self.bar.update(self.task, completed=self.step, total=self.total, detail=detail)
        return self.stopped

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The values of all steps, by name."""
        return {name: np.array(values) for name, values in self._history.items()}


class Report:
    """Callback for all groups of restarts: forwards to the user's, moves the bar, remembers a request to stop."""

    def __init__(self, callback: Callback | None, bar: Bar | None, max_iter: int, n_init: int) -> None:
        self.callback, self.bar = callback, bar
        self.stopped = False
        self.lock = threading.Lock()
        self.n_init = n_init
        # Until the first step, which does not come when a checkpoint holds finished training.
        self.last = Progress("training", 0, max_iter, (0, n_init), math.nan, math.nan, math.nan)
        self.task = None if bar is None else bar.add_task("", total=max_iter * n_init, detail="starting")

    def __call__(self, progress: Progress) -> bool:
        """Take note of a step of either stage; true if the run is to stop."""
        with self.lock:
            self.last = progress
            if self.callback is not None and self.callback(progress):
                self.stopped = True
            if self.bar is not None and self.task is not None:
                first, last = progress.restarts
                if progress.stage == "exchange":
                    advance, detail = 0, f"exchanging features, turn {progress.step}"
                else:
                    advance = last - first
                    detail = (
                        f"restart {last}/{self.n_init}  T {progress.temperature:.2f}  "
                        f"energy {progress.energy:.4g}  sure {progress.confidence:.0%}"
                    )
                self.bar.update(self.task, advance=advance, detail=detail)
            return self.stopped

    def exchange(self, turn: int) -> bool:
        """Take note of a turn of the exchange of features that follows the training; true if it is to stop."""
        return self(replace(self.last, stage="exchange", step=turn + 1))


@contextmanager
def training_progress(show: bool | int, max_iter: int, n_init: int, callback: Callback | None) -> Iterator[Report]:
    """Yield the callback to train with; with ``show`` it draws a bar on standard error."""
    with _bar(show) as bar:
        yield Report(callback, bar, max_iter, n_init)


@contextmanager
def step_progress(show: bool | int, callback: StepCallback | None) -> Iterator[Steps]:
    """Yield what is to be called after each step of a baseline; with ``show`` it draws a bar on standard error."""
    with _bar(show) as bar:
        yield Steps(callback, bar)


@contextmanager
def refit_progress(show: bool, total: int) -> Iterator[Callable[[int], None] | None]:
    """Yield what is to be called with the number of refits done; with ``show`` it draws a bar on standard error."""
    with _bar(show, speed_estimate_period=3600) as bar:  # a refit may take minutes
        if bar is None:
            yield None
            return
        task = bar.add_task("", total=total, detail=f"0/{total} subsamples")
        yield lambda done: bar.update(task, completed=done, detail=f"{done}/{total} subsamples")


@contextmanager
def _bar(show: bool | int, speed_estimate_period: float = 30) -> Iterator[Bar | None]:
    if not show:
        yield None
        return
    console = Console(file=sys.stderr)
    columns = (BarColumn(bar_width=16), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[detail]}"))
    with Bar(
        *columns,
        TimeRemainingColumn(compact=True),
        console=console,
        transient=console.is_terminal,
        speed_estimate_period=speed_estimate_period,
    ) as bar:
        yield bar
