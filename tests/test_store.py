"""The run store: nothing finished is lost, doubled or changed."""

import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from old_stores import write_first_format

from homophily.evaluation import RunStore
from homophily.evaluation import store as module
from homophily.evaluation.store import FORMAT, Claim

WRITER = """
import sys
from homophily.evaluation.store import RunStore
path, name, first, last = sys.argv[1:]
with RunStore(path) as store:
    for i in range(int(first), int(last)):
        store.put({"cell": i}, {"by": name})
print("done", flush=True)
"""

CLAIMER = """
import sys
from homophily.evaluation.store import RunStore
store = RunStore(sys.argv[1])
print(store.claim([{"cell": 1}]), flush=True)
sys.stdin.read()
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


def interrupted_at(step, act):
    """Call ``act``, with Ctrl-C at the given one of the bytecodes that it has in Python; whether there are so many."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == step:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return seen >= step


def test_an_interrupt_at_any_moment_leaves_a_store_that_works():
    step = 0
    for step in range(1, 5000):
        with RunStore(":memory:") as store:
            store.put({"cell": 0}, 0)
            if not interrupted_at(step, lambda store=store: store.put_all([({"cell": 1}, 1), ({"cell": 2}, 2)])):
                break
            store.put({"cell": 3}, 3)
            assert len(store.keys()) in (2, 4)  # both or neither
    assert 100 < step < 4999


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


# --- claims ----------------------------------------------------------------------------------------------------------


def claims(path):
    """The rows of the table of claims: key to owner and end."""
    with closing(sqlite3.connect(path)) as connection:
        return {key: (owner, until) for key, owner, until in connection.execute("SELECT * FROM claims")}


def claim_by_hand(path, key, owner, until):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO claims VALUES (?, ?, ?)", (key, owner, until))


def test_files_of_the_first_format_keep_their_values(tmp_path):
    path = tmp_path / "runs.sqlite"
    write_first_format(path)
    for _ in range(2):  # the second time it is of the new format
        with RunStore(path) as store:
            assert list(store.items()) == [({"cell": 1}, {"score": 0.5})]
            assert store.claim([{"cell": 1}, {"cell": 2}]) == [Claim.DONE, Claim.OURS]
            store.release([{"cell": 2}])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)


def test_a_claim_holds_until_it_is_released_or_done(tmp_path):
    path = tmp_path / "runs.sqlite"
    keys = [{"cell": i} for i in range(3)]
    with RunStore(path) as one, RunStore(path) as other:
        assert one.claim(keys) == [Claim.OURS] * 3
        assert one.claim(keys[:1]) == [Claim.OURS]  # still
        assert other.claim(keys) == [Claim.TAKEN] * 3
        other.release(keys)  # of others: nothing happens
        assert other.claim(keys) == [Claim.TAKEN] * 3
        one.put(keys[0], "value")
        one.release(keys[1:2])
        assert other.claim(keys) == [Claim.DONE, Claim.OURS, Claim.TAKEN]
        assert one.claim(keys) == [Claim.DONE, Claim.TAKEN, Claim.OURS]
        other.put(keys[2], "sooner")  # what is there counts, whoever did it
        assert one.claim(keys) == [Claim.DONE, Claim.TAKEN, Claim.DONE]


