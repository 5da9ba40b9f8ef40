"""Results of experiments: beside the paper's and beside chance, over a parameter, over the number of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from .style import BLUE, COLORS, GREY, ORANGE, blank, literal, plain

__all__ = ["beside_paper", "gains_over_random", "growth", "sensitivity_curves"]

TASKS = {"classification": "accuracy", "clustering": "clustering accuracy", "reconstruction": "reconstruction RMSE"}


def beside_paper(table: pd.DataFrame, method: str = "dirichlet") -> Figure:
    """Our mean beside the paper's on each data set, a panel a task; bars are standard deviations over the splits.

    Parameters
    ----------
    table : DataFrame
        Columns ``task``, ``dataset``, ``method``, ``mean``, ``std``, ``paper_mean`` and ``paper_std``: table.csv of
        ``homophily reproduce table``.
    method : str
        Which of its methods.
    """
    own = table[(table["method"] == method) & table["paper_mean"].notna()]
    if own.empty:
        raise ValueError(f"The table has no row of {method!r} with a figure of the paper.")
    tasks = [task for task in TASKS if task in set(own["task"])]
    datasets = sorted(set(own["dataset"]))
    figure = blank(3.4 * len(tasks) + 0.6, 0.9 + 0.32 * len(datasets))
    panels = figure.subplots(1, len(tasks), squeeze=False, sharey=True)[0]
    for axes, task in zip(panels, tasks, strict=True):
        here = own[own["task"] == task].set_index("dataset").reindex(datasets)
        for column, color, shift, label in (("", BLUE, -0.14, "ours"), ("paper_", ORANGE, 0.14, "paper")):
            axes.errorbar(
                here[f"{column}mean"],
                np.arange(len(datasets)) + shift,
                xerr=here[f"{column}std"],
                fmt="o" if not column else "s",
                color=color,
                markersize=4,
                linewidth=1,
                label=label,
            )
        axes.set_title(TASKS[task], fontsize=10)
        axes.grid(axis="y", color=GREY, linewidth=0.3, alpha=0.5)
        plain(axes)
    panels[0].set_yticks(range(len(datasets)), datasets)
    panels[0].invert_yaxis()
    panels[-1].legend(fontsize=8, frameon=False, loc="best")
    return figure


def gains_over_random(gains: pd.DataFrame) -> Figure:
    """What each method gains over random features, a panel a measure; bars are standard errors, chance is the line.

    Parameters
    ----------
    gains : DataFrame
        Columns ``measure``, ``group`` (colours, such as "25 features"), ``method``, ``gain`` (positive is better) and
        ``error``. Methods come in the order of their mean gain in the first measure, the best on top.
    """
    gains = gains.dropna(subset="gain")
    measures, groups = list(dict.fromkeys(gains["measure"])), list(dict.fromkeys(gains["group"]))
    if not measures:
        raise ValueError("The table has no gain over random features.")
    order = gains[gains["measure"] == measures[0]].groupby("method")["gain"].mean().sort_values(ascending=False)
    methods = [*order.index, *sorted(set(gains["method"]) - set(order.index))]
    figure = blank(3.0 * len(measures) + 1.0, 1.2 + (0.2 + 0.08 * len(groups)) * len(methods))
    panels = figure.subplots(1, len(measures), squeeze=False, sharey=True)[0]
    for axes, measure in zip(panels, measures, strict=True):
        axes.axvline(0, color=GREY, linewidth=1)
        for place, group in enumerate(groups):
            here = gains[(gains["measure"] == measure) & (gains["group"] == group)].set_index("method")
            here = here.reindex(methods)
            axes.errorbar(
                here["gain"],
                np.arange(len(methods)) + (place - (len(groups) - 1) / 2) * min(0.24, 0.7 / len(groups)),
                xerr=here["error"].fillna(0),
                fmt="o",
                color=COLORS[place % len(COLORS)],
                markersize=4,
                linewidth=1.2,
                label=group,
            )
        axes.set_title(measure, fontsize=10)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.grid(axis="y", color=GREY, linewidth=0.3, alpha=0.5)
        plain(axes)
    panels[0].set_yticks(range(len(methods)), [literal(method, 24) for method in methods])
    panels[0].invert_yaxis()
    figure.supxlabel("gain over random features, positive is better", fontsize=9)
    if len(groups) > 1:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(groups), 6), fontsize=8, frameon=False)
    return figure


def sensitivity_curves(points: pd.DataFrame) -> Figure:
    """Accuracy over each parameter, a row a data set (Fig. S3); the best is starred, the default ringed.

    Parameters
    ----------
    points : DataFrame
        Columns ``dataset``, ``variant``, ``parameter``, ``value``, ``mean``, ``std`` and ``default``: sensitivity.csv
        of ``homophily reproduce sensitivity``.
    """
    datasets, parameters = list(dict.fromkeys(points["dataset"])), list(dict.fromkeys(points["parameter"]))
    figure = blank(2.5 * len(parameters), 1.9 * len(datasets) + 0.4)
    panels = figure.subplots(len(datasets), len(parameters), squeeze=False, sharey="row")
    for line, dataset in zip(panels, datasets, strict=True):
        for axes, parameter in zip(line, parameters, strict=True):
            here = points[(points["dataset"] == dataset) & (points["parameter"] == parameter)]
            for color, (variant, one) in zip(COLORS, here.groupby("variant", sort=False), strict=False):
                one = one.assign(number=pd.to_numeric(one["value"], errors="coerce")).sort_values("number")
                places = np.arange(len(one))
                axes.errorbar(
                    places, one["mean"], yerr=one["std"], color=color, marker=".", linewidth=1.2, label=variant
                )
                means, default = one["mean"].to_numpy(), one["default"].to_numpy(bool)
                best = means == np.max(means)
                axes.scatter(places[best], means[best], marker="*", s=110, color=color, zorder=3)
                axes.scatter(places[default], means[default], marker="o", s=130, color="none", edgecolors=color)
                axes.set_xticks(places, one["value"].astype(str))
            if dataset == datasets[-1]:
                axes.set_xlabel(parameter.replace("_", " "), fontsize=9)
            plain(axes)
        line[0].set_ylabel(dataset, fontsize=9)
    handles, labels = panels[0][0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8, frameon=False)
    return figure


def growth(table: pd.DataFrame) -> Figure:
    """Seconds of each part of a fit over the number of rows, in all in grey.

    Parameters
    ----------
    table : DataFrame
        Column ``rows`` and one of seconds for each part.
    """
    figure = blank(5.2, 3.2)
    axes = figure.subplots()
    parts = [column for column in table.columns if column != "rows"]
    axes.plot(table["rows"], table[parts].sum(axis=1), color=GREY, marker="o", linewidth=2, label="in all")
    for color, part in zip(COLORS, parts, strict=False):
        axes.plot(table["rows"], table[part], color=color, marker=".", linewidth=1.3, label=part)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("rows", fontsize=9)
    axes.set_ylabel("seconds", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    plain(axes)
    return figure
