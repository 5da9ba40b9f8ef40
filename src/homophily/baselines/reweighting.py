"""What RSR and UDFS share: rounds of reweighting until the objective settles."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..progress import Steps

__all__ = ["SMOOTHING", "settle"]

SMOOTHING = 1e-8  # |w| is sqrt(|w|^2 + SMOOTHING^2), so that no weight 1 / |w| is infinite


def settle(
    rounds: Iterator[tuple[float, np.ndarray]], steps: Steps, *, method: str, max_iter: int, tol: float
) -> np.ndarray:
    """Norms of the rows of W after the first of ``rounds`` that lowers the objective by no more than ``tol`` of it.

    Each round yields the objective and the norms. Warns if none of the first ``max_iter`` did.
    """
    objective = fall = np.inf
    for _ in steps.plan(max_iter):
        value, norms = next(rounds)
        fall, objective = objective / value - 1, value
        if steps(objective=objective) or fall <= tol:
            break
    if fall > tol and not steps.stopped:
        warnings.warn(
            f"{method} did not converge: the last of {max_iter} rounds lowered the objective by {fall:.1e} of it, more "
            f"than tol={tol:g}. Raise max_iter.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return norms
