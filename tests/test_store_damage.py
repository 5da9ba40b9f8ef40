"""Stores that are locked, damaged or half migrated: clear words, nothing destroyed, and the rest is saved."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
from command_line import run as invoke
from old_stores import write_first_format

from homophily.evaluation import RunStore
from homophily.evaluation import store as module
from homophily.evaluation.salvage import salvaged
from homophily.evaluation.store import FORMAT, canonical

PAGE = 4096
EVERY = 20  # pages of which one is overwritten

WRITER = """
import sys
from homophily.evaluation.store import RunStore
path, name = sys.argv[1:]
with RunStore(path) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(300):
        store.put({"cell": i, "by": name if i % 2 else "both"}, {"by": name})
"""

MIGRATION = """
import os, signal, sys
from homophily.evaluation import store

class Fatal:
    def __str__(self):  # when the table of claims is made, and the number of the format is not yet written
        os.kill(os.getpid(), signal.SIGKILL)

store.FORMAT = Fatal()
store.RunStore(sys.argv[1])
"""


def run(*arguments, code=0):
    return " ".join(invoke(*arguments, code=code).output.split())


def make_cells(n):
    """Keys as experiments have them, and values of which some need several pages."""
    rng = np.random.RandomState(0)
    for i in range(n):
        key = {"experiment": "table", "method": "lß", "split": i, "m": i % 7, "versions": {"homophily": "1"}}
        yield key, {"accuracy": rng.rand(), "features": rng.randint(999, size=rng.choice([5, 50, 600, 3000])).tolist()}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store of 300 cells and what it holds, as text."""
    path = tmp_path_factory.mktemp("sound") / "runs.sqlite"
    cells = list(make_cells(300))
    with RunStore(path) as store:
        store.put_all(cells)
        store.claim([{"cell": "begun"}])  # no finished cell
    return path, {canonical(key): json.dumps(value) for key, value in cells}


def damage(sound, tmp_path, change):
    """A store whose bytes were changed, in a folder of its own."""
    content = bytearray(sound.read_bytes())
    changed = change(content)
    path = tmp_path / "runs.sqlite"
    path.write_bytes(content if changed is None else changed)
    return path


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_sound_store_is_salvaged_whole(sound):
    path, texts = sound
    before = path.read_bytes()
    assert salvaged(path) == texts
    assert path.read_bytes() == before


