"""``homophily select --stability``: the selection again on parts of the samples, and what that says in words."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from . import memory
from .cli_common import FAILED, INTERRUPTED
from .joint import DirichletSelector
from .progress import refit_progress
from .runtime import resolve_device
from .signals import on_stop
from .stability import Stability, stability

__all__ = ["FRACTION", "Refits", "check_refits", "described", "in_words", "refit"]

FRACTION = 0.8  # of the samples that a refit sees
WORTHWHILE = 10.0  # seconds of work from which on it pays to start processes
EXCELLENT, POOR = 0.75, 0.4  # Nogueira et al. (2018), after Fleiss
OFTEN = 0.5  # frequency from which a feature that was not chosen is worth a word
MOST = 10  # of them


@dataclass(frozen=True)
class Refits:
    """What came of them: the stability, or a note why there is none and the exit code of the command."""

    stability: Stability | None = None
    note: str = ""
    code: int = 0


def check_refits(selector: Any, n: int) -> None:
    """Raise if parts of ``n`` samples have too few for the neighbours of the selector."""
    k, part = getattr(selector, "n_neighbors", 0), round(FRACTION * n)
    if part <= k < n:
        raise ValueError(
            f"--stability selects again on {part} of the {n} samples, and n_neighbors={k} must be less than that: "
            f"set it to {part - 1} or less, or leave out --stability."
        )


def refit(selector: Any, X: Any, n_subsamples: int, *, n_jobs: int, seconds: float, show: bool) -> Refits:
    """Select on random parts of ``X`` as the fitted ``selector`` did on all of it, in about ``seconds``.

    Whatever goes wrong, also Ctrl-C, is told in a note: what was found on all samples must not be lost with it.
    """
    missing = "How stable the selection is was not measured"
    if selector.interrupted_:
        return Refits(note=f"{missing}, because the training was stopped.", code=INTERRUPTED)
    # Of a GPU there is one, with its memory; and a limit to memory would have to do for all processes.
    if n_subsamples * seconds < WORTHWHILE or _on_gpu(selector) or memory.limited():
        n_jobs = 1
    try:
        with on_stop(_give_up, even_if_ignored=True), refit_progress(show, n_subsamples) as callback:
            found = stability(
                _Silent(_like(selector)),
                X,
                n_subsamples=n_subsamples,
                fraction=FRACTION,
                n_jobs=n_jobs,
                random_state=selector.random_state,
                callback=callback,
            )
    except KeyboardInterrupt:
        resumes = isinstance(selector, DirichletSelector)
        again = " The same command with --resume measures it without training again." if resumes else ""
        return Refits(note=f"{missing}: that was stopped. The features are complete.{again}", code=INTERRUPTED)
    except Exception as error:
        return Refits(note=f"{missing}: a selection on a part of the samples failed. {error}", code=FAILED)
    return Refits(found)


def in_words(found: Stability) -> str:
    """The index, its interval and how to read it, in lines that a terminal has room for."""
    low, high = map(_short, found.interval)
    return (
        f"Stability over {len(found.selections)} subsamples: {_short(found.index)} (95% interval {low} to {high}).\n"
        "1 would be the same features each time, 0 no more agreement than by chance."
    )


def described(found: Stability, chosen: np.ndarray, names: list[str]) -> dict[str, Any]:
    """What the report says."""
    left = np.setdiff1d(np.flatnonzero(found.frequency >= OFTEN), chosen)
    left = left[np.argsort(-found.frequency[left], kind="stable")]
    if found.index > EXCELLENT:
        answer, grade = "Largely.", "excellent"
    elif found.index >= POOR:
        answer, grade = "In part.", "fair to good"
    else:
        answer, grade = "Hardly.", "poor"
    low, high = map(_short, found.interval)
    return {
        "answer": answer,
        "grade": grade,
        "index": _short(found.index),
        "interval": f"{low} to {high}",
        "count": len(found.selections),
        "fraction": f"{FRACTION:.0%}",
        "others": [{"name": names[i], "index": i, "frequency": found.frequency[i]} for i in left[:MOST]],
        "more": max(0, len(left) - MOST),
    }


class _Silent(BaseEstimator):
    """A selector whose warnings are not repeated for each refit, in whatever process."""

    def __init__(self, selector: Any) -> None:
        self.selector = selector

    def fit(self, X: Any) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.selector_ = clone(self.selector).fit(X)
        return self

    def get_support(self) -> np.ndarray:
        return self.selector_.get_support()


def _like(selector: Any) -> Any:
    """An unfitted copy that selects as many features and does nothing else: no bar, no graph, no threads."""
    changes = {
        "n_features_to_select": len(selector.selected_features_),
        "verbose": False,
        "final_graph": "none",
        "n_jobs": 1,
    }
    copy = clone(selector)
    return copy.set_params(**{name: value for name, value in changes.items() if name in copy.get_params()})


def _on_gpu(selector: Any) -> bool:
    return hasattr(selector, "device") and resolve_device(selector.device).type != "cpu"


def _short(x: float) -> str:
    """``.82``, ``1.00``, ``-.05``."""
    return f"{round(x, 2) + 0.0:.2f}".replace("0.", ".", 1)


def _give_up() -> None:
    raise KeyboardInterrupt
