"""``homophily reproduce`` ended at any moment, and twice at a time: nothing finished is lost or done twice."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from stand_ins import SMALL, TABLES, cells_in, stand_in, table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a data set: 213 rows are few enough to be quick."""
    place = tmp_path_factory.mktemp("data")
    X, y = stand_in("Jaffe")
    np.savez(place / "Jaffe.npz", X=X, y=y)
    return place


@pytest.fixture(autouse=True)
def _nothing_else_is_found(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder))
    monkeypatch.setenv("HOMOPHILY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def start(*more):
    command = [
        sys.executable,
        "-m",
        "homophily",
        "reproduce",
        "table",
        "--quick",
        "--datasets",
        "Jaffe",
        *map(str, SMALL),
    ]
    return subprocess.Popen(
        [*command, "--splits", "12", *map(str, more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )


def kill(process, cells, delay):
    """End a run without warning, once so many cells are done and some time is over, unless it ends before."""
    for _ in range(100_000):
        if process.poll() is not None or number_of_cells() >= cells:
            break
        time.sleep(0.01)
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def number_of_cells():
    return len(cells_in()) if os.path.exists("out/runs.sqlite") else 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
def test_twenty_kills_lose_and_double_nothing(tmp_path):
    rng = random.Random(0)
    table("--splits", 12, out="undisturbed")
    planned = {json.dumps(key) for key in cells_in("undisturbed")}
    kept, kills = set(), 0
    for _ in range(40):
        # At its start, where it imports and sets up, or when it has done some.
        more, delay = rng.choice([(0, 4.0), (1, 0.5), (3, 0.5), (5, 0.5)])
        kills += kill(start("--out", "out", "--jobs", "1"), len(kept) + more, rng.uniform(0, delay))
        if number_of_cells():
            with sqlite3.connect(tmp_path / "out" / "runs.sqlite") as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()
            now = {json.dumps(key) for key in cells_in()}
            assert kept <= now <= planned
            kept = now
        if kills == 20:
            break
    assert kills == 20
    assert kept
    table("--splits", 12)
    assert {json.dumps(key) for key in cells_in()} == planned
    for name in TABLES:
        texts = [(tmp_path / out / "table-quick-default" / name).read_text() for out in ("out", "undisturbed")]
        if name == "tables.md":  # which names the command
            texts = [text.split("\n", 1)[1] for text in texts]
        if name == "report.html":  # this one too
            texts = [re.sub("<dt>Command</dt>.*", "", text) for text in texts]
        assert texts[0] == texts[1], name


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
def test_workers_do_not_outlive_a_killed_driver():
    process = start("--out", "out", "--jobs", "2", "--splits", "400")
    assert kill(process, 2, 0)  # which returns when the pipe is closed, and the workers hold it


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
def test_two_processes_share_the_work(tmp_path):
    runs = [start("--out", "out", "--jobs", "1", "--splits", "6") for _ in range(2)]
    outputs = [process.communicate()[0] for process in runs]
    assert [process.returncode for process in runs] == [0, 0], outputs
    assert len(cells_in()) == 6 * 2 * 3
    assert "Traceback" not in "".join(outputs)
