"""Files that are cut off, mislabelled, damaged or malicious are read or refused in words, never with another error."""

import bz2
import io
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from small_files import FRAME, SUFFIXES, WRITERS, X, Y, content, write_h5ad
from typer.testing import CliRunner

from homophily import DirichletSelector
from homophily.cli import app
from homophily.datasets import load
from homophily.io import InputError, read_table
from homophily.reading import check_expanded, in_bytes
from homophily.sources import H5adRows, open_rows

h5py = pytest.importorskip("h5py")
pytest.importorskip("anndata")

MODEST = 2**26  # bytes that a refusal may take


def attempt(path, **options):
    """What reading gives: the table, or the message of the refusal, which names the file. No warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            table = read_table(path, **options)
        except InputError as error:
            message = str(error)
            assert path.name in message
            assert len(message) > len(path.name) + 10
            assert "\n" not in message
            return message
        finally:
            assert not [str(warning.message) for warning in caught]
    assert table.X.shape[1] == len(table.names) > 0
    return table


def refused(path, match, **options):
    """The message, which holds all of the words ``match``; little memory is taken to find it."""
    tracemalloc.start()
    try:
        message = attempt(path, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(message, str), "it was read"
    for part in match.split("|"):
        assert part in message, message
    assert peak < MODEST
    return message


def bytes_of(save, *args, **options):
    buffer = io.BytesIO()
    save(buffer, *args, **options)
    return buffer.getvalue()


# Every reader against every kind of damage.


@pytest.mark.parametrize("name", WRITERS)
def test_the_small_files_themselves_are_read(tmp_path, name):
    (tmp_path / name).write_bytes(content(name))
    label = {".npy": None, ".npz": None, ".mat": None}.get(Path(name).suffix, "y")
    table = attempt(tmp_path / name, label_column=None if name == "plain.parquet" else label)
    values = table.X.toarray() if sp.issparse(table.X) else np.asarray(table.X)
    np.testing.assert_array_equal(values, X)


@pytest.mark.parametrize("name", WRITERS)
def test_truncated_files(tmp_path, name):
    data, path = content(name), tmp_path / name
    lengths = {*range(1, 40), *np.linspace(40, len(data) - 1, 40).astype(int).tolist(), *range(-20, 0)}
    for length in lengths:
        path.write_bytes(data[:length])
        result = attempt(path)
        if Path(name).suffix not in (".csv", ".tsv"):  # of which a part may be a table
            assert isinstance(result, str), f"{length} of {len(data)} bytes were read as a whole file"


@pytest.mark.parametrize("name", WRITERS)
def test_a_truncated_file_is_one_line_on_the_command_line(tmp_path, name):
    path = tmp_path / name
    data = content(name)
    path.write_bytes(data[: len(data) // 3] if "sv" not in name else b"a,b\n")
    result = CliRunner().invoke(app, ["select", str(path), "-m", "1", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {name}")
    assert result.output.count("\n") == 1
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_files(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(b"")
    refused(path, "is empty")
    for blank in (b"\n\n\n", b" ", b"\xef\xbb\xbf", b"\0" * 5000, b"\n" * 5000):
        path.write_bytes(blank)
        assert isinstance(attempt(path), str)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", WRITERS)
def test_wrong_endings(tmp_path, name, suffix):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content(name))
    result = attempt(path)
    own = Path(name).suffix
    if own == suffix or {own, suffix} == {".csv", ".tsv"}:
        assert not isinstance(result, str)
    else:
        assert isinstance(result, str)
        known = {".parquet": "Parquet", ".npy": "NumPy", ".npz": "zip", ".h5ad": "HDF5", ".mat": "MATLAB"}.get(own)
        if known and name != "old.mat":
            assert known in result


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize(
    ("encoding", "match"),
    [("latin-1", "not text in UTF-8|CSV UTF-8"), ("utf-16", "UTF-16"), ("utf-16-be", "NUL"), ("utf-32", "UTF-16|NUL")],
)
def test_wrong_encodings(tmp_path, suffix, encoding, match):
    text = FRAME.rename(columns={"a": "größe"}).to_csv(index=False, sep="," if suffix == ".csv" else "\t")
    (tmp_path / f"data{suffix}").write_bytes(text.encode(encoding))
    refused(tmp_path / f"data{suffix}", match)


def test_nul_bytes_do_not_cut_numbers_off(tmp_path):
    """pandas reads 1\\0002 as 1."""
    (tmp_path / "data.csv").write_bytes(b"a,b\n1\x002,5\n3,4\n")
    refused(tmp_path / "data.csv", "NUL bytes")
    (tmp_path / "data.csv").write_bytes(b"a,b\n" + b"1,5\n" * 300_000 + b"1\x002,5\n")  # far behind the first block
    refused(tmp_path / "data.csv", "NUL bytes")
    (tmp_path / "data.csv").write_bytes(b"a,b\n" + b"1,5\n" * 300_000 + "ß,5\n".encode("latin-1"))
    assert "not text in UTF-8" in attempt(tmp_path / "data.csv")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b,c\n1,2\n3,4,5,6\n", "line 3 has 4 fields"),
        ('a,b\n1,"2\n3,4\n', "could not be read as csv"),
        ("a,b\n" + "1,2\n" * 50 + "1,2,3\n", "line 52 has 3 fields"),
        ("a,b,b\n1,2,3\n", "several columns named 'b'"),
        ('a,"x' + "y" * 200_000 + '"\n1,2\n', "field larger than field limit"),
    ],
)
def test_ragged_tables_and_repeated_names(tmp_path, text, match):
    (tmp_path / "data.csv").write_text(text)
    refused(tmp_path / "data.csv", match)


def test_rows_that_are_too_short_are_missing_values(tmp_path):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n3\n4,5\n")
    assert np.isnan(attempt(tmp_path / "data.csv").X.to_numpy()).sum() == 1


def test_names_that_repeat_in_files_of_arrays(tmp_path):
    array = bytes_of(np.save, X)
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr("X.npy", array)
        archive.writestr("X.npy", bytes_of(np.save, 2 * X))
    refused(tmp_path / "data.npz", "several arrays named 'X.npy'")
    one = bytes_of(scipy.io.savemat, {"X": X})
    (tmp_path / "data.mat").write_bytes(one + one[128:])
    refused(tmp_path / "data.mat", "several variables named 'X'")
    pq.write_table(pa.table([[1.0, 2.0], [3.0, 5.0]], names=["a", "a"]), tmp_path / "data.parquet")
    refused(tmp_path / "data.parquet", "several columns named a")


NONE = np.empty((0, 3))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_without_rows(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    frame = FRAME[:0]
    {
        ".csv": lambda: frame.to_csv(path, index=False),
        ".tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        ".parquet": lambda: frame.to_parquet(path),
        ".npy": lambda: np.save(path, NONE),
        ".npz": lambda: np.savez(path, X=NONE),
        ".mat": lambda: scipy.io.savemat(path, {"X": NONE}),
        ".h5ad": lambda: __import__("anndata").AnnData(NONE).write_h5ad(path),
    }[suffix]()
    refused(path, "has 0 rows")


WIDE = 100_000


@pytest.mark.parametrize(
    "suffix", [pytest.param(suffix, marks=[pytest.mark.slow] * (suffix == ".parquet")) for suffix in SUFFIXES]
)
def test_a_hundred_thousand_columns_are_read(tmp_path, suffix):
    path = tmp_path / f"wide{suffix}"
    values = np.arange(2.0 * WIDE).reshape(2, WIDE)
    names = [f"c{i}" for i in range(WIDE)]
    if suffix in (".csv", ".tsv"):
        mark = "," if suffix == ".csv" else "\t"
        path.write_text("\n".join(mark.join(map(str, row)) for row in (names, *values.tolist())))
    elif suffix == ".parquet":
        table = pa.Table.from_arrays([pa.array(column) for column in values.T], names=names)
        pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    elif suffix == ".h5ad":
        __import__("anndata").AnnData(values, var=pd.DataFrame(index=names)).write_h5ad(path)
    else:
        {".npy": np.save, ".npz": lambda p, x: np.savez(p, X=x), ".mat": lambda p, x: scipy.io.savemat(p, {"X": x})}[
            suffix
        ](path, values)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    table = attempt(path)
    assert table.X.shape == (2, WIDE)
    assert table.names[-1] in (f"c{WIDE - 1}", f"x{WIDE - 1}")
    np.testing.assert_array_equal(np.asarray(table.X)[1, -3:], values[1, -3:])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10**6  # kilobytes


# Headers that lie: refused before anything is allocated.


def npy_with_header(header, data=b"", version=(1, 0)):
    text = header.encode("latin-1").ljust(118) + b"\n"
    return np.lib.format.magic(*version) + struct.pack("<H" if version == (1, 0) else "<I", len(text)) + text + data


def claim(shape, descr="<f8"):
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}"


HEADERS = {
    "rows": (npy_with_header(claim((10**12, 3)), b"\0" * 100), "(1000000000000, 3)|and 100 B are there"),
    "more than an integer": (npy_with_header(claim((10**30, 10**30))), "damaged"),
    "negative": (npy_with_header(claim((-1, 3)), b"\0" * 100), "no negative numbers"),
    "wide text": (npy_with_header(claim((2, 3), "<U99999999"), b"\0" * 100), "damaged"),
    "long": (npy_with_header(" " * 20_000 + claim((2, 3)), b"\0" * 48), "header of 19.5"),
    "longer": (np.lib.format.magic(2, 0) + struct.pack("<I", 2**32 - 1) + b"{" * 3000, "header of 4 GiB"),
    "nested": (npy_with_header("(" * 5000, version=(2, 0)), "could not be read as a NumPy file"),
    "objects": (npy_with_header(claim((2, 3), "|O"), pickle.dumps(print)), "Python objects"),
    "objects in records": (npy_with_header(claim((2, 3), [("a", "|O")]), b"\0" * 48), "Python objects"),
    "version": (b"\x93NUMPY\x09\x00" + b"\0" * 100, "could not be read as a NumPy file"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_of_numpy_files(tmp_path, case):
    data, match = HEADERS[case]
    (tmp_path / "data.npy").write_bytes(data)
    refused(tmp_path / "data.npy", match)
    refused(tmp_path / "data.npy", match, on_disk=lambda n, d: True)
    with pytest.raises(InputError):
        open_rows(tmp_path / "data.npy")
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "data.npz", "w", compression) as archive:
            archive.writestr("X.npy", data)
        refused(tmp_path / "data.npz", match)


def test_a_header_of_hundreds_of_megabytes_is_not_read(tmp_path):
    with (tmp_path / "data.npy").open("wb") as file:
        file.write(np.lib.format.magic(2, 0) + struct.pack("<I", 400 * 2**20))
        file.truncate(400 * 2**20 + 100)  # takes no room on disk
    refused(tmp_path / "data.npy", "header of 400 MiB")


def test_a_line_of_hundreds_of_megabytes_is_not_read(tmp_path):
    with (tmp_path / "data.csv").open("wb") as file:
        for _ in range(140):
            file.write(b"1,2,3,4," * 2**17)
    refused(tmp_path / "data.csv", "line of over 128 MiB|.parquet")


def test_shapes_of_matlab_files(tmp_path):
    path = tmp_path / "data.mat"
    data = bytearray(bytes_of(scipy.io.savemat, {"X": X}))
    at = data.index(struct.pack("<II", 5, 8)) + 8  # the dimensions
    data[at : at + 8] = struct.pack("<ii", 10**6, 10**6)
    path.write_bytes(data)
    refused(path, "shape (1000000, 1000000)")
    data[at : at + 8] = struct.pack("<ii", -3, 4)
    path.write_bytes(data)
    refused(path, "damaged")
    path.write_bytes(struct.pack("<iiiii", 0, 2**30, 2**30, 0, 2) + b"X\0" + b"\0" * 96)  # format 4
    refused(path, "data.mat")


def edited_parquet(path, **replaced):
    """A file whose footer claims other numbers than it holds."""
    table = pa.table({name: np.arange(77_777.0) for name in "abc"})
    pq.write_table(table, path, compression="zstd")
    data = path.read_bytes()
    for old, new in replaced.values():
        assert varint(old) in data[-3000:]
        head, tail = data[:-3000], data[-3000:]
        data = head + tail.replace(varint(old), varint(new))
    length = len(data) - 8 - len(path.read_bytes()) + 8 + struct.unpack("<I", path.read_bytes()[-8:-4])[0]
    path.write_bytes(data[:-8] + struct.pack("<I", length) + b"PAR1")


def varint(number):
    """As Thrift writes whole numbers."""
    number *= 2
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.parametrize("on_disk", [False, True])
def test_parquet_that_claims_a_trillion_rows(tmp_path, on_disk):
    edited_parquet(tmp_path / "data.parquet", rows=(77_777, 10**12))
    refused(tmp_path / "data.parquet", "expands to", on_disk=lambda n, d: on_disk)


@pytest.mark.parametrize("text", [",\ra\n\r .", "a,b\r\n1,2\r\n\r 3,4", "a,b\n1,2\n\r\t3,4\n"])
def test_stray_carriage_returns_do_not_fill_the_memory(tmp_path, text):
    """Of the first, pandas makes a table of gigabytes."""
    path = tmp_path / "data.csv"
    path.write_text(text, newline="")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = attempt(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 200_000  # kilobytes
    if not isinstance(found, str):
        assert found.X.to_numpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(("number", "how"), [("SIGSEGV", "crashes"), ("SIGXCPU", "does not come to an end")])
def test_hdf5_over_which_the_library_is_lost(tmp_path, monkeypatch, number, how):
    pytest.importorskip("anndata")
    WRITERS["dense.h5ad"](tmp_path / "data.h5ad")
    attempt(tmp_path / "data.h5ad")
    probe = f"import os, signal; os.kill(os.getpid(), signal.{number})"
    monkeypatch.setattr("homophily.hdf5_checks.PROBE", probe)
    refused(tmp_path / "data.h5ad", f"is damaged: the HDF5 library {how} over it")


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("notes", [b'{"index_columns" ', b"\xff", b"[1]", b'{"index_columns": 1}'])
def test_parquet_whose_notes_of_pandas_are_damaged(tmp_path, notes, on_disk):
    table = pa.table({"a": [1.0, 2.0], "b": [3.0, 5.0]}).replace_schema_metadata({b"pandas": notes})
    pq.write_table(table, tmp_path / "data.parquet")
    refused(tmp_path / "data.parquet", "could not be read as", on_disk=lambda n, d: on_disk)


def test_parquet_that_claims_somewhat_more_rows(tmp_path):
    edited_parquet(tmp_path / "data.parquet", rows=(77_777, 99_999))
    assert isinstance(attempt(tmp_path / "data.parquet"), str)
    rows = attempt(tmp_path / "data.parquet", on_disk=lambda n, d: True).X
    with pytest.raises(InputError, match=r"data\.parquet"):
        list(rows.blocks())


# Archives that expand.


@pytest.fixture
def wary(monkeypatch):
    """Files that expand to 16 MiB are as suspicious as others of 1 GiB, so that tests need not write large ones."""
    monkeypatch.setattr("homophily.reading.INNOCENT", 2**24)


@pytest.mark.usefixtures("wary")
def test_a_zip_bomb_is_refused_by_its_directory(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("X", "y"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(npy_with_header(claim((2**20, 1))))
                for _ in range(10):
                    member.write(bytes(2**20))
    refused(tmp_path / "data.npz", "expands to 20 MiB|500 times|HOMOPHILY_MAX_EXPANDED=1G")


def lying_zip(path, data, said):
    """An archive whose directory says that its member has ``said`` bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", data)
    content = path.read_bytes()
    assert content.count(struct.pack("<I", len(data))) == 2
    path.write_bytes(content.replace(struct.pack("<I", len(data)), struct.pack("<I", said)))


