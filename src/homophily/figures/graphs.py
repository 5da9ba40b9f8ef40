"""Graphs in the plane: signals on them (Fig. 1), and edges within and between classes (Fig. S2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..graph import laplacian, symmetrize
from .style import BLUE, COLORS, GREY, VERMILION, bare, blank, literal

__all__ = ["EmbeddedGraph", "draw_graph", "embedded_graphs", "sample_graph", "signals_on_graphs"]

RED, DARK = "#c0392b", "#333333"
MARKERS = "oD"  # of the first classes, and of those whose colours repeat


class EmbeddedGraph(NamedTuple):
    """A graph whose nodes have a place in the plane."""

    title: str
    points: np.ndarray  # (n, 2)
    graph: sp.sparray  # (n, n)


def signals_on_graphs(points: np.ndarray, panels: Mapping[str, tuple[sp.sparray, np.ndarray]]) -> Figure:
    r"""Fig. 1: a signal on a graph as bars that stand on its nodes, with the Dirichlet energy.

    Parameters
    ----------
    points : array (n, 2)
        Places of the nodes.
    panels : dict of (graph (n, n), signal (n,))
        What to draw, by title. Energies are :math:`v^\top L v` (Eq. 1) of the signal with mean 0 and length 1 on the
        symmetric graph.
    """
    figure = blank(3.4 * len(panels), 1.9)
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    ground = points @ np.array([[1.0, 0.0], [0.35, 0.45]])  # seen from above and aside
    tallest = np.ptp(ground[:, 0]) / 6
    for axes, (title, (graph, signal)) in zip(row, panels.items(), strict=True):
        S = symmetrize(graph)
        v = np.asarray(signal, float) - np.mean(signal)
        v = v / (np.linalg.norm(v) or 1)
        energy = float(v @ (laplacian(S) @ v))
        i, j = sp.triu(S, 1).tocoo().coords
        axes.add_collection(LineCollection(list(np.stack([ground[i], ground[j]], 1)), colors="#333333", linewidths=0.7))
        height = tallest * v / (np.abs(v).max() or 1)
        tops = ground + np.stack([np.zeros_like(height), height], 1)
        axes.add_collection(LineCollection(list(np.stack([ground, tops], 1)), colors=VERMILION, linewidths=1.6))
        axes.scatter(*ground.T, color=BLUE, s=12, zorder=3)
        axes.set_title(f"{title}\nenergy {energy:.2f}", fontsize=10)
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.set_ylim(ground[:, 1].min() - tallest, ground[:, 1].max() + tallest)
    return figure


def embedded_graphs(rows: Mapping[str, tuple[list[EmbeddedGraph], np.ndarray]]) -> Figure:
    """Fig. S2: graphs beside each other, a row a data set; edges within a class are red, between classes blue.

    Parameters
    ----------
    rows : dict of (list of EmbeddedGraph, labels (n,))
        What to draw, by data set; as many graphs in each.
    """
    width = max(len(graphs) for graphs, _ in rows.values())
    figure = blank(3.2 * width, 3.4 * len(rows))
    panels = figure.subplots(len(rows), width, squeeze=False)
    for line, (name, (graphs, y)) in zip(panels, rows.items(), strict=True):
        for axes, (title, points, graph) in zip(line, graphs, strict=True):
            between = draw_graph(
                axes, points, graph, y, within=RED, between=BLUE, color=DARK, size=min(9, 2500 / len(y))
            )
            axes.set_title(f"{name}, {title}\n{between:.1%} of edges join two classes", fontsize=10)
    lines = [Line2D([], [], color=color) for color in (RED, BLUE)]
    figure.legend(lines, ["within a class", "between classes"], loc="outside lower center", ncols=2, frameon=False)
    return figure


def sample_graph(
    points: np.ndarray, graph: sp.sparray, codes: np.ndarray | None = None, classes: Sequence[str] = ()
) -> Figure:
    """One graph in the plane, its samples coloured by ``classes[codes]`` if they are given."""
    figure = blank(6.4, 4.6)
    axes = figure.subplots()
    draw_graph(axes, points, graph, codes, size=14)
    for code, name in enumerate(classes):
        axes.scatter([], [], s=20, color=class_color(code), marker=class_marker(code), label=literal(name))
    if codes is not None and (np.asarray(codes) < 0).any():
        axes.scatter([], [], s=20, color=class_color(-1), label="no label")
    if classes:
        figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    axes.set_axis_off()
    return figure


def class_color(code: int) -> str:
    """Six colours, which repeat with another marker."""
    return COLORS[int(code) % len(COLORS)] if code >= 0 else GREY


def class_marker(code: int) -> str:
    """The shape of a sample."""
    return MARKERS[max(0, int(code)) // len(COLORS) % len(MARKERS)]


def draw_graph(
    axes: Axes,
    points: np.ndarray,
    graph: sp.sparray,
    y: np.ndarray | None = None,
    *,
    within: str = GREY,
    between: str = "#000000",
    color: str | None = None,
    size: float = 9,
) -> float:
    """Draw edges as wide as their similarity, and points; returns the share of edges between labels.

    Labels are integers from 0, or -1 where there is none. They colour and shape the points unless these have a
    ``color``; without them all look alike.
    """
    edges = graph.tocoo()
    i, j = edges.coords
    weight = edges.data / max(edges.data.max(initial=0), 1e-30)
    joins = np.zeros(len(i), bool) if y is None else np.asarray(y)[i] != np.asarray(y)[j]
    for shown, stroke, above in ((~joins, within, 1.0), (joins, between, 1.1)):
        segments = np.stack([points[i[shown]], points[j[shown]]], axis=1)
        lines = LineCollection(list(segments), linewidths=0.15 + weight[shown], colors=stroke, zorder=above)
        axes.add_collection(lines)
    labels = np.zeros(len(points), int) if y is None or color is not None else np.asarray(y)
    markers = np.array([class_marker(label) for label in labels])
    for marker in dict.fromkeys(markers.tolist()):
        here = markers == marker
        colors = [color or class_color(label) for label in labels[here]]
        axes.scatter(points[here, 0], points[here, 1], s=size, c=colors, marker=marker, zorder=2, linewidths=0)
    bare(axes)
    return float(joins.mean()) if len(joins) else 0.0
