"""Many runs at a time, and many in one process: the same results, one owner a folder, and nothing that grows."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from homophily.claim import claimed
from homophily.cli import app

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
GROWTH_MB = 4.0  # that 40 fits may add to resident memory: a heap is seldom returned to the page


def options(data, folder, seed):
    return [
        "select",
        str(data),
        "-m",
        "3",
        "--objective",
        "energy",
        "--max-iter",
        "8",
        "--seed",
        str(seed),
        "--out",
        str(folder),
    ]


def start(*arguments):
    command = [sys.executable, "-m", "homophily", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)


def finish(process):
    output, _ = process.communicate()
    return process.returncode, output


def result(folder):
    """All that a run says of the data: everything but times and the command line."""
    graph = sp.load_npz(folder / "graph.npz").tocsr()
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "selected": (folder / "selected.csv").read_bytes(),
        "reduced": (folder / "reduced.csv").read_bytes(),
        "history": (folder / "history.csv").read_bytes(),
        "graph": (graph.indptr.tobytes(), graph.indices.tobytes(), graph.data.tobytes()),
        "model": (folder / "model" / "model.safetensors").read_bytes(),
        "description": (folder / "model" / "model.json").read_bytes(),
    }


@pytest.fixture
def tables(tmp_path):
    """Two data sets."""
    paths = []
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((90, 10))
        X[:, :3] += 4 * rng.integers(2, size=(90, 1))
        paths.append(tmp_path / f"data{seed}.csv")
        pd.DataFrame(X).add_prefix("f").to_csv(paths[-1], index=False)
    return paths


def test_eight_runs_at_a_time_give_what_each_gives_alone(tables, tmp_path, monkeypatch):
    jobs = [(tables[0], tmp_path / f"same{i}", 0) for i in range(3)]  # the same thing three times
    jobs += [(tables[i], tmp_path / f"other{i}", 1 + i) for i in range(2)]
    jobs.append((tables[1], tmp_path / "other2", 3))
    shared = tmp_path / "shared"  # and two that want the same folder
    jobs += [(tables[0], shared, 1), (tables[1], shared, 2)]
    done = [finish(process) for process in [start(*options(*job)) for job in jobs]]

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = {}
    for number, (data, _, seed) in enumerate(jobs):
        if (data, seed) not in alone:
            folder = tmp_path / f"alone{number}"
            assert CliRunner().invoke(app, options(data, folder, seed)).exit_code == 0
            alone[data, seed] = result(folder)
    for (data, folder, seed), (code, output) in zip(jobs[:6], done, strict=False):
        assert code == 0, output
        assert result(folder) == alone[data, seed]
    codes = [code for code, _ in done[6:]]
    assert sorted(codes) == [0, 2]  # one had the folder, all of it
    winner = jobs[6 + codes.index(0)]
    assert result(shared) == alone[winner[0], winner[2]]
    refused = done[6 + codes.index(2)][1]
    assert "Another run is writing to" in refused or "is not empty" in refused  # the one was quick
    hidden = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert not hidden


@linux
@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--resume"]])
def test_a_folder_in_use_is_refused_and_left_alone(more, tables, tmp_path):
    folder = tmp_path / "out"
    with claimed(folder):
        (folder / "mine").write_text("x")
        found = CliRunner().invoke(app, [*options(tables[0], folder, 0), *more])
        assert found.exit_code == 2
        message = " ".join(found.stderr.split())
        assert "Another run is writing to" in message
        assert "name another folder with --out" in message
    assert [path.name for path in folder.iterdir()] == ["mine"]


@linux
def test_a_claim_leaves_nothing_behind_and_ends_with_its_process(tmp_path):
    folder = tmp_path / "a" / "b"
    with claimed(folder):
        assert folder.is_dir()
    assert not (tmp_path / "a").exists()
    folder.mkdir(parents=True)
    with claimed(folder):
        pass
    assert folder.is_dir()  # it was there before
    hold = "import sys, time; from pathlib import Path; from homophily.claim import claimed\n"
    hold += "with claimed(Path(sys.argv[1])): print('mine', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == "mine\n"
        with pytest.raises(FileExistsError, match="Another run is writing to"), claimed(folder):
            pass
        holder.kill()
        holder.wait()
    with claimed(folder):
        pass


@linux
def test_many_fits_reports_and_stores_do_not_grow():
    """In a process of its own, as the heap of one that ran other tests is full of holes."""
    few = ["--fits", "60", "--baselines", "20", "--reports", "20", "--stores", "60"]
    script = Path(__file__).parents[2] / "benchmarks" / "longrun.py"
    found = subprocess.run([sys.executable, script, *few], capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
