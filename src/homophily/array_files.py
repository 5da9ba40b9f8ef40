"""Files of arrays: npy, npz and mat. What they claim to hold is checked before any of it is read."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp

from .mat_checks import Structure, check_mat
from .reading import InputError, check_expanded, in_bytes, reading
from .shapes import check_sparse
from .wording import listing

__all__ = ["check_indices", "check_npy", "read_arrays"]

HEADER = 10_000  # bytes of the header of a npy file, at most; as much as NumPy itself reads of a stranger's file
NUMPY, MATLAB = "a NumPy file", "a MATLAB file"
LABELS = ("y", "Y", "gnd", "labels", "label")
SPARSE = {"format", "shape", "data"}  # what scipy.sparse.save_npz writes, with more
WIDTHS = {f"{u}int{8 * width}": width for u in ("", "u") for width in (1, 2, 4, 8)}  # bytes of MATLAB's types
WIDTHS |= {"double": 8, "single": 4, "logical": 1, "sparse": 8}


class Array(NamedTuple):
    """An array that has not been read yet."""

    shape: tuple[int, ...]
    kind: str
    is_number: bool
    read: Callable[[], Any]


def read_arrays(path: Path, suffix: str, label: str | None) -> tuple[Any, pd.Series | None]:
    """Features (n, d) and labels (n,) of a npy, npz or mat file; only these two of its arrays are read."""
    if suffix == ".npy":
        if label is not None:
            raise InputError(f"{path.name} holds one array and no labels; leave out --label-column.")
        arrays = _npy_array(path)
    else:
        arrays = _npz_arrays(path) if suffix == ".npz" else _mat_arrays(path)
    if arrays.keys() >= SPARSE:
        if label is not None:
            raise InputError(f"{path.name} holds one sparse matrix and no labels; leave out --label-column.")
        return _sparse_npz(path, arrays), None
    features = _features_among(arrays, path)
    if len(features.shape) != 2:
        raise InputError(
            f"{path.name}: the features have shape {features.shape}, expected samples by features (2 dimensions)."
        )
    if not features.is_number:
        raise InputError(f"{path.name}: the features are of type {features.kind}, expected numbers.")
    name = _label_among(arrays, label, features.shape[0], path)
    with reading(path, MATLAB if suffix == ".mat" else NUMPY):
        X = features.read()
        labels = None if name is None else pd.Series(_flat(arrays[name].read(), name, path), name=name)
    if labels is not None and len(labels) != features.shape[0]:
        raise InputError(f"{path.name}: {name} holds {len(labels)} labels for {features.shape[0]} samples.")
    return check_indices(X, path) if sp.issparse(X) else X, labels


def _features_among(arrays: dict[str, Array], path: Path) -> Array:
    if "X" in arrays:
        return arrays["X"]
    matrices = [name for name, array in arrays.items() if len(array.shape) == 2 and min(array.shape) > 1]
    if len(matrices) != 1:
        found = listing(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
        raise InputError(f"{path.name} should hold the features as an array named X; its arrays are: {found}.")
    return arrays[matrices[0]]


def _label_among(arrays: dict[str, Array], label: str | None, n: int, path: Path) -> str | None:
    if label is not None and label not in arrays:
        raise InputError(f"{path.name} has no array {label!r}; its arrays are: {listing(arrays)}.")
    name = label or next((name for name in LABELS if name in arrays), None)
    if name is None:
        return None
    count = math.prod(arrays[name].shape)
    if count != n and arrays[name].kind != "char":  # letters are counted there, not texts
        raise InputError(f"{path.name}: {name} holds {count} labels for {n} samples.")
    return name


def _flat(values: Any, name: str, path: Path) -> np.ndarray:
    """Labels (n,); those of a cell array are unpacked."""
    values = np.asarray(values.toarray() if sp.issparse(values) else values).ravel()
    if values.dtype.kind == "O":
        entries = [np.asarray(value).ravel() for value in values]
        if any(len(entry) > 1 or entry.dtype.kind in "OV" for entry in entries):
            raise InputError(f"{path.name}: {name} holds cells of several entries, expected one label a sample.")
        values = np.array([entry[0] if len(entry) else "" for entry in entries], dtype=object)
    if values.dtype.kind == "V":
        raise InputError(f"{path.name}: {name} holds records of several fields, expected one label a sample.")
    return values


def check_indices(X: Any, path: Path) -> Any:
    """A sparse matrix as it is, if its parts fit together; SciPy takes their word for it and would crash."""
    with reading(path, "a sparse matrix"):
        check_sparse(X)
        if X.dtype.kind not in "fiub":
            raise InputError(f"{path.name}: the features are of type {X.dtype}, expected numbers.")
    return X


# npy and npz


def check_npy(path: Path) -> Array:
    """What the npy file ``path`` holds; refused if it is damaged, or holds Python objects."""
    with reading(path, NUMPY), path.open("rb") as file:
        return _npy_header(file, path.stat().st_size, path, lambda: np.load(path, allow_pickle=False))


def _npy_array(path: Path) -> dict[str, Array]:
    array = check_npy(path)
    check_expanded(path, path.stat().st_size)
    return {"X": array}


def _npy_header(file: Any, size: int, path: Path, read: Callable[[], Any], name: str = "") -> Array:
    """The header of an array of ``size`` bytes in all, which must be there."""
    of = f"{path.name}: the array {name!r}" if name else path.name
    begin = io.BytesIO(file.read(HEADER + 12))
    version = np.lib.format.read_magic(begin)  # raises if this is none
    width = 2 if version == (1, 0) else 4
    (length,) = struct.unpack("<H" if width == 2 else "<I", begin.read(width).ljust(width, b"\0"))
    if length > HEADER:
        raise InputError(f"{of} has a header of {in_bytes(length)}, expected {HEADER} bytes or less; it is damaged.")
    begin.seek(-width, io.SEEK_CUR)
    parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that Python 2 wrote it
        shape, _, dtype = parse(begin)
    if dtype.hasobject:
        raise InputError(
            f"{of} could not be read: it holds Python objects, which can run code when they are read. Save numbers and "
            "text only (an array of another type than object)."
        )
    if any(length < 0 for length in shape):
        raise InputError(f"{of} has the shape {shape}, expected no negative numbers; it is damaged.")
    claimed, held = math.prod(shape) * dtype.itemsize, size - begin.tell()
    if claimed > held:
        raise InputError(
            f"{of} is cut off or damaged: its header says {shape} entries of {dtype}, {in_bytes(claimed)}, and "
            f"{in_bytes(max(0, held))} are there. Copy or save it again."
        )
    return Array(shape, str(dtype), dtype.kind in "fiub", read)


def _npz_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a npz file. Of what it says it expands to nothing more is ever unpacked."""
    arrays: dict[str, Array] = {}
    with reading(path, NUMPY), zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        twice = [name for name, count in Counter(member.filename for member in members).items() if count > 1]
        if twice:
            raise InputError(f"{path.name} has several arrays named {listing(map(repr, twice))}; names must be unique.")
        check_expanded(path, sum(member.file_size for member in members))
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others have no bound
                raise InputError(
                    f"{path.name}: {member.filename!r} is compressed in a way that NumPy does not write; save it again "
                    "with numpy.savez_compressed."
                )
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as file:
                arrays[name] = _npy_header(file, member.file_size, path, _reader(path, member.filename), name)
    return arrays