def test_a_zip_bomb_whose_directory_lies_is_not_unpacked(tmp_path):
    data = npy_with_header(claim((2**20, 10)), bytes(80 * 2**20))
    lying_zip(tmp_path / "data.npz", data, 1000)
    assert isinstance(attempt(tmp_path / "data.npz"), str)
    lying_zip(tmp_path / "data.npz", data, 20_000)
    refused(tmp_path / "data.npz", "its header says (1048576, 10)")
    data = npy_with_header(claim((10_000, 1)), bytes(80 * 2**20))  # the array is small, what follows it is not
    lying_zip(tmp_path / "data.npz", data, 128 + 3 + 80_000)
    refused(tmp_path / "data.npz", "CRC")


def test_other_compressions_are_refused(tmp_path):
    """Python unpacks them without a bound."""
    with zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("X.npy", bytes_of(np.save, X))
    refused(tmp_path / "data.npz", "numpy.savez_compressed")
    assert bz2.BZ2File  # the module is there, so that the archive could have been read


def test_a_damaged_array_does_not_pass_its_checksum(tmp_path):
    data = bytearray(content("arrays.npz"))
    data[data.index(X.tobytes()) + 5] ^= 1
    (tmp_path / "data.npz").write_bytes(data)
    refused(tmp_path / "data.npz", "Bad CRC-32")


