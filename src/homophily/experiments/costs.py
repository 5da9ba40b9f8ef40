r"""How long cells will take, from what they took before.

The seconds of one core of a fit follow :math:`\log t = a + b \log n + c \log d + e \log m`, with coefficients for each
selector in ``data/costs.csv``, fitted by ``benchmarks/costs.py`` to a run on ten data sets. They are rough: within a
factor of two or three of other machines and data.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import exp, log
from typing import Any

import pandas as pd

from ..evaluation import Comparison
from ..evaluation.running import Job
from ..joint import DirichletSelector
from .toy import M, Toy

__all__ = ["JUDGING", "estimate"]

JUDGING = "judging"  # the row of the three tasks together
UPDATES = 2000  # steps of the reconstruction when that row was measured
TREES = 200
TUNING_SHARE = 0.3  # classification alone, of all tasks
PAPER_STEP = (1e-6, 2.5e-7)  # seconds a step of the paper's settings: by n², by d m


@cache
def coefficients() -> dict[str, tuple[float, float, float, float]]:
    """The four numbers of each selector, by its class."""
    table = pd.read_csv(str(files(__package__) / "data" / "costs.csv"), index_col="selector")
    return {str(name): tuple(row) for name, row in zip(table.index, table.to_numpy(), strict=True)}


def estimate(job: Job) -> float:
    """Seconds of one core that a job will take; of a selector of which nothing is known, to judge it."""
    if isinstance(job.owner, Toy):
        return (_fit_seconds(job.owner.selector, *job.owner.shape, M) if job.owner.selector else None) or 0.0
    n, d = job.owner.X.shape
    n = max(1, round(n * (1 - job.owner.judge.test_size)))
    cell = job.cells[-1]
    selector = job.owner.selectors[cell.method]
    fit = _fit_seconds(selector, n, d, cell.m or d)
    judging = sum(_judging_seconds(job.owner, n, d, each.m or d, tuning=each.tuning) for each in job.cells)
    return judging if fit is None else fit + judging


def _fit_seconds(selector: Any, n: int, d: int, m: int) -> float | None:
    if isinstance(selector, DirichletSelector) and selector.literal:
        return selector.max_iter * (PAPER_STEP[0] * n**2 + PAPER_STEP[1] * d * m)
    known = coefficients().get(type(selector).__name__)
    return None if known is None else _power(known, n, d, m)


def _judging_seconds(comparison: Comparison, n: int, d: int, m: int, *, tuning: bool) -> float:
    judge = comparison.judge
    base = _power(coefficients()[JUDGING], n, d, m)
    if tuning or "reconstruction" not in judge.tasks:
        return base * TUNING_SHARE * judge.n_estimators / TREES
    passes = 200 * -(-n // max(n // 256, 16))  # steps of the reconstruction if it is not bounded
    steps = min(passes, judge.max_updates or passes) / min(passes, UPDATES)
    return base * (TUNING_SHARE * judge.n_estimators / TREES + (1 - TUNING_SHARE) * steps)


def _power(known: tuple[float, float, float, float], n: int, d: int, m: int) -> float:
    a, b, c, e = known
    return exp(a + b * log(n) + c * log(d) + e * log(m))
