"""Comparisons on the workers of a Dask scheduler, which may be lost."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from homophily.cli import app
from homophily.datasets import make_toy
from homophily.evaluation import Comparison, RunStore, cluster
from homophily.evaluation.cell import Cell
from homophily.evaluation.comparison import run_all
from homophily.evaluation.running import Backend, Job, execute

distributed = pytest.importorskip("distributed", reason="distributed is not installed")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")

HERE = ("--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
TOY = ("reproduce", "toy", "--quick", "--splits", "1", "--datasets", "blobs")


@contextmanager
def started(*arguments, log):
    """A process of Python that is ended when this ends."""
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, arguments)],
            stdout=file,
            stderr=file,
            env={**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2"},  # not 3: workers start slowly
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(600)
            finally:
                process.kill()


class Workers:
    """A scheduler and its workers, each a process."""

    def __init__(self, folder, stack):
        self.folder, self.stack, self.count = folder, stack, 0
        where = folder / "scheduler.json"
        self.process = self._start("dask", "scheduler", *HERE, "--port", "0", "--scheduler-file", where)
        while not (where.is_file() and where.read_text().endswith("}")) and self.process.poll() is None:
            time.sleep(0.05)
        self.address = json.loads(where.read_text())["address"]

    def _start(self, *arguments):
        self.count += 1
        return self.stack.enter_context(started(*arguments, log=self.folder / f"{self.count}.log"))

    def add(self, *options, n=2):
        processes = [
            self._start("dask", "worker", self.address, *HERE, "--local-directory", self.folder, *options)
            for _ in range(n)
        ]
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(n, timeout=600)
        return processes

    def pids(self):
        with distributed.Client(self.address, set_as_default=False) as client:
            return list(client.run(os.getpid).values())


@pytest.fixture
def scheduler(tmp_path):
    (tmp_path / "dask").mkdir()
    with ExitStack() as stack:
        yield Workers(tmp_path / "dask", stack)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Address of a cluster of two workers that no test disturbs; results do not depend on their threads."""
    with ExitStack() as stack:
        workers = Workers(tmp_path_factory.mktemp("dask"), stack)
        workers.add("--no-nanny", "--nthreads", "1", n=1)
        workers.add("--no-nanny", "--nthreads", "3", n=1)
        yield workers.address


@pytest.fixture(scope="module")
def comparison():
    X, y = make_toy("blobs", n_samples=60, random_state=0)
    return Comparison(X, y, methods=["ls", "rsr"], ms=[1, 2], splits=4, n_estimators=20, random_draws=1, max_updates=20)


def value(cell):
    return replace(cell, seconds=None, judging=None).value


@pytest.fixture(scope="module")
def expected(comparison):
    with RunStore(":memory:") as store:
        return {cell.place: value(cell) for _, cells in run_all([comparison], store, Backend(1)) for cell in cells}


def check(found, store, comparison, expected):
    """Every cell came once, is stored once, and is what it would have been undisturbed."""
    assert sorted(cell.place for cell in found) == sorted(expected)
    assert {cell.place: value(cell) for cell in found} == expected
    assert len(store.keys()) == len(expected)
    assert {cell.place: value(cell) for cell in comparison.finished(store)} == expected


