"""Means over splits, and differences to random selection on the same splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .cell import METRICS, RANDOM, Cell

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["summary"]

COLUMNS = [
    *("m", "method", "n_features", "splits", "seconds"),
    *(f"{metric}{part}" for metric in METRICS for part in ("", "_sd", "_gain", "_gain_se")),
    *("failed_splits", "failure"),
]


def summary(cells: Iterable[Cell]) -> pd.DataFrame:
    """Means over the splits, one row for each m and method; at each m the best first: by accuracy, if there is any.

    For each of ``METRICS`` there are its mean, its standard deviation ``_sd`` over the splits, and ``_gain``: its
    difference to random selection on the same split, with the standard error ``_gain_se`` of that mean (both NaN where
    there are too few splits). Random draws of one split are averaged first. A method without m is shown at every m.
    ``failed_splits`` counts those on which a method failed, and ``failure`` is the first reason.
    """
    import pandas as pd

    cells = sorted(cells, key=lambda cell: (cell.method, cell.split, cell.draw))
    rows = []
    for m in sorted({cell.m for cell in cells if cell.m is not None}):
        here = [cell for cell in cells if cell.m in (m, None)]
        random = _by_split(cell for cell in here if cell.method == RANDOM)
        for method in dict.fromkeys(cell.method for cell in here):
            own = [cell for cell in here if cell.method == method]
            scores = _by_split(own)
            gains = (scores - random).dropna(how="all")
            failures = [cell for cell in own if cell.failed is not None]
            row: dict[str, Any] = {
                "m": m,
                "method": method,
                "n_features": scores["n_features"].mean(),
                "splits": len(scores),
                "seconds": scores["seconds"].mean(),
            }
            for metric in METRICS:
                row |= {
                    metric: scores[metric].mean(),
                    f"{metric}_sd": scores[metric].std(),
                    f"{metric}_gain": gains[metric].mean(),
                    f"{metric}_gain_se": gains[metric].sem(),
                }
            row["failed_splits"] = len({cell.split for cell in failures})
            row["failure"] = failures[0].failed if failures else ""
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS).sort_values(
        ["m", "accuracy", "reconstruction", "method"], ascending=[True, False, True, True], ignore_index=True
    )


def _by_split(cells: Iterable[Cell]) -> pd.DataFrame:
    """What finished cells of one method measured, averaged over the draws; one row a split."""
    import pandas as pd

    rows = [
        (cell.split, len(cell.features), cell.seconds, *(getattr(cell, metric) for metric in METRICS))
        for cell in cells
        if cell.failed is None
    ]
    columns = ["split", "n_features", "seconds", *METRICS]
    return pd.DataFrame(rows, columns=columns).astype(float).groupby("split").mean()
