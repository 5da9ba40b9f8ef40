"""Limits to memory of whole processes: what reading takes, the guard, and ``select`` within a limit."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from table_files import KINDS, planted, written

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells and limits the memory of a process")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

MEASURE = """
import json, sys
from pathlib import Path
from homophily.io import read_table
from homophily.memory import _status
from homophily.table_size import ESTIMATES
import homophily.commands
rises = {}
for path in map(Path, sys.argv[1:]):
    read_table(path)  # what is loaded late
for path in map(Path, sys.argv[1:]):
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    table = read_table(path)
    rises[path.name] = (_status("VmHWM") - before) / ESTIMATES[path.suffix](path)
    del table
print(json.dumps(rises))
"""


@linux
def test_reading_takes_no_more_than_estimated(tmp_path):
    X = np.random.default_rng(0).standard_normal((10_000, 100))  # 8 MB
    paths = [written(tmp_path, kind, X) for kind in KINDS]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, paths)], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == 0, done.stderr
    rises = json.loads(done.stdout)
    assert len(rises) == len(KINDS)
    assert max(rises.values()) <= 1.0, rises


GUARDED = """
import numpy as np, pyarrow as pa, torch
from pathlib import Path
import homophily.commands
from homophily.memory import MemoryLimitError, _status, memory_limit

def greedy(take, *args):
    try:
        with memory_limit("800MB"):
            kept = [take(*args) for _ in range(100)]
    except MemoryLimitError as error:
        return str(error)
    raise AssertionError("a gigabyte was given")

print(greedy(lambda: np.ones(10**7)))
print(greedy(lambda: torch.ones(10**7)))
print(greedy(lambda: bytearray(10**8)))
print(greedy(lambda: pa.allocate_buffer(10**8)))
print(_status("VmHWM") / 800e6)
kept = np.ones(10**8)  # after it, all is as before
try:
    with memory_limit("800MB"):
        pass
except ValueError as error:
    print(error)
del kept
with memory_limit("800MB"):
    try:
        raise RuntimeError("another mistake")
    except RuntimeError:
        pass
    try:
        with memory_limit("900MB"):
            pass
    except RuntimeError as error:
        print(error)
"""


@linux
def test_the_guard_refuses_more_and_is_gone_afterwards():
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    *reached, peak, taken, nested = done.stdout.splitlines()
    assert len(reached) == 4
    assert all(line.startswith("The memory limit of 800 MB was reached") for line in reached)
    assert float(peak) <= 1
    assert "is too little" in taken
    assert "in force already" in nested


SELECT = """
import atexit, sys
from homophily.cli import main
from homophily.memory import _status
atexit.register(lambda: print("peak", _status("VmHWM"), file=sys.stderr))
main()
"""


def select(*arguments):
    """Exit code, lines of output, and peak of the resident memory in bytes of ``homophily select``.

    The process tells the peak itself: what the system tells of a child begins with the memory of its parent.
    """
    command = [sys.executable, "-c", SELECT, "select", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    *lines, peak = done.stderr.splitlines()
    assert peak.startswith("peak "), done.stderr
    return done.returncode, [*done.stdout.splitlines(), *lines], int(peak.split()[1])


@linux
@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_select_stays_within_the_limit(kind, tmp_path):
    X = planted(60_000, 256)
    path = written(tmp_path, kind, X)  # 123 MB, of the 129 MB that the limit leaves
    del X
    quick = ["--method", "dirichlet", "--max-iter", 20, "--final-graph", "none", "--out", tmp_path / "out"]
    if kind == "parquet":  # which differs from the other in how it is read, not in what comes then
        quick += ["--objective", "energy", "--param", "refine=false"]
    code, output, peak = select(path, "-m", 4, "--memory-limit", "700MB", *quick)
    assert code == 0, output
    assert peak <= 700e6
    chosen = pd.read_csv(tmp_path / "out" / "selected.csv")["index"]
    assert len(chosen) == 4
    if kind == "npy":
        assert sorted(chosen) == [0, 1, 2, 3]


@linux
def test_the_default_stays_within_the_limit(tmp_path):
    path = written(tmp_path, "npy", planted(60_000, 256))
    options = ("--memory-limit", "650MB", "--final-graph", "none", "--out", tmp_path / "o")
    code, output, peak = select(path, "-m", 4, *options)
    assert code == 0, output
    assert peak <= 650e6
    assert sorted(pd.read_csv(tmp_path / "o" / "selected.csv")["index"]) == [0, 1, 2, 3]


@linux
def test_an_overrun_that_no_plan_foresees_ends_in_one_line(tmp_path):
    X = np.random.default_rng(0).standard_normal((3000, 1200)).astype(np.float32)
    np.save(tmp_path / "a.npy", X)
    # UDFS works with square matrices of the rows and of the columns, in double precision.
    arguments = [tmp_path / "a.npy", "-m", 5, "--method", "udfs", "--memory-limit", "630MB", "--out", tmp_path / "out"]
    code, output, peak = select(*arguments)
    assert code == 4, output
    assert output[-1].startswith("Error: The memory limit of 630 MB was reached")
    assert len(output) == 2  # it read the file
    assert peak <= 630e6
    assert not (tmp_path / "out").exists()
