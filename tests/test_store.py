"""The run store: nothing finished is lost, doubled or changed."""

import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from homophily.evaluation import RunStore
from homophily.evaluation.store import FORMAT

WRITER = """
import sys
from homophily.evaluation.store import RunStore
path, name, first, last = sys.argv[1:]
with RunStore(path) as store:
    for i in range(int(first), int(last)):
        store.put({"cell": i}, {"by": name})
print("done", flush=True)
"""


def test_round_trip_and_order_of_entries(tmp_path):
    with RunStore(tmp_path / "runs.sqlite") as store:
        assert store.get({"a": 1}) is None
        store.put({"b": [1, 2.5, None], "a": {"y": "ß", "x": True}}, {"score": 0.1, "features": [3, 1]})
        assert store.get({"a": {"x": True, "y": "ß"}, "b": (1, 2.5, None)}) == {"score": 0.1, "features": [3, 1]}
    with RunStore(tmp_path / "runs.sqlite") as store:
        assert list(store.items()) == [
            ({"a": {"x": True, "y": "ß"}, "b": [1, 2.5, None]}, {"score": 0.1, "features": [3, 1]})
        ]


def test_the_first_value_stays(tmp_path):
    with RunStore(tmp_path / "runs.sqlite") as store:
        store.put({"cell": 1}, "first")
        store.put({"cell": 1}, "second")
        assert list(store.items()) == [({"cell": 1}, "first")]


def test_keys_that_differ_in_one_entry_are_two(tmp_path):
    with RunStore(tmp_path / "runs.sqlite") as store:
        store.put({"m": 1, "split": 0}, "a")
        store.put({"m": None, "split": 0}, "b")
        store.put({"m": 1, "split": 1}, "c")
        assert len(list(store.items())) == 3


def test_two_processes_write_at_once(tmp_path):
    path = tmp_path / "runs.sqlite"
    ranges = {"one": (0, 40), "two": (20, 60)}  # half of their cells are the same
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(first), str(last)], stdout=subprocess.PIPE, text=True
        )
        for name, (first, last) in ranges.items()
    ]
    assert [writer.communicate(timeout=300)[0] for writer in writers] == ["done\n"] * 2
    with RunStore(path) as store:
        found = {key["cell"]: value["by"] for key, value in store.items()}
        assert len(list(store.items())) == 60
    assert set(found) == set(range(60))
    assert all(ranges[name][0] <= cell < ranges[name][1] for cell, name in found.items())


def test_files_of_others_are_refused_and_left_alone(tmp_path):
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be looked at " * 100)
    with pytest.raises(ValueError, match=r"no store of results .*expected a file that RunStore wrote"):
        RunStore(text)
    assert text.read_text().startswith("not a database")

    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE cells (x)")
    connection.close()
    before = foreign.read_bytes()
    with pytest.raises(ValueError, match="another program; expected a file that RunStore wrote"):
        RunStore(foreign)
    assert foreign.read_bytes() == before


def test_newer_format_and_missing_folder(tmp_path):
    path = tmp_path / "runs.sqlite"
    RunStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    with pytest.raises(ValueError, match=f"store of format {FORMAT + 1}"):
        RunStore(path)
    with pytest.raises(OSError, match="cannot be used"):
        RunStore(tmp_path / "nowhere" / "runs.sqlite")


def test_numbers_of_numpy_are_numbers():
    with RunStore(":memory:") as store:
        store.put({"m": np.int64(5), "reg": np.float32(0.5)}, 1)
        assert store.get({"m": 5, "reg": 0.5}) == 1
        with pytest.raises(TypeError, match="which has no place in the key"):
            store.get({"m": object()})
