"""A limit to the memory of the process: what is planned stays within it, and what does not ends in a MemoryError."""

from __future__ import annotations

import ctypes
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["MemoryLimitError", "memory_limit", "parse_size"]

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
LIBRARIES = 544 * 2**20  # what Python, torch, scikit-learn and the others take, those included that are loaded late
LEAST = 56 * 2**20  # to work with beside them
ROOMY = 2**30  # room from which on blocks are as large as without a limit
# Pages of files that the guard does not see (blocks of rows, libraries that are loaded late: some 32 MB), less what it
# does see although nobody touches it (stacks of threads: some 32 MB), and a margin.
MAPPED = 24 * 2**20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
OWN_PAGES = 2**20  # bytes from which on an array gets pages of its own, which go back when it is deleted
USUAL = 2**25  # the same where glibc has seen large arrays come and go

# Of the whole process, as its memory is: threads that train have to see the same limit.
_limit: int | None = None
_held = 0


class MemoryLimitError(MemoryError):
    """More memory is needed than the limit allows. The message says how much and what to do."""


def parse_size(text: str | int) -> int:
    """Bytes of a size such as ``2GB``, ``512MB`` (powers of 1000) or ``1.5GiB`` (of 1024)."""
    if isinstance(text, int) and not isinstance(text, bool):
        size = text
    else:
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)\s*", str(text))
        unit = found[2].upper() if found else ""
        if unit in ("K", "M", "G", "T"):
            unit += "B"
        if found is None or unit not in UNITS:
            raise ValueError(f"The memory limit {text!r} is no size: give a number and its unit, such as 2GB or 800MB.")
        size = int(float(found[1]) * UNITS[unit])
    return size


