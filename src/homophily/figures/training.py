"""How training went, and what selections of other sizes predict."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from .style import BLUE, COLORS, PINK, blank, plain

__all__ = ["size_path", "training_curves"]

SHARES = ("confidence", "open")  # quantities between 0 and 1
POINTS = 400  # no screen shows more


def training_curves(history: Mapping[str, np.ndarray]) -> Figure:
    """What was watched over the steps, such as energy, temperature and confidence: ``history_`` of a selector."""
    if not history:
        raise ValueError("history is empty: this selector is not trained in steps.")
    steps = np.arange(1, len(next(iter(history.values()))) + 1)
    thin = np.unique(np.linspace(0, len(steps) - 1, POINTS).astype(int))
    figure = blank(2.8 * len(history), 2.5)
    panels = figure.subplots(1, len(history), squeeze=False)[0]
    for at, (axes, (name, values)) in enumerate(zip(panels, history.items(), strict=True)):
        axes.plot(steps[thin], values[thin], color=COLORS[at % len(COLORS)], linewidth=1.5)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step", fontsize=9)
        if name in SHARES:
            axes.set_ylim(0, 1.02)
        elif 0 < 10 * values.min() < values.max():
            axes.set_yscale("log")
        plain(axes)
    return figure


def size_path(path: Mapping[str, np.ndarray], m: int) -> Figure:
    """Share of the data that selections of other sizes predict: ``path_`` of a selector, and its m."""
    figure = blank(8.4, 2.8)
    axes = figure.subplots()
    axes.plot(path["n_features"], 100 * path["explained"], color=BLUE, marker=".", linewidth=1.5)
    axes.axvline(m, color=PINK, linewidth=1)
    axes.set_title("% of the data predicted, rows left out", fontsize=10)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("features selected", fontsize=9)
    plain(axes)
    return figure
