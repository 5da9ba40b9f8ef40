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


def write_report(path: Path, *, summary: dict[str, Any], selected: list[dict], history: dict, notes: list[str]) -> Path:
    """Write ``report.html``.

    Parameters
    ----------
    path : Path
        File to write.
    summary : dict
        Facts of the run, shown in order.
    selected : list of dict
        ``rank``, ``index``, ``name`` and ``score`` of each selected feature.
    history : dict of ndarray
        ``DirichletSelector.history_``.
    notes : list of str
        What the reader should know: dropped columns, early stops, warnings.
    """
    environment = Environment(loader=PackageLoader("homophily.report"), autoescape=True, trim_blocks=True)
    page = environment.get_template("report.html.j2").render(
        version=__version__,
        summary=summary,
        selected=selected,
        curves=_curves(history),
        notes=notes,
    )
    path.write_text(page, encoding="utf-8")
    return path


def _curves(history: dict[str, np.ndarray]) -> Markup:
    """Energy, confidence and temperature over the steps, as inline SVG that takes the colour of the text."""
    steps = np.arange(1, len(history["energy"]) + 1)
    thin = np.unique(np.linspace(0, len(steps) - 1, 400).astype(int))  # no screen shows more points
    figure = Figure(figsize=(8.4, 2.5), layout="constrained")
    panels = (("energy", "#0072B2", True), ("confidence", "#009E73", False), ("temperature", "#D55E00", True))
    for axes, (name, color, logarithmic) in zip(figure.subplots(1, 3), panels, strict=True):
        axes.plot(steps[thin], history[name][thin], color=color, linewidth=1.5)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step", fontsize=9)
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.02)
        axes.tick_params(labelsize=8, which="both")
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    return Markup(svg)  # drawn above from numbers alone
