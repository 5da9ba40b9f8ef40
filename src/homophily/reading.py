"""What all readers of files share: one kind of error, and a limit to what a file may expand to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import InputError
from .memory import limited

__all__ = ["FORMATS", "LIMIT", "TABLES", "InputError", "check_expanded", "in_bytes", "looks_like", "reading"]

TABLES = (".csv", ".tsv", ".parquet")
FORMATS = (*TABLES, ".npz", ".npy", ".mat", ".h5ad")
LIMIT = "HOMOPHILY_MAX_EXPANDED"  # environment variable: bytes, or as 64G
UNKNOWN = 2**34  # bytes that may be read where the machine does not tell its memory
INNOCENT = 2**30  # bytes that no file is suspected for
RATIO = 500  # bytes for each byte on disk beyond which a file is: zeros compress a thousandfold, data does not
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
BEGINNINGS = {  # how files of the formats that we read begin
    b"PAR1": "a Parquet file (.parquet)",
    b"\x93NUMPY": "a NumPy array (.npy)",
    b"PK\x03\x04": "a zip archive, as .npz and Excel's .xlsx are",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file, as .h5ad is",
    b"MATLAB 5": "a MATLAB file (.mat)",
    b"MATLAB 7": "a MATLAB 7.3 file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a library raises over the content of ``path`` into an :class:`InputError` that says so.

    A damaged file makes libraries raise nearly anything, from KeyError to RecursionError. That a package is missing is
    not the file's fault.
    """
    try:
        yield
    except (InputError, ImportError):
        raise
    except MemoryError as error:
        if limited():  # it is known then what to do
            raise
        raise InputError(
            f"{path.name} needs more memory than there is; is it damaged? A .npy, .parquet or .h5ad file of many rows "
            "is read in parts."
        ) from error
    except Exception as error:
        why = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        found = looks_like(path)
        advice = (
            "Check that it was copied whole, or save it again."
            if found is None
            else f"Its content looks like {found}: give it the ending of its format, or save it as {kind}."
        )
        raise InputError(f"{path.name} could not be read as {kind}: {why}. {advice}") from error


def looks_like(path: Path) -> str | None:
    """What the content of a file looks like, if that is not what its ending says."""
    begins = b""
    with suppress(OSError), path.open("rb") as file:
        begins = file.read(8)
    for beginning, what in BEGINNINGS.items():
        if begins.startswith(beginning) and path.suffix.lower() not in what:
            return what
    return None


def check_expanded(path: Path, size: int, *, in_memory: bool = True) -> None:
    """Raise if ``path`` expands to ``size`` bytes and that is too much.

    What is held in memory must fit there: the limit is the memory of the machine. And whatever expands to over 1 GiB
    must not be over 500 times its size on disk, also if it is read in parts: so do files that are made to fill the
    memory or the time of whoever opens them. The environment variable ``HOMOPHILY_MAX_EXPANDED`` takes the place of
    both limits.
    """
    own = os.environ.get(LIMIT, "")
    limit = _parsed(own) if own else _memory()
    on_disk = path.stat().st_size
    suspicious = size > max(INNOCENT, RATIO * on_disk, limit if own else 0)
    if suspicious or (in_memory and size > limit):
        allowed = f"{in_bytes(limit)} that {LIMIT} allows" if own else f"{in_bytes(limit)} of memory of this machine"
        if suspicious and not own:
            allowed = f"{RATIO} times that is still credible"
        needed = f"{-(-size // 2**30)}G"
        raise InputError(
            f"{path.name} has {in_bytes(on_disk)} on disk and expands to {in_bytes(size)}, more than the {allowed}."
            f" If the file is to be trusted, set the environment variable {LIMIT}={needed} to read it all the same."
        )


def in_bytes(size: int) -> str:
    """``1.5 GiB``."""
    power = min((max(size, 1).bit_length() - 1) // 10, len(UNITS) - 1)
    return f"{size / 2 ** (10 * power):.4g} {UNITS[power]}"


def _parsed(text: str) -> int:
    found = re.fullmatch(r"\s*(\d{1,18})\s*([KMGT]?)(i?B)?\s*", text, re.IGNORECASE)
    if found is None:
        raise InputError(f"The environment variable {LIMIT} is {text!r}, expected a number of bytes such as 64G.")
    return int(found[1]) * 2 ** (10 * " KMGT".index(found[2].upper() or " "))


def _memory() -> int:
    """Bytes of memory that this process may have: those of the machine or of its container."""
    sizes = []
    with suppress(AttributeError, ValueError, OSError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # "max" where there is no limit
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes, default=UNKNOWN)
