"""Ctrl-C and SIGTERM: when they act, how often, and with which exit code."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from homophily.signals import STOPPING, _adopts, at_once, ending_in_order, held, on_stop, stop_requested

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
LIMIT = 600  # seconds, for what takes a moment: a machine may be busy


@pytest.fixture(autouse=True)
def _handlers_are_put_back():
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    assert {number: signal.getsignal(number) for number in STOPPING} == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(STOPPING) == set()


def send(number):
    signal.raise_signal(number)


def end(numbers, code):
    """What becomes of the exit code of a command that is sent signals."""
    try:
        with ending_in_order():
            for number in numbers:
                with suppress(KeyboardInterrupt):
                    send(number)
                assert stop_requested()
            raise SystemExit(code)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("numbers", "code", "expected"),
    [
        ([signal.SIGTERM], 130, 143),
        ([signal.SIGTERM, signal.SIGTERM], 130, 143),
        ([signal.SIGTERM, signal.SIGINT], 130, 143),
        ([signal.SIGINT], 130, 130),
        ([signal.SIGINT, signal.SIGTERM], 130, 130),
        ([signal.SIGTERM], 0, 0),  # it was done already
        ([signal.SIGTERM], 2, 2),
    ],
)
def test_a_command_ends_with_the_code_of_its_first_signal(numbers, code, expected):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
    try:
        assert end(numbers, code) == expected
    finally:
        signal.signal(signal.SIGINT, before)
    assert not stop_requested()


def test_sigterm_acts_once_and_ctrl_c_each_time():
    acts = []
    with ending_in_order(), on_stop(lambda: acts.append("stop"), even_if_ignored=True):
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            send(number)
    assert acts == ["stop"] * 3


def test_held_signals_come_after_the_block():
    acts = []
    with on_stop(lambda: acts.append("stop"), even_if_ignored=True):
        with held():
            send(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            blocked = subprocess.run(
                [sys.executable, "-c", "import signal; print(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))"],
                capture_output=True,
                check=True,
                text=True,
            )
            assert acts == []
        assert acts == ["stop"] * 2
    assert int(blocked.stdout) == 2  # processes that are started meanwhile do not notice them


def test_held_signals_come_after_an_error_too():
    acts = []

    def work():
        with held():
            send(signal.SIGTERM)
            raise OSError("disk full")

    with on_stop(lambda: acts.append("stop")):
        with pytest.raises(OSError, match="disk full"):
            work()
        assert acts == ["stop"]


def test_other_threads_leave_the_handlers_alone():
    found = []

    def work():
        with held(), at_once(), on_stop(lambda: None):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
time.sleep(600)
"""
CHILD = """
import os, threading
from homophily.signals import end_with
end_with(os.getppid())
print("here", flush=True)
threading.Event().wait()
"""


def test_a_process_ends_with_the_one_that_started_it():
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "here\n"
        parent.kill()
        parent.wait()
        ended, _, _ = select.select([parent.stdout], [], [], LIMIT)  # when nobody holds the pipe any more
        assert ended, "The process outlives the one that started it."
        assert parent.stdout.read() == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, -signal.SIGINT)])
def test_signals_at_once_end_a_process(number, code):
    script = (
        "import signal; from homophily.signals import at_once, ending_in_order\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"with ending_in_order(), at_once(): signal.raise_signal({int(number)})"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, "")


STOPPED_EARLY = """
import time
from joblib import delayed
from joblib.externals.loky.process_executor import _ExecutorManagerThread as Manager
from homophily.workers import results_of

pass_on = Manager.add_call_item_to_queue
Manager.add_call_item_to_queue = lambda self: pass_on(self) if self.executor_flags.shutdown else None
try:
    with results_of((delayed(time.sleep)(60) for _ in range(4)), 2):
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("stopped")
Manager.add_call_item_to_queue = pass_on
with results_of((delayed(abs)(-i) for i in range(4)), 2, in_order=True) as results:
    print(list(results))
"""


def test_workers_that_have_not_got_their_calls_yet_end_in_silence():
    command = [sys.executable, "-c", STOPPED_EARLY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["stopped", "[0, 1, 2, 3]"]


LEFT_ALONE = """
import os, sys, time
from pathlib import Path
from homophily.signals import ending_in_order

parent, told = int(sys.argv[1]), Path(sys.argv[2])
end = time.monotonic() + 600
while os.getppid() == parent and time.monotonic() < end:
    time.sleep(0.01)
try:
    with ending_in_order():
        told.write_text(f"at work, a child of {os.getppid()}.")
except SystemExit as stop:
    told.write_text(f"ended with {stop.code}.")
"""


def test_a_process_of_a_torchrun_that_is_gone_already_does_no_work(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    start = "import os, subprocess, sys; me = str(os.getpid()); "
    start += "subprocess.Popen([sys.executable, '-c', sys.argv[1], me, sys.argv[2]])"
    told = tmp_path / "told"
    subprocess.run([sys.executable, "-c", start, LEFT_ALONE, str(told)], check=True, timeout=LIMIT)
    end = time.monotonic() + LIMIT
    while not (told.exists() and told.read_text().endswith(".")) and time.monotonic() < end:
        time.sleep(0.05)
    text = told.read_text()
    if not _adopts(1) or (text.startswith("at work") and not text.endswith(" 1.")):
        pytest.skip("another process than the first adopts children here, or the first may be torchrun")
    assert text == "ended with 1."
