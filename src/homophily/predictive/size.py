"""How many columns? As many as the others predict, or the knee of what they predict."""

from __future__ import annotations

import numpy as np

from .lines import AllColumns

__all__ = ["MOST", "knee", "predictable_columns"]

MOST = 256  # columns that are counted; half as many lie on a path whose knee is looked for
NOISE = 0.25  # share of the columns that has to be noise for the others to be counted
SHUFFLED = 20_000  # columns that stand for chance
ROUNDS = 5  # of predicting by those that count


def predictable_columns(Z: np.ndarray, ridge: float, rng: np.random.Generator) -> tuple[int, str]:
    """Count the columns of ``Z (n, d)`` of which the others predict more than of any column of noise.

    Returned with the rule of that number, ``"predicted"``, ``"knee"`` or ``"none"``. Noise is the same columns with
    their rows in another order. Columns that do not count only blur what the others predict, so all are predicted again
    by those that count, until these stay the same.
    """
    n, d = Z.shape
    counted = np.ones(d, dtype=bool)
    for _ in range(ROUNDS):
        predictors = AllColumns(Z[:, counted], ridge)
        chance = max(predictors.shares_of(Z[rng.permutation(n)]).max() for _ in range(-(-SHUFFLED // d)))
        shares = predictors.shares_of(Z)
        shares[counted] = predictors.shares()
        before, counted = counted, shares > max(chance, 0)
        count = int(counted.sum())
        if count > min((1 - NOISE) * d, MOST):
            return min(MOST // 2, max(1, d // 2)), "knee"
        if count < 2:
            return 1, "none"
        if (counted == before).all():
            break
    return count, "predicted"


def knee(explained: np.ndarray) -> int:
    """The number of columns where the rising curve is farthest above the straight line to its highest point."""
    rising = explained[: explained.argmax() + 1]
    return 1 + int((rising - np.linspace(rising[0], rising[-1], len(rising))).argmax())