def in_words(size: float) -> str:
    """``1.5 GB``, ``620 MB``."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{math.ceil(size / 1e6)} MB"


@contextmanager
def memory_limit(limit: str | int) -> Iterator[None]:
    """Keep the memory of this process within ``limit``, such as ``"2GB"``, while the block runs.

    A fit within it holds fewer rows, judges selections by fewer and reads smaller blocks as far as that is needed; the
    plan depends on the limit and the data alone, so that the same limit and seed give the same result, and a limit that
    leaves room for all (some 2 GB) that of no limit. What does not fit all the same ends in a
    :class:`MemoryLimitError`: on Linux the system refuses the process more memory than that.

    Memory means what is resident: libraries, of which torch alone is hundreds of megabytes, the data, and the work.
    Worker processes each have their own.

    Parameters
    ----------
    limit : str or int
        A size with its unit, or bytes.

    Examples
    --------
    >>> from homophily import PredictiveSelector
    >>> from homophily.memory import memory_limit
    >>> with memory_limit("1GB"):
    ...     selector = PredictiveSelector(50).fit("samples.npy")  # doctest: +SKIP
    """
    global _limit, _held
    size = parse_size(limit)
    if _limit is not None:
        raise RuntimeError(f"A memory limit of {in_words(_limit)} is in force already; leave it first.")
    taken = _resident() or 0
    least = LEAST + max(LIBRARIES, taken)
    if size < least:
        raise ValueError(
            f"A memory limit of {in_words(size)} is too little: Python and the libraries take about "
            f"{in_words(LIBRARIES)}, and {in_words(taken)} are taken already. Give {in_words(least)} or more."
        )
    _limit, _held = size, 0
    try:
        with _thrifty(), _guard(size):
            yield
    except MemoryLimitError:
        raise
    except (MemoryError, RuntimeError, OSError) as error:
        if not _is_shortage(error):
            raise
        raise MemoryLimitError(
            f"The memory limit of {in_words(size)} was reached: {_first_line(error)}. Raise the limit, or select from "
            "fewer rows or columns."
        ) from error
    finally:
        _limit, _held = None, 0


def limited() -> bool:
    """Whether there is a limit."""
    return _limit is not None


def room() -> int | None:
    """Bytes for data and work: what the limit leaves beside the libraries and what is held; None without a limit."""
    return None if _limit is None else max(0, _limit - LIBRARIES - _held)


def hold(n_bytes: int) -> None:
    """Say how much of the room the data takes that is in memory as a whole."""
    global _held
    _held = n_bytes


def fitting(count: int, each: int, share: float, *, fixed: int = 0) -> int:
    """How many of ``count`` things of ``each`` bytes, beside ``fixed`` bytes, fit into that share of the room."""
    there = room()
    return count if there is None else max(0, min(count, int(share * there - fixed) // each))


def scaled(entries: int) -> int:
    """How many entries to work on at once where ``entries`` would be, with room for that."""
    there = room()
    return entries if there is None else max(1, int(entries * min(1.0, there / ROOMY)))


def require(needed: int, what: str, advice: str) -> None:
    """Raise unless there is room for ``needed`` bytes, before they are asked for."""
    there = room()
    if there is None or needed <= there:
        return
    assert _limit is not None
    raise MemoryLimitError(
        f"{what} would take about {in_words(needed)} of memory, and the limit of {in_words(_limit)} leaves "
        f"{in_words(there)} beside the libraries. {advice}"
    )


@contextmanager
def _guard(limit: int) -> Iterator[None]:
    """Let the system refuse more data than the limit leaves now (Linux; elsewhere the plan has to do)."""
    taken, data = _resident(), _status("VmData")
    if taken is None or data is None:
        yield
        return
    import resource

    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = data + limit - taken - MAPPED
    known = [value for value in (before, hard) if value != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([most, *known]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


@contextmanager
def _thrifty() -> Iterator[None]:
    """Let memory go back to the system once it is free, which takes a little time; what does not is not counted twice.

    glibc would keep blocks of up to 32 MB for later, and Arrow's own allocator sets a gigabyte aside.
    """
    import numpy as np
    import pyarrow as pa
    import torch

    _set_allocator(OWN_PAGES, OWN_PAGES)
    before = pa.default_memory_pool(), pa.cpu_count(), pa.io_thread_count()
    _set_arrow(pa.system_memory_pool(), 1, 1)  # the stack of a thread counts, used or not
    # What is loaded and set aside late is not to be asked for when there may be no more: parts of Arrow keep to its own
    # allocator, which sets its gigabyte aside when it is first used, or takes most of what the limit leaves.
    pa.allocate_buffer(1, memory_pool=before[0])
    np.ones((8, 8)) @ np.ones((8, 8))
    torch.optim.Adam([torch.ones(8, 8) @ torch.ones(8, 8)])
    try:
        yield
    finally:
        _set_arrow(*before)
        _set_allocator(USUAL, 2 * USUAL)


def _set_allocator(own_pages: int, free: int) -> None:
    """Tell glibc, if that is what we run on, which arrays get pages of their own and how much free memory it keeps."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, own_pages)
        libc.mallopt(M_TRIM_THRESHOLD, free)


def _set_arrow(pool: Any, n_cores: int, n_io_threads: int) -> None:
    import pyarrow as pa

    pa.set_memory_pool(pool)
    pa.set_cpu_count(n_cores)
    pa.set_io_thread_count(n_io_threads)


def _is_shortage(error: BaseException) -> bool:
    """Whether it says that there was no memory; torch and HDF5 have no type of their own for that."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(
        sign in text for sign in ("can't allocate memory", "cannot allocate memory", "bad_alloc", "out of memory")
    )


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else "no more could be had"
    found = re.search(r"tried to allocate (\d+) bytes", text)
    return f"{in_words(int(found[1]))} more could not be had" if found else text.rstrip(".")


def _resident() -> int | None:
    return _status("VmRSS")


def _status(name: str) -> int | None:
    """A figure of this process in bytes, where the system tells it as Linux does."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            found = next((line for line in lines if line.startswith(f"{name}:")), None)
    except OSError:
        return None
    return None if found is None else int(found.split()[1]) * 1024
