"""Mutated files: a table or an InputError, an estimator or a ValueError; nothing else, no warning, little memory."""

import faulthandler
import functools
import resource
import sys
import tempfile
import tracemalloc
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st
from small_files import WRITERS, content

from homophily import DirichletSelector
from homophily.baselines import RSR
from homophily.io import InputError, Table, read_table
from homophily.sources import is_on_disk, open_rows

pytest.importorskip("anndata")

MODEST = 2**26  # bytes of Python and NumPy
MOST = 200_000  # kilobytes of the process, also of libraries that count for themselves
LONGEST = 300  # seconds: what takes longer ends the tests, with a traceback, since a library may not listen to signals
MAGIC = {
    ".csv": b"a,b\n1,2\n",
    ".tsv": b"a\tb\n1\t2\n",
    ".parquet": b"PAR1",
    ".npy": b"\x93NUMPY\x01\x00",
    ".npz": b"PK\x03\x04",
    ".mat": b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM",
    ".h5ad": b"\x89HDF\r\n\x1a\n",
}


@st.composite
def mutations(draw, data, most=4):
    """``data`` after some changes: bits flipped, bytes set, the end cut off, a part moved, copied or taken out."""
    for _ in range(draw(st.integers(1, most))):
        if not data:
            break
        at, other = draw(st.integers(0, len(data) - 1)), draw(st.integers(0, len(data) - 1))
        end = min(len(data), at + draw(st.integers(1, 64)))
        part = data[at:end]
        match draw(st.sampled_from(["flip", "set", "number", "cut", "splice", "copy", "out"])):
            case "flip":
                data = data[:at] + bytes([data[at] ^ 1 << other % 8]) + data[at + 1 :]
            case "set":
                data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at + 1 :]
            case "number":
                data = data[:at] + draw(st.sampled_from(NUMBERS)) + data[at + 4 :]
            case "cut":
                data = data[:at]
            case "splice":
                data = data[:other] + part + data[other + len(part) :]
            case "copy":
                data = data[:at] + part + data[at:]
            case "out":
                data = data[:at] + data[end:]
    return data


NUMBERS = [number.to_bytes(4, "little") for number in (0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1)]


def check_reading(name, data, **options):
    """A table or an InputError that names the file; neither warnings nor much memory."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = Path(folder) / name
        path.write_bytes(data)
        tracemalloc.start()
        faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        table, message = None, name
        try:
            table = read_table(path, **options)
            for block in table.X.blocks() if is_on_disk(table.X) else ():
                assert block.shape[1] == table.X.shape[1]
        except InputError as error:
            message = str(error)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            faulthandler.cancel_dump_traceback_later()
        assert name in message
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST
        assert peak < MODEST
        assert not [str(warning.message) for warning in caught]
        if message != name:
            return
        assert isinstance(table, Table)
        assert table.X.shape[1] == len(table.names)
        if hasattr(table.X, "toarray"):
            assert table.X.toarray().shape == table.X.shape  # would crash if indices were out of range


def fuzz(name):
    @cases(25 if name.endswith(("sv", ".npy")) else 40)
    @given(mutations(content(name)), st.booleans())
    def run(data, on_disk):
        check_reading(name, data, on_disk=lambda n, d: on_disk)

    return run


@pytest.mark.parametrize("name", WRITERS)
def test_mutated_files(name):
    fuzz(name)()


@pytest.mark.parametrize("suffix", MAGIC)
def test_random_bytes_that_begin_well(suffix):
    @cases(25)
    @given(st.binary(max_size=300), st.sampled_from([b"", b"PAR1", b"PK\x05\x06" + bytes(18)]))
    def run(data, ending):
        check_reading(f"data{suffix}", MAGIC[suffix] + data + ending)

    run()


@cases(60)
@given(st.text(st.sampled_from("a1,;.\t\"' \n\r-eE+#éNn\x1a\ufeff\u2028"), max_size=60))
def test_random_text(text):
    check_reading("data.csv", text.encode())


@pytest.mark.parametrize("name", ["array.npy", "table.parquet", "sparse.h5ad"])
def test_mutated_files_that_fit_reads(name):
    @cases(10)
    @given(mutations(content(name)))
    def run(data):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(folder) / name
            path.write_bytes(data)
            with suppress(ValueError):
                rows = open_rows(path)
                assert sum(len(block) for block in rows.blocks()) == rows.shape[0]

    run()


X = np.random.RandomState(0).randn(30, 6)


@functools.cache
def model(cls):
    """The files of a saved model: name and content."""
    with tempfile.TemporaryDirectory() as folder:
        params = {"max_iter": 3, "refine": False} if cls is DirichletSelector else {}
        selector = cls(2, random_state=0, **params).fit(pd.DataFrame(X, columns=list("abcdef")))
        place = selector.save(Path(folder) / "model")
        return {path.name: path.read_bytes() for path in place.iterdir()}


def attempt_to_load(cls, files):
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        message = folder
        try:
            selector = cls.load(folder)
        except (ValueError, FileNotFoundError) as error:
            message = str(error)
        assert folder in message
        if message != folder:
            return None
    assert type(selector) is cls
    names = getattr(selector, "feature_names_in_", None)
    assert selector.transform(pd.DataFrame(np.ones((3, selector.n_features_in_)), columns=names)).shape[0] == 3
    assert len(selector.scores_) == selector.n_features_in_
    return selector


@pytest.mark.parametrize("part", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("cls", [DirichletSelector, RSR])
def test_mutated_models(cls, part):
    files = model(cls)
    assert attempt_to_load(cls, files) is not None

    @cases(60)
    @given(mutations(files[part]))
    def run(data):
        found = attempt_to_load(cls, {**files, part: data})
        assert found is None or part == "model.json" or data == files[part]

    run()


@pytest.mark.parametrize("part", ["model.json", "model.safetensors"])
def test_mutated_models_of_format_1_which_has_no_checksum(part):
    files = model(DirichletSelector)
    old = files["model.json"].replace(b'"format": 2', b'"format": 1')
    assert attempt_to_load(DirichletSelector, {**files, "model.json": old}) is not None

    @cases(60)
    @given(mutations({**files, "model.json": old}[part]))
    def run(data):
        attempt_to_load(DirichletSelector, {**files, "model.json": old, part: data})

    run()


def test_mutated_checkpoints():
    def selector():
        return DirichletSelector(2, max_iter=4, refine=False, final_graph="none", random_state=None)

    with tempfile.TemporaryDirectory() as folder:
        selector().fit(X, checkpoint=folder, callback=lambda progress: progress.step == 2)
        state = (Path(folder) / "training-0.safetensors").read_bytes()
    head = 8 + int.from_bytes(state[:8], "little")

    @cases(25)
    @given(mutations(state[:head]), st.booleans(), mutations(state[head:]))
    def run(header, whole, data):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "training-0.safetensors"
            path.write_bytes(header + state[head:] if whole else state[:head] + data)
            message = str(path)
            try:
                assert selector().fit(X, checkpoint=folder).n_iter_ >= 1
            except ValueError as error:
                message = str(error)
            assert str(path) in message

    run()