def _reader(path: Path, member: str) -> Callable[[], np.ndarray]:
    def read() -> np.ndarray:
        with zipfile.ZipFile(path) as archive, archive.open(member) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
            file.read(1)  # at the end the checksum is compared
            return array

    return read


def _sparse_npz(path: Path, arrays: dict[str, Array]) -> Any:
    """A matrix that ``scipy.sparse.save_npz`` wrote, as CSR."""
    with reading(path, "a sparse matrix of SciPy"):
        if math.prod(arrays["shape"].shape) != 2:
            raise InputError(f"{path.name} holds a sparse array that is no matrix, expected samples by features.")
        for name, array in arrays.items():
            if name not in ("format", "_is_array") and not array.is_number:
                raise InputError(f"{path.name}: its {name} are of type {array.kind}, expected numbers.")
        n, d = (int(length) for length in arrays["shape"].read().ravel())
        check_expanded(path, 8 * max(n, 0))  # CSR has a number a row, also if that is empty
        check_expanded(path, 8 * max(d, 0))
        return check_indices(check_indices(sp.load_npz(path), path).tocsr(), path)


# mat


def _mat_arrays(path: Path) -> dict[str, Array]:
    """The variables of a MATLAB file; cells, structs and objects have a shape and are not looked into."""
    with reading(path, MATLAB):
        structure = check_mat(path)
        expanded = path.stat().st_size if structure is None else structure.size
        check_expanded(path, expanded)
        try:
            with path.open("rb") as file, warnings.catch_warnings():
                warnings.simplefilter("error")  # that what is read may be corrupt
                variables = [v for v in scipy.io.whosmat(file) if not v[0].startswith("__")]
        except NotImplementedError as error:
            raise InputError(f"{path.name} is a MATLAB 7.3 file; save it again with save(..., '-v7').") from error
    twice = [name for name, count in Counter(name for name, _, _ in variables).items() if count > 1]
    if twice:
        raise InputError(f"{path.name} has several variables named {listing(map(repr, twice))}; names must be unique.")
    for name, shape, kind in variables:
        if any(length < 0 for length in shape) or (kind != "sparse" and math.prod(shape) > expanded):
            raise InputError(
                f"{path.name} is cut off or damaged: its variable {name!r} is said to have the shape {shape}, and "
                f"{in_bytes(expanded)} are there in all. Copy or save it again."
            )
    # Of a sparse matrix the columns are counted, the entries are not known.
    sizes = ((shape[1:] if kind == "sparse" else shape, WIDTHS.get(kind, 0)) for _, shape, kind in variables)
    check_expanded(path, sum(width * math.prod(shape) for shape, width in sizes))
    return {
        name: Array(tuple(shape), kind, kind in WIDTHS, _variable(path, name, kind, structure))
        for name, shape, kind in variables
    }


def _variable(path: Path, name: str, kind: str, structure: Structure | None) -> Callable[[], Any]:
    """What reads the variable, if its structure is sound."""

    def read() -> Any:
        if structure is not None and name not in structure.sound:
            raise InputError(
                f"{path.name}: the variable {name!r} of type {kind} is damaged, or holds more than numbers and texts. "
                "Copy or save it again."
            )
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("error")
            return scipy.io.loadmat(file, variable_names=[name])[name]

    return read
