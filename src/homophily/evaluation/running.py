"""The engine of every experiment: jobs on many cores or a cluster, each result in the store as soon as it is there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from joblib import delayed

from ..workers import results_of
from .cell import Cell
from .cluster import connected
from .store import Claim, RunStore

__all__ = ["Backend", "Job", "execute"]

POLL = 0.5  # seconds between looks at what other processes have finished


@dataclass(frozen=True)
class Backend:
    """Where jobs are done: in processes of this machine, or by the workers of a Dask scheduler."""

    n_jobs: int = 1  # processes; -1: one a core
    scheduler: str | None = None  # address of the scheduler
    patience: float = 120.0  # seconds to wait for workers if a scheduler has none

    @contextmanager
    def results(self, jobs: Iterator[tuple[int, Job]]) -> Iterator[Iterator[tuple[int, list[Cell]]]]:
        """Yield the measured cells of numbered jobs as they come; a job is asked for when there is a place for it."""
        if self.scheduler is not None:
            with connected(self.scheduler, self.patience) as cluster:
                yield cluster.results(jobs)
            return
        calls = (delayed(_call)(n, job.data, job.function, (*job.arguments, job.cells)) for n, job in jobs)
        with results_of(calls, self.n_jobs) as results:
            yield results


@dataclass(frozen=True)
class Job:
    """Cells that one call measures: ``function(data, *arguments, cells)`` returns them with their results."""

    cells: list[Cell]
    keys: list[dict[str, Any]]  # of the cells, in a store
    function: Callable[..., list[Cell]]
    data: Any
    arguments: tuple
    owner: Any = None  # what the cells belong to

    def part(self, wanted: Sequence[bool]) -> Job:
        """The same with only some of the cells."""
        cells = [cell for cell, want in zip(self.cells, wanted, strict=True) if want]
        keys = [key for key, want in zip(self.keys, wanted, strict=True) if want]
        return replace(self, cells=cells, keys=keys)


def execute(
    jobs: Iterable[Job],
    store: RunStore,
    backend: Backend,
    on_start: Callable[[Job], object] | None = None,
) -> Generator[tuple[Job, list[Cell]], None, None]:
    """Do what is not in the store and yield jobs with their measured cells as they finish or fail.

    Only finished cells are stored, those of one job in one transaction, and by this process alone. Cells that another
    process has claimed are left to it and yielded when it has finished them; if it ends without, they are done here.

    Parameters
    ----------
    jobs : iterable of Job
        What is to be done, in this order.
    store : RunStore
        Where finished cells are kept.
    backend : Backend
        Where the work is done.
    on_start : callable, optional
        Called with a job when it is handed out, not always in the thread of the caller.
    """
    left = list(jobs)
    with store.claiming():
        while left:  # all, then those that other processes leave undone
            hand = _Hand(left, store, on_start)
            ours = iter(hand)
            first = next(ours, None)
            yield from hand.ready()
            if first is not None:
                yield from _handed_out(hand, chain([first], ours), store, backend)
            left = hand.taken
            if left:
                time.sleep(POLL)


class _Hand:
    """Claims jobs when the backend asks for the next, and remembers which of them are out."""

    def __init__(self, jobs: list[Job], store: RunStore, on_start: Callable[[Job], object] | None) -> None:
        self.jobs, self.store, self.on_start = jobs, store, on_start
        self.out: dict[int, Job] = {}  # being done
        self.taken: list[Job] = []  # claimed by others
        self.done: deque[Job] = deque()  # found finished

    def __iter__(self) -> Iterator[tuple[int, Job]]:
        for number, whole in enumerate(self.jobs):
            claims = self.store.claim(whole.keys)
            parts = {kind: whole.part([claim is kind for claim in claims]) for kind in Claim}
            if parts[Claim.DONE].cells:
                self.done.append(parts[Claim.DONE])
            if parts[Claim.TAKEN].cells:
                self.taken.append(parts[Claim.TAKEN])
            job = parts[Claim.OURS]
            if job.cells:
                self.out[number] = job
                if self.on_start is not None:
                    self.on_start(job)
                yield number, job

    def ready(self) -> Iterator[tuple[Job, list[Cell]]]:
        """Jobs that were found finished since the last call, with their results."""
        while self.done:
            job = self.done.popleft()
            cells = zip(job.cells, job.keys, strict=True)
            yield job, [cell.finished(self.store.get(key)) for cell, key in cells]


def _handed_out(
    hand: _Hand, ours: Iterator[tuple[int, Job]], store: RunStore, backend: Backend
) -> Iterator[tuple[Job, list[Cell]]]:
    try:
        with backend.results(ours) as results:
            for number, cells in results:
                job = hand.out.pop(number)
                pairs = list(zip(job.keys, cells, strict=True))
                # Parameters with which a method fails are a result of tuning; else it is tried again next time.
                store.put_all(
                    (key, cell.value) for key, cell in pairs if not cell.failed or (cell.tuning and not cell.by_chance)
                )
                store.release(key for key, cell in pairs if cell.failed)
                yield job, cells
                yield from hand.ready()
        yield from hand.ready()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "A worker process was ended from outside, most likely because memory ran out; try fewer jobs."
        ) from error


def _call(number: int, data: Any, function: Callable[..., list[Cell]], arguments: tuple) -> tuple[int, list[Cell]]:
    return number, function(data, *arguments)
