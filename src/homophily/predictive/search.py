"""The selection: columns added one by one, then exchanged one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .lines import LeaveOneOut

__all__ = ["exchange", "grow", "nested_order"]

EXACT = 32  # best candidates whose effect on the selected columns is computed exactly
SHORTLIST = 512  # columns that may be exchanged for a selected one


def grow(model: LeaveOneOut, m: int, tell: Callable[[float], bool]) -> None:
    """Add the column that lowers J most until ``m`` are selected; then shorten the candidates to the best.

    ``tell`` is called with J after each column. Once it returns True, the best columns of the last step fill the
    places.
    """
    J, stopped = np.empty(0), False
    while len(model.chosen) < m and not stopped:
        J, best = model.values(EXACT)
        t = best[J[best].argmin()]
        model.add(int(model.columns[t]))
        stopped = tell(float(J[t]))
    taken = set(model.chosen)
    order = [t for t in np.argsort(J, kind="stable").tolist() if t not in taken]
    for t in order[: m - len(model.chosen)]:
        model.add(t)
    model.shorten(np.array(sorted({*model.chosen, *order[: max(SHORTLIST - m, EXACT)]})))


def exchange(model: LeaveOneOut, tell: Callable[[float], bool]) -> None:
    """Take out each selected column in turn and put the best candidate into its place: J never rises."""
    for t in list(model.chosen):
        model.remove(t)
        J, best = model.values(EXACT, also=t)
        place = best[J[best].argmin()]
        model.add(int(model.columns[place]))
        if tell(float(J[place])):
            return


def nested_order(model: LeaveOneOut) -> list[int]:
    """The selected columns in the order in which the search adds them if there are no others."""
    model.shorten(np.sort(model.chosen))
    m = len(model.chosen)
    for t in list(model.chosen):
        model.remove(t)
    grow(model, m, lambda J: False)
    return model.chosen
