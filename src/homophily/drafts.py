"""Files that are there complete or not at all: written under another name, put on the disk, then renamed.

A draft is hidden and lies beside what it is to become: ``.NAME.XXXXXXXX`` and the ending of NAME, where each X is a
hexadecimal digit. Whatever goes wrong, also Ctrl-C, removes it. Only a process that is killed leaves it behind. Then it
is in nobody's way, and the next process that writes the same file removes it if nothing in it changed for an hour.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import OutputError

__all__ = ["WHY", "draft_of", "error_number", "is_draft", "remove_abandoned", "replacing", "sync", "writing"]

ABANDONED = 3600.0  # seconds without a change after which the process that wrote a draft is taken for dead
FORBIDDEN = "this is not allowed here, or another program has it open"
QUOTA = getattr(errno, "EDQUOT", -1)  # Windows has none
WHY = {  # by the number of the system's error
    errno.ENOSPC: "the disk is full",
    QUOTA: "your share of the disk (quota) is used up",
    errno.EFBIG: "it is larger than the disk or a limit of the system (ulimit -f) allows",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
}
OUT = "write to another place (in the command line: --out)"
# How packages that pass on the text of an error and not its number write it: HDF5, Rust's, Arrow's.
NUMBER = re.compile(r"(?:errno =|os error|errno) (\d+)")
DRAFT = re.compile(r"\..+\.[0-9a-f]{8}(\.\w+)?")


@contextmanager
def replacing(path: Path, elsewhere: str = OUT) -> Iterator[Path]:
    """Yield a draft to write; it takes the place of ``path`` if nothing went wrong, so that no reader finds a part.

    It is on the disk before it gets its name, so that this holds also if the power fails.

    Parameters
    ----------
    path : Path
        The file. Its folder must be there.
    elsewhere : str
        What to do if it cannot be written there.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; expected the name of a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to; make it first.")
    remove_abandoned(path)
    draft = draft_of(path)
    try:
        with writing(path, draft, elsewhere):
            yield draft
            sync(draft)
            draft.replace(path)
            sync(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, draft: Path | None = None, elsewhere: str = OUT) -> Iterator[None]:
    """Say in words why ``path`` cannot be written, whoever finds it out: Python, Arrow, HDF5 or safetensors.

    Parameters
    ----------
    path : Path
        File or folder.
    draft : Path, optional
        What is written in its place, to say how much that is already.
    elsewhere : str
        What to do if it cannot be written there.
    """
    try:
        yield
    except Exception as error:
        number = error_number(error)
        if number not in WHY or _is_about_another(error, path, draft):
            raise
        room = number in (errno.ENOSPC, QUOTA)
        so_far = f" ({_amount(draft)} of it were written)" if room and draft is not None else ""
        advice = f"Make room there, or {elsewhere}." if room else f"{elsewhere[0].upper()}{elsewhere[1:]}."
        raise OutputError(f"{path} cannot be written: {WHY[number]}{so_far}. {advice}", number) from error


def error_number(error: BaseException) -> int | None:
    """The number of the system's error behind ``error``, if there is one."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if not isinstance(error, (OSError, RuntimeError)) and type(error).__name__ != "SafetensorError":
        return None
    found = NUMBER.search(str(error))
    return None if found is None else int(found[1])


def draft_of(path: Path) -> Path:
    """A new name beside ``path``, with its ending: some writers add it where it lacks."""
    return path.with_name(f"{_beginning(path)}{secrets.token_hex(4)}{path.suffix}")


def _beginning(path: Path) -> str:
    return f".{path.name[:50]}."  # systems do not take names of any length


def is_draft(path: Path) -> bool:
    """Whether ``path`` has the name of a draft."""
    return DRAFT.fullmatch(path.name) is not None


def remove_abandoned(path: Path) -> None:
    """Remove drafts of ``path`` that a process left behind when it was killed."""
    found: list[Path] = []
    with suppress(OSError):  # a folder that may be written to need not be readable
        found += (one for one in path.parent.iterdir() if one.name.startswith(_beginning(path)) and is_draft(one))
    for draft in found:
        with suppress(OSError):  # another process removes it, or it is another user's
            changed = max(part.stat().st_mtime for part in (draft, *draft.rglob("*")))
            if time.time() - changed < ABANDONED:
                continue
            if draft.is_dir():
                shutil.rmtree(draft)
            else:
                draft.unlink()


def sync(path: Path) -> None:
    """Return when the disk holds what was written to the file ``path``, or the names in the folder ``path``."""
    try:
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # none can be opened on Windows, and one that may be written to need not be readable
            return
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # some network drives know no such thing
            raise
    finally:
        os.close(handle)


def _is_about_another(error: BaseException, path: Path, draft: Path | None) -> bool:
    """Whether the system names another file than those that are written: one that is read meanwhile, say."""
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str | os.PathLike):
        return False
    named = Path(error.filename).absolute()
    ours = [one.absolute() for one in (path, draft) if one is not None]
    return not any(named.is_relative_to(one) or one.is_relative_to(named) for one in ours)


def _amount(draft: Path) -> str:
    """How much is in a draft."""
    size = 0.0
    with suppress(OSError):
        size += sum(part.stat().st_size for part in (draft, *draft.rglob("*")) if part.is_file())
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
