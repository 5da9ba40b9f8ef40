"""Tables in and out: csv, parquet, npz, npy, mat, h5ad."""

from __future__ import annotations

import csv
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
from scipy.io.matlab import MatReadError

from .csv_checks import explain_parser, mend_columns, single_column, spoiled_numbers
from .sources import H5adRows, NpyRows, ParquetRows, index_columns
from .wording import listing

__all__ = ["FORMATS", "InputError", "Table", "read_table", "write_reduced"]


class InputError(ValueError):
    """A file cannot be used as it is. The message says what was found and what to do."""


class Dialect(NamedTuple):
    """How a csv file writes its numbers."""

    delimiter: str = ","
    decimal: str = "."


@dataclass
class Table:
    """Samples by features, and what came along with them."""

    X: Any  # (n, d) data frame, array, sparse matrix or rows on disk: what a selector's fit takes
    names: list[str]  # (d,)
    labels: pd.Series | None = None  # (n,)
    index: pd.Series | None = None  # (n,)
    suffix: str = ".csv"
    dialect: Dialect = field(default_factory=Dialect)
    notes: list[str] = field(default_factory=list)  # what the reader decided by itself
    before: list[str] = field(default_factory=list)  # of a file on disk: columns to write before the chosen features
    after: list[str] = field(default_factory=list)  # and after them
    annotated: H5adRows | None = None  # of a h5ad file: where the rest of it is


