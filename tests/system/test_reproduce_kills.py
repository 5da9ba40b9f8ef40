"""``homophily reproduce`` ended at any moment, and twice at a time: nothing finished is lost or done twice."""

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from faults import Server
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


@pytest.fixture
def server(_nothing_else_is_found):
    running = Server()
    yield running
    running.close()


def arguments(*more):
    return list(map(str, ("reproduce", "table", "--quick", "--datasets", "Jaffe", *SMALL, "--splits", 12, *more)))


def start(*more):
    return subprocess.Popen(
        [sys.executable, "-m", "homophily", *arguments(*more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )


def kill(process, cells, delay):
    """End a run without warning, once so many cells are done and some time is over, unless it ends before."""
    while process.poll() is None and number_of_cells() < cells:
        time.sleep(0.01)
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def kill_forked(run, cells, delay):
    """The same of a run that was forked from the server."""
    while not run.ended(0.01) and number_of_cells() < cells:
        pass
    if not run.ended(delay):
        run.disturb(signal.SIGKILL, False)
    return run.finish() == -signal.SIGKILL


def number_of_cells():
    return len(cells_in()) if os.path.exists("out/runs.sqlite") else 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
def test_twenty_kills_lose_and_double_nothing(tmp_path, server):
    rng = random.Random(0)
    table("--splits", 12, out="undisturbed")
    planned = {json.dumps(key) for key in cells_in("undisturbed")}
    kept, kills, some_kept = set(), 0, False
    while kills < 20:
        if kept == planned:  # begin anew
            shutil.rmtree("out")
            kept = set()
        # At its start, where it sets up, or when it has done some; at times where it imports.
        more, delay = rng.choice([(0, 1.0), (1, 0.3), (3, 0.3), (5, 0.3)])
        if kills % 10 == 9:
            kills += kill(start("--out", "out", "--jobs", "1"), len(kept), rng.uniform(0, 4.0))
        else:
            run = server.start(arguments("--out", "out", "--jobs", "1"), tmp_path / "log")
            kills += kill_forked(run, len(kept) + more, rng.uniform(0, delay))
        if number_of_cells():
            with sqlite3.connect(tmp_path / "out" / "runs.sqlite") as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()
            now = {json.dumps(key) for key in cells_in()}
            assert kept <= now <= planned
            kept = now
        some_kept |= bool(kept)
    assert some_kept
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