def compressed_mat(parts):
    """A MATLAB file of one compressed variable, whose bytes come in ``parts``."""
    head = bytes_of(scipy.io.savemat, {"X": X})[:128]
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(part) for part in parts) + packer.flush()
    return head + struct.pack("<II", 15, len(packed)) + packed


@pytest.mark.usefixtures("wary")
def test_compressed_matlab_files_that_expand(tmp_path):
    path = tmp_path / "data.mat"
    body = bytes_of(scipy.io.savemat, {"X": np.zeros((2, 2**20), np.int8)})[128:]
    path.write_bytes(compressed_mat([body]))
    assert attempt(path).X.shape == (2, 2**20)
    path.write_bytes(compressed_mat([body[: -(2**20)], *[bytes(2**24)] * 2]))
    refused(path, "expands to|500 times|HOMOPHILY_MAX_EXPANDED")


@pytest.mark.usefixtures("wary")
def test_parquet_that_expands(tmp_path, monkeypatch):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({f"c{i}": np.zeros(10**6) for i in range(3)}), path, compression="zstd")
    for on_disk in (False, True):
        refused(path, "expands to 22.89 MiB|500 times", on_disk=lambda n, d, on_disk=on_disk: on_disk)
    monkeypatch.setenv("HOMOPHILY_MAX_EXPANDED", "23 MiB")
    assert attempt(path, on_disk=lambda n, d: True).X.shape == (10**6, 3)
    assert attempt(path).X.shape == (10**6, 3)