def read_table(
    path: str | Path,
    *,
    label_column: str | None = None,
    index_column: str | None = None,
    drop: Sequence[str] = (),
    header: bool | None = None,
    layer: str | None = None,
    on_disk: Callable[[int, int], bool] = lambda n, d: False,
) -> Table:
    """Read samples from ``path``; its ending tells the format.

    Tables (csv, tsv, parquet) have one feature a column; the label, the index and the columns to ``drop`` are named and
    left out of the features. Array files (npz, mat) hold the features under ``X``, or as their only matrix, and the
    labels under ``y``, ``Y``, ``gnd``, ``labels`` or the name ``label_column``; npy holds the features alone.
    Of an AnnData file (h5ad) ``X`` is read, or the named ``layer``, and ``label_column`` is a column of its ``obs``.

    ``header`` says whether the first line of a csv or tsv names the columns. By default it does unless it holds nothing
    but numbers, other than the counts 0, 1, 2, ... or 1, 2, 3, ... that some programs write there.

    The rows of a npy, parquet or h5ad file stay on disk if ``on_disk``, asked with their shape, says so: ``Table.X`` is
    then a :class:`~homophily.sources.RowSource`.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    if not path.is_file():
        raise InputError(f"{path} is a folder, not a file." if path.is_dir() else f"{path} is not a file.")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{path.name}: the ending {suffix or '(none)'} is not one of {', '.join(FORMATS)}.")
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty.")
    if layer is not None and suffix != ".h5ad":
        raise InputError(f"--layer names a matrix of a h5ad file; {path.name} has none.")
    rows = _rows_on_disk(path, suffix, label_column, index_column, list(drop), on_disk)
    if rows is not None:
        table = rows
    elif suffix in TABLES:
        table = _read_frame(path, suffix, label_column, index_column, list(drop), header)
    elif index_column is not None or drop:
        raise InputError(f"--index-column and --drop name columns of a table; {path.name} holds plain arrays.")
    elif suffix == ".h5ad":
        table = _read_h5ad(path, label_column, layer, on_disk)
    else:
        table = _read_arrays(path, suffix, label_column)
    n, d = table.X.shape
    if not n or not d:
        raise InputError(f"{path.name} has {n} rows and {d} feature columns; there is nothing to select from.")
    return table


def _rows_on_disk(
    path: Path, suffix: str, label: str | None, index: str | None, drop: list[str], on_disk: Callable[[int, int], bool]
) -> Table | None:
    """The table with its rows left on disk, if the file is of a kind that allows it and ``on_disk`` asks for it."""
    if suffix == ".npy" and label is None and index is None and not drop:
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError):
            return None  # reading it whole says what is wrong with it
        if array.ndim != 2 or array.dtype.kind not in "fiub" or not on_disk(*array.shape):
            return None
        return Table(NpyRows(array), [f"x{i}" for i in range(array.shape[1])], suffix=suffix)
    if suffix == ".parquet":
        try:
            schema = pq.read_schema(path)
            n = pq.read_metadata(path).num_rows
        except pyarrow.ArrowException:
            return None
        special = {name for name in (label, index, *drop) if name is not None}
        if not on_disk(n, len(schema.names)):
            return None
        _refuse_unknown(path, [name for name in (label, index, *drop) if name is not None], schema.names)
        rows = ParquetRows(path, sorted(special))
        kept = index_columns(schema)
        before = [] if index is None or index in kept else [index]
        after = kept if label is None or label in kept else [*kept, label]
        return Table(rows, list(rows.names or []), suffix=suffix, before=before, after=after)
    return None


def _read_frame(
    path: Path, suffix: str, label: str | None, index: str | None, drop: list[str], header: bool | None
) -> Table:
    notes: list[str] = []
    dialect = Dialect()
    try:
        if suffix == ".parquet":
            frame = pd.read_parquet(path)
            if index in frame.index.names:  # it stays where it is, here and in what is written
                index = None
        else:
            frame, dialect = _read_csv(path, header, notes)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name} is not text in UTF-8 ({error.reason}); save it again as UTF-8 (in Excel: CSV UTF-8)."
        ) from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error, pyarrow.ArrowException) as error:
        message = explain_parser(" ".join(str(error).split()))
        raise InputError(f"{path.name} could not be read as {suffix[1:]}: {message}.") from error
    frame.columns = frame.columns.map(str)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].unique()
        raise InputError(f"{path.name} has several columns named {listing(map(repr, twice))}; names must be unique.")
    if index is None and suffix != ".parquet" and frame.columns[0] == "Unnamed: 0":
        index = "Unnamed: 0"
        notes.append("The first column has no name and was taken as the index.")
    special = [name for name in (label, index, *drop) if name is not None]
    _refuse_unknown(path, special, list(frame.columns))
    features = frame.drop(columns=list(dict.fromkeys(special)))
    problem = None if suffix == ".parquet" else single_column(frame) or spoiled_numbers(features, dialect.decimal)
    if problem is not None:
        raise InputError(f"{path.name}: {problem}")
    return Table(
        features,
        list(features.columns),
        None if label is None else frame[label],
        None if index is None else frame[index],
        suffix,
        dialect,
        notes,
    )


def _read_h5ad(path: Path, label: str | None, layer: str | None, on_disk: Callable[[int, int], bool]) -> Table:
    try:
        rows = H5adRows(path, layer)
    except ValueError as error:
        raise InputError(str(error)) from error
    labels = None
    if label is not None:
        obs = rows.element("obs")
        if label not in obs:
            raise InputError(f"{path.name} has no column {label!r} in obs; its columns are {listing(obs) or 'none'}.")
        labels = pd.Series(np.asarray(obs[label]), name=label)  # categories as what they stand for
    X = rows if not rows.shape[0] or on_disk(*rows.shape) else rows.read()
    return Table(X, list(rows.names or []), labels, suffix=".h5ad", annotated=rows)


def _refuse_unknown(path: Path, wanted: list[str], columns: list[str]) -> None:
    unknown = [name for name in wanted if name not in columns]
    if unknown:
        several = "; name one column an option" if any("," in name for name in unknown) else ""
        raise InputError(
            f"{path.name} has no column {listing(map(repr, unknown))}{several}; its columns are {listing(columns)}."
        )


def _read_csv(path: Path, header: bool | None, notes: list[str]) -> tuple[pd.DataFrame, Dialect]:
    """Find out the delimiter, the decimal mark and whether there is a header, and read."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        head = [line for _, line in zip(range(6), lines, strict=False) if line.strip()]
    delimiter = max(",;\t", key=lambda mark: _fields(head, mark))
    cells, row = [*csv.reader(head, delimiter=delimiter, skipinitialspace=True), [], []][:2]
    longer = len(row) > len(cells)  # than the names
    while cells and not cells[-1]:  # lines that end with a delimiter
        cells.pop()
    numbers = sum(map(_is_number, cells))
    if header is None:
        counts = [[str(i + start) for i in range(len(cells))] for start in (0, 1)]
        header = not cells or cells in counts or numbers < len(cells)
        if not header:
            notes.append(
                "The first line holds numbers only and was read as data, the columns are named x0, x1, ...; "
                "if it names the columns, say --header."
            )
        elif 2 * numbers > len(cells):
            notes.append("The first line was read as column names, but looks like data; if it is, say --no-header.")
    if header:
        twice = [cell for cell, count in Counter(cells).items() if count > 1 and cell]
        if twice:
            hint = " (say --no-header if the first line is data)" if 2 * numbers > len(cells) else ""
            named = listing(map(repr, twice))
            raise InputError(f"{path.name} has several columns named {named}; names must be unique{hint}.")

    def read(decimal: str) -> pd.DataFrame:
        return pd.read_csv(
            path,
            sep=delimiter,
            decimal=decimal,
            header=0 if header else None,
            encoding="utf-8-sig",
            low_memory=False,
            skipinitialspace=True,
        )

    frame, decimal = read("."), "."
    if delimiter == ";":  # where the comma is the decimal mark
        other = read(",")
        if len(other.select_dtypes("number").columns) > len(frame.select_dtypes("number").columns):
            frame, decimal = other, ","
    try:
        frame = mend_columns(frame, notes, header=header, longer=header and longer)
    except ValueError as error:
        raise InputError(f"{path.name}: {error}.") from error
    if not header:
        frame.columns = pd.Index([f"x{i}" for i in range(frame.shape[1])])
    return frame, Dialect(delimiter, decimal)


