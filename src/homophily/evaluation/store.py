"""Finished cells of an experiment in one SQLite file: a killed run loses none, and several processes may share it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

__all__ = ["RunStore"]

APPLICATION = int.from_bytes(b"hmph", "big")  # SQLite keeps this number in the header of the file
FORMAT = 1
PATIENCE = 60  # seconds to wait while another process writes


class RunStore:
    """Values under keys, both JSON; what is written once is never changed.

    Parameters
    ----------
    path : str or Path
        The file. It is made if it is not there.

    Examples
    --------
    >>> from homophily.evaluation import RunStore
    >>> with RunStore(":memory:") as store:
    ...     store.put({"method": "ls", "split": 0}, {"accuracy": 0.9})
    ...     store.get({"split": 0, "method": "ls"})
    {'accuracy': 0.9}
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        with self._explained():
            self._connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        try:
            with self._explained():
                self._connection.execute("BEGIN IMMEDIATE")  # of two processes that find no file one sets it up
                self._set_up()
                self._connection.execute("COMMIT")
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self) -> None:
        execute = self._connection.execute
        if not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            execute(f"PRAGMA application_id = {APPLICATION}")
            execute(f"PRAGMA user_version = {FORMAT}")
            execute("CREATE TABLE cells (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        elif execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise ValueError(f"{self.path} is an SQLite file of another program; {EXPECTED}")
        elif (found := execute("PRAGMA user_version").fetchone()[0]) != FORMAT:
            raise ValueError(
                f"{self.path} is a store of format {found}, and this version of homophily reads {FORMAT}; use the "
                "version that wrote it, or another file."
            )

    def get(self, key: Mapping[str, Any]) -> Any:
        """The value under ``key``, or None."""
        with self._explained():
            row = self._connection.execute("SELECT value FROM cells WHERE key = ?", (canonical(key),)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: Mapping[str, Any], value: Any) -> None:
        """Keep ``value`` under ``key``, on disk when this returns; nothing happens if there is a value already."""
        with self._explained():
            self._connection.execute("INSERT OR IGNORE INTO cells VALUES (?, ?)", (canonical(key), json.dumps(value)))

    def items(self) -> Iterator[tuple[dict[str, Any], Any]]:
        """All keys and values, in the order of their keys."""
        with self._explained():
            rows = self._connection.execute("SELECT key, value FROM cells ORDER BY key").fetchall()
        return ((json.loads(key), json.loads(value)) for key, value in rows)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what SQLite's errors mean: the file cannot be used now, or is none of ours."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(f"The store {self.path} cannot be used: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} is no store of results ({error}); {EXPECTED}") from error


EXPECTED = "expected a file that RunStore wrote, or none at that place."


def canonical(key: Mapping[str, Any]) -> str:
    """The one JSON text of ``key``, whatever the order of its entries."""
    return json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is of type {type(value).__name__}, which has no place in the key of a result.")
