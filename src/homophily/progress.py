"""Progress of a training, shown with rich."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .training import Callback, Progress

__all__ = ["Report", "training_progress"]


class Report:
    """Callback for all groups of restarts: forwards to the user's, moves the bar, remembers a request to stop."""

    def __init__(self, callback: Callback | None, bar: Bar | None, max_iter: int, n_init: int) -> None:
        self.callback, self.bar = callback, bar
        self.stopped = False
        self.lock = threading.Lock()
        self.n_init = n_init
        self.last: Progress | None = None
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
        assert self.last is not None
        return self(replace(self.last, stage="exchange", step=turn + 1))


@contextmanager
def training_progress(show: bool | int, max_iter: int, n_init: int, callback: Callback | None) -> Iterator[Report]:
    """Yield the callback to train with; with ``show`` it draws a bar on standard error."""
    if not show:
        yield Report(callback, None, max_iter, n_init)
        return
    console = Console(file=sys.stderr)
    columns = (BarColumn(bar_width=16), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[detail]}"))
    with Bar(*columns, TimeRemainingColumn(compact=True), console=console, transient=console.is_terminal) as bar:
        yield Report(callback, bar, max_iter, n_init)
