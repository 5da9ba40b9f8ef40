"""Training with torchrun: the same numbers as one process, shares, and what happens when a process dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from homophily import DirichletSelector
from homophily.distributed import ALONE, Team, WorkerLostError, _Group, _pairwise, current_team, launched

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
OPTIONS = ["-m", "3", "--n-anchors", "60", "--batch-size", "64", "--max-iter", "60"]
LONG = ["--max-iter", "400"]  # long enough to be disturbed on a busy machine


@pytest.fixture(name="data", scope="module")
def planted_file(tmp_path_factory):
    """1,003 rows, so that shards differ in size, with 3 planted columns among 12 and a constant one."""
    rng = np.random.RandomState(0)
    X = rng.randn(1003, 13)
    X[:, :3] += 4 * rng.randn(4, 3)[rng.randint(4, size=1003)]
    X[:, 9] = 1.5
    path = tmp_path_factory.mktemp("data") / "x.npy"
    np.save(path, X)
    pd.DataFrame(X, columns=[f"f{i}" for i in range(13)]).to_parquet(path.with_suffix(".parquet"), row_group_size=300)
    return path


def environment():
    """One thread a process, and no job but our own."""
    ours = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return {**ours, "OMP_NUM_THREADS": "1"}


def torchrun(processes, *arguments):
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    # A shell's background jobs ignore Ctrl-C, and children inherit that.
    return subprocess.Popen(
        [*run, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    )


def select(data, out, *options, processes=1):
    """Run ``homophily select`` and return its output."""
    arguments = ["-m", "homophily", "select", data, *OPTIONS, "--out", out, *options]
    if processes > 1:
        process = torchrun(processes, *arguments)
    else:
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def same_result(one, other):
    for name in ("selected.csv", "history.csv"):
        assert (one / name).read_text() == (other / name).read_text()


@pytest.fixture(name="alone", scope="module")
def result_of_one_process(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "out"
    select(data, out)
    return out


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_together_find_the_same_numbers_as_one(data, alone, tmp_path, processes):
    output = select(data, tmp_path / "out", processes=processes)
    assert f"{processes} processes share them" in output
    assert output.count("Selected 3 features") == 1
    same_result(tmp_path / "out", alone)
    assert sorted(pd.read_csv(tmp_path / "out" / "selected.csv")["index"]) == [0, 1, 2]
    assert not (tmp_path / "out" / "checkpoint").exists()
    graphs = [DirichletSelector.load(out / "model").graph_ for out in (tmp_path / "out", alone)]
    assert abs(graphs[0] - graphs[1]).max() < 1e-12


def test_processes_share_a_parquet_file(data, alone, tmp_path):
    select(data.with_suffix(".parquet"), tmp_path / "out", processes=2)
    found, expected = (pd.read_csv(out / "selected.csv") for out in (tmp_path / "out", alone))
    assert found["index"].tolist() == expected["index"].tolist()
    assert found["name"].tolist() == [f"f{i}" for i in expected["index"]]


def test_few_rows_are_not_shared(data, tmp_path):
    options = ["-m", "3", "--max-iter", "20", "--out"]
    process = torchrun(2, "-m", "homophily", "select", data, *options, tmp_path / "two")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert "each of the 2 processes does all of the work" in output
    subprocess.run([sys.executable, "-m", "homophily", "select", data, *options, tmp_path / "one", "-q"], check=True)
    same_result(tmp_path / "two", tmp_path / "one")


SCRIPT = """
import json
import os
import sys
from pathlib import Path
import homophily.joint as joint
from homophily.distributed import joined

held = []
threads = len(os.listdir("/proc/self/task"))
with joined("cpu") as team:
    class Rows(joint.Rows):
        def __init__(self, local, first, *others):
            held.extend([len(local), first])
            super().__init__(local, first, *others)
    joint.Rows = Rows
    params = dict(n_anchors=60, batch_size=64, max_iter=5, final_graph="none")
    selector = joint.DirichletSelector(3, **params, random_state=None).fit(sys.argv[1])
    result = [selector.selected_features_.tolist(), selector.energy_]
    Path(sys.argv[2], f"{team.rank}.json").write_text(json.dumps([held, result]))
