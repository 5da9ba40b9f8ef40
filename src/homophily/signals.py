"""How processes end: in good order by Ctrl-C and SIGTERM, which batch systems send before they kill, or with others."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["STOPPING", "at_once", "end_with", "ending_in_order", "held", "on_stop", "stop_requested"]

STOPPING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED, TERMINATED = (128 + number for number in STOPPING)  # exit codes, as shells have them
POLL = 0.5  # seconds between looks whether the one that started a process is still there

_came: list[int] | None = None  # signals that this command was sent; None: what runs is no command


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, by KeyboardInterrupt, but with an exit code of its own.

    Under torchrun the command also ends with that, if it is killed.
    """
    global _came
    _came = []
    if "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()
        if _adopts(parent):  # torchrun was killed before we came here
            raise SystemExit(1)
        end_with(parent)
    try:
        with on_stop(_interrupt):
            yield
    except SystemExit as end:
        if end.code == INTERRUPTED and _came[:1] == [signal.SIGTERM]:
            raise SystemExit(TERMINATED) from None
        raise
    finally:
        _came = None


@contextmanager
def on_stop(act: Callable[[], None], *, even_if_ignored: bool = False) -> Iterator[None]:
    """Call ``act`` at Ctrl-C and SIGTERM while the block runs.

    SIGTERM counts once: some send it to a process and again to its group, and whoever insists sends SIGKILL.

    Parameters
    ----------
    act : callable
        What to do.
    even_if_ignored : bool, default=False
        Also if the signal is ignored, as Ctrl-C is in the background of a shell.
    """

    def received(number: int, frame: FrameType | None) -> None:
        repeated = False
        if _came is not None:
            repeated = number == signal.SIGTERM and number in _came
            _came.append(number)
        if not repeated:
            act()

    with _handled_by(received, even_if_ignored):
        yield


def stop_requested() -> bool:
    """Whether this command was sent a signal to stop: an exception that is raised at that moment can get lost."""
    return bool(_came)


@contextmanager
def held() -> Iterator[None]:
    """Leave signals to stop for after the block, and let the processes that it starts not notice them at all."""
    waiting: list[tuple[int, FrameType | None]] = []
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.getsignal(number) for number in STOPPING}
            stack.callback(_deliver, waiting, before)
            stack.enter_context(_handled_by(lambda *which: waiting.append(which), even_if_ignored=False))
            if hasattr(signal, "pthread_sigmask"):  # which new processes inherit, unlike a handler
                stack.callback(
                    signal.pthread_sigmask, signal.SIG_SETMASK, signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
                )
        yield


def _deliver(waiting: list[tuple[int, FrameType | None]], handlers: dict) -> None:
    for number, frame in waiting:
        handler = handlers[number]
        if callable(handler):
            handler(number, frame)
        else:
            signal.raise_signal(number)


@contextmanager
def at_once() -> Iterator[None]:
    """Let signals end the process where it waits outside of Python, which could not handle them before that is over."""
    with _handled_by(signal.SIG_DFL, even_if_ignored=False):
        yield


def end_with(parent: int) -> None:
    """Let this process end soon after ``parent``, the one that started it, is gone, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _adopts(process: int) -> bool:
    """Whether it gets the children of those that are gone, and is not torchrun as the first in a container."""
    if process != 1:
        return False
    try:
        command = Path("/proc/1/cmdline").read_bytes()
    except OSError:
        return True
    return b"python" not in command and b"torchrun" not in command


def _interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable | signal.Handlers, even_if_ignored: bool) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # where handlers cannot be set
        yield
        return
    left = [None] if even_if_ignored else [None, signal.SIG_IGN]  # None: not set by Python, which could not put it back
    before = {number: signal.signal(number, handler) for number in STOPPING if signal.getsignal(number) not in left}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
