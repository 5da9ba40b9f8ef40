"""One process at a time in an output folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .output import check_writable

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["claimed"]

TRIES = 100  # to lock a folder that others, as they end, remove because it is empty


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Have ``folder`` alone while the block runs; raise if another process has it.

    Two runs that write to one folder would each take the other's checkpoints and files for its own. The system keeps
    the claim, as a lock on the folder itself: nothing is left behind, whatever becomes of this process. A folder that
    was not there is made, and removed if nothing has been put into it.
    """
    if fcntl is None:
        yield
        return
    check_writable(folder)
    missing = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    lock = _lock(folder)
    try:
        yield
    finally:
        with suppress(OSError):  # something is in it
            for path in missing:
                path.rmdir()
        if lock is not None:
            os.close(lock)  # only now: who has waited for it finds that the folder is gone


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the lock, or None where folders cannot be locked (some network drives)."""
    for _ in range(TRIES):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
            os.close(descriptor)
        except FileNotFoundError:
            os.close(descriptor)
        except BlockingIOError as error:
            os.close(descriptor)
            raise FileExistsError(
                f"Another run is writing to {folder}. Wait until it has ended, or name another folder with --out."
            ) from error
        except OSError:
            os.close(descriptor)
            return None
    raise FileExistsError(f"Other runs keep making and removing {folder}; name another folder with --out.")
