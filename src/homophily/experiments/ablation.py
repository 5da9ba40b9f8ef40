"""Table 3, S4 and S5: what unique selection and the learned graph contribute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pandas as pd

from ..evaluation import Comparison, RunStore, paper_ablation
from ..evaluation.cell import METRICS
from ..evaluation.tables import LOWER_IS_BETTER, TASKS, ResultTable
from ..evaluation.tables import OURS as OURS_COLUMN
from ..evaluation.tables import THEIRS as PAPER_COLUMN
from .ablated import FixedGraphSelector, GraphOfAllFeatures
from .experiment import TASK_OF, Experiment, Results
from .settings import numbers_of_features, ours

__all__ = ["AblationExperiment"]

OURS, TRAINED, REPEATING, FIXED, FIXED_WIDE = (
    "homophily",
    "homophily, training alone",
    "w/o UFS",
    "w/o DGL",
    "w/o DGL, mean width",
)
HEAT, HEAT_WIDE, DGL_ONLY = "Heat", "Heat, mean width", "DGL only"
SIGMAS = FixedGraphSelector.param_grid["sigma"]
PAPER_NAME = {OURS: "Our", FIXED: "w/o DGL", HEAT: "Heat", DGL_ONLY: "DGL only"}


class AblationExperiment(Experiment):
    """Take parts of the method away: the orthogonal columns (UFS), the learned graph (DGL), the selection (FS).

    "w/o UFS" is trained without orthogonalisation; how many features its columns name is counted, and for the tasks
    they are made distinct. "w/o DGL" is the exact minimum on a fixed Heat graph. Both Heat graphs take, of the widths 1
    to 5 that the paper tries, the one with the best mean on the data set; a second row has the mean distance between
    neighbours instead.
    """

    name = "ablation"
    title = "Tables 3, S4 and S5: what the parts contribute"
    datasets_of_paper: ClassVar = ("Madelon", "PCMAC", "Jaffe", "PIX10", "GLIOMA", "PROSTATE")
    quick_datasets: ClassVar = ("Madelon", "Jaffe", "GLIOMA")

    def _comparisons(self, dataset: str) -> Iterator[Comparison]:
        own = self.settings
        X, y = self._load(dataset)
        ms = numbers_of_features(dataset, own)
        common = {"dataset": dataset, "experiment": self.name, "with_random": False, **own.judging()}
        features = {
            OURS: ours(),
            TRAINED: ours(refine=False),
            REPEATING: ours(refine=False, unique=False),
            **{f"{FIXED} {sigma}": FixedGraphSelector(sigma=sigma) for sigma in SIGMAS},
            FIXED_WIDE: FixedGraphSelector(sigma=None),
        }
        yield Comparison(X, y, methods=features, ms=ms, tasks=(*METRICS, "spectral", "distinct"), **common)
        graphs = {
            **{f"{HEAT} {sigma}": GraphOfAllFeatures(kind="heat", sigma=sigma) for sigma in SIGMAS},
            HEAT_WIDE: GraphOfAllFeatures(kind="heat", sigma=None),
            DGL_ONLY: GraphOfAllFeatures(),
        }
        yield Comparison(X, y, methods=graphs, ms=ms, tasks=("spectral",), **common)

    def results(self, store: RunStore) -> Results:
        """Accuracy of graphs, scores of features, and how many features the columns name."""
        cells = self.finished(store)
        if cells.empty:
            return Results([], {"cells": cells}, self.settings.said())
        scores = _best(cells, ["spectral", *METRICS])
        both = scores.merge(
            paper_ablation().assign(method=lambda table: table["method"].map({v: k for k, v in PAPER_NAME.items()})),
            on=["task", "dataset", "method"],
            how="left",
            suffixes=("", "_paper"),
        )
        distinct = _distinct(cells)
        tables = [_table(task, both[both["task"] == task]) for task in ("spectral", *TASKS)]
        tables.append(_distinct_table(distinct))
        return Results(
            [table for table in tables if table.rows],
            {"ablation": both, "distinct": distinct, "cells": cells},
            self.settings.said(),
        )


def _best(cells: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Mean and standard deviation of each method at its best m and, of the Heat graphs, its best width."""
    rows = []
    for metric in metrics:
        task = TASK_OF.get(metric, metric)
        sign = 1 if task in LOWER_IS_BETTER else -1
        by_m = (
            cells.dropna(subset=metric)
            .groupby(["dataset", "method", "m"], dropna=False, sort=False)[metric]
            .agg(["mean", "std", "size"])
            .reset_index()
        )
        by_m["method"], by_m["sigma"] = zip(*map(_family, by_m["method"]), strict=True) if len(by_m) else ([], [])
        best = (
            by_m.assign(loss=sign * by_m["mean"])
            .sort_values(["loss", "m"], kind="stable")
            .drop_duplicates(["dataset", "method"])
            .drop(columns="loss")
            .rename(columns={"m": "best_m", "size": "splits"})
        )
        rows.append(best.astype({"sigma": float}).assign(task=task))
    return pd.concat([own for own in rows if len(own)] or rows, ignore_index=True)[
        ["task", "dataset", "method", "sigma", "mean", "std", "best_m", "splits"]
    ].sort_values(["task", "dataset", "method"], kind="stable", ignore_index=True)


