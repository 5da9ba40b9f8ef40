"""Processes of this machine that do calls, and leave Ctrl-C to the one that started them."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from joblib import Parallel

__all__ = ["results_of"]

POLL = 0.5  # seconds between looks whether the one that started a worker is still there


@contextmanager
def results_of(calls: Iterable[Any], n_jobs: int | None, *, in_order: bool = False) -> Iterator[Generator]:
    """Yield what joblib's delayed ``calls`` return as it comes; a call is asked for when there is a place for it.

    Whatever ends the block early, Ctrl-C too, ends the workers.
    """
    parallel = Parallel(
        n_jobs,
        backend="loky",
        return_as="generator" if in_order else "generator_unordered",
        batch_size=1,  # every result comes back at once
        pre_dispatch="n_jobs",
        initializer=_prepare_worker,
        initargs=(os.getpid(),),
    )
    with _sigint_ignored():
        results = parallel(calls)  # starts the workers
    with _ended(results):
        yield results


def _prepare_worker(driver: int) -> None:
    """Leave Ctrl-C to the driver, which then ends the workers, and do not outlive it if it is killed.

    What all calls need is imported before the first one: joblib ends workers that have grown much since then, as if
    they leaked.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from . import joint  # noqa: F401

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ended(results: Generator) -> Iterator[None]:
    """Let joblib end its workers here, not when memory is freed: till then it would go on to ask for calls."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that calls are given up is what was asked for
            results.close()


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
