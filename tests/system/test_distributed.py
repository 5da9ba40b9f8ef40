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
from typer.testing import CliRunner

from homophily import DirichletSelector
from homophily.cli import app
from homophily.distributed import ALONE, Team, WorkerLostError, _Group, _pairwise, current_team, launched

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
OPTIONS = ["-m", "3", "--n-anchors", "60", "--batch-size", "64", "--max-iter", "60", "--method", "dirichlet"]
FEW = ["-m", "3", "--max-iter", "20", "--method", "dirichlet"]


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


@pytest.fixture(name="unlike", scope="module")
def file_with_unlike_halves(data):
    """The halves, and so the shares of two processes, differ."""
    X = np.load(data)
    X[501:, :3] *= 10
    path = data.with_name("unlike.npy")
    np.save(path, X)
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


def select(data, out, *options):
    """Run ``homophily select`` in this process and return its output."""
    return command("select", data, *OPTIONS, "--out", out, *options)


def command(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def same_result(one, other):
    for name in ("selected.csv", "history.csv"):
        assert (one / name).read_text() == (other / name).read_text()


@pytest.fixture(name="alone", scope="module")
def result_of_one_process(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "out"
    select(data, out)
    return out


# Some jobs of the same two processes, one after the other, and what each process said of it in a file. Each job has a
# part of torchrun's store to itself, where addresses of the one before would be in the way.
JOBS = """
import json
import os
import sys
from pathlib import Path

import homophily.joint as joint
import torch.distributed as dist
from homophily.cli import app
from homophily.distributed import joined

data, place, jobs = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
Rows = joint.Rows

def fit(number):
    held = []
    threads = len(os.listdir("/proc/self/task"))
    with joined("cpu") as team:
        class Held(Rows):
            def __init__(self, local, first, *others):
                held.extend([len(local), first])
                super().__init__(local, first, *others)
        joint.Rows = Held
        params = dict(n_anchors=60, batch_size=64, max_iter=5, final_graph="none", objective="energy")
        selector = joint.DirichletSelector(number, **params, random_state=None)
        selector.fit(data)
        joint.Rows = Rows
        result = [selector.selected_features_.tolist(), selector.energy_]
    # Threads that outlive the group may abort the process when it ends.
    return [held, result, len(os.listdir("/proc/self/task")) - threads]

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)

def join(backend, usual=dist.init_process_group):
    usual(backend, store=dist.PrefixStore(name, store), rank=rank, world_size=size)

dist.init_process_group = join
for name, arguments in jobs.items():
    told = place / f"{name}.{rank}"
    if name.startswith("fit"):
        told.write_text(json.dumps(fit(arguments)))
        continue
    with told.open("w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            app(arguments)
        except SystemExit as end:
            code = end.code
        print(f"exit code {code}", flush=True)
"""


@pytest.fixture(name="jobs", scope="module")
def jobs_of_two_processes(data, unlike, tmp_path_factory):
    """The folder with the results of all jobs that nothing disturbs, and what was said."""
    place = tmp_path_factory.mktemp("jobs")
    (place / "jobs.py").write_text(JOBS)
    jobs = {
        "npy": ["select", data, *OPTIONS],
        "parquet": ["select", data.with_suffix(".parquet"), *OPTIONS],
        "few": ["select", data, *FEW],
        "unlike": ["select", unlike, *OPTIONS, "--final-graph", "none"],
    }
    jobs = {name: [*map(str, job), "--out", str(place / name)] for name, job in jobs.items()}
    jobs |= {"fit": 3}
    process = torchrun(2, place / "jobs.py", data, place, json.dumps(jobs))
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output + "".join(path.read_text() for path in place.glob("*.[01]"))
    return place


def said(jobs, name):
    """Output of both processes for one of the jobs."""
    outputs = [(jobs / f"{name}.{rank}").read_text() for rank in (0, 1)]
    assert all(output.endswith("exit code 0\n") for output in outputs), outputs
    return "".join(outputs)


def check_shared(output, processes, out, alone):
    assert f"{processes} processes share them" in output
    assert output.count("Selected 3 features") == 1
    same_result(out, alone)
    assert sorted(pd.read_csv(out / "selected.csv")["index"]) == [0, 1, 2]
    assert not (out / "checkpoint").exists()
    graphs = [DirichletSelector.load(folder / "model").graph_ for folder in (out, alone)]
    assert abs(graphs[0] - graphs[1]).max() < 1e-12


def test_two_processes_together_find_the_same_numbers_as_one(jobs, alone):
    check_shared(said(jobs, "npy"), 2, jobs / "npy", alone)


def test_four_processes_together_find_the_same_numbers_as_one(data, alone, tmp_path):
    process = torchrun(4, "-m", "homophily", "select", data, *OPTIONS, "--out", tmp_path / "out")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    check_shared(output, 4, tmp_path / "out", alone)


def test_processes_share_a_parquet_file(jobs, alone):
    assert "2 processes share them" in said(jobs, "parquet")
    found, expected = (pd.read_csv(out / "selected.csv") for out in (jobs / "parquet", alone))
    assert found["index"].tolist() == expected["index"].tolist()
    assert found["name"].tolist() == [f"f{i}" for i in expected["index"]]


def test_few_rows_are_not_shared(jobs, data, tmp_path):
    assert "each of the 2 processes does all of the work" in said(jobs, "few")
    command("select", data, *FEW, "--out", tmp_path / "one", "-q")
    same_result(jobs / "few", tmp_path / "one")


def test_each_process_holds_its_share_and_all_get_the_result(jobs):
    """From Python, and with a seed that nobody chose."""
    (held_0, result_0, threads_0), (held_1, result_1, threads_1) = (
        json.loads((jobs / f"fit.{rank}").read_text()) for rank in (0, 1)
    )
    assert (held_0, held_1) == ([501, 0], [502, 501])
    assert (threads_0, threads_1) == (0, 0)
    assert result_0 == result_1
    features, energy = result_0
    assert set(features) == {0, 1, 2}
    assert energy > 0


def wait_for(condition, process, seconds=600):
    """Poll until ``condition`` gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    raise TimeoutError


# Each process stops at a step, or before it joins, until it is killed if it is the victim; it says so by a file.
DISTURBED = """
import os
import sys
import time
from pathlib import Path

moment, victim, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
del sys.argv[1:4]
me = int(os.environ["RANK"])

import homophily.distributed as distributed
from homophily import cli, signals, training

def reached(what):
    (place / what).write_text(str(os.getpid()))

def wait_for_the_end():
    reached("victim")
    while True:
        time.sleep(60)

def tell(*values, progress=training.Progress):
    if me == victim and values[1] == 5:
        wait_for_the_end()
    if values[1] == 5:
        reached("survivor")  # and goes on to an exchange, to which the victim never comes
    return progress(*values)

def join(*arguments, usual=distributed.dist.init_process_group):
    if me == victim and moment == "joining":
        wait_for_the_end()
    if moment == "joining":
        reached("survivor")
    usual(*arguments)

def leave(usual=distributed.dist.destroy_process_group):
    reached("leaving")
    while moment == "leaving" and not signals.stop_requested():
        time.sleep(0.01)
    usual()

training.Progress = tell
distributed.dist.init_process_group = join
distributed.dist.destroy_process_group = leave
if moment == "silence":
    signals.PATIENCE = 0.5
cli.main()
"""
LOST = "Process {} of 0 to 1 lost contact with another process"


def state(pid):
    """The letter by which the system tells the state of a process; Z if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def pending(pid, number):
    """Whether a stopped process was sent a signal."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["ShdPnd"], 16) >> (number - 1) & 1


class Disturbed:
    """``torchrun ... homophily select`` with two processes, of which one waits at some moment to be killed."""

    def __init__(self, data, place, moment, victim):
        self.out = place / "out"
        self.saved = self.out / "checkpoint" / "training-0.safetensors"
        (place / "script.py").write_text(DISTURBED)
        command = ["select", data, *OPTIONS, "--checkpoint-every", 0, "--out", self.out]
        self.process = torchrun(2, place / "script.py", moment, victim, place, *command)
        self.place, self.rank = place, 1 - victim
        self.victim, self.survivor = self.reached("victim"), self.reached("survivor")

    def reached(self, what):
        """Number of the process that said so."""
        path = self.place / what
        return int(wait_for(lambda: path.exists() and path.read_text(), self.process))

    def send(self, number, *pids):
        for pid in pids:
            os.kill(pid, number)

    def wait_for(self, condition):
        wait_for(condition, self.process)

    def finish(self):
        output, _ = self.process.communicate(timeout=600)
        assert self.process.returncode != 0, output
        assert not (self.out / "selected.csv").exists()
        return " ".join(output.split())


@pytest.fixture
def disturbed(data, tmp_path):
    """Start a job; none is left behind when a test fails."""
    jobs = []

    def start(moment, victim):
        jobs.append(Disturbed(data, tmp_path, moment, victim))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.process.poll() is None:
            job.send(signal.SIGCONT, job.process.pid)
            job.process.kill()  # the others end with it
            job.process.communicate()


def survivor_ends_first(job):
    job.send(signal.SIGSTOP, job.process.pid)
    job.send(signal.SIGKILL, job.victim)
    job.wait_for(lambda: state(job.survivor) == "Z")
    job.send(signal.SIGCONT, job.process.pid)


def torchrun_ends_it_in_an_exchange(job):
    job.send(signal.SIGSTOP, job.survivor)
    job.send(signal.SIGKILL, job.victim)
    job.wait_for(lambda: pending(job.survivor, signal.SIGTERM))
    job.send(signal.SIGCONT, job.survivor)


def torchrun_ends_it_before_it_has_told(job):
    job.send(signal.SIGSTOP, job.process.pid)
    job.send(signal.SIGKILL, job.victim)
    job.reached("leaving")  # with the error in its hands, where it waits for the signal
    job.send(signal.SIGCONT, job.process.pid)


ORDERS = {
    survivor_ends_first: "training",
    torchrun_ends_it_in_an_exchange: "training",
    torchrun_ends_it_before_it_has_told: "leaving",
}
on_linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes in /proc")


@on_linux
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_a_dead_process_ends_the_job_and_nothing_saved_is_lost(disturbed, data, alone, order, victim):
    """The promise: a line of what happened, an exit code that is not 0, the checkpoint. Whoever notices first."""
    job = disturbed(ORDERS[order], victim)
    order(job)
    output = job.finish()
    assert LOST.format(1 - victim) in output
    assert f"The training is saved in {job.out / 'checkpoint'}" in output
    assert job.saved.exists()
    assert "Going on from" in select(data, job.out, "--resume")
    same_result(job.out, alone)
    assert not job.saved.exists()


@on_linux
def test_two_processes_go_on_only_if_they_are_told_to(disturbed, data, alone):
    job = disturbed("training", 0)
    job.send(signal.SIGKILL, job.victim)
    job.finish()
    outputs = []
    for more in ([], ["--resume"]):
        again = torchrun(2, "-m", "homophily", "select", data, *OPTIONS, "--out", job.out, *more)
        outputs.append(again.communicate(timeout=600)[0])
        assert (again.returncode == 0) == bool(more)
    assert "Add --resume to go on with it" in outputs[0]
    assert "Going on from" in outputs[1]
    same_result(job.out, alone)
    assert not job.saved.exists()


@on_linux
def test_a_process_that_does_not_answer_is_named_before_torchrun_kills_who_waits(disturbed):
    job = disturbed("silence", 0)
    job.send(signal.SIGSTOP, job.victim)
    job.send(signal.SIGTERM, job.process.pid)
    lines = iter(job.process.stdout.readline, "")
    told = next(line for line in lines if line.startswith("Process 1 was told to stop"))
    assert "another process of the job has ended or the job is stopped, and waits for another process" in told
    job.send(signal.SIGKILL, job.victim)
    assert LOST.format(1) in job.finish()
    assert job.saved.exists()


@on_linux
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_waits_for_a_dead_one_to_join_says_why_it_ends(disturbed, victim):
    job = disturbed("joining", victim)
    job.send(signal.SIGKILL, job.victim)
    assert "another process of the job has ended or the job is stopped" in job.finish()


def test_other_methods_and_one_process_are_left_alone(data, alone, tmp_path):
    process = torchrun(2, "-m", "homophily", "select", data, "-m", 3, "--method", "ls", "--out", tmp_path / "out")
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "torchrun trains --method dirichlet only" in output
    assert not launched()
    assert current_team() is ALONE
    assert (alone / "selected.csv").exists()
    process = torchrun(2, "-m", "homophily", "select", data, *OPTIONS, "--device", "cuda", "--out", tmp_path / "gpu")
    output, _ = process.communicate(timeout=300)
    if not torch.cuda.is_available():
        assert "--device 'cuda' is not available here" in output


def test_the_energy_without_a_graph_is_that_of_one_process(jobs, unlike, tmp_path):
    """Although the halves of the file, and so the shares of the processes, differ."""
    assert "2 processes share them" in said(jobs, "unlike")
    select(unlike, tmp_path / "one", "--final-graph", "none")
    together, alone = (DirichletSelector.load(out / "model").energy_ for out in (jobs / "unlike", tmp_path / "one"))
    assert together == alone


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
