"""Tables in and out: csv, parquet, npz, npy, mat, h5ad."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp

from .array_files import check_npy, read_arrays
from .csv_checks import (
    check_text,
    explain_parser,
    mend_columns,
    not_text,
    single_column,
    spoiled_numbers,
)
from .drafts import replacing
from .errors import InputError
from .memory import limited
from .reading import FORMATS, TABLES, reading
from .sources import H5adRows, NpyRows, ParquetRows, check_parquet, decoded, index_columns, open_parquet
from .table_size import refuse_oversized
from .wording import listing, quoting_for

__all__ = ["FORMATS", "InputError", "Table", "read_table", "write_reduced"]


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
    if path == Path():
        raise InputError("An empty name, or a dot, means the current folder; give the name of a data file.")
    if not path.exists():
        raise InputError(f"{path} does not exist.")
    if not path.is_file():
        raise InputError(f"{path} is a folder, not a file." if path.is_dir() else f"{path} is not a file.")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{path.name}: the ending {suffix or '(none)'} is not one of {', '.join(FORMATS)}.")
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty (0 bytes). Check that it was copied whole, or save it again.")
    if layer is not None and suffix != ".h5ad":
        raise InputError(f"--layer names a matrix of a h5ad file; {path.name} has none.")
    _refuse_two_roles(label_column, index_column, drop)
    rows = _npy_on_disk(path, on_disk) if suffix == ".npy" and not (label_column or index_column or drop) else None
    if rows is not None:
        table = rows
    elif suffix == ".parquet":
        table = _read_parquet(path, label_column, index_column, list(drop), on_disk)
    elif suffix in TABLES:
        refuse_oversized(path)
        table = _read_text(path, label_column, index_column, list(drop), header)
    elif index_column is not None or drop:
        raise InputError(f"--index-column and --drop name columns of a table; {path.name} holds plain arrays.")
    elif suffix == ".h5ad":
        table = _read_h5ad(path, label_column, layer, on_disk)
    else:
        refuse_oversized(path)
        X, labels = read_arrays(path, suffix, label_column)
        table = Table(X, [f"x{i}" for i in range(X.shape[1])], labels, suffix=suffix)
    nul = [name for name in table.names if "\0" in name]
    if nul:  # csv and HDF5 would cut them off there
        raise InputError(
            f"{path.name} has NUL characters in the names of columns: {listing(map(repr, nul))}; rename them."
        )
    n, d = table.X.shape
    if not n or not d:
        raise InputError(f"{path.name} has {n} rows and {d} feature columns; there is nothing to select from.")
    return table


def _npy_on_disk(path: Path, on_disk: Callable[[int, int], bool]) -> Table | None:
    """The table with its rows left on disk, if it is one and ``on_disk`` asks for it."""
    array = check_npy(path)
    if len(array.shape) != 2 or not array.is_number or not on_disk(*array.shape):
        return None
    return Table(NpyRows(np.load(path, mmap_mode="r")), [f"x{i}" for i in range(array.shape[1])], suffix=".npy")


def _read_parquet(
    path: Path, label: str | None, index: str | None, drop: list[str], on_disk: Callable[[int, int], bool]
) -> Table:
    file, schema = open_parquet(path)
    n = file.metadata.num_rows
    special = [name for name in (label, index, *drop) if name is not None]
    if on_disk(n, len(schema)):
        _refuse_unknown(path, special, schema.names)
        rows = ParquetRows(path, sorted(set(special)), (file, schema))
        kept = index_columns(path, schema)
        before = [] if index is None or index in kept else [index]
        after = kept if label is None or label in kept else [*kept, label]
        return Table(rows, list(rows.names or []), suffix=".parquet", before=before, after=after)
    refuse_oversized(path)
    check_parquet(path, file, in_memory=True)
    with reading(path, "parquet"):
        table = file.read(use_threads=len(schema) < WIDE and not limited())
        if table.num_rows != n:
            raise InputError(f"{path.name} is damaged: of {n} rows {table.num_rows} are there. Copy or save it again.")
        frame = decoded(table, schema, path).to_pandas()
    if index in frame.index.names:  # it stays where it is, here and in what is written
        index = None
    return _taken_apart(path, frame, Table(frame, [], suffix=".parquet"), label, index, drop)


def _read_text(path: Path, label: str | None, index: str | None, drop: list[str], header: bool | None) -> Table:
    kind = path.suffix[1:].lower()
    notes: list[str] = []
    with reading(path, kind):
        strange = check_text(path)
        try:
            frame, dialect = _read_csv(path, header, notes, None if strange else "")
        except UnicodeDecodeError as error:
            raise not_text(path, error.reason) from error
        except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error) as error:
            message = explain_parser(" ".join(str(error).split()))
            raise InputError(f"{path.name} could not be read as {kind}: {message}.") from error
    if index is None and str(frame.columns[0]) == "Unnamed: 0":
        index = "Unnamed: 0"
        notes.append("The first column has no name and was taken as the index.")
    table = _taken_apart(
        path, frame, Table(frame, [], None, None, path.suffix.lower(), dialect, notes), label, index, drop
    )
    problem = single_column(frame) or spoiled_numbers(table.X, dialect.decimal)
    if problem is not None:
        raise InputError(f"{path.name}: {problem}")
    return table


def _taken_apart(
    path: Path, frame: pd.DataFrame, table: Table, label: str | None, index: str | None, drop: list[str]
) -> Table:
    """``table`` with the features of ``frame``, its labels and its index."""
    frame.columns = frame.columns.map(str)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].unique()
        raise InputError(f"{path.name} has several columns named {listing(map(repr, twice))}; names must be unique.")
    special = [name for name in (label, index, *drop) if name is not None]
    _refuse_unknown(path, special, list(frame.columns))
    features = frame.drop(columns=list(dict.fromkeys(special)))
    table.X, table.names = features, list(features.columns)
    table.labels = None if label is None else frame[label]
    table.index = None if index is None else frame[index]
    return table


def _read_h5ad(path: Path, label: str | None, layer: str | None, on_disk: Callable[[int, int], bool]) -> Table:
    rows = H5adRows(path, layer)
    labels = None
    if label is not None:
        obs = rows.element("obs")
        if label not in obs:
            raise InputError(f"{path.name} has no column {label!r} in obs; its columns are {listing(obs) or 'none'}.")
        labels = pd.Series(np.asarray(obs[label]), name=label)  # categories as what they stand for
    stays = not rows.shape[0] or on_disk(*rows.shape)
    if not stays:
        refuse_oversized(path)
    X = rows if stays else rows.read()
    return Table(X, list(rows.names or []), labels, suffix=".h5ad", annotated=rows)


def _refuse_two_roles(label: str | None, index: str | None, drop: Sequence[str]) -> None:
    roles: dict[str, set[str | None]] = {"--label-column": {label}, "--index-column": {index}, "--drop": set(drop)}
    for (one, these), (other, those) in combinations(roles.items(), 2):
        for name in these & those - {None}:
            raise InputError(f"{one} and {other} both name the column {name!r}; give it to one of them only.")


def _refuse_unknown(path: Path, wanted: list[str], columns: list[str]) -> None:
    unknown = [name for name in wanted if name not in columns]
    if unknown:
        several = "; name one column an option" if any("," in name for name in unknown) else ""
        raise InputError(
            f"{path.name} has no column {listing(map(repr, unknown))}{several}; its columns are {listing(columns)}."
        )


def _read_csv(path: Path, header: bool | None, notes: list[str], newline: str | None) -> tuple[pd.DataFrame, Dialect]:
    """Find out the delimiter, the decimal mark and whether there is a header, and read; ``newline`` as in ``open``."""
    with path.open(encoding="utf-8-sig", newline=newline) as lines:
        head = [line for _, line in zip(range(6), lines, strict=False) if line.strip()]
    marks = "\t,;" if path.suffix.lower() == ".tsv" else ",;\t"
    delimiter = max(marks, key=lambda mark: _fields(head, mark))
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
        with path.open(encoding="utf-8-sig", newline=newline) as text:
            return pd.read_csv(
                path if newline == "" else text,
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
    try:
        counts = {len(row) for row in csv.reader(lines, delimiter=delimiter)}
    except csv.Error:  # many columns, with another delimiter, are one field that is too long
        return 0
    return max(counts) if len(counts) == 1 and max(counts) > 1 else 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_reduced(table: Table, support: np.ndarray, path: Path) -> Path:
    """Write the columns ``support`` of ``table``, with index and labels, in the format that it came in.

    A h5ad has more to it: see :func:`homophily.anndata.write_cells`.
    """
    path = path.with_suffix(table.suffix)
    with replacing(path) as draft:
        _write_reduced(table, support, draft)
    return path


def _write_reduced(table: Table, support: np.ndarray, path: Path) -> None:
    if isinstance(table.X, NpyRows):
        _stream_npy(table.X, support, path)
    elif isinstance(table.X, ParquetRows):
        _stream_parquet(table, support, path)
    elif table.suffix in TABLES:
        frame = table.X.iloc[:, support].copy()
        if table.index is not None:
            frame.insert(0, table.index.name, table.index)
        if table.labels is not None:
            frame[table.labels.name] = table.labels
        if table.suffix == ".parquet":
            frame.to_parquet(path)
        else:
            dialect = table.dialect
            frame.to_csv(path, index=False, sep=dialect.delimiter, decimal=dialect.decimal, quoting=quoting_for(frame))
    else:
        _write_arrays(table, support, path)


def _write_arrays(table: Table, support: np.ndarray, path: Path) -> None:
    X = table.X[:, support]
    if table.suffix == ".npy":
        with path.open("wb") as file:  # into a real file NumPy would write by itself, and not say why it cannot
            np.lib.format.write_array(SimpleNamespace(write=file.write), np.asarray(X), allow_pickle=False)
        return
    if table.suffix == ".npz" and sp.issparse(X):
        sp.save_npz(path, X)
        return
    arrays = {"X": X, "columns": support}
    if table.labels is not None:
        arrays[_array_name(str(table.labels.name), table.suffix)] = table.labels.to_numpy()
    if table.suffix == ".mat":
        scipy.io.savemat(path, arrays, oned_as="column")
    else:
        np.savez_compressed(path, **arrays)


def _array_name(label: str, suffix: str) -> str:
    """The name of labels among arrays: in an archive it is that of a file, and MATLAB takes letters and digits only."""
    plain = re.fullmatch(r"[^\W\d_]\w{0,30}", label, re.ASCII if suffix == ".mat" else 0)
    return label if plain and label not in ("X", "columns", "file") else "y"


def _stream_npy(rows: NpyRows, support: np.ndarray, path: Path) -> None:
    shape = rows.shape[0], len(support)
    header = {"descr": np.lib.format.dtype_to_descr(rows.dtype), "fortran_order": False, "shape": shape}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for block in rows.blocks(columns=support.tolist()):
            file.write(np.ascontiguousarray(block).data)


def _stream_parquet(table: Table, support: np.ndarray, path: Path) -> None:
    names = [*table.before, *(table.names[i] for i in support), *table.after]
    schema = table.X.schema
    metadata = dict(schema.metadata or {})
    if b"pandas" in metadata:  # describes each column, also those that are left out
        pandas = json.loads(metadata[b"pandas"])
        pandas["columns"] = [column for column in pandas["columns"] if column.get("field_name") in names]
        metadata[b"pandas"] = json.dumps(pandas).encode()
    schema = pyarrow.schema([schema.field(name) for name in names], metadata=metadata)
    with pq.ParquetWriter(path, schema) as writer:
        for batch in table.X.batches(names):
            writer.write_batch(pyarrow.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema))


WIDE = 10_000  # columns from which threads hinder more than they help
