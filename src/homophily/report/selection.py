"""The report of a selection: what was run and what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..figures.graphs import sample_graph
from ..figures.images import selected_pixels
from ..figures.selection import beside_chance, redundancy_map
from ..figures.training import size_path, training_curves
from ..output import write_whole
from .insight import JUDGED, Chance, Insight
from .page import inline, rendered

__all__ = ["write_report"]


def write_report(
    file: Path,
    *,
    summary: dict[str, Any],
    selected: list[dict],
    score_meaning: str,
    history: dict,
    notes: list[str],
    usage: str,
    insight: Insight,
    n_samples: int,
    image_shape: tuple[int, int] | None = None,
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
    insight : Insight
        What :func:`~homophily.report.insight.look` says of the selection.
    n_samples : int
        Rows of the data.
    image_shape : (height, width), optional
        Of samples that are images.
    path, size_reason : dict of ndarray, str
        ``path_`` of the selector if the number of features was left to the data, and the reason in words.
    stability : dict, optional
        What refits on subsamples say, as :func:`homophily.refits.described` gives it.
    """
    history = {name: history[name] for name in history if name != "loss" or len(history) < 4}
    names, drawn = [str(row["name"]) for row in selected], insight.drawn
    figures = {
        "path": size_path(path, len(selected)) if path else None,
        "curves": training_curves(history) if history else None,
        "graph": sample_graph(drawn.points, drawn.graph, drawn.codes, drawn.classes) if drawn else None,
        "redundancy": redundancy_map(insight.correlations, names) if len(selected) > 1 else None,
        "energies": _beside_chance(insight.energy, "energy"),
        "explained": _beside_chance(insight.explained, "share of the data explained"),
        "pixels": None
        if image_shape is None or insight.mean is None
        else selected_pixels(insight.mean[None], image_shape, [row["index"] for row in selected]),
    }
    page = rendered(
        "selection.html.j2",
        summary=summary,
        selected=selected,
        histograms=[_bars(heights) for heights in insight.histograms],
        score_meaning=score_meaning,
        largest=max(row["score"] for row in selected) or 1,
        energy="energy" in history,
        notes=notes,
        usage=usage,
        copies=any(row["copies"] for row in selected),
        size_reason=size_reason,
        stability=stability,
        insight=insight,
        n_samples=n_samples,
        judged=JUDGED,
        figures={name: inline(figure) for name, figure in figures.items() if figure is not None},
    )
    write_whole(file, page)
    return file


def _beside_chance(measure: Chance | None, label: str) -> Figure | None:
    return None if measure is None else beside_chance(measure.value, measure.random, label)


def _bars(heights: np.ndarray) -> str:
    """The outline of a small histogram in a box of 14 x 10, as a path of SVG."""
    steps = "".join(f"V{10 - 10 * height:.1f}h1" for height in heights)
    return f"M0 10{steps}V10Z"
