"""Samples by rows, read block by block: arrays in memory, ``.npy`` files and memory maps, Parquet and AnnData files."""

from __future__ import annotations

import math
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import scipy.sparse as sp

from .array_files import check_indices, check_npy
from .hdf5_checks import check_hdf5, check_survives
from .memory import fitting, limited, scaled
from .reading import InputError, check_expanded, reading
from .wording import listing, not_numeric

__all__ = [
    "ArrayRows",
    "H5adRows",
    "NpyRows",
    "ParquetRows",
    "RowSource",
    "SomeRows",
    "column_groups",
    "is_on_disk",
    "open_rows",
]

BLOCK = 2**22  # entries that are read at once
PAGE_BYTES = 2.25 * 2**20  # that reading a column of a Parquet file takes: a page and a dictionary, packed and unpacked
PAGES_BYTES = 2**29  # of all columns that are read side by side
PARQUET = "parquet"


class RowSource(Protocol):
    """``shape`` (n, d), the numbers' ``dtype``, ``names`` of the columns if they have any, and their values."""

    shape: tuple[int, int]
    dtype: np.dtype
    names: list[str] | None

    def blocks(
        self, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """Rows ``start`` to ``stop`` in order, some at a time: arrays (b, d), or (b, c) of the chosen columns."""


class ArrayRows:
    """A matrix in memory, dense or CSR."""

    def __init__(self, X: Any) -> None:
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.names: list[str] | None = None

    def blocks(
        self, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """As :meth:`RowSource.blocks`."""
        for i, j in _ranges(start, stop, self.shape):
            block = self.X[i:j]
            block = block if columns is None else block[:, columns]
            yield _dense(block)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows with these numbers, dense; (len(rows), d)."""
        return _dense(self.X[rows])


class NpyRows:
    """A ``.npy`` file or ``np.memmap``. Nothing stays mapped between blocks, so that pages do not pile up in memory."""

    def __init__(self, mapped: np.memmap) -> None:
        if mapped.ndim != 2:
            raise ValueError(f"{mapped.filename} has shape {mapped.shape}, expected samples by features.")
        if mapped.dtype.kind not in "fiub":
            raise ValueError(f"{mapped.filename} holds {mapped.dtype}, expected numbers.")
        self.shape, self.dtype = mapped.shape, mapped.dtype
        self.names: list[str] | None = None
        order = "F" if mapped.flags.f_contiguous and not mapped.flags.c_contiguous else "C"
        self._map = (mapped.filename, mapped.dtype, "r", mapped.offset, mapped.shape, order)

    def blocks(
        self, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """As :meth:`RowSource.blocks`."""
        for i, j in _ranges(start, stop, self.shape):
            mapped = np.memmap(*self._map)  # type: ignore[call-overload]
            block = mapped[i:j] if columns is None else mapped[i:j][:, columns]
            yield np.array(block)


class ParquetRows:
    """A Parquet file; ``names`` are its features, without the columns to leave out and pandas' index."""

    def __init__(
        self, path: str | Path, leave_out: Sequence[str] = (), opened: tuple[pq.ParquetFile, pa.Schema] | None = None
    ) -> None:
        self.path = Path(path)
        self.file, schema = opened or open_parquet(self.path)
        check_parquet(self.path, self.file, in_memory=False)
        self.schema = schema
        self.leave_out = tuple(leave_out)
        aside = {*leave_out, *index_columns(self.path, schema)}
        fields = [field for field in schema if field.name not in aside]
        wrong = [(field.name, field.type) for field in fields if not _is_numeric(field.type)]
        if wrong:
            raise InputError(f"{self.path.name}: {not_numeric(wrong, len(fields))}")
        self.names: list[str] | None = [field.name for field in fields]
        self.shape = self.file.metadata.num_rows, len(fields)
        single = all(pa.types.is_float32(f.type) or pa.types.is_float16(f.type) for f in fields)
        self.dtype = np.dtype(np.float32 if single else np.float64)

    def blocks(
        self, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """As :meth:`RowSource.blocks`. Only the row groups that hold the rows are read."""
        assert self.names is not None
        names = self.names if columns is None else [self.names[i] for i in columns]
        for batch in self.batches(names, start, stop):
            block = np.empty((batch.num_rows, len(names)), self.dtype)
            for place, name in enumerate(names):
                block[:, place] = batch.column(name).to_numpy(zero_copy_only=False)  # nulls become NaN
            yield block

    def __reduce__(self) -> tuple:
        return ParquetRows, (self.path, self.leave_out)  # an open file does not go to other processes

    def batches(self, names: list[str], start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
        """The named columns of rows ``start`` to ``stop`` as Arrow has them."""
        n = self.shape[0]
        stop = n if stop is None else stop
        metadata = self.file.metadata
        ends = np.cumsum([metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)])
        begins = np.concatenate([[0], ends[:-1]])
        groups = np.flatnonzero((ends > start) & (begins < stop)).tolist()
        if not groups:
            return
        at = int(begins[groups[0]])
        size = max(1, scaled(BLOCK) // max(1, len(names)))
        with reading(self.path, PARQUET):
            for batch in self.file.iter_batches(
                batch_size=size, row_groups=groups, columns=names, use_threads=not limited()
            ):
                part = batch.slice(max(0, start - at), max(0, min(stop, at + batch.num_rows) - max(start, at)))
                at += batch.num_rows
                if part.num_rows:
                    yield decoded(part, self.schema, self.path)
        if at < min(stop, n):
            raise InputError(f"{self.path.name} is damaged: it says that it has {n} rows, and ends after {at}.")


class H5adRows:
    """``X`` of an AnnData file (``.h5ad``), or one of its ``layers``; ``names`` are those of its variables.

    The file is open while blocks are read, not between. A sparse matrix that is stored by columns (CSC) is read whole.
    """

    def __init__(self, path: str | Path, layer: str | None = None) -> None:
        self.path, self.layer = Path(path), layer
        with self.open():  # whether it is an HDF5 file at all
            check_survives(self.path)
        with self.open() as file:
            check_hdf5(self.path, file)
            wanted = {"obs", "var"} - file.keys()
            if wanted:
                missing = " and ".join(sorted(wanted))
                raise InputError(f"{self.path.name} is an HDF5 file, but no h5ad of AnnData: it has no {missing}.")
            layers = sorted(file.get("layers", ()))
            if layer is not None and layer not in layers:
                there = f"its layers are {listing(layers)}" if layers else "it has no layers"
                raise InputError(f"{self.path.name} has no layer {layer!r}; {there}.")
            if layer is None and "X" not in file:
                there = f"one of its layers: {listing(layers)}" if layers else "a file with numbers"
                raise InputError(f"{self.path.name} has no matrix X; use {there}.")
            matrix = _h5ad_matrix(file, layer)
            if len(matrix.shape) != 2 or matrix.dtype.kind not in "fiub":
                raise InputError(
                    f"{self.path.name} holds {matrix.dtype} of shape {matrix.shape}, expected a matrix of numbers."
                )
            self.shape, self.dtype = (int(matrix.shape[0]), int(matrix.shape[1])), np.dtype(matrix.dtype)
            self.names: list[str] | None = _anndata().io.read_elem(file["var"]).index.astype(str).tolist()
            described = _h5ad_length(file["obs"]), len(self.names)
            if described != self.shape:
                raise InputError(
                    f"{self.path.name} is damaged: its matrix has {self.shape[0]} rows and {self.shape[1]} columns, "
                    f"and obs and var describe {described[0]} and {described[1]}."
                )
            self._held = _held(matrix)
            lines = self.shape[self._held.axis]
            if self._held.lines != lines:
                raise InputError(
                    f"{self.path.name} is damaged: {self._held.lines} of the {lines} rows or columns of its sparse "
                    "matrix are there."
                )

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The file for h5py, to read; what goes wrong with it is an :class:`InputError`."""
        _anndata()
        import h5py

        with reading(self.path, "h5ad"):
            if not h5py.is_hdf5(self.path):
                raise OSError("it is no HDF5 file")
            with h5py.File(self.path, "r") as file:
                yield file

    def blocks(
        self, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """As :meth:`RowSource.blocks`."""
        for block in self._parts(start, stop, columns):
            yield block.toarray() if sp.issparse(block) else block

    def element(self, name: str) -> Any:
        """Another part of the file, such as ``obs``, as AnnData has it; an empty dict if there is none."""
        with self.open() as file:
            return _anndata().io.read_elem(file[name]) if name in file else {}

    def read(self, columns: Sequence[int] | None = None) -> Any:
        """All rows as one array, or CSR if they are sparse in the file."""
        check_expanded(self.path, self._held.size)
        parts = list(self._parts(0, None, columns))
        return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)

    def _parts(self, start: int, stop: int | None, columns: Sequence[int] | None) -> Iterator[Any]:
        with self.open() as file:
            matrix = _h5ad_matrix(file, self.layer)
            if self._held.axis:
                check_expanded(self.path, self._held.size)
                matrix = check_indices(matrix.to_memory(), self.path).tocsr()
            for i, j in _ranges(start, stop, self.shape):
                block = matrix[i:j]
                if sp.issparse(block):
                    check_indices(block, self.path)
                yield block if columns is None else block[:, columns]


class SomeRows:
    """Those rows of another source whose numbers are ``rows``, in growing order."""

    def __init__(self, source: RowSource, rows: np.ndarray) -> None:
        self.source, self.rows = source, rows
        self.shape, self.dtype, self.names = (len(rows), source.shape[1]), source.dtype, source.names

    def blocks(
        self, start: int = 0, stop: int | None = None, columns: Sequence[int] | None = None
    ) -> Iterator[np.ndarray]:
        """As :meth:`RowSource.blocks`. What lies between the rows is read along with them."""
        rows = self.rows[start:stop]
        if not len(rows):
            return
        at = int(rows[0])
        for block in self.source.blocks(at, int(rows[-1]) + 1, columns):
            low, high = np.searchsorted(rows, (at, at + len(block)))
            if low < high:
                yield block[rows[low:high] - at]
            at += len(block)


def is_on_disk(X: Any) -> bool:
    """Whether ``X`` is a path, a whole memory map, or rows of either: what :func:`open_rows` takes.

    A part of a map does not know where in the file it begins, a map of mode "c" may differ from its file, and one of a
    temporary file has no name: these are arrays like any other.
    """
    if isinstance(X, np.memmap):
        return isinstance(X.base, mmap.mmap) and X.mode != "c" and X.filename is not None
    return isinstance(X, str | os.PathLike | NpyRows | ParquetRows | H5adRows | SomeRows)


def open_rows(
    X: str | os.PathLike | np.memmap | NpyRows | ParquetRows | H5adRows | SomeRows,
) -> NpyRows | ParquetRows | H5adRows | SomeRows:
    """The rows of a ``.npy``, ``.parquet`` or ``.h5ad`` file or of a memory map, none of them read yet."""
    if isinstance(X, NpyRows | ParquetRows | H5adRows | SomeRows):
        return X
    if isinstance(X, np.memmap):
        return NpyRows(X)
    path = Path(X)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist." if not path.exists() else f"{path} is not a file.")
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return ParquetRows(path)
    if suffix == ".npy":
        check_npy(path)
        return NpyRows(np.load(path, mmap_mode="r", allow_pickle=False))
    if suffix == ".h5ad":
        return H5adRows(path)
    raise ValueError(
        f"{path.name}: fit takes arrays, data frames, or the path of a .npy, .parquet or .h5ad file; read others with "
        "homophily.io.read_table."
    )


def column_groups(source: RowSource, columns: Sequence[int] | None = None) -> list[Sequence[int]]:
    """All columns of a source, or the given ones, in as many groups as have to be read one after the other.

    To read a column of a Parquet file takes memory beside what is read, however few rows are. Each is read once all the
    same.
    """
    wanted = range(source.shape[1]) if columns is None else columns
    parquet = source.source if isinstance(source, SomeRows) else source
    if not isinstance(parquet, ParquetRows) or not parquet.shape[0]:
        return [wanted]
    first = parquet.file.metadata.row_group(0)
    each = int(min(PAGE_BYTES, 3 * first.total_byte_size / max(1, first.num_columns))) + 1
    width = max(1, fitting(PAGES_BYTES // each, each, 1 / 4))
    return [wanted[i : i + width] for i in range(0, len(wanted), width)]


def open_parquet(path: Path) -> tuple[pq.ParquetFile, pa.Schema]:
    """The Parquet file ``path`` and its schema, if what it says of itself is consistent.

    Texts come as dictionaries, for :func:`decoded`: the file does not say how much they are with all repetitions.
    """
    with reading(path, PARQUET):
        a_little = {"buffer_size": 2**16, "pre_buffer": False} if limited() else {}  # of each column at a time
        file = pq.ParquetFile(path, **a_little)
        schema, metadata = file.schema_arrow, file.metadata
        texts = [field.name for field in schema if _is_text(field.type)]
        if texts:
            file = pq.ParquetFile(path, metadata=metadata, read_dictionary=texts, **a_little)
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        if sum(groups) != metadata.num_rows or any(rows < 0 for rows in groups):
            raise InputError(
                f"{path.name} is damaged: it says that it has {metadata.num_rows} rows, and its parts {sum(groups)}. "
                "Copy or save it again."
            )
        twice = [name for name, count in Counter(schema.names).items() if count > 1]
        if twice:
            raise InputError(f"{path.name} has several columns named {listing(twice)}; names must be unique.")
    return file, schema


def check_parquet(path: Path, file: pq.ParquetFile, *, in_memory: bool) -> None:
    """Raise if the rows of ``file`` take more than can be read."""
    metadata = file.metadata
    stored = sum(max(0, metadata.row_group(i).total_byte_size) for i in range(metadata.num_row_groups))
    check_expanded(path, max(8 * metadata.num_rows * metadata.num_columns, stored), in_memory=in_memory)


def decoded(batch: Any, schema: pa.Schema, path: Path) -> Any:
    """A table or record batch with its columns in the types of ``schema``, if that is not too large."""
    fields = dict(zip(schema.names, schema, strict=True))
    wanted = [fields[name] for name in batch.schema.names]
    columns = []
    for field, column in zip(wanted, batch.columns, strict=True):
        if column.type == field.type:
            columns.append(column)
            continue
        chunks = getattr(column, "chunks", [column])
        lengths = (pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)) for chunk in chunks)
        check_expanded(path, sum(length.as_py() or 0 for length in lengths))
        columns.append(column.cast(field.type))
    return type(batch).from_arrays(columns, schema=pa.schema(wanted, schema.metadata))


def index_columns(path: Path, schema: pa.Schema) -> list[str]:
    """Columns that pandas wrote as the index of its frame."""
    with reading(path, PARQUET):  # pandas' notes are JSON, which may be damaged on its own
        columns = (schema.pandas_metadata or {}).get("index_columns", [])
        return [name for name in columns if isinstance(name, str)]


def _anndata() -> Any:
    try:
        import anndata
    except ImportError as error:
        raise ImportError('h5ad files need anndata: pip install "homophily[anndata]".') from error
    return anndata


def _h5ad_matrix(file: Any, layer: str | None) -> Any:
    """``X`` or a layer as something to slice by rows, dense or sparse."""
    element = file["X"] if layer is None else file["layers"][layer]
    return element if hasattr(element, "dtype") else _anndata().io.sparse_dataset(element)


def _h5ad_length(frame: Any) -> int:
    """Rows of ``obs`` without reading it: a group of columns with an index, or records as AnnData once wrote them."""
    return len(frame if hasattr(frame, "dtype") else frame[frame.attrs["_index"]])


class _Held(NamedTuple):
    """What a matrix in an HDF5 file takes: bytes; rows (axis 0) or columns (axis 1) by which it is stored, how many."""

    size: int
    axis: int
    lines: int


def _held(matrix: Any) -> _Held:
    if hasattr(matrix, "dtype") and hasattr(matrix, "chunks"):  # dense
        return _Held(math.prod(matrix.shape) * matrix.dtype.itemsize, 0, matrix.shape[0])
    parts = [matrix.group[name] for name in ("data", "indices", "indptr")]
    size = sum(math.prod(part.shape) * part.dtype.itemsize for part in parts)
    return _Held(size, int(matrix.format == "csc"), len(parts[2]) - 1)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_numeric(kind: pa.DataType) -> bool:
    return any(
        test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    )


def _dense(block: Any) -> np.ndarray:
    return block.toarray() if sp.issparse(block) else np.asarray(block)


def _ranges(start: int, stop: int | None, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    stop = shape[0] if stop is None else stop
    step = max(1, scaled(BLOCK) // max(1, shape[1]))
    for i in range(start, stop, step):
        yield i, min(i + step, stop)
