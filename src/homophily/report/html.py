"""One self-contained HTML file that says what was run and what came out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib.figure import Figure

from .._version import __version__

__all__ = ["write_report"]


COLORS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7")  # told apart by everyone
SHARES = ("confidence", "open")  # quantities between 0 and 1


def write_report(
    path: Path,
    *,
    summary: dict[str, Any],
    selected: list[dict],
    score_meaning: str,
    history: dict,
    notes: list[str],
    usage: str,
) -> Path:
    """Write ``report.html``.

    Parameters
    ----------
    path : Path
        File to write.
    summary : dict
        Facts of the run, shown in order.
    selected : list of dict
        ``rank``, ``index``, ``name`` and ``score`` of each selected feature.
    score_meaning : str
        What the score is.
    history : dict of ndarray
        ``history_`` of the selector; empty if it has no steps.
    notes : list of str
        What the reader should know: dropped columns, early stops, warnings.
    usage : str
        Python code that loads the model.
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
    )
    path.write_text(page, encoding="utf-8")
    return path


def _curves(history: dict[str, np.ndarray]) -> Markup | None:
    """What was watched over the steps, as inline SVG that takes the colour of the text."""
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
        axes.tick_params(labelsize=8, which="both")
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    return Markup(svg)  # drawn above from numbers alone