def _fields(lines: list[str], delimiter: str) -> int:
    """Number of fields a line if all have the same and more than one, else 0."""
    counts = {len(row) for row in csv.reader(lines, delimiter=delimiter)}
    return max(counts) if len(counts) == 1 and max(counts) > 1 else 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_arrays(path: Path, suffix: str, label: str | None) -> Table:
    if suffix == ".npy":
        if label is not None:
            raise InputError(f"{path.name} holds one array and no labels; leave out --label-column.")
        arrays = {"X": _load(path)}
    elif suffix == ".npz":
        arrays = _load(path)
    else:
        try:
            arrays = {k: v for k, v in scipy.io.loadmat(path).items() if not k.startswith("__")}
        except NotImplementedError as error:
            raise InputError(f"{path.name} is a MATLAB 7.3 file; save it again with save(..., '-v7').") from error
        except (MatReadError, ValueError, TypeError, OSError, EOFError, KeyError, MemoryError) as error:
            raise InputError(f"{path.name} could not be read as a MATLAB file: {error}") from error
    X = _features_among(arrays, path)
    if getattr(X, "ndim", 0) != 2:
        raise InputError(
            f"{path.name}: the features have shape {X.shape}, expected samples by features (2 dimensions)."
        )
    if X.dtype.kind not in "fiub":
        raise InputError(f"{path.name}: the features are of type {X.dtype}, expected numbers.")
    labels = _labels_among(arrays, label, X.shape[0], path)
    return Table(X, [f"x{i}" for i in range(X.shape[1])], labels, None, suffix)


def _load(path: Path) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        # NumPy's own message for both would advise to unpickle a stranger's file.
        why = "it is none, or holds Python objects" if "pickle" in str(error) else error
        raise InputError(f"{path.name} could not be read as a NumPy file: {why}.") from error