@pytest.mark.usefixtures("wary")
def test_a_text_that_repeats_in_parquet(tmp_path, monkeypatch):
    """The file says how large it is once, not how large with all repetitions."""
    path = tmp_path / "data.parquet"
    text = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["x" * 2**15])
    pq.write_table(pa.table({"a": np.arange(1000.0), "t": text}), path, store_schema=False)
    refused(path, "expands to 31.25 MiB", label_column="t")
    rows = attempt(path, label_column="t", on_disk=lambda n, d: True).X
    with pytest.raises(InputError, match="expands to"):
        list(rows.batches(["t"]))
    monkeypatch.setenv("HOMOPHILY_MAX_EXPANDED", "1M")
    FRAME.to_parquet(path)
    table = attempt(path, label_column="y")
    assert list(table.labels) == list(FRAME["y"])


def h5ad(path, change):
    """A small h5ad file after ``change(file)``."""
    write_h5ad(path, sp.csr_matrix(X) if "sparse" in path.name else X)
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def enormous(file):
    del file["X"]
    file.create_dataset("X", shape=(10**6, 10**6), chunks=(1000, 1000), dtype="f8")


def unequal(file):
    file["X"].attrs["shape"] = [10**12, 3]


def out_of_range(file):
    file["X/indices"][0] = 10**6


