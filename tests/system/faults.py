"""Commands that are disturbed at some moment of their life, and what is left of them.

Most runs are forked from a process that has imported everything, so that hundreds of them take minutes; the others are
processes of their own, which are also hit while they start.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

FAULTS = int(os.environ.get("HOMOPHILY_FAULTS", "2"))  # a command
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TIMEOUT = 600.0  # seconds after which a run counts as hanging
MARK = "HOMOPHILY_FAULT_MARK"  # variable of the environment by which the processes of a run are known


class Server:
    """A process that has imported what the commands need and forks a run when it is asked for one."""

    def __init__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", MARK: f"server {os.getpid()}"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        began = time.monotonic()
        self.process.stdout.readline()
        self.seconds = time.monotonic() - began  # that a command takes to start

    def start(self, arguments, log, *, fault=None):
        """Begin a run.

        Parameters
        ----------
        arguments : list of str
            Of the command.
        log : Path
            Where its output goes.
        fault : (operation, signal), optional
            Send itself the signal at that operation on files, counted from 1.
        """
        self._say({"arguments": list(map(str, arguments)), "log": str(log), "fault": fault})
        return Forked(self, json.loads(self.process.stdout.readline())["pid"], log)

    def _say(self, words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.wait(TIMEOUT)
        self.process.stdout.close()


class Run:
    """A command at work, in a session of its own."""

    def __init__(self, pid, log):
        self.pid, self.log = pid, log
        self.began = time.monotonic()

    def disturb(self, number, whole_group):
        if whole_group:
            os.killpg(self.pid, number)
        else:
            os.kill(self.pid, number)

    def output(self):
        return self.log.read_text(errors="replace")

    def finish(self):
        """Wait for the end; the exit code, that of a signal negative."""
        code = self._wait(TIMEOUT)
        if code is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._wait(TIMEOUT)
            raise AssertionError(f"hangs after {TIMEOUT} s: {self.output()}")
        return code


class Forked(Run):
    def __init__(self, server, pid, log):
        super().__init__(pid, log)
        self.server, self.reply = server, None

    def _wait(self, seconds):
        import select

        if self.reply is None:
            ready, _, _ = select.select([self.server.process.stdout], [], [], seconds)
            if ready:
                self.reply = json.loads(self.server.process.stdout.readline())
        return None if self.reply is None else self.reply["code"]

    def ended(self, seconds):
        """Wait so long, or for the end if that is earlier; whether it has ended."""
        return self._wait(seconds) is not None

    @property
    def operations(self):
        """On files, if the run came to its end."""
        return self.reply["operations"]

    def left(self):
        return _processes(lambda pid: os.getsid(pid) == self.pid)


class Fresh(Run):
    """In a process that is started for it, with whatever that starts."""

    count = 0

    def __init__(self, command, log):
        Fresh.count += 1
        self.mark = f"{os.getpid()} {Fresh.count}"
        with open(log, "w") as output:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**_plain_environment(), MARK: self.mark},
                # In the background of a shell Ctrl-C is ignored, and children would inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        super().__init__(self.process.pid, log)

    def _wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def left(self):
        mark = f"{MARK}={self.mark}".encode()
        return _processes(lambda pid: mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))


def _plain_environment():
    """One thread a process, and no job of torchrun but our own."""
    ours = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return {**ours, "OMP_NUM_THREADS": "1", "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}


def _processes(belongs):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The state comes after the name, which may hold anything but is the only thing in parentheses.
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and belongs(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:  # has ended, or is another user's
                pass
    return found


def orphans(run, seconds=60.0):
    """Processes of a run that are still there some time after its end; they are ended then."""
    end = time.monotonic() + seconds
    while (left := run.left()) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


class Account:
    """What was done to a command and what came of it."""

    def __init__(self, command):
        self.command = command
        drawn = secrets.randbelow(10**6) if "HOMOPHILY_FAULTS" in os.environ else 0
        self.seed = int(os.environ.get("HOMOPHILY_SEED", drawn))
        self.faults, self.phases = Counter(), Counter()
        self.too_late = self.orphans = self.lost = 0
        self.slowest = 0.0  # seconds from a signal to the end of the command

    def summary(self):
        return {
            "command": self.command,
            "seed": self.seed,
            "faults": sum(self.faults.values()),
            "by_signal": dict(self.faults),
            "by_phase": dict(self.phases),
            "too_late_and_not_counted": self.too_late,
            "results_lost": self.lost,
            "orphans": self.orphans,
            "longest_seconds_to_end": round(self.slowest, 1),
        }

    def write(self):
        """Put the figures so far, which a large round that is cut short leaves, beside those of the other commands."""
        if "HOMOPHILY_FAULTS" not in os.environ:
            return
        path = Path("artefacts/faults.json")
        path.parent.mkdir(exist_ok=True)
        others = json.loads(path.read_text()) if path.exists() else []
        kept = [summary for summary in others if summary["command"] != self.command]
        path.write_text(json.dumps([*kept, self.summary()], indent=2) + "\n")


# --- the server ------------------------------------------------------------------------------------------------------


def serve():
    """Fork a run for each line of standard input; returns in the child, as a fresh process of the command would."""
    import homophily.commands
    import homophily.compare
    import homophily.draw
    import homophily.reproduce  # noqa: F401

    _tell(ready=True)
    for line in sys.stdin:
        wish = json.loads(line)
        tally, count = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(tally)
            _become(wish, count)
            return
        os.close(count)
        _tell(pid=pid)
        _, status = os.waitpid(pid, 0)
        with os.fdopen(tally) as written:
            operations = written.read()
        _tell(code=os.waitstatus_to_exitcode(status), operations=int(operations or 0))
    os._exit(0)


def _tell(**words):
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _become(wish, count):
    os.setsid()
    log = os.open(wish["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number in (1, 2):
        os.dup2(log, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["homophily", *wish["arguments"]]
    _watch_files(wish["fault"], count)


def _watch_files(fault, count):
    """Count what is done to files, tell it at the end, and stumble at one of these operations if that is wished."""
    import atexit

    done, driver = 0, os.getpid()

    def hook(event, arguments):
        nonlocal done
        if event == "open":
            changes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        else:
            changes = event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "sqlite3.connect")
        if changes and os.getpid() == driver:
            done += 1
            if fault is not None and done == fault[0]:
                os.kill(driver, fault[1])

    sys.addaudithook(hook)
    atexit.register(lambda: os.write(count, str(done).encode()))


if __name__ == "__main__":
    serve()
    from homophily.cli import main

    main()