def test_put_all_is_all_or_nothing(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        keys = [{"cell": i} for i in range(3)]
        store.claim(keys)
        with pytest.raises(TypeError, match="not JSON serializable"):
            store.put_all(zip(keys, [1, object(), 3], strict=True))
        with pytest.raises(TypeError, match="has no place in the key"):
            store.put_all([(keys[0], 1), ({"cell": object()}, 2)])
        assert store.keys() == []
        assert len(claims(path)) == 3
        store.put_all(zip(keys, [1, 2, 3], strict=True))
        assert list(store.items()) == list(zip(keys, [1, 2, 3], strict=True))
        assert claims(path) == {}


def test_a_transaction_that_breaks_off_leaves_nothing(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as store:
        store.put_all([({"cell": i}, i) for i in range(3)])

        def unwanted(key):
            if key["cell"] == 2:
                raise RuntimeError("no")
            return True

        with pytest.raises(RuntimeError, match="no"):
            store.remove(unwanted)
        assert len(store.keys()) == 3
        store.put({"cell": 3}, 3)  # and the next one goes through


def test_remove_and_keys(tmp_path):
    with RunStore(tmp_path / "runs.sqlite") as store:
        store.put_all([({"m": m, "method": method}, m) for m in (10, 9) for method in ("b", "a")])
        keys = store.keys()
        assert [(key["m"], key["method"]) for key in keys] == [(10, "a"), (10, "b"), (9, "a"), (9, "b")]
        assert store.remove(lambda key: key["m"] == 9) == 2
        assert store.remove(lambda key: key["m"] == 9) == 0
        assert store.keys() == [{"m": 10, "method": "a"}, {"m": 10, "method": "b"}]
        assert store.claim([{"m": 9, "method": "a"}]) == [Claim.OURS]  # to be done again


def test_claims_of_another_process_hold_while_it_lives(tmp_path):
    path = tmp_path / "runs.sqlite"
    claimer = subprocess.Popen(
        [sys.executable, "-c", CLAIMER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with claimer, RunStore(path) as store:
        try:
            assert "OURS" in claimer.stdout.readline()
            assert store.claim([{"cell": 1}, {"cell": 2}]) == [Claim.TAKEN, Claim.OURS]
        finally:
            claimer.send_signal(signal.SIGKILL)
            claimer.wait()
        assert claims(path)['{"cell":1}'][1] > time.time()  # would hold for long, if its owner lived
        assert store.claim([{"cell": 1}, {"cell": 2}]) == [Claim.OURS] * 2
        assert {owner for owner, _ in claims(path).values()} == {store.owner}


def test_claims_end_with_their_lease(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunStore(path) as living, RunStore(path) as store:
        now = time.time()
        claim_by_hand(path, '{"cell":1}', "elsewhere.example 1 abc", now + 1000)
        claim_by_hand(path, '{"cell":2}', "elsewhere.example 1 abc", now - 1)
        claim_by_hand(path, '{"cell":3}', living.owner, now - 1)
        claim_by_hand(path, '{"cell":4}', living.owner, now + 1000)
        answers = store.claim([{"cell": i} for i in range(1, 5)])
        assert answers == [Claim.TAKEN, Claim.OURS, Claim.OURS, Claim.TAKEN]
        assert claims(path)['{"cell":1}'] == ("elsewhere.example 1 abc", now + 1000)


def test_processes_of_other_users_live(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"

    def refused(pid, number):
        assert (pid, number) == (4321, 0)
        raise PermissionError

    with RunStore(path) as store:
        claim_by_hand(path, '{"cell":1}', f"{socket.gethostname()} 4321 abc", time.time() + 1000)
        monkeypatch.setattr(module.os, "kill", refused)
        assert store.claim([{"cell": 1}]) == [Claim.TAKEN]


def test_claiming_renews_and_releases(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    monkeypatch.setattr(module, "LEASE", 0.2)
    with RunStore(path) as store, RunStore(path) as other:
        other.claim([{"cell": 9}])
        others = claims(path)['{"cell":9}']
        with store.claiming():
            store.claim([{"cell": 1}])
            first = claims(path)['{"cell":1}'][1]
            for _ in range(10_000):
                if claims(path)['{"cell":1}'][1] > first + 0.2:  # more than once
                    break
                time.sleep(0.02)
            else:
                pytest.fail("The claim was not renewed.")
        assert claims(path) == {'{"cell":9}': others}
        assert other.claim([{"cell": 1}]) == [Claim.OURS]


def test_claiming_releases_after_an_error(tmp_path):
    path = tmp_path / "runs.sqlite"

    def work(store):
        with store.claiming():
            store.claim([{"cell": 1}])
            raise RuntimeError("no luck")

    with RunStore(path) as store:
        with pytest.raises(RuntimeError, match="no luck"):
            work(store)
        assert claims(path) == {}


def test_a_store_may_be_closed_while_it_claims(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LEASE", 0.04)  # renewed, in a thread, after the end
    with RunStore(tmp_path / "runs.sqlite") as store:
        claiming = store.claiming()
        claiming.__enter__()
        store.claim([{"cell": 1}])
    time.sleep(0.1)
    claiming.__exit__(None, None, None)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.get({"cell": 1})


# --- two processes at the same experiment ----------------------------------------------------------------------------

RUNNER = """
import os, sys, time
import numpy as np
from homophily.baselines import RandomSelector
from homophily.evaluation import Comparison, RunStore

class Slow(RandomSelector):
    nested = False

    def fit(self, X, y=None):
        with open(sys.argv[2], "a") as log:
            log.write(f"{os.getpid()} {self.n_features_to_select} {self.random_state}\\n")
        for _ in range(2000):  # both processes are at work before the first fit ends
            with open(sys.argv[2]) as log:
                if len({line.split()[0] for line in log}) == 2:
                    return super().fit(X)
            time.sleep(0.05)
        raise RuntimeError("The other process does nothing.")

if __name__ == "__main__":
    path = sys.argv[1]
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 2
    comparison = Comparison(
        X, y, methods={"slow": Slow()}, ms=[1, 2], splits=5, n_estimators=2, tasks=["accuracy"], with_random=False
    )
    with RunStore(path) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for cell in comparison.run(store):
            assert cell.failed is None, cell.failed
        found = comparison.finished(store)
    print(sorted([cell.split, cell.m, cell.accuracy] for cell in found))
"""


@pytest.mark.slow
def test_two_processes_share_an_experiment(tmp_path):
    path, log = tmp_path / "runs.sqlite", tmp_path / "log"
    script = tmp_path / "runner.py"
    script.write_text(RUNNER)
    runners = [
        subprocess.Popen(
            [sys.executable, str(script), str(path), str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [runner.stdout.readline() for runner in runners] == ["ready\n"] * 2
    for runner in runners:
        runner.stdin.write("go\n")
        runner.stdin.flush()
    ends = [runner.communicate(timeout=300)[0] for runner in runners]
    assert [runner.returncode for runner in runners] == [0, 0]
    assert ends[0] == ends[1]  # both have all cells
    fits = [line.split() for line in log.read_text().splitlines()]
    assert len(fits) == len({(m, seed) for _, m, seed in fits}) == 10  # each is done once
    assert len({pid for pid, _, _ in fits}) == 2  # and by both
    with RunStore(path) as store:
        assert len(store.keys()) == 10
    assert claims(path) == {}
