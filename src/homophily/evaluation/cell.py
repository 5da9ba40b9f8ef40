"""One method on one split, with what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

__all__ = ["METRICS", "PLACE", "RANDOM", "Cell"]

METRICS = ("accuracy", "clustering", "reconstruction")
RANDOM = "random"  # the method that all others are measured against
NUMBERS = ("seconds", "judging", *METRICS, "spectral", "distinct")
PLACE = ("method", "m", "split", "draw", "params", "tuning")  # the fields of a cell that say which it is


@dataclass(frozen=True)
class Cell:
    """One method with m features on one split: planned, finished or failed."""

    method: str
    m: int | None  # None for a selector that has no choice, such as AllFeatures
    split: int  # -1: the further split on which the paper tunes
    draw: int = 0  # which of the random selections
    params: tuple[tuple[str, Any], ...] = ()  # parameters that were tuned, or are being tried
    tuning: bool = False  # whether it only serves to choose the parameters
    seconds: float | None = None  # of the fit, on one core
    judging: float | None = None  # seconds of the tasks, on one core
    accuracy: float | None = None
    clustering: float | None = None
    reconstruction: float | None = None
    spectral: float | None = None  # accuracy of spectral clustering of the learned graph
    distinct: int | None = None  # features that the columns of F name, each by its largest entry
    features: Sequence[int] = ()  # selected columns, the best first
    warnings: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # what one experiment alone keeps
    failed: str | None = None  # why
    by_chance: bool = False  # whether it may not fail another time, as when memory runs out

    @property
    def place(self) -> tuple:
        """Which cell it is, whatever was measured."""
        return tuple(getattr(self, name) for name in PLACE)

    @property
    def value(self) -> dict[str, Any]:
        """What was measured, as a store keeps it."""
        return {
            name: value
            for name, value in ((field.name, getattr(self, field.name)) for field in fields(self))
            if name not in (*PLACE, "by_chance") and value is not None and (name in NUMBERS or len(value))
        }

    def finished(self, value: Mapping[str, Any]) -> Self:
        """The same cell with what a store kept of it."""
        return replace(self, **value)