@pytest.mark.parametrize("noise", [False, True])
def test_only_what_was_on_the_overwritten_page_is_lost(sound, tmp_path, noise):
    """Also if that is the root of the tree, of which everything hangs."""
    sound, texts = sound
    rng = np.random.RandomState(1)
    with closing(sqlite3.connect(sound)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'cells'").fetchone()[0] - 1
    n_pages = sound.stat().st_size // PAGE
    assert n_pages > 10 * EVERY
    counts = []
    for page in [root, *range(0, n_pages, EVERY)]:

        def overwrite(content, start=page * PAGE):
            content[start : start + PAGE] = rng.bytes(PAGE) if noise else bytes(PAGE)

        found = salvaged(damage(sound, tmp_path, overwrite))
        assert found.items() <= texts.items()
        counts.append(len(found))
    # A page holds a few cells, and is a part of one that is long.
    assert min(counts) >= len(texts) - 25
    assert np.mean(counts) >= 0.98 * len(texts)


def test_of_a_file_that_was_cut_the_beginning_is_left(sound, tmp_path):
    sound, texts = sound
    size = sound.stat().st_size
    counts = []
    for length in (0, 50, 511, PAGE, size // 4, size // 2, size - PAGE):
        path = damage(sound, tmp_path, lambda content, length=length: content[:length])
        found = salvaged(path)
        assert found.items() <= texts.items()
        counts.append(len(found))
        if length:  # an empty file is a store that nothing was put in
            with pytest.raises(ValueError, match=r"runs recover .*runs\.sqlite NEW'"):
                RunStore(path)
        assert path.stat().st_size == length
    assert counts == sorted(counts)
    assert counts[-3] > 0.1 * len(texts)
    assert counts[-1] >= len(texts) - 1


def test_a_store_without_its_header_is_salvaged(sound, tmp_path):
    sound, texts = sound
    path = damage(sound, tmp_path, lambda content: b"?" * 100 + content[100:])
    with pytest.raises(
        ValueError, match=r"no store of results .*If it was one and is damaged: 'homophily runs recover"
    ):
        RunStore(path)
    assert salvaged(path) == texts


def test_any_bytes_are_searched_without_an_error(sound, tmp_path):
    sound, texts = sound
    rng = np.random.RandomState(2)

    def scatter(content):
        for place in rng.randint(len(content), size=len(content) // 50):
            content[place] = rng.randint(256)

    for _ in range(3):
        keys = set(salvaged(damage(sound, tmp_path, scatter)))
        assert len(keys & set(texts)) < len(texts)
    path = tmp_path / "noise"
    path.write_bytes(rng.bytes(100_000))
    assert salvaged(path) == {}


def test_damage_is_found_before_work_is_done_and_named(sound, tmp_path):
    sound, _ = sound
    expected = (
        r"The store .*runs\.sqlite is damaged \(.*\) and was left as it is\. 'homophily runs recover .* NEW' saves"
    )

    def overwrite(content):
        middle = len(content) // PAGE // 2 * PAGE
        content[middle : middle + PAGE] = b"\7" * PAGE

    path = damage(sound, tmp_path, overwrite)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=expected):
        RunStore(path)
    assert path.read_bytes() == before
    for text in (b'{"accuracy": 0.5', b"\xff\xfe"):
        path.unlink()
        with RunStore(path) as store:
            store._connection.execute("INSERT INTO cells VALUES ('{\"a\":1}', CAST(? AS TEXT))", (text,))
            for read in (lambda store: store.get({"a": 1}), lambda store: list(store.items())):
                with pytest.raises(ValueError, match=expected):
                    read(store)


def test_recover_writes_a_new_store_that_a_comparison_goes_on_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.RandomState(0)
    pd.DataFrame(rng.randn(40, 5), columns=list("abcde")).assign(kind=np.arange(40) % 2).to_csv("x.csv", index=False)
    command = [
        "compare",
        "x.csv",
        "-m",
        "1,2",
        "--methods",
        "ls",
        "--label-column",
        "kind",
        "--splits",
        6,
        "--trees",
        2,
    ]
    command += ["--random-draws", 1, "--jobs", 1, "--out", "out"]
    run(*command)
    store, expected = tmp_path / "out" / "runs.sqlite", pd.read_csv("out/comparison.csv").drop(columns="seconds")
    content = bytearray(store.read_bytes())
    with RunStore(store) as opened:
        values = {json.dumps(key): value for key, value in opened.items()}
    assert len(values) == 24
    content[-PAGE:] = b"\7" * PAGE
    store.write_bytes(content)
    tables = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    for refused in (
        command,
        ["runs", "list", "out"],
        ["runs", "export", "out"],
        ["runs", "clean", "out", "--all", "-y"],
    ):
        assert "is damaged" in (said := run(*refused, code=2))
        assert "homophily runs recover out/runs.sqlite NEW" in said
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == tables

    with RunStore("there.sqlite"):
        pass
    assert "exists already" in run("runs", "recover", "out", "there.sqlite", code=2)
    (tmp_path / "noise").write_bytes(b"no store" * 1000)
    assert "No cell could be read from noise" in run("runs", "recover", "noise", "new.sqlite", code=2)
    assert "There is no store" in run("runs", "recover", "nowhere", "new.sqlite", code=2)
    assert not (tmp_path / "new.sqlite").exists()
    said = run("runs", "recover", "out", "new.sqlite")
    assert store.read_bytes() == content
    with RunStore("new.sqlite") as opened:
        saved = {json.dumps(key): value for key, value in opened.items()}
    assert f"Saved {len(saved)} cells of out/runs.sqlite to new.sqlite." in said
    assert saved.items() <= values.items()
    assert 12 <= len(saved) < 24

    (tmp_path / "new.sqlite").replace(store)
    assert f"{len(saved)} of 24 cells are done already." in run(*command)
    pd.testing.assert_frame_equal(pd.read_csv("out/comparison.csv").drop(columns="seconds"), expected)


# --- locks -----------------------------------------------------------------------------------------------------------


def test_two_processes_write_hundreds_of_cells_at_once(tmp_path):
    """One transaction each: none is lost, and of those that both write the first stays."""
    path = tmp_path / "runs.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 2
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=600)
    assert [writer.returncode for writer in writers] == [0, 0]
    with RunStore(path) as store:
        keys = [(key["cell"], key["by"]) for key in store.keys()]  # noqa: SIM118
    expected = {(i, "both") for i in range(0, 300, 2)} | {
        (i, name) for i in range(1, 300, 2) for name in ("one", "two")
    }
    assert len(keys) == len(expected)
    assert set(keys) == expected


def test_a_store_that_stays_locked_is_named(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    with RunStore(path, patience=0.05) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        store.put({"cell": 1}, 1)
        other.execute("BEGIN EXCLUSIVE")
        expected = r"runs\.sqlite is locked: another process has not let go of it for 0\.05 seconds\. Try again"
        for use in (
            lambda: store.put({"cell": 2}, 2),
            lambda: store.get({"cell": 1}),
            lambda: store.claim([{"cell": 1}]),
            lambda: RunStore(path, patience=0.05),
        ):
            with pytest.raises(OSError, match=expected):
                use()
        monkeypatch.setattr(module, "PATIENCE", 0.05)
        assert "is locked" in run("runs", "list", path, code=2)
        other.execute("ROLLBACK")
        store.put({"cell": 2}, 2)  # and goes on
        assert len(store.keys()) == 2


# --- formats ---------------------------------------------------------------------------------------------------------


def test_a_newer_format_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        store.put({"cell": 1}, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes()
    said = run("runs", "list", path, code=2)
    assert f"is a store of format {FORMAT + 1}, and this version of homophily reads up to {FORMAT}" in said
    assert path.read_bytes() == before


def test_odd_cells_are_listed_and_exported(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        store.put({"dataset": "[/bold]", "versions": "1"}, 7)
        store.put({"dataset": "\x1b[31m", "m": 3}, [1, 2])
    assert "[/bold]" in run("runs", "list", path)
    assert "\x1b" not in run("runs", "list", path)
    assert "value" in run("runs", "export", path)


def test_keys_that_are_no_mappings_are_damage(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        store.put({"cell": 1}, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO cells VALUES ('[1]', '1')")
    for command in ("list", "export"):
        assert "is damaged (the key of a cell is '[1]')" in run("runs", command, path, code=2)
    assert "Saved 1 cell " in run("runs", "recover", path, tmp_path / "new.sqlite")
    assert "1 cells." in run("runs", "list", tmp_path / "new.sqlite")


def test_a_store_where_nothing_may_be_written_is_refused_by_name(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        store.put({"cell": 1}, 1)
    monkeypatch.setattr("os.access", lambda path, mode, **_: mode == os.R_OK)
    said = run("runs", "recover", path, tmp_path / "new.sqlite", code=4)
    assert "cannot be written to; name another file." in said


def test_a_migration_that_is_killed_leaves_the_old_store(tmp_path):
    path = tmp_path / "runs.sqlite"
    write_first_format(path)
    killed = subprocess.run([sys.executable, "-c", MIGRATION, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("cells",)]
    with RunStore(path) as store:
        assert list(store.items()) == [({"cell": 1}, {"score": 0.5})]
        store.put({"cell": 2}, {"score": 1.0})
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