def test_a_cluster_finds_what_one_process_finds(two, comparison, expected, tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        found, holders = [], set()
        for _, cells in run_all([comparison], store, Backend(scheduler=two, patience=600)):
            found += cells
            holders |= processes_with(path)
        check(found, store, comparison, expected)
        assert holders <= {os.getpid()}


def processes_with(path):
    """Processes that have the file open, where the system tells."""
    holders = set()
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:  # it has ended, or is another user's
            continue
        if str(path) in links:
            holders.add(int(pid))
    return holders


def test_a_killed_worker_costs_nothing_but_time(scheduler, comparison, expected):
    workers = scheduler.add("--no-nanny", "--nthreads", "1")
    found = []
    with RunStore(":memory:") as store:
        for _, cells in run_all([comparison], store, Backend(scheduler=scheduler.address, patience=600)):
            if not found:
                workers[0].kill()
            found += cells
        check(found, store, comparison, expected)

    def brief(data, cells):  # inside a function, so sent as it is: workers cannot import the tests
        time.sleep(0.1)
        return cells

    with RunStore(":memory:") as store:
        results = execute(jobs_of(brief, 1000), store, Backend(scheduler=scheduler.address, patience=600))
        assert next(results)
        scheduler.process.kill()
        with pytest.raises(OSError, match=f"The Dask scheduler {scheduler.address} does not answer any more: "):
            list(results)
        assert 1 <= len(store.keys()) < 1000


def jobs_of(function, n=1):
    return [Job([Cell("ls", 1, split)], [{"split": split}], function, None, ()) for split in range(n)]


def test_data_that_went_with_all_workers_are_sent_again(scheduler, comparison, expected):
    scheduler.add("--nanny", "--nthreads", "1")  # which starts another worker for one that dies
    victims = scheduler.pids()
    found = []
    with RunStore(":memory:") as store:
        for _, cells in run_all([comparison], store, Backend(scheduler=scheduler.address, patience=600)):
            if not found:
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
            found += cells
        check(found, store, comparison, expected)
    assert not set(victims) & set(scheduler.pids())

    def deadly(data, cells):
        os.kill(os.getpid(), signal.SIGKILL)

    with RunStore(":memory:") as store:
        with pytest.raises(ChildProcessError, match=r"Workers of .* died again and again, the last time at ls"):
            list(execute(jobs_of(deadly), store, Backend(scheduler=scheduler.address, patience=600)))
        assert store.keys() == []


def test_data_are_sent_again_if_a_worker_dies_meanwhile(two, comparison, expected, monkeypatch):
    sends = []
    scatter = distributed.Client.scatter

    def interrupted(client, *arguments, **named):
        sends.append(client)
        if len(sends) == 1:
            raise distributed.comm.CommClosedError("Stream is closed")
        return scatter(client, *arguments, **named)

    monkeypatch.setattr(distributed.Client, "scatter", interrupted)
    with RunStore(":memory:") as store:
        found = [
            cell for _, cells in run_all([comparison], store, Backend(scheduler=two, patience=600)) for cell in cells
        ]
        check(found, store, comparison, expected)
    assert len(sends) == 2


def test_no_workers_are_an_error(scheduler, comparison, monkeypatch):
    clock = itertools.count(0, 300)  # seconds, at each look
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=time.sleep))
    with (
        RunStore(":memory:") as store,
        pytest.raises(OSError, match=f"{scheduler.address} has had no worker for 600 s"),
    ):
        list(run_all([comparison], store, Backend(scheduler=scheduler.address, patience=600)))


def test_a_worker_with_other_versions_is_refused(two, monkeypatch):
    wanted = {"homophily": "0", "numpy": np.__version__}
    monkeypatch.setattr("homophily.evaluation.comparison.versions", lambda: wanted)

    def unasked(data, cells):
        return cells

    with RunStore(":memory:") as store, pytest.raises(OSError, match=r"it has homophily .*, not 0; install what"):
        list(execute(jobs_of(unasked), store, Backend(scheduler=two, patience=600)))


def run(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "what://ever:1", "127.0.0.1"])
def test_no_scheduler_is_one_line(tmp_path, monkeypatch, address):
    monkeypatch.setattr(cluster, "CONNECT", 0.5)
    options = ("--backend", "dask", "--scheduler", address, "--out", tmp_path / "out", "--quiet")
    lines = run(*TOY, *options, code=2).output.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"Error: The Dask scheduler {address} cannot be reached: ")


def test_a_listener_that_is_no_scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        options = ("--backend", "dask", "--scheduler", address, "--out", tmp_path / "out", "--quiet")
        assert f"{address} cannot be reached: no answer in 1 s." in run(*TOY, *options, code=2).output


def test_a_client_that_fails_is_not_left_to_the_garbage_collector(monkeypatch):
    def loops():
        return sum(thread.name == "IO loop" for thread in threading.enumerate())

    monkeypatch.setattr(cluster, "CONNECT", 0.5)
    before = loops()
    for address in ("tcp://127.0.0.1:1", "what://ever:1", "127.0.0.1"):
        with pytest.raises((OSError, ValueError)):
            cluster._opened(address)
        end = time.monotonic() + 600
        while loops() > before and time.monotonic() < end:  # the thread that opens it may still be at that
            time.sleep(0.01)
        assert loops() <= before  # that of the test before may be ending


def test_the_command_gives_the_same_tables(two, tmp_path):
    assert "go together" in run(*TOY, "--backend", "dask", code=2).output
    assert "go together" in run(*TOY, "--scheduler", two, code=2).output
    on_cluster = run(*TOY, "--backend", "dask", "--scheduler", two, "--out", tmp_path / "cluster")
    here = run(*TOY, "--jobs", 1, "--out", tmp_path / "here")
    assert on_cluster.stdout == here.stdout
    assert "4 of 4 cells are done already." in run(*TOY, "--jobs", 1, "--out", tmp_path / "cluster").output


def test_ctrl_c_keeps_what_is_finished(two, tmp_path):
    path = tmp_path / "out" / "runs.sqlite"
    command = [sys.executable, "-m", "homophily", *TOY[:3], "--splits", "400", "--out", str(path.parent)]
    process = subprocess.Popen(
        [*command, "--backend", "dask", "--scheduler", two],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        # Where the tests run in the background of a shell, Ctrl-C is ignored, and children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while process.poll() is None and not stored(path):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert f"Stopped: {stored(path)} of 4800 cells are done and kept; the same command goes on from there." in output


def stored(path):
    if not path.is_file():
        return 0
    with RunStore(path) as store:
        return len(store.keys())