def falling(file):
    file["X/indptr"][2] = 10**6


def packed_twice(file):
    del file["X"]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((6, 3))
    plist.set_deflate(9)
    plist.set_deflate(9)
    space = h5py.h5s.create_simple((6, 3))
    h5py.h5d.create(file.id, b"X", h5py.h5t.NATIVE_DOUBLE, space, plist)


def large_obs(file):
    del file["obs/y"]
    file.create_dataset("obs/y", shape=(2**31,), chunks=(2**20,), dtype="i8")


def soft_link(file):
    file["uns/elsewhere"] = h5py.SoftLink("/X")


def external_link(file):
    del file["X"]
    file["X"] = h5py.ExternalLink("other.h5", "/secret")


def external_obs(file):
    file["obs/secret"] = h5py.ExternalLink("other.h5", "/secret")


def external_storage(file):
    del file["X"]
    file.create_dataset("X", shape=(6, 3), dtype="f8", external=[("other.raw", 0, 144)])


def virtual(file):
    del file["X"]
    layout = h5py.VirtualLayout(shape=(6, 3), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "secret", shape=(6, 3))
    file.create_virtual_dataset("X", layout)


def itself(file):
    file["uns/root"] = file["/"]


HDF5 = {
    "dense": (enormous, "expands to 7.276 TiB"),
    "sparse": (unequal, "1000000000000 rows"),
    "sparse1": (out_of_range, "could not be read as a sparse matrix"),
    "sparse2": (falling, "could not be read as"),
    "dense1": (packed_twice, "compressed twice"),
    "dense2": (large_obs, "expands to 16 GiB"),
    "dense3": (soft_link, "uns/elsewhere is a link"),
    "dense4": (external_link, "X is a link|anndata.read_h5ad"),
    "dense5": (external_obs, "obs/secret is a link"),
    "dense6": (external_storage, "X is stored in another file"),
    "dense7": (virtual, "X is stored in another file"),
}


