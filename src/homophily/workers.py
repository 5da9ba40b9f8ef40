"""Processes of this machine that do calls, and leave Ctrl-C and SIGTERM to the one that started them."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from joblib import Parallel

from .signals import STOPPING, end_with, held

__all__ = ["results_of"]


@contextmanager
def results_of(calls: Iterable[Any], n_jobs: int | None, *, in_order: bool = False) -> Iterator[Generator]:
    """Yield what joblib's delayed ``calls`` return as it comes; a call is asked for when there is a place for it.

    Whatever ends the block early, Ctrl-C and SIGTERM too, ends the workers.
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
    with ExitStack() as stack:
        with held():
            results = parallel(calls)  # starts the workers
            stack.enter_context(_ended(results))
        yield results


def _prepare_worker(driver: int) -> None:
    """Leave Ctrl-C and SIGTERM to the driver, which then ends the workers, and do not outlive it if it is killed.

    What all calls need is imported before the first one: joblib ends workers that have grown much since then, as if
    they leaked.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    from . import joint  # noqa: F401

    end_with(driver)


@contextmanager
def _ended(results: Generator) -> Iterator[None]:
    """Let joblib end its workers here, not when memory is freed: till then it would go on to ask for calls."""
    try:
        yield
    finally:
        with warnings.catch_warnings(), _given_up():
            warnings.simplefilter("ignore")  # that calls are given up is what was asked for
            results.close()


@contextmanager
def _given_up() -> Iterator[None]:
    """Let joblib's thread be silent of calls that it had not passed on yet, over which it fails with its work done."""
    usual = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        manager = failure.thread is not None and failure.thread.name == "ExecutorManagerThread"
        if not (manager and failure.exc_type is KeyError):
            usual(failure)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = usual