def _features_among(arrays: dict[str, Any], path: Path) -> Any:
    if {"format", "shape", "data"} <= arrays.keys():  # what scipy.sparse.save_npz writes
        return sp.load_npz(path).tocsr()
    if "X" in arrays:
        return arrays["X"]
    matrices = [k for k, v in arrays.items() if getattr(v, "ndim", 0) == 2 and min(v.shape) > 1]
    if len(matrices) != 1:
        found = listing(f"{k} {getattr(v, 'shape', '')}" for k, v in arrays.items()) or "none"
        raise InputError(f"{path.name} should hold the features as an array named X; its arrays are: {found}.")
    return arrays[matrices[0]]


def _labels_among(arrays: dict[str, Any], label: str | None, n: int, path: Path) -> pd.Series | None:
    if label is not None and label not in arrays:
        raise InputError(f"{path.name} has no array {label!r}; its arrays are: {listing(arrays)}.")
    name = label or next((k for k in ("y", "Y", "gnd", "labels", "label") if k in arrays), None)
    if name is None:
        return None
    values = np.asarray(arrays[name]).ravel()
    if len(values) != n:
        raise InputError(f"{path.name}: {name} holds {len(values)} labels for {n} samples.")
    return pd.Series(values, name=name)


def write_reduced(table: Table, support: np.ndarray, path: Path) -> Path:
    """Write the columns ``support`` of ``table``, with index and labels, in the format that it came in.

    A h5ad has more to it: see :func:`homophily.anndata.write_cells`.
    """
    path = path.with_suffix(table.suffix)
    if isinstance(table.X, NpyRows):
        _stream_npy(table.X, support, path)
        return path
    if isinstance(table.X, ParquetRows):
        _stream_parquet(table, support, path)
        return path
    if table.suffix in TABLES:
        frame = table.X.iloc[:, support].copy()
        if table.index is not None:
            frame.insert(0, table.index.name, table.index)
        if table.labels is not None:
            frame[table.labels.name] = table.labels
        if table.suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False, sep=table.dialect.delimiter, decimal=table.dialect.decimal)
        return path
    X = table.X[:, support]
    if table.suffix == ".npy":
        np.save(path, X)
        return path
    if table.suffix == ".npz" and sp.issparse(X):
        sp.save_npz(path, X)
        return path
    arrays = {"X": X, "columns": support}
    if table.labels is not None:
        arrays[str(table.labels.name)] = table.labels.to_numpy()
    if table.suffix == ".mat":
        scipy.io.savemat(path, arrays, oned_as="column")
    else:
        np.savez_compressed(path, **arrays)
    return path


def _stream_npy(rows: NpyRows, support: np.ndarray, path: Path) -> None:
    shape = rows.shape[0], len(support)
    header = {"descr": np.lib.format.dtype_to_descr(rows.dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in rows.blocks(columns=support.tolist()):
            file.write(np.ascontiguousarray(block).data)


def _stream_parquet(table: Table, support: np.ndarray, path: Path) -> None:
    names = [*table.before, *(table.names[i] for i in support), *table.after]
    schema = table.X.file.schema_arrow
    metadata = dict(schema.metadata or {})
    if b"pandas" in metadata:  # describes each column, also those that are left out
        pandas = json.loads(metadata[b"pandas"])
        pandas["columns"] = [column for column in pandas["columns"] if column.get("field_name") in names]
        metadata[b"pandas"] = json.dumps(pandas).encode()
    schema = pyarrow.schema([schema.field(name) for name in names], metadata=metadata)
    with pq.ParquetWriter(path, schema) as writer:
        for batch in table.X.batches(names):
            writer.write_batch(pyarrow.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema))


TABLES = (".csv", ".tsv", ".parquet")
FORMATS = (*TABLES, ".npz", ".npy", ".mat", ".h5ad")
