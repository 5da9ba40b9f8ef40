"""Progress of many fits: cells done and left, time left, the best method so far."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .evaluation import Cell
from .evaluation.running import Job
from .signals import stop_requested

__all__ = ["follow", "in_words"]

LOG_EVERY = 30.0  # seconds between lines where there is no terminal to draw a bar on

Run = Callable[[Callable[[Job], object]], Generator[tuple[Job, list[Cell]], None, None]]


def follow(run: Run, total: int, done: int, *, quiet: bool) -> tuple[list[tuple[Job, Cell]], bool]:
    """Drive ``run(on_start)`` to its end and show how it goes; the cells that failed, and whether the user stopped it.

    In a terminal that is a bar, elsewhere a line every half minute; with ``quiet`` nothing.
    """
    failed = []
    with _shown(total, done, quiet=quiet) as progress:
        try:
            with closing(run(progress.started)) as results:
                for job, cells in results:
                    progress.finished(job, cells)
                    failed += [(job, cell) for cell in cells if cell.failed is not None]
                    if stop_requested():
                        return failed, True
        except KeyboardInterrupt:
            return failed, True
    return failed, False


def in_words(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``, ``9 days``."""
    if seconds < 1:
        return "less than a second"
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}" if seconds < 10 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


class _Progress:
    """Moves the bar or writes lines, and says what is being done and which method leads."""

    def __init__(self, bar: Bar, total: int, done: int, log: Console | None) -> None:
        self.bar, self.log = bar, log
        self.total, self.done = total, done
        self.task = bar.add_task("", total=total, completed=done, detail="starting")
        self.fits: dict[int, str] = {}
        self.scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.leader = ""
        self.lock = threading.Lock()
        self.began = self.logged = time.monotonic()
        self.before = done

    def started(self, job: Job) -> None:
        """Take note that a job was handed out."""
        cell = job.cells[0]
        dataset = getattr(job.owner, "dataset", "")
        where = [part for part in (dataset, "tuning" if cell.tuning else f"split {cell.split + 1}") if part]
        with self.lock:
            self.fits[id(job.keys[0])] = f"{cell.method} ({', '.join(where)})"
        self._show()

    def finished(self, job: Job, cells: list[Cell]) -> None:
        """Take note of what a job found."""
        dataset = getattr(job.owner, "dataset", "")
        with self.lock:
            self.fits.pop(id(job.keys[0]), None)
            self.done += len(cells)
            for cell in cells:
                if cell.accuracy is not None and not cell.tuning:
                    self.scores[dataset][cell.method].append(cell.accuracy)
            means = {method: float(np.mean(values)) for method, values in self.scores[dataset].items()}
            if means:
                best = max(means, key=lambda method: means[method])
                self.leader = f"best so far{f' on {dataset}' if dataset else ''}: {best} {means[best]:.3f}"
        self._show()

    def _show(self) -> None:
        with self.lock:
            doing = next(reversed(self.fits.values()), "")
            others = f" +{len(self.fits) - 1}" if len(self.fits) > 1 else ""
            detail = "; ".join(part for part in (doing + others, self.leader) if part)
            now = time.monotonic()
            line = None
            if self.log is not None and now - self.logged >= LOG_EVERY:
                self.logged = now
                line = f"{self.done} of {self.total} cells, {self._left(now)}{detail}"
        self.bar.update(self.task, completed=self.done, detail=detail)
        if line is not None and self.log is not None:
            self.log.print(line)

    def _left(self, now: float) -> str:
        here = self.done - self.before
        if not here:
            return ""
        return f"about {in_words((now - self.began) / here * (self.total - self.done))} left; "


@contextmanager
def _shown(total: int, done: int, *, quiet: bool) -> Iterator[_Progress]:
    terminal = sys.stderr.isatty()
    columns = (
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[detail]}"),
    )
    log = None if quiet or terminal else Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    # A cell may take minutes, so the speed is that of the last hour.
    with Bar(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not terminal,
        speed_estimate_period=3600,
    ) as bar:
        yield _Progress(bar, total, done, log)
