"""Unfinished training on disk: what a run needs to go on after it was stopped, killed or lost a machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from .persistence import plain, replacing

__all__ = ["Checkpoint", "Checkpoints", "forget", "is_unfinished", "saved_seeds"]

EVERY = 30.0  # seconds between two states
STATE = "training-{}.safetensors"


class Checkpoints(NamedTuple):
    """A folder for the states of a run, and the seconds between two of them."""

    folder: Path
    every: float = EVERY

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


def saved_seeds(folder: Path) -> list[int] | None:
    """The seeds of the run whose state is in ``folder``, if there is one."""
    path = folder / STATE.format(0)
    return _read(path)[1]["seeds"] if path.exists() else None


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], bool]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            run, finished = json.loads(metadata["run"]), json.loads(metadata["finished"])
            return {name: file.get_tensor(name) for name in file.keys()}, run, bool(finished)  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a checkpoint of homophily, or damaged: {error}") from error


class Checkpoint:
    """The state of one group of restarts in one file, replaced as a whole.

    Parameters
    ----------
    path : Path
        The file.
    run : dict
        What the run is: parameters and shape of the data. A state of another run is refused.
    data : ndarray
        Numbers by which the data is known again, up to rounding: its means, deviations and first row.
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
        metadata = {"run": json.dumps(self.run), "finished": json.dumps(finished)}
        with replacing(self.path) as draft:
            save_file({**arrays, "data": self.data}, draft, metadata)
        self.saved_at = time.monotonic()

    def load(self) -> tuple[dict[str, np.ndarray] | None, bool]:
        """The last state, if there is one, and whether the training had finished."""
        if not self.path.exists():
            return None, False
        arrays, run, finished = _read(self.path)
        other = [name for name in self.run if self.run[name] != run.get(name)]
        if other:
            differences = ", ".join(f"{name} was {run.get(name)!r} and is {self.run[name]!r}" for name in other)
            raise ValueError(
                f"{self.path} belongs to another run: {differences}. Give the same data and options as before, or "
                "begin anew in another place."
            )
        data = arrays.pop("data")
        if data.shape != self.data.shape or not np.allclose(data, self.data, rtol=1e-6, atol=1e-9):
            raise ValueError(
                f"{self.path} belongs to a run on other data of the same size; begin anew in another place."
            )
        return arrays, finished
