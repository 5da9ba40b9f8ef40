"""One selection: how alike the chosen features are, whether it beats chance, and whether other samples agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, GREY, VERMILION, bare, blank, literal, plain

__all__ = ["beside_chance", "redundancy_map", "selection_frequencies"]


def redundancy_map(correlations: np.ndarray, names: Sequence[str] | None = None) -> Figure:
    """Absolute correlations between the chosen features, (m, m), 0 white to 1 dark; names are shown while they fit."""
    m = len(correlations)
    side = min(5.2, 2.2 + 0.12 * m)
    figure = blank(side + 0.9, side)
    axes = figure.subplots()
    # The colour of the scale's end stands on a dark page too.
    image = axes.imshow(np.abs(correlations), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    bare(axes)
    if names is not None and m <= 30:
        axes.set_yticks(range(m), [literal(name, 18) for name in names], fontsize=min(8, 150 / m))
        axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=25)
    bar.set_label("absolute correlation", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return figure


def beside_chance(value: float, random: np.ndarray, label: str) -> Figure:
    """A selection's value as a line beside those of random selections of the same size."""
    figure = blank(5.2, 2.4)
    axes = figure.subplots()
    low, high = min(value, *random), max(value, *random)
    margin = 0.05 * max(high - low, 1e-6 * abs(high), 1e-12)
    bins = min(20, max(5, len(random) // 5))
    axes.hist(random, bins=bins, range=(np.min(random) - margin / 10, np.max(random) + margin / 10), color=GREY)
    axes.axvline(value, color=VERMILION, linewidth=2)
    axes.set_xlim(low - margin, high + margin)
    axes.set_xlabel(label, fontsize=9)
    axes.set_ylabel("random selections", fontsize=9)
    plain(axes)
    return figure


def selection_frequencies(
    frequencies: np.ndarray, features: Sequence[int], names: Sequence[str], most: int = 40
) -> Figure:
    """How often each feature was selected on parts of the samples, the most frequent first; chosen ones in blue.

    Parameters
    ----------
    frequencies : array (d,)
        Share of the parts in which each feature was selected.
    features : sequence of int
        Those selected on all samples.
    names : sequence of str (d,)
        Of all features.
    most : int
        Features shown at most.
    """
    order = np.argsort(-frequencies, kind="stable")[:most]
    order = order[frequencies[order] > 0]
    chosen = np.isin(order, features)
    figure = blank(6.2, 0.8 + 0.19 * len(order))
    axes = figure.subplots()
    places = np.arange(len(order))
    for which, color, label in ((chosen, BLUE, "chosen"), (~chosen, GREY, "not chosen")):
        if which.any():
            axes.barh(places[which], 100 * frequencies[order[which]], color=color, label=label)
    axes.set_yticks(places, [literal(str(names[feature])) for feature in order])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("selected in % of the parts", fontsize=9)
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    plain(axes)
    return figure
