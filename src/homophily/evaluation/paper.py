"""The results that Xu et al. (NeurIPS 2023) print, to hold our own against."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import pandas as pd

__all__ = ["PAPER_NAMES", "paper_ablation", "paper_table"]

PAPER_NAMES = {
    "cae": "CAE",
    "dufs": "DUFS",
    "wast": "WAST",
    "aefs": "AEFS",
    "ls": "LS",
    "rsr": "RSR",
    "udfs": "UDFS",
    "dirichlet": "Our",
    "all": "AllFea",
}
"""The paper's name of each of our methods that it compares, in its order; it has no random selection."""


def paper_table() -> pd.DataFrame:
    """Table 2 with the standard deviations of Tables S1 to S3: 12 data sets, 9 methods, 3 tasks.

    Returns
    -------
    DataFrame
        Columns task, dataset, method (as the paper names it), mean and std over 10 runs, and best_m, the number of
        features at which the mean is best (missing for AllFea). All numbers have the two digits that are printed.

    Examples
    --------
    >>> from homophily.evaluation import paper_table
    >>> paper_table().query("dataset == 'Yale' and method == 'Our'")[["task", "mean", "best_m"]]
                   task  mean  best_m
    34   classification  0.81     300
    142      clustering  0.62     300
    250  reconstruction  0.54     300
    """
    return _read("table2.csv").astype({"best_m": "Int64"})


def paper_ablation() -> pd.DataFrame:
    """Tables 3, S4 and S5: what the method loses without one of its parts, on 6 data sets.

    Returns
    -------
    DataFrame
        Columns task, dataset, method, mean and std. The task ``"spectral"`` is spectral clustering on the graph of
        ``"Heat"``, ``"DGL only"`` or ``"Our"``; the others compare ``"w/o DGL"`` with ``"Our"``.
    """
    return _read("ablation.csv").copy()


@cache
def _read(name: str) -> pd.DataFrame:
    with (files(__package__) / "data" / name).open(encoding="utf-8") as file:
        return pd.read_csv(file)