@pytest.mark.parametrize("case", HDF5)
def test_h5ad_files_that_mislead(tmp_path, case):
    change, match = HDF5[case]
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = X
    (tmp_path / "other.raw").write_bytes(X.tobytes())
    path = h5ad(tmp_path / f"{case}.h5ad", change)
    refused(path, match)
    if change not in (out_of_range, falling):  # which show when the rows are read
        refused(path, match, on_disk=lambda n, d: True)
        with pytest.raises(InputError):
            DirichletSelector(1).fit(path)
    with pytest.raises(InputError):
        list(H5adRows(path).blocks())


def test_a_group_that_holds_itself(tmp_path):
    attempt(h5ad(tmp_path / "dense.h5ad", itself))


def test_the_limit_can_be_set(tmp_path, monkeypatch):
    path = tmp_path / "data.npy"
    np.save(path, np.ones((1000, 10)))
    monkeypatch.setenv("HOMOPHILY_MAX_EXPANDED", "64k")
    refused(path, "has 78.25 KiB on disk and expands to 78.25 KiB, more than the 64 KiB that HOMOPHILY_MAX_EXPANDED")
    assert attempt(path, on_disk=lambda n, d: True).X.shape == (1000, 10)  # read in parts
    monkeypatch.setenv("HOMOPHILY_MAX_EXPANDED", "80KB")
    assert attempt(path).X.shape == (1000, 10)
    monkeypatch.setenv("HOMOPHILY_MAX_EXPANDED", "plenty")
    with pytest.raises(InputError, match="HOMOPHILY_MAX_EXPANDED is 'plenty', expected a number of bytes such as 64G"):
        read_table(path)


def test_the_limit_is_the_memory_of_the_machine(tmp_path, monkeypatch):
    path = tmp_path / "data.npy"
    path.write_bytes(b"x" * 1000)
    monkeypatch.setattr("homophily.reading._memory", lambda: 10**6)
    check_expanded(path, 10**6)
    check_expanded(path, 10**9, in_memory=False)
    with pytest.raises(InputError, match=r"976\.6 KiB of memory of this machine\. .*HOMOPHILY_MAX_EXPANDED=1G"):
        check_expanded(path, 10**6 + 1)
    with pytest.raises(InputError, match="500 times"):
        check_expanded(path, 2**30 + 1, in_memory=False)
    assert [in_bytes(size) for size in (0, 1023, 1024, 3 * 2**40)] == ["0 B", "1023 B", "1 KiB", "3 TiB"]


SCRIPT = """
import json, resource, sys
from homophily.io import InputError, read_table
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = []
for path in sys.argv[1:]:
    try:
        found.append(str(read_table(path).X.shape))
    except InputError as error:
        found.append(str(error))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"kilobytes": after - before, "found": found}))
"""


