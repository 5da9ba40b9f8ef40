"""How much of an experiment is run: the paper's whole grid, or a part that takes minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..baselines import BASELINES
from ..evaluation import PROTOCOLS
from ..joint import DirichletSelector
from ..methods import METHODS
from ..predictive import PredictiveSelector
from ..wording import counted

__all__ = ["PAPER", "QUICK_GRIDS", "Settings", "numbers_of_features", "selector_for"]

PAPER = "dirichlet-paper"  # our method with every choice as in the paper
QUICK_GRIDS: dict[str, dict[str, list]] = {
    "dirichlet": {"learning_rate": [1e-4, 1e-1], "n_neighbors": [1, 5]},
    PAPER: {"learning_rate": [1e-4, 1e-1]},
    "rsr": {"reg": [1e-3, 1.0, 1e3]},
    "udfs": {"reg": [1e-3, 1.0, 1e3]},
    "aefs": {"reg": [1e-6, 1e-3, 1.0]},
}
PAPER_NUMBERS = (25, 50, 75, 100, 150, 200, 300)
MADELON_NUMBERS = (5, 10, 15, 20)  # it has 20 useful columns
QUICK_NUMBERS = (50, 300)
QUICK_MADELON_NUMBERS = (10, 20)


@dataclass(frozen=True)
class Settings:
    """What the user asked for; None leaves it to the experiment."""

    quick: bool = False
    protocol: str = "default"
    datasets: Sequence[str] | None = None
    methods: Sequence[str] | None = None
    ms: Sequence[int] | None = None
    splits: int | None = None
    n_estimators: int | None = None
    random_draws: int | None = None
    max_updates: int | None = None
    seed: int = 0
    data_dir: Path | None = None

    @property
    def literal(self) -> bool:
        """Whether methods run with the paper's own settings: where its protocol is followed in full."""
        return self.protocol == "paper" and not self.quick

    def judging(self) -> dict[str, Any]:
        """How splits are made and judged, as :class:`~homophily.evaluation.Comparison` takes it."""
        return {
            "splits": self.splits or (2 if self.quick else 10),
            "n_estimators": self.n_estimators or (200 if self.quick else 1000),
            "random_draws": self.random_draws or (2 if self.quick else 5),
            "max_updates": self.max_updates or (2000 if self.quick else None),
            "seed": self.seed,
        }

    def said(self) -> list[str]:
        """In words, for the tables."""
        own = self.judging()
        lines = [
            f"Protocol {self.protocol}: {PROTOCOLS[self.protocol]}.",
            f"{counted(own['splits'], 'random split')} 8:2, forests of {counted(own['n_estimators'], 'tree')}, "
            f"{counted(own['random_draws'], 'random selection')} a split, seed {own['seed']}.",
        ]
        if own["max_updates"] is not None:
            lines.append(
                f"Reconstruction networks are trained for at most {own['max_updates']} steps of Adam; the full setting "
                "is 200 passes over the rows."
            )
        if self.quick and self.protocol != "default":
            tried = "; ".join(
                f"{method} {', '.join(f'{name} {values}' for name, values in grid.items())}"
                for method, grid in QUICK_GRIDS.items()
                if self.methods is None or method in self.methods
            )
            lines.append(f"Tried, instead of the paper's grids: {tried}.")
        return lines


def numbers_of_features(dataset: str, settings: Settings) -> Sequence[int]:
    """The m that are tried on a data set."""
    if settings.ms is not None:
        return settings.ms
    if dataset == "Madelon":
        return QUICK_MADELON_NUMBERS if settings.quick else MADELON_NUMBERS
    return QUICK_NUMBERS if settings.quick else PAPER_NUMBERS


def ours(**parameters: Any) -> DirichletSelector:
    """The paper's method as we train it: our defaults for all that ``parameters`` do not set."""
    return DirichletSelector(objective="energy", **parameters)


def selector_for(method: str, dataset: str, *, literal: bool) -> Any:
    """The selector of that name with the parameters that it has on a data set.

    ``literal`` asks for the paper's settings. Otherwise these are our defaults, but for what the paper sets on single
    data sets. Of its own method the solver is ours in any case: it reaches what 200 Bregman iterations have not, and
    sooner.
    """
    if method == PAPER or (method == "dirichlet" and literal):
        return DirichletSelector.from_paper(solver="newton")
    if method not in METHODS:
        raise ValueError(f"There is no method {method!r}; known are {', '.join((*METHODS, PAPER))}.")
    if method == "dirichlet":
        return ours()
    if method == "predictive":
        return PredictiveSelector()
    kind = BASELINES[method]
    return kind.from_paper(dataset=dataset) if literal else kind.for_dataset(dataset)
