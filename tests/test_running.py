"""The engine: what is stored, claimed and yielded, whoever does the work."""

import sqlite3
from contextlib import closing

import pytest

from homophily.evaluation import Cell, RunStore, running
from homophily.evaluation.running import Backend, Job, execute
from homophily.evaluation.store import Claim


def double(data, cells):
    """What a worker does with a job."""
    done = []
    for cell in cells:
        if cell.method == "bad":
            done.append(Cell(*cell.place, failed="no luck"))
        else:
            done.append(Cell(*cell.place, accuracy=2.0 * data[cell.split]))
    return done


def make_job(method, split, ms=(1,), *, tuning=False):
    cells = [Cell(method, m, split, tuning=tuning) for m in ms]
    keys = [{"method": method, "split": split, "m": m} for m in ms]
    return Job(cells, keys, double, [10, 20, 30, 40, 50, 60], ())


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "POLL", 0.01)
    return tmp_path / "runs.sqlite"


def claimed(path):
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT key, owner FROM claims"))


def outcome(results):
    """Cells with their results, in no order."""
    return sorted(
        (cell.method, cell.split, cell.m, cell.accuracy, cell.failed) for _, cells in results for cell in cells
    )


def test_finished_cells_are_stored_and_failed_ones_released(path):
    jobs = [make_job("good", 0, (1, 2)), make_job("bad", 1), make_job("bad", 2, tuning=True), make_job("good", 3)]
    with RunStore(path) as store, RunStore(path) as other:
        results = execute(jobs, store, Backend())
        bad = jobs[1].keys
        for job, _ in results:
            if job.cells == jobs[1].cells:
                assert other.claim(bad) == [Claim.OURS]  # at once, and not at the end
                other.release(bad)
            else:
                assert other.claim(job.keys) == [Claim.DONE] * len(job.keys)  # before it is yielded
        values = {(key["method"], key["split"], key["m"]): value for key, value in store.items()}
        assert values == {
            ("good", 0, 1): {"accuracy": 20.0},
            ("good", 0, 2): {"accuracy": 20.0},
            ("bad", 2, 1): {"failed": "no luck"},  # of tuning that is a result
            ("good", 3, 1): {"accuracy": 80.0},
        }
    assert claimed(path) == []


def test_results_do_not_depend_on_the_number_of_jobs(tmp_path):
    found = []
    for n_jobs in (1, 2):
        jobs = [make_job("good", split, (1, 2)) for split in range(6)] + [make_job("bad", 0)]
        with RunStore(tmp_path / f"{n_jobs}.sqlite") as store:
            results = list(execute(jobs, store, Backend(n_jobs)))
            assert sorted(job.cells[0].split for job, _ in results) == [0, 0, 1, 2, 3, 4, 5]
            found.append((outcome(results), list(store.items())))
    assert found[0] == found[1]
    assert len(found[0][1]) == 12


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_closing_early_releases_what_was_claimed(path, n_jobs):
    jobs = [make_job("good", split) for split in range(6)]
    with RunStore(path) as store:
        results = execute(jobs, store, Backend(n_jobs))
        next(results)
        results.close()
        assert claimed(path) == []
        assert len(store.keys()) == 1
        left = [job for job in jobs if store.get(job.keys[0]) is None]
        assert len(list(execute(left, store, Backend(n_jobs)))) == 5
        assert len(store.keys()) == 6


def test_an_error_of_the_caller_releases_what_was_claimed(path):
    def start(job):
        if job.cells[0].split == 2:
            raise KeyError("stop")

    jobs = [make_job("good", split) for split in range(6)]
    with RunStore(path) as store:
        with pytest.raises(KeyError, match="stop"):
            list(execute(jobs, store, Backend(), start))
        assert [key["split"] for key, _ in store.items()] == [0, 1]
    assert claimed(path) == []


def test_what_others_finished_meanwhile_is_yielded(path):
    """Of one job half is done by another, which also finishes a whole one later and gives up a third."""
    jobs = [make_job("good", 0, (1, 2)), make_job("good", 1), make_job("good", 2), make_job("good", 3)]
    begun = []
    with RunStore(path) as store, RunStore(path) as other:
        others = {"accuracy": 0.5}
        other.put(jobs[0].keys[0], others)
        assert other.claim([jobs[1].keys[0], jobs[2].keys[0]]) == [Claim.OURS] * 2
        found = []
        for job, cells in execute(jobs, store, Backend(), begun.append):
            found.append((job, cells))
            if job.cells[0].split == 3:  # the last that can be done: now the other ends
                assert len(begun) == 2
                other.put(jobs[1].keys[0], others)
                other.release(jobs[2].keys)
    assert outcome(found) == [
        ("good", 0, 1, 0.5, None),
        ("good", 0, 2, 20.0, None),
        ("good", 1, 1, 0.5, None),
        ("good", 2, 1, 60.0, None),
        ("good", 3, 1, 80.0, None),
    ]
    assert [[(cell.split, cell.m) for cell in job.cells] for job in begun] == [[(0, 2)], [(3, 1)], [(2, 1)]]
    assert claimed(path) == []


def test_everything_done_by_others_needs_no_work(path):
    jobs = [make_job("good", split) for split in range(2)]
    begun = []
    with RunStore(path) as store:
        store.put_all((job.keys[0], {"accuracy": 0.25}) for job in jobs)
        found = list(execute(jobs, store, Backend(), begun.append))
    assert begun == []
    assert outcome(found) == [("good", 0, 1, 0.25, None), ("good", 1, 1, 0.25, None)]


def test_nothing_to_do(path):
    with RunStore(path) as store:
        assert list(execute([], store, Backend())) == []
