"""Finished cells of an experiment in one SQLite file: a killed run loses none, and several processes may share it."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import InputError, OutputError

__all__ = ["Claim", "RunStore"]

APPLICATION = int.from_bytes(b"hmph", "big")  # SQLite keeps this number in the header of the file
FORMAT = 2  # 1 had no claims
PATIENCE = 60.0  # seconds to wait while another process writes
LEASE = 60.0  # seconds for which a claim holds; it is renewed four times as often
CLAIMS = "CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID"


class Claim(Enum):
    """What became of the wish to do a cell."""

    OURS = "ours"  # nobody else does it
    DONE = "done"  # its value is in the store
    TAKEN = "taken"  # another process is at it


class RunStore:
    """Values under keys, both JSON; what is written once is never changed.

    Processes that share a store claim a key before they work on it, so that none is done twice. Claims are renewed
    while their process lives; those of a process that died are void, on the same machine at once and elsewhere after a
    minute.

    Parameters
    ----------
    path : str or Path
        The file. It is made if it is not there.
    patience : float, default=60.0
        Seconds to wait while another process writes.

    Raises
    ------
    OSError
        If the file cannot be used now, here and in every method.
    InputError
        If it is damaged or no store; it is then left as it is, and ``homophily runs recover`` can help.

    Examples
    --------
    >>> from homophily.evaluation import RunStore
    >>> with RunStore(":memory:") as store:
    ...     store.put({"method": "ls", "split": 0}, {"accuracy": 0.9})
    ...     store.get({"split": 0, "method": "ls"})
    {'accuracy': 0.9}
    """

    def __init__(self, path: str | Path, *, patience: float | None = None) -> None:
        self.path, self.patience = path, PATIENCE if patience is None else patience
        self.owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"
        self._lock = threading.RLock()  # joblib asks for work in threads of its own
        with self._explained():
            self._connection = sqlite3.connect(
                path, timeout=self.patience, isolation_level=None, check_same_thread=False
            )
        try:
            with self._transaction():  # of two processes that find no file one sets it up
                self._set_up()
            self._check()  # before work is done that could not be kept
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self) -> None:
        execute = self._connection.execute
        if not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            execute(f"PRAGMA application_id = {APPLICATION}")
            execute("CREATE TABLE cells (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
            found = 1
        elif execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise InputError(f"{self.path} is an SQLite file of another program; {EXPECTED}")
        else:
            found = execute("PRAGMA user_version").fetchone()[0]
        if found == 1:
            execute(CLAIMS)
            execute(f"PRAGMA user_version = {FORMAT}")
        elif found != FORMAT:
            raise InputError(
                f"{self.path} is a store of format {found}, and this version of homophily reads up to {FORMAT}; use "
                "the version that wrote it, or another file."
            )

    def _check(self) -> None:
        with self._explained():
            found = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise self._damaged(" ".join(found.split()))

    def get(self, key: Mapping[str, Any]) -> Any:
        """The value under ``key``, or None."""
        with self._explained():
            row = self._connection.execute("SELECT value FROM cells WHERE key = ?", (canonical(key),)).fetchone()
        return None if row is None else self._read(row[0])

    def put(self, key: Mapping[str, Any], value: Any) -> None:
        """Keep ``value`` under ``key``, on disk when this returns; nothing happens if there is a value already."""
        self.put_all([(key, value)])

    def put_all(self, pairs: Iterable[tuple[Mapping[str, Any], Any]]) -> None:
        """Keep all values under their keys, in one transaction, and give up our claims on them."""
        texts = [(canonical(key), json.dumps(value)) for key, value in pairs]
        with self._transaction():
            self._connection.executemany("INSERT OR IGNORE INTO cells VALUES (?, ?)", texts)
            self._forget(key for key, _ in texts)

    def items(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """All keys and values, in the order of their keys."""
        with self._explained():
            rows = self._connection.execute("SELECT key, value FROM cells ORDER BY key").fetchall()
        return ((self._key(key), self._read(value)) for key, value in rows)

    def keys(self) -> list[dict[str, Any]]:
        """All keys, in order."""
        with self._explained():
            rows = self._connection.execute("SELECT key FROM cells ORDER BY key").fetchall()
        return [self._key(key) for (key,) in rows]

    def remove(self, unwanted: Callable[[dict[str, Any]], bool]) -> int:
        """Delete the cells whose key is ``unwanted``; how many those were."""
        with self._transaction():
            keys = [key for (key,) in self._connection.execute("SELECT key FROM cells") if unwanted(self._key(key))]
            self._connection.executemany("DELETE FROM cells WHERE key = ?", [(key,) for key in keys])
        return len(keys)

    def claim(self, keys: Sequence[Mapping[str, Any]]) -> list[Claim]:
        """Take on those of ``keys`` that have no value and that no living process has claimed; one answer a key."""
        with self._transaction():
            return [self._claim(canonical(key)) for key in keys]

    def _claim(self, key: str) -> Claim:
        execute = self._connection.execute
        if execute("SELECT 1 FROM cells WHERE key = ?", (key,)).fetchone():
            return Claim.DONE
        held = execute("SELECT owner, until FROM claims WHERE key = ?", (key,)).fetchone()
        if held is not None and held[0] != self.owner and _holds(*held):
            return Claim.TAKEN
        execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (key, self.owner, time.time() + LEASE))
        return Claim.OURS

    def release(self, keys: Iterable[Mapping[str, Any]]) -> None:
        """Give up our claims on ``keys``, which have not been done."""
        with self._transaction():
            self._forget(map(canonical, keys))

    def _forget(self, keys: Iterable[str]) -> None:
        self._connection.executemany(
            "DELETE FROM claims WHERE key = ? AND owner = ?", [(key, self.owner) for key in keys]
        )

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Renew our claims while this lasts, and give up those that are left at its end."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(LEASE / 4):
                # A file that is locked now may not be so next time; a store may be closed before this is over.
                with suppress(OSError, ValueError, sqlite3.ProgrammingError), self._transaction():
                    self._connection.execute(
                        "UPDATE claims SET until = ? WHERE owner = ?", (time.time() + LEASE, self.owner)
                    )

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(1)  # it ends by itself, and would wait for a lock that an interrupt left to us
            with suppress(sqlite3.ProgrammingError), self._transaction():
                self._connection.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:  # SQLite crashes if a claim is being renewed meanwhile
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All that is done inside, or nothing."""
        with self._explained():
            if self._connection.in_transaction:  # of an interrupt that came before its body and so never ended it
                self._connection.execute("ROLLBACK")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what SQLite's errors mean: the file cannot be used now, is damaged or none of ours."""
        with self._lock:
            try:
                yield
            except sqlite3.ProgrammingError:  # says that the store is closed, nothing about the file
                raise
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", None)
                if code == sqlite3.SQLITE_NOTADB:
                    raise InputError(
                        f"{self.path} is no store of results ({error}); {EXPECTED} If it was one and is damaged: "
                        f"{self._remedy()}"
                    ) from error
                if code is None or code & 255 == sqlite3.SQLITE_CORRUPT:  # None: what it holds is no text
                    raise self._damaged(str(error)) from error
                if code & 255 in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise OSError(
                        f"The store {self.path} is locked: another process has not let go of it for {self.patience:g} "
                        "seconds. Try again when that is done, or end it."
                    ) from error
                message = f"The store {self.path} cannot be used: {error}."
                if code & 255 == sqlite3.SQLITE_CANTOPEN:
                    message += " Check that you may read and write it and the folder that it is in."
                if code & 255 not in LACKING:
                    raise OSError(message) from error
                again = "give the same command again: what is finished is kept"
                raise OutputError(f"{message} {LACKING[code & 255]}, then {again}.") from error

    def _key(self, text: str) -> dict[str, Any]:
        key = self._read(text)
        if not isinstance(key, dict):
            raise self._damaged(f"the key of a cell is {text[:20]!r}")
        return key

    def _read(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._damaged(f"a cell holds {text[:20]!r}") from error

    def _damaged(self, how: str) -> InputError:
        return InputError(f"The store {self.path} is damaged ({how}) and was left as it is. {self._remedy()}")

    def _remedy(self) -> str:
        return (
            f"'homophily runs recover {self.path} NEW' saves every cell that can still be read to a new store; with "
            "that in its place, the same command does the others."
        )


LACKING = {  # what SQLite says of the machine, and what helps
    sqlite3.SQLITE_FULL: "Make room on the disk",
    sqlite3.SQLITE_IOERR: "Check the disk and its limits (quota, ulimit -f)",
    sqlite3.SQLITE_READONLY: "Allow writing to it, or copy it to another place",
}
EXPECTED = "expected a file that RunStore wrote, or none at that place."


def _holds(owner: str, until: float) -> bool:
    """Whether the process that made a claim still lives, as far as can be known."""
    if time.time() > until:
        return False
    host, pid, _ = owner.split()
    if host != socket.gethostname() or os.name != "posix":  # elsewhere os.kill would end the process
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives, and is another user's
        pass
    return True


def canonical(key: Mapping[str, Any]) -> str:
    """The one JSON text of ``key``, whatever the order of its entries."""
    return json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is of type {type(value).__name__}, which has no place in the key of a result.")
