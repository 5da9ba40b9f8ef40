"""Fig. 3: the toy data, their graphs and the selection matrices, with and without the Unique Feature Selector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .graphs import draw_graph
from .style import BLUE, ORANGE, VERMILION, blank, plain

__all__ = ["ToyResult", "toy_panels"]


class ToyResult(NamedTuple):
    """What Fig. 3 shows of one data set."""

    name: str
    X: np.ndarray  # (n, d), informative columns first
    y: np.ndarray  # (n,) 0 or 1
    heat: sp.sparray  # (n, n) graph of all columns
    learned: sp.sparray  # (n, n) with UFS
    F: np.ndarray  # (2, d) columns of the selection matrix
    repeating: sp.sparray  # (n, n) without UFS
    F_repeating: np.ndarray  # (2, d)


def toy_panels(results: Sequence[ToyResult]) -> Figure:
    """A row a data set: points in 3-D, Heat graph, learned graph and selection matrix, and these two without UFS."""
    figure = blank(13.2, 2.4 * len(results))
    grid = figure.add_gridspec(len(results), 6, width_ratios=[1.15, 1, 1, 1, 1, 1])
    titles = ["(a) data", "(b) Heat graph", "(c) learned graph", "(d) F", "(e) graph without UFS", "(f) F without UFS"]
    for line, result in enumerate(results):
        _points(figure.add_subplot(grid[line, 0], projection="3d"), result)
        panels = [figure.add_subplot(grid[line, at]) for at in range(1, 6)]
        graphs = (result.heat, result.learned, result.repeating)
        for axes, graph in zip((panels[0], panels[1], panels[3]), graphs, strict=True):
            draw_graph(axes, result.X[:, :2], graph, result.y, size=7)
        for axes, F in ((panels[2], result.F), (panels[4], result.F_repeating)):
            _matrix(axes, F)
        for axes, title in zip(figure.axes[-6:], titles, strict=True):
            if line == 0:
                axes.set_title(title, fontsize=11)
        panels[0].set_ylabel(result.name.capitalize(), fontsize=11)
    return figure


def _points(axes: Any, result: ToyResult) -> None:
    """The informative columns and one of noise, with their projections on the three planes."""
    P = result.X[:, :3]
    low, high = P.min(0) - 0.5, P.max(0) + 0.5
    colors = np.array([BLUE, VERMILION])[result.y]
    for at, wall in ((0, low[0]), (1, high[1]), (2, low[2])):
        shadow = P.copy()
        shadow[:, at] = wall
        axes.scatter(*shadow.T, s=1, c=colors, alpha=0.25, depthshade=False, linewidths=0)
    axes.scatter(*P.T, s=5, c=colors, depthshade=False, linewidths=0)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set(xticklabels=[], yticklabels=[], zticklabels=[])
    axes.tick_params(length=0)


def _matrix(axes: Axes, F: np.ndarray) -> None:
    """The columns of F as bars side by side."""
    features = np.arange(1, F.shape[1] + 1)
    for at, (column, color) in enumerate(zip(F, (BLUE, ORANGE), strict=True)):
        axes.bar(features + 0.4 * (at - 0.5), column, width=0.4, color=color, label=f"$f_{at + 1}$")
    axes.set_ylim(0, 1.05)
    axes.set_xticks([1, 5, 10, 15, 20][: 1 + F.shape[1] // 5])
    axes.set_xlabel("feature", fontsize=8)
    axes.legend(fontsize=8, frameon=False, loc="best")
    plain(axes)
