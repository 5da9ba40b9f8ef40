"""How processes end: in good order by Ctrl-C and SIGTERM, which batch systems send before they kill, or with others."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType

__all__ = [
    "STOPPING",
    "at_once",
    "end_with",
    "ending_in_order",
    "held",
    "on_stop",
    "settle",
    "stop_requested",
    "stopped_by",
    "waiting",
]

STOPPING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED, TERMINATED = (128 + number for number in STOPPING)  # exit codes, as shells have them
POLL = 0.5  # seconds between looks whether the one that started a process is still there
PATIENCE = 10.0  # seconds from a signal to a line if the process has not ended: torchrun kills it after 30

_came: list[int] | None = None  # signals that this command was sent; None: what runs is no command
_settled = False  # an error decides how this command ends
_watched = False  # a thread notices signals while the main one is outside of Python
_waits = ""  # what for, outside of Python
_ends_at_once = False


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, by KeyboardInterrupt, but with an exit code of its own.

    Under torchrun the command also ends with that, if it is killed.
    """
    global _came, _settled
    _came, _settled = [], False
    under_torchrun = _under_torchrun()
    if under_torchrun:
        parent = os.getppid()
        if _adopts(parent):  # torchrun was killed before we came here
            raise SystemExit(1)
        end_with(parent)
    try:
        with on_stop(_interrupt), _watching() if under_torchrun else nullcontext():
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
        if not (repeated or _settled):
            act()

    with _handled_by(received, even_if_ignored):
        yield


def stop_requested() -> bool:
    """Whether this command was sent a signal to stop: an exception that is raised at that moment can get lost."""
    return bool(_came)


def settle() -> None:
    """Let signals to stop no longer act on this command: an error ends it, which is still to be told.

    When a process of a job dies, torchrun sends SIGTERM to the others, which may have noticed it themselves by then.
    """
    global _settled
    _settled = _came is not None


def stopped_by() -> str:
    """Who stopped this command, as part of a sentence; empty if that needs no words."""
    if _came and _came[0] == signal.SIGTERM and _under_torchrun():
        return " by torchrun, which does so when another process of the job has ended or the job is stopped"
    return ""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say that the process waits for ``what`` outside of Python, if it is to stop and cannot."""
    global _waits
    _waits = what
    try:
        yield
    finally:
        _waits = ""


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
    """Let signals end the process where it waits outside of Python, which could not handle them before that is over.

    A command under torchrun says so first.
    """
    global _ends_at_once
    if not _watched:
        with _handled_by(signal.SIG_DFL, even_if_ignored=False):
            yield
        return
    _ends_at_once = True
    try:
        yield
    finally:
        _ends_at_once = False


def end_with(parent: int) -> None:
    """Let this process end soon after ``parent``, the one that started it, is gone, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _watching() -> Iterator[None]:
    """Let a thread say why the process ends where the main thread cannot: it may be in a call that does not return."""
    global _watched
    if threading.current_thread() is not threading.main_thread():  # where no file for signals can be set
        yield
        return
    listener, bell = socket.socketpair()  # Python writes the number of each signal, whatever the main thread does
    bell.setblocking(False)
    earlier = signal.set_wakeup_fd(bell.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=_tell_of_signals, args=(listener,), daemon=True)
    watcher.start()
    _watched = True
    try:
        yield
    finally:
        _watched = False
        signal.set_wakeup_fd(earlier)
        bell.close()
        watcher.join()
        listener.close()


def _tell_of_signals(listener: socket.socket) -> None:
    """Read signals until the other end is closed, and after the first one to stop say what keeps the process."""
    number = 0
    while number not in STOPPING:
        heard = listener.recv(1)
        if not heard:
            return
        number = heard[0]
    rank = os.environ.get("RANK", "")
    why = "by torchrun, as when another process of the job has ended or the job is stopped"
    if _ends_at_once:
        _say(f"Process {rank} was stopped {why}, while it waited for the others to join; nothing was written.")
        os._exit(128 + number)
    end = time.monotonic() + PATIENCE
    with suppress(TimeoutError):
        while (left := end - time.monotonic()) > 0:
            listener.settimeout(left)
            if not listener.recv(1):  # the command has come to its end
                return
    held_up = f"waits for {_waits}" if _waits else "is still at work"
    _say(f"Process {rank} was told to stop {PATIENCE:g} s ago {why}, and {held_up}.")


def _say(line: str) -> None:
    """Write a line past Python's buffers, whose locks the main thread may hold."""
    if sys.__stderr__ is None:  # closed; the number may be that of another file
        return
    with suppress(OSError):
        os.write(sys.__stderr__.fileno(), f"{line}\n".encode())


def _under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


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