# Threads that outlive the group may abort the process when it ends.
assert len(os.listdir("/proc/self/task")) == threads
"""


def test_each_process_holds_its_share_and_all_get_the_result(data, tmp_path):
    """From Python, and with a seed that nobody chose."""
    (tmp_path / "script.py").write_text(SCRIPT)
    process = torchrun(2, tmp_path / "script.py", data, tmp_path)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    (held_0, result_0), (held_1, result_1) = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert (held_0, held_1) == ([501, 0], [502, 501])
    assert result_0 == result_1
    features, energy = result_0
    assert set(features) == {0, 1, 2}
    assert energy > 0


def wait_for(condition, process, seconds=300):
    """Poll until ``condition`` gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    raise TimeoutError


def process_of_rank(launcher, rank):
    children = [
        int(child)
        for task in Path(f"/proc/{launcher.pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    for child in children:
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return child
    raise AssertionError(f"no process of rank {rank} among {children}")


@pytest.fixture(name="undisturbed", scope="module")
def result_of_a_long_run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    select(data, out, *LONG)
    return out


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes in /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_dead_process_ends_the_job_and_nothing_saved_is_lost(data, undisturbed, tmp_path, rank):
    out = tmp_path / "out"
    saved = out / "checkpoint" / "training-0.safetensors"
    command = ["-m", "homophily", "select", data, *OPTIONS, *LONG, "--out", out]
    process = torchrun(2, *command, "--checkpoint-every", 0)
    wait_for(saved.exists, process)
    os.kill(process_of_rank(process, rank), signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert f"Process {1 - rank} of 0 to 1 lost contact with another process" in output
    assert f"The training is saved in {out / 'checkpoint'}" in " ".join(output.split())
    assert not (out / "selected.csv").exists()
    assert saved.exists()

    again = torchrun(2, *command)
    output, _ = again.communicate(timeout=300)
    assert again.returncode != 0
    assert "Add --resume to go on with it" in output

    # Two processes go on, or one alone.
    assert "Going on from" in select(data, out, *LONG, "--resume", processes=2 - rank)
    same_result(out, undisturbed)
    assert not saved.exists()


def test_other_methods_and_one_process_are_left_alone(data, tmp_path):
    process = torchrun(2, "-m", "homophily", "select", data, "-m", 3, "--method", "ls", "--out", tmp_path / "out")
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "torchrun trains --method dirichlet only" in output
    assert not launched()
    assert current_team() is ALONE
    select(data, tmp_path / "one", processes=1)
    process = torchrun(2, "-m", "homophily", "select", data, *OPTIONS, "--device", "cuda", "--out", tmp_path / "gpu")
    output, _ = process.communicate(timeout=300)
    if not torch.cuda.is_available():
        assert "--device 'cuda' is not available here" in output


def test_the_energy_without_a_graph_is_that_of_one_process(data, tmp_path):
    """Although the halves of the file, and so the shares of the processes, differ."""
    X = np.load(data)
    X[501:, :3] *= 10
    np.save(tmp_path / "x.npy", X)
    energies = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        select(tmp_path / "x.npy", out, "--final-graph", "none", processes=processes)
        energies.append(DirichletSelector.load(out / "model").energy_)
    assert energies[0] == energies[1]


def test_shards_do_not_depend_on_the_number_of_processes_if_that_divides_them():
    teams = {}
    for size in (1, 2, 3, 4, 8):
        members = [Team() for _ in range(size)]
        for rank, member in enumerate(members):
            member.rank, member.size = rank, size
        teams[size] = members
        assert [shard for member in members for shard in member.shards] == list(range(members[0].n_shards))
    assert {size: team[0].n_shards for size, team in teams.items()} == {1: 4, 2: 4, 3: 3, 4: 4, 8: 8}


def test_sums_are_taken_in_the_same_order_by_any_number_of_processes():
    parts = [torch.randn(50, generator=torch.Generator().manual_seed(i)) * 10**i for i in range(4)]
    alone = _pairwise(parts)
    assert torch.equal(alone, _pairwise([_pairwise(parts[:2]), _pairwise(parts[2:])]))
    assert not torch.equal(alone, ((parts[3] + parts[2]) + parts[1]) + parts[0])
    torch.testing.assert_close(_pairwise(parts[:3]), sum(parts[:3]))


def test_a_failing_exchange_names_the_cause(monkeypatch):
    group = _Group.__new__(_Group)
    group.rank, group.size, group.device = 1, 3, torch.device("cpu")

    def fail(*args):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)
    with pytest.raises(WorkerLostError, match="Process 1 of 0 to 2 lost contact") as caught:
        group.sum_(torch.zeros(2))
    assert "closed by peer" in str(caught.value.__cause__)
