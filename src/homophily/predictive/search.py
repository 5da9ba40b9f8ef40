"""The selection: columns added one by one, then exchanged one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .lines import LeaveOneOut

__all__ = ["elimination_order", "exchange", "grow"]

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


def elimination_order(model: LeaveOneOut) -> list[int]:
    """The selected columns, the one that is missed least taken out first; the last one out comes first."""
    order: list[int] = []
    model.shorten(np.sort(model.chosen))
    while model.chosen:
        t = model.chosen[int(model.without().argmin())]
        model.remove(t)
        order.append(t)
    return order[::-1]
