"""Jobs on the workers of a Dask scheduler, done again if the workers that had them or their data are lost."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from .cell import Cell

if TYPE_CHECKING:
    from .running import Job

__all__ = ["Cluster", "connected"]

CONNECT = 10.0  # seconds in which a scheduler has to answer
POLL = 0.5  # seconds between looks at how many workers there are
ATTEMPTS = 4  # times that a job may be handed out; as many deaths of workers Dask takes for a job's fault

# BLAS's number of threads, warnings and processor time are those of a process, so one job at a time is in it.
_alone = threading.Lock()


@contextmanager
def connected(address: str, patience: float) -> Iterator[Cluster]:
    """The cluster of the scheduler at ``address``; its workers drop what they were asked for when this ends."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise ImportError('--backend dask needs Dask: pip install "homophily[dask]".') from error
    with _silent("distributed.client"):
        try:
            client = _opened(address)
        except (OSError, ValueError) as error:
            raise OSError(f"The Dask scheduler {address} cannot be reached: {error}.") from error
        with client:
            yield Cluster(client, address, patience)


def _opened(address: str) -> Any:
    """A client, opened by a thread: Dask waits for ever if somebody listens and is silent, and minds interruptions."""
    from distributed import Client

    class Attempt(Client):
        """A client that is closed if it cannot start.

        Otherwise it would be closed as garbage, at any moment: also while another client starts and holds the lock that
        it then waits for, in the same thread and so for ever.
        """

        def __init__(self) -> None:
            try:
                super().__init__(address, set_as_default=False, timeout=CONNECT)
            except BaseException:
                self.close()
                self._loop_runner.stop()  # which a client that failed does not close
                raise

    answers: SimpleQueue[Any] = SimpleQueue()
    given_up = threading.Event()

    def connect() -> None:
        try:
            client = Attempt()
        except Exception as error:
            answers.put(error)
            return
        answers.put(client)
        if given_up.is_set():
            client.close()

    threading.Thread(target=connect, daemon=True).start()
    try:
        answer = answers.get(timeout=2 * CONNECT)  # Dask's own message comes first, if there is one
    except Empty:
        given_up.set()
        raise OSError(f"no answer in {2 * CONNECT:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Disable a logger: Dask writes tracebacks of what is mended or raised in one line here."""
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class Cluster:
    """The workers of a Dask scheduler, which may come and go.

    Parameters
    ----------
    client : distributed.Client
        The connection.
    address : str
        Of the scheduler, for messages.
    patience : float
        Seconds to wait while there is no worker or no answer. A job takes the time it takes.
    """

    def __init__(self, client: Any, address: str, patience: float) -> None:
        self.client, self.address, self.patience = client, address, patience
        self.out: dict[Any, tuple[int, Job]] = {}  # futures of what is being done
        self.ready: SimpleQueue[Any] = SimpleQueue()  # futures of what is done, or lost
        self.data: dict[int, Any] = {}  # futures of the data that workers have, by their id here
        self.tried: Counter[int] = Counter()

    def results(self, jobs: Iterator[tuple[int, Job]]) -> Iterator[tuple[int, list[Cell]]]:
        """Hand out numbered jobs, as many as there are workers, and yield their measured cells as they finish."""
        while True:
            for number, job in islice(jobs, max(0, self._workers() - len(self.out))):
                self._hand_out(number, job)
            if not self.out:
                return
            try:
                future = self.ready.get(timeout=POLL)
            except Empty:
                continue
            number, job = self.out.pop(future)
            cells = self._result(future, job)
            if cells is None:
                self._hand_out(number, job)
            else:
                yield number, cells

    def _hand_out(self, number: int, job: Job) -> None:
        from .comparison import versions  # which imports this module

        self.tried[number] += 1
        if self.tried[number] > ATTEMPTS:
            raise self._deadly(job)
        with self._explained():
            future = self.client.submit(
                _work,
                self._sent(job.data),
                job.function,
                (*job.arguments, job.cells),
                versions(),
                key=f"{job.cells[0].method}-{uuid4().hex}",  # what Dask's dashboard shows
                pure=False,
            )
            self.out[future] = number, job
            future.add_done_callback(self.ready.put)  # called also if it is cancelled because its data are lost

    def _sent(self, data: Any) -> Any:
        """The future of ``data``, which all workers are sent, so that they are there as long as one of them is."""
        if data is None:
            return None
        future = self.data.get(id(data))
        if future is None or future.status != "finished":  # not yet sent, or lost
            future = self.data[id(data)] = self._scattered(data)
        return future

    def _scattered(self, data: Any) -> Any:
        from distributed.comm import CommClosedError

        for _ in range(ATTEMPTS - 1):
            # A worker that dies while it is sent them makes the scheduler hang up on us.
            with suppress(CommClosedError):
                return self._scatter(data)
            self._workers()
        return self._scatter(data)

    def _scatter(self, data: Any) -> Any:
        # By a name of their own: other drivers may send, and then drop, the same.
        return self.client.scatter(data, broadcast=True, hash=False, timeout=self.patience)

    def _result(self, future: Any, job: Job) -> list[Cell] | None:
        """The measured cells; None if they, or the data that they need, went with a worker."""
        from distributed import CancelledError, KilledWorker

        try:
            return future.result(timeout=self.patience)
        except (CancelledError, TimeoutError):
            return None
        except KilledWorker as error:
            raise self._deadly(job) from error
        except Exception as error:  # what goes wrong in a method is part of the result
            raise OSError(f"A worker of {self.address} cannot do its work: {type(error).__name__}: {error}") from error

    def _deadly(self, job: Job) -> ChildProcessError:
        return ChildProcessError(
            f"Workers of {self.address} died again and again, the last time at {job.cells[0].method}; is their memory "
            "too small?"
        )

    def _workers(self) -> int:
        """How many workers there are; waits for the first."""
        patient_until = time.monotonic() + self.patience
        while True:
            with self._explained():
                found = len(self.client.sync(self.client.scheduler.ncores, callback_timeout=self.patience))
            if found:
                return found
            if time.monotonic() > patient_until:
                raise OSError(f"The Dask scheduler {self.address} has had no worker for {self.patience:.0f} s.")
            time.sleep(POLL)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:  # also TimeoutError; RuntimeError: the client has closed
            raise OSError(f"The Dask scheduler {self.address} does not answer any more: {error}") from error


def _work(data: Any, function: Callable[..., list[Cell]], arguments: tuple, expected: dict[str, str]) -> list[Cell]:
    """What a worker does; refuses if it has other packages than the driver, under whose versions results are kept."""
    from .comparison import versions

    found = versions()
    if found != expected:
        other = [f"{name} {found[name]}, not {expected[name]}" for name in expected if found[name] != expected[name]]
        raise ImportError(f"it has {', '.join(other)}; install what the driver has.")
    with _alone:
        return function(data, *arguments)