def _family(method: str) -> tuple[str, float | None]:
    """``("Heat", 2.0)`` of ``Heat 2.0``."""
    for family in (FIXED, HEAT):
        rest = method.removeprefix(f"{family} ")
        if rest != method:
            return family, float(rest)
    return method, None


def _distinct(cells: pd.DataFrame) -> pd.DataFrame:
    """Of m columns, how many name a feature of their own, with and without UFS; means over the splits."""
    trained = cells[cells["method"].isin([TRAINED, REPEATING])].dropna(subset="distinct")
    return (
        trained.groupby(["dataset", "m", "method"], sort=False)["distinct"]
        .agg(["mean", "min", "max", "size"])
        .rename(columns={"size": "splits"})
        .reset_index()
    )


def _distinct_table(distinct: pd.DataFrame) -> ResultTable:
    places = list(dict.fromkeys(zip(distinct["dataset"], distinct["m"], strict=True)))
    values = distinct.set_index(["dataset", "m", "method"])["mean"]
    rows = []
    for label, method in (("with UFS", TRAINED), ("w/o UFS", REPEATING)):
        means = [values.get((*place, method)) for place in places]
        rows.append([label, *("" if mean is None else f"{mean:.1f}" for mean in means)])
    return ResultTable(
        "Distinct features that the trained columns name",
        ["", *(f"{dataset}, m = {int(m)}" for dataset, m in places)],
        rows if places else [],
        ["Each column of F names the feature of its largest entry; before the assignment and exchange that follow."],
    )


TITLES = {"spectral": "Spectral clustering of the graph", **TASKS}
ROWS = {
    "spectral": (HEAT, HEAT_WIDE, DGL_ONLY, TRAINED, OURS),
    "features": (FIXED, FIXED_WIDE, REPEATING, TRAINED, OURS),
}


def _table(task: str, both: pd.DataFrame) -> ResultTable:
    datasets = list(both["dataset"].unique())
    found = both.set_index(["dataset", "method"])
    rows, best = [], set()
    methods = [name for name in ROWS.get(task, ROWS["features"]) if name in set(both["method"])]
    for name in methods:
        row = [name]
        for dataset in datasets:
            if (dataset, name) not in found.index:
                row += ["", ""]
                continue
            cell = found.loc[(dataset, name)]
            spread = "" if pd.isna(cell["std"]) else f" ±{cell['std']:.2f}"
            row += [
                f"{cell['mean']:.3f}{spread}",
                "" if pd.isna(cell["mean_paper"]) else f"{cell['mean_paper']:.2f}",
            ]
        rows.append(row)
    for column, dataset in enumerate(datasets):
        means = both[both["dataset"] == dataset].set_index("method")["mean"].reindex(methods).round(2)
        top = means.min() if task in LOWER_IS_BETTER else means.max()
        best |= {(row, 1 + 2 * column) for row, mean in enumerate(means) if mean == top}
    notes = [
        "ours: mean ± standard deviation over the splits, at the m and, of Heat and w/o DGL, the width of 1 to 5 that "
        "are best on these rows.",
        "paper: Tables 3, S4 and S5 of Xu et al. (NeurIPS 2023).",
    ]
    if task != "spectral":
        notes += [
            "w/o DGL is not trained: on a fixed graph the minimum of Eq. (3) is known.",
            "Features of w/o UFS are made distinct by assignment; see below for what its columns name.",
        ]
    return ResultTable(
        TITLES[task],
        ["method", *[OURS_COLUMN, PAPER_COLUMN] * len(datasets)],
        rows,
        notes,
        groups=["", *(name for name in datasets for _ in range(2))],
        best=frozenset(best),
    )
