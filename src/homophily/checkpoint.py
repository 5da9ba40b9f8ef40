"""Unfinished training on disk: what a run needs to go on after it was stopped, killed or lost a machine."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from .drafts import replacing
from .persistence import plain
from .shapes import Of, check_values

__all__ = ["Checkpoint", "Checkpoints", "forget", "is_unfinished", "saved_seeds"]

EVERY = 30.0  # seconds between two states
STATE = "training-{}.safetensors"


class Checkpoints(NamedTuple):
    """A folder for the states of a run, and the seconds between two of them.

    ``anew`` removes the states of an earlier run, once the training begins.
    """

    folder: Path
    every: float = EVERY
    anew: bool = False

    def group(self, number: int) -> Path:
        """The file of one group of restarts."""
        return self.folder / STATE.format(number)


def is_unfinished(folder: Path) -> bool:
    """Whether ``folder`` holds the state of a run."""
    return any(folder.glob(STATE.format("*")))


def forget(folder: Path) -> None:
    """Remove the states in ``folder``, and the folder if nothing else is in it."""
    for pattern in (STATE.format("*"), f".{STATE.format('*')}.*"):
        for path in folder.glob(pattern):
            path.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def saved_seeds(folder: Path, count: int | None = None) -> list[int] | None:
    """The seeds of the run whose state is in ``folder``, if there is one; ``count`` of them if that is given."""
    path = folder / STATE.format(0)
    if not path.exists():
        return None
    with _explained(path):
        seeds = _read(path)[1].get("seeds")
        if not isinstance(seeds, list) or not all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds):
            raise ValueError(f"its seeds are {str(seeds)[:50]!r}, expected a list of whole numbers")
        if count is not None and len(seeds) != count:
            raise ValueError(f"it has {len(seeds)} seeds, and this run needs {count}; give the same options as before")
    return seeds


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], bool]:
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        run, finished = json.loads(metadata["run"]), json.loads(metadata["finished"])
        if not isinstance(run, dict) or not isinstance(finished, bool):
            raise ValueError(
                f"it says of its run {str(run)[:50]!r} and {str(finished)[:50]!r}, expected a dict and a bool"
            )
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    expected, found = metadata["sha256"], _checksum(arrays)
    if found != expected:
        raise ValueError(f"the SHA-256 of its arrays is {found}, expected {expected[:64]}")
    return arrays, run, finished


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of the names and the content of all arrays."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(name.encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say of which file it is that something is wrong."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # a damaged file makes libraries raise nearly anything
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".") or type(error).__name__
        raise ValueError(
            f"{path} is not a checkpoint of homophily, or damaged: {why[:500]}. Begin anew in another place."
        ) from error


class Checkpoint:
    """The state of one group of restarts in one file, replaced as a whole.

    Parameters
    ----------
    path : Path
        The file.
    run : dict
        What the run is: parameters and shape of the data. A state of another run is refused.
    data : ndarray
        Numbers by which the data is known again, up to rounding: its means and deviations, and the order
        of its rows.
    every : float
        Seconds between two states.
    """

    def __init__(self, path: Path, run: dict[str, Any], data: np.ndarray, every: float = EVERY) -> None:
        self.path, self.data, self.every = path, data, every
        self.run = json.loads(json.dumps({name: plain(value) for name, value in run.items()}))
        self.saved_at = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time for another state."""
        return time.monotonic() - self.saved_at >= self.every

    def save(self, arrays: dict[str, np.ndarray], *, finished: bool) -> None:
        """Write a state; the one before is there until this one is complete."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        arrays = {**arrays, "data": self.data}
        metadata = {"run": json.dumps(self.run), "finished": json.dumps(finished), "sha256": _checksum(arrays)}
        with replacing(self.path) as draft:
            save_file(arrays, draft, metadata)
        self.saved_at = time.monotonic()

    def load(self, expected: dict[str, Of], lengths: dict[str, int]) -> tuple[dict[str, np.ndarray] | None, bool]:
        """The last state, if there is one, and whether the training had finished.

        Its arrays are as ``expected``, see :func:`~homophily.shapes.check_values`.
        """
        if not self.path.exists():
            return None, False
        with _explained(self.path):
            arrays, run, finished = _read(self.path)
        other = [name for name in self.run if self.run[name] != run.get(name)]
        if other:
            differences = ", ".join(f"{name} was {run.get(name)!r} and is {self.run[name]!r}" for name in other)
            raise ValueError(
                f"{self.path} belongs to another run: {differences}. Give the same data and options as before, or "
                "begin anew in another place."
            )
        with _explained(self.path):
            data = arrays.pop("data")
            check_values({"data": data, **arrays}, {"data": Of("f", self.data.shape), **expected}, dict(lengths))
        if not np.allclose(data, self.data, rtol=1e-6, atol=1e-9):
            raise ValueError(
                f"{self.path} belongs to a run on other data of the same size; begin anew in another place."
            )
        return arrays, finished