@pytest.mark.slow
def test_refusals_take_little_memory_in_libraries_either(tmp_path):
    """What tracemalloc does not see: a process of its own reads the worst of them."""
    edited_parquet(tmp_path / "rows.parquet", rows=(77_777, 10**12))
    (tmp_path / "rows.npy").write_bytes(HEADERS["rows"][0])
    (tmp_path / "bomb.mat").write_bytes(compressed_mat([bytes_of(scipy.io.savemat, {"X": X})[128:], bytes(2**30)]))
    for name, change in (("enormous", enormous), ("obs", large_obs)):
        h5ad(tmp_path / f"{name}.h5ad", change)
    paths = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run([sys.executable, "-c", SCRIPT, *paths], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert all(Path(path).name in message for path, message in zip(paths, answer["found"], strict=True))
    assert answer["kilobytes"] < 200_000


# Objects.


class Evil:
    def __reduce__(self):
        return os.system, ("echo pwned > pwned.txt",)


def test_objects_are_not_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = np.array([[Evil(), 1], [2, 3]], dtype=object)
    np.save("data.npy", objects, allow_pickle=True)
    np.savez("x.npz", X=objects)
    np.savez("y.npz", X=X, y=np.array([Evil()] * 6, dtype=object))
    np.savez("aside.npz", X=X, meta=np.array([Evil()], dtype=object))
    Path("raw.npy").write_bytes(pickle.dumps(Evil()))
    Path("raw.npz").write_bytes(pickle.dumps(Evil()))
    for name in ("data.npy", "x.npz", "y.npz", "aside.npz"):
        refused(Path(name), "Python objects|Save numbers")
    for name in ("raw.npy", "raw.npz"):
        refused(Path(name), "could not be read as a NumPy file")
    sp.save_npz("sparse.npz", sp.csr_matrix(X))
    with zipfile.ZipFile("sparse.npz", "a") as archive:
        archive.writestr("more.npy", bytes_of(np.save, objects, allow_pickle=True))
    refused(Path("sparse.npz"), "Python objects")
    assert not Path("pwned.txt").exists()


def test_cells_and_structs_of_matlab_files(tmp_path):
    path = tmp_path / "data.mat"
    cell = np.empty((2, 2), dtype=object)
    cell[:] = [[np.ones(3), "a"], [np.array([[1, "b"]], dtype=object), {"b": 1}]]
    scipy.io.savemat(path, {"X": X, "gnd": Y, "cell": cell, "struct": {"deep": {"deeper": cell}}, "text": "abc"})
    assert attempt(path).X.shape == (6, 3)
    for name in ("cell", "struct"):
        refused(path, f"{name} holds {'4' if name == 'cell' else '1'} labels for 6 samples", label_column=name)
    scipy.io.savemat(path, {"X": cell})
    refused(path, "of type cell, expected numbers")
    scipy.io.savemat(path, {"X": {"a": 1}})
    refused(path, "of type struct, expected numbers")
    words = np.array(["u", "v"] * 3, dtype=object)
    scipy.io.savemat(path, {"X": X, "y": words[:, None]})
    assert list(attempt(path).labels) == list(words)
    scipy.io.savemat(path, {"X": X, "y": np.array(["u", "v"] * 3)})
    assert list(attempt(path).labels) == list(words)
    cells = np.empty((6, 1), dtype=object)
    cells[:] = [[np.ones(2)]] * 6
    scipy.io.savemat(path, {"X": X, "y": cells})
    refused(path, "expected one label a sample")


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "dia"])
def test_sparse_matrices_whose_parts_do_not_fit(tmp_path, form):
    """SciPy takes their word for it, and writes where it should not."""
    path = tmp_path / "data.npz"
    sp.save_npz(path, sp.csr_matrix(X).asformat(form))
    arrays = dict(np.load(path))
    assert attempt(path).X.shape == (6, 3)
    for name, values in arrays.items():
        if name in ("format", "_is_array"):
            continue
        for changed in (values + 10**6, -values - 5, values.ravel()[:1], values.astype("U9"), values.astype(complex)):
            np.savez(path, **{**arrays, name: changed})
            result = attempt(path)
            # Other values are as good, and those formats do not say which rows and columns have none.
            fine = name in ("data", "offsets") or (
                name == "shape" and form in ("coo", "dia") and changed.dtype.kind == "i"
            )
            assert isinstance(result, str) or fine, (name, changed)
    np.savez(path, **{**arrays, "shape": np.array([10**12, 3])})
    assert isinstance(attempt(path), str)
    np.savez(path, **{**arrays, "format": np.array("lil")})
    refused(path, "could not be read as a sparse matrix")


# Named data sets.


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 no", content("arrays.npz")[:300], content("arrays.npz")])
def test_damaged_data_sets_say_where_to_get_them(tmp_path, damage):
    (tmp_path / "Yale.npz").write_bytes(damage)
    with pytest.raises(InputError, match=r"Yale\.npz.*Replace it in .* by Yale\.mat from github"):
        load("Yale", data_dir=tmp_path)
