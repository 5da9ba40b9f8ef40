"""One self-contained HTML file that says what was run and what came out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from .._version import __version__

__all__ = ["write_report"]


COLORS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7")  # told apart by everyone
SHARES = ("confidence", "open")  # quantities between 0 and 1


def write_report(
    file: Path,
    *,
    summary: dict[str, Any],
    selected: list[dict],
    score_meaning: str,
    history: dict,
    notes: list[str],
    usage: str,
    path: dict[str, np.ndarray] | None = None,
    size_reason: str = "",
    stability: dict[str, Any] | None = None,
) -> Path:
    """Write ``report.html``.

    Parameters
    ----------
    file : Path
        File to write.
    summary : dict
        Facts of the run, shown in order.
    selected : list of dict
        ``rank``, ``index``, ``name``, ``score`` and ``copies`` (what could replace it, in words) of each selected
        feature; with ``stability`` also ``frequency``.
    score_meaning : str
        What the score is.
    history : dict of ndarray
        ``history_`` of the selector; empty if it has no steps.
    notes : list of str
        What the reader should know: dropped columns, early stops, warnings.
    usage : str
        Python code that loads the model.
    path, size_reason : dict of ndarray, str
        ``path_`` of the selector if the number of features was left to the data, and the reason in words.
    stability : dict, optional
        What refits on subsamples say, as :func:`homophily.refits.described` gives it.
    """
    environment = Environment(loader=PackageLoader("homophily.report"), autoescape=True, trim_blocks=True)
    page = environment.get_template("report.html.j2").render(
        version=__version__,
        summary=summary,
        selected=selected,
        score_meaning=score_meaning,
        largest=max(row["score"] for row in selected) or 1,
        curves=_curves({name: history[name] for name in history if name != "loss" or len(history) < 4}),
        energy="energy" in history,
        notes=notes,
        usage=usage,
        copies=any(row["copies"] for row in selected),
        path=_path(path, len(selected)) if path else None,
        size_reason=size_reason,
        stability=stability,
    )
    file.write_text(page, encoding="utf-8")
    return file


def _curves(history: dict[str, np.ndarray]) -> Markup | None:
    """What was watched over the steps."""
    if not history:
        return None
    steps = np.arange(1, len(next(iter(history.values()))) + 1)
    thin = np.unique(np.linspace(0, len(steps) - 1, 400).astype(int))  # no screen shows more points
    figure = Figure(figsize=(2.8 * len(history), 2.5), layout="constrained")
    panels = figure.subplots(1, len(history), squeeze=False)[0]
    for axes, (name, values), color in zip(panels, history.items(), COLORS, strict=False):
        axes.plot(steps[thin], values[thin], color=color, linewidth=1.5)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step", fontsize=9)
        if name in SHARES:
            axes.set_ylim(0, 1.02)
        elif 0 < 10 * values.min() < values.max():
            axes.set_yscale("log")
        _plain(axes)
    return _inline(figure)


def _path(path: dict[str, np.ndarray], m: int) -> Markup:
    """What selections of other sizes explain, in comparison with chance."""
    sizes = path["n_features"]
    figure = Figure(figsize=(8.4, 2.8), layout="constrained")
    share, count = figure.subplots(1, 2)
    share.plot(sizes, 100 * path["explained"], color=COLORS[0], marker=".", linewidth=1.5)
    share.plot(sizes, 100 * path["by_chance"], color=COLORS[2], linestyle="--", linewidth=1.5)
    share.set_title("% of the data explained (dashed: by chance)", fontsize=10)
    count.plot(sizes, path["discovered"], color=COLORS[1], marker=".", linewidth=1.5)
    count.set_title("features explained beyond chance", fontsize=10)
    count.set_ylim(bottom=0)
    for axes in (share, count):
        axes.axvline(m, color=COLORS[3], linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("features selected", fontsize=9)
        _plain(axes)
    return _inline(figure)


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=8, which="both")
    axes.spines[["top", "right"]].set_visible(False)


def _inline(figure: Figure) -> Markup:
    """SVG that takes the colour of the text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    return Markup(svg)  # drawn above from numbers alone
