"""How much memory a file will take once it is read whole, told from its size and headers."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import scipy.io

from .memory import limited, require

__all__ = ["refuse_oversized"]

HEAD = 2**16  # bytes of a text that tell how long its lines are
ADVICE = {
    "text": "Convert it to parquet or npy, which are read in blocks, or raise the limit.",
    "whole": "Only --method dirichlet reads it in blocks; use that, or raise the limit.",
}


def refuse_oversized(path: Path) -> None:
    """Raise :class:`~homophily.memory.MemoryLimitError` if reading ``path`` whole takes more than the limit leaves."""
    if not limited():
        return
    suffix = path.suffix.lower()
    try:
        needed = ESTIMATES[suffix](path)
    except Exception:
        return  # what is wrong with the file the reader says better; the guard is still there
    require(needed, f"To read {path.name}", ADVICE["whole" if suffix in (".npy", ".parquet", ".h5ad") else "text"])


def _text(path: Path) -> int:
    """The parser holds the text, 24 bytes a field, and the numbers as they become a table."""
    size = path.stat().st_size
    with path.open("rb") as file:
        lines = file.read(HEAD).splitlines()[:-1] or [b""]
    delimiter = max((b",", b";", b"\t"), key=lambda mark: lines[-1].count(mark))
    fields = lines[-1].count(delimiter) + 1
    cells = size / (sum(map(len, lines)) / len(lines) + 1) * fields
    return int(size + (40 if delimiter == b";" else 32) * cells)  # of a semicolon both decimal marks are tried


def _npz(path: Path) -> int:
    """All arrays, and those of the features once more as numbers of one kind."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                version = np.lib.format.read_magic(member)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
                total += math.prod(shape) * dtype.itemsize
    return 2 * total


def _mat(path: Path) -> int:
    """As doubles, twice; of sparse ones the file does not tell the number of entries, so four times its size."""
    found = scipy.io.whosmat(path)
    cells = sum(math.prod(shape) for _, shape, kind in found if kind != "sparse")
    sparse = any(kind == "sparse" for _, _, kind in found)
    return 16 * cells + (4 * path.stat().st_size if sparse else 0)


def _npy(path: Path) -> int:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.nbytes + 8 * array.size


def _parquet(path: Path) -> int:
    """Arrow's columns, those of the data frame and its numbers in one piece."""
    metadata = pq.read_metadata(path)
    return 24 * metadata.num_rows * metadata.num_columns


def _h5ad(path: Path) -> int:
    return 2 * path.stat().st_size  # dense or sparse as in the file; compressed ones take more


ESTIMATES: dict[str, Callable[[Path], int]] = {
    ".csv": _text,
    ".tsv": _text,
    ".npz": _npz,
    ".mat": _mat,
    ".npy": _npy,
    ".parquet": _parquet,
    ".h5ad": _h5ad,
}
