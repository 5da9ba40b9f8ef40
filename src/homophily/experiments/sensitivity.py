"""Fig. S3: how much the accuracy depends on the learning rate, k, the softness of the graph and m."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import pandas as pd

from ..evaluation import Comparison, RunStore, paper_table
from ..evaluation.tables import ResultTable
from ..joint import DirichletSelector
from .experiment import Experiment, Results
from .settings import Settings, numbers_of_features, ours

__all__ = ["SensitivityExperiment"]

BASE = "default"
BY_SIZE = "by size"  # a learning rate that follows the number of columns
VALUES: dict[str, tuple] = {
    "learning_rate": tuple(DirichletSelector.param_grid["learning_rate"]),
    "n_neighbors": (1, 2, 3, 4, 5),
    "reg": (1e-3, 1e-2, 1e-1, 0.3, 1.0),  # the paper's three, and where ours is
}
QUICK_VALUES: dict[str, tuple] = {"learning_rate": (1e-4, 1e-2, 1.0), "n_neighbors": (1, 5), "reg": (1e-2, 0.3)}
VARIANTS: dict[str, dict[str, Any]] = {"whole": {}, "training alone": {"refine": False}}


class SensitivityExperiment(Experiment):
    """Vary one parameter at a time around our defaults, at the m that the paper found best, and classify.

    The exchange of features that follows the training hides much of what the training depends on, so both are shown:
    the whole method, and the training alone.
    """

    name = "sensitivity"
    title = "Fig. S3: sensitivity to the parameters"
    datasets_of_paper: ClassVar = ("PCMAC", "Madelon", "Jaffe", "PROSTATE")
    quick_datasets: ClassVar = ("Madelon", "Jaffe")

    def _comparisons(self, dataset: str) -> Iterator[Comparison]:
        own = self.settings
        X, y = self._load(dataset)
        common: dict[str, Any] = {
            "dataset": dataset,
            "experiment": self.name,
            "tasks": ("accuracy",),
            "with_random": False,
            **own.judging(),
        }
        varied = {
            f"{variant}: {name}={value}": ours(**{name: value}, **options)
            for variant, options in VARIANTS.items()
            for name, values in (QUICK_VALUES if own.quick else VALUES).items()
            for value in values
            if value != getattr(ours(), name)
        }
        yield Comparison(X, y, methods=varied, ms=[best_m(dataset, own)], **common)
        bases = {f"{variant}: {BASE}": ours(**options) for variant, options in VARIANTS.items()}
        ms = sorted({*numbers_of_features(dataset, own), best_m(dataset, own)})
        yield Comparison(X, y, methods=bases, ms=ms, **common)

    def results(self, store: RunStore) -> Results:
        """A table for each parameter: one row a data set and variant, one column a value; the default is starred."""
        cells = self.finished(store)
        if cells.empty:
            return Results([], {"cells": cells}, self.settings.said())
        points = pd.concat([_points(cells, name, best_m(name, self.settings)) for name in cells["dataset"].unique()])
        tables = [_table(parameter, own) for parameter, own in points.groupby("parameter", sort=False)]
        return Results(tables, {"sensitivity": points, "cells": cells}, self.settings.said())


def best_m(dataset: str, settings: Settings) -> int:
    """The number of features at which the others are varied: where the paper's method classifies best, if it is run."""
    ms = numbers_of_features(dataset, settings)
    paper = paper_table().query("task == 'classification' and method == 'Our' and dataset == @dataset")
    found = int(paper["best_m"].iloc[0])
    return found if found in ms else max(ms)


def _points(cells: pd.DataFrame, dataset: str, at: int) -> pd.DataFrame:
    """Columns dataset, variant, parameter, value, mean, std, splits and whether it is the default."""
    found = (
        cells[cells["dataset"] == dataset]
        .groupby(["method", "m"], sort=False)["accuracy"]
        .agg(["mean", "std", "size"])
        .rename(columns={"size": "splits"})
        .reset_index()
    )
    found[["variant", "setting"]] = found["method"].str.split(": ", expand=True)
    base, varied = found[found["setting"] == BASE], found[found["setting"] != BASE]
    varied = varied.assign(
        parameter=varied["setting"].str.split("=").str[0], value=varied["setting"].str.split("=").str[1]
    )
    defaults = ours().get_params()
    starred = [
        base[base["m"] == at].assign(parameter=name, value=_shown(defaults[name]), default=True) for name in VALUES
    ]
    numbers = base.assign(parameter="m", value=base["m"].astype(str), default=base["m"] == at)
    points = pd.concat([varied.assign(default=False), *starred, numbers], ignore_index=True)
    return points.assign(dataset=dataset)[
        ["dataset", "variant", "parameter", "value", "m", "mean", "std", "splits", "default"]
    ]


def _shown(value: Any) -> str:
    return BY_SIZE if value is None else str(value)


def _table(parameter: str, points: pd.DataFrame) -> ResultTable:
    values = sorted(points["value"].unique(), key=_order)
    rows = []
    for (dataset, variant), own in points.groupby(["dataset", "variant"], sort=False):
        at = own.set_index("value")
        row = [f"{dataset}, {variant}"]
        for value in values:
            if value not in at.index:
                row.append("")
                continue
            cell = at.loc[value]
            row.append(f"{cell['mean']:.3f}" + ("*" if cell["default"] else ""))
        rows.append(row)
    return ResultTable(
        f"Accuracy against {parameter}",
        ["", *values],
        rows,
        ["* the default" + ("." if parameter != "m" else " m of the other tables.")],
    )


def _order(value: str) -> float:
    return math.inf if value == BY_SIZE else float(value)
