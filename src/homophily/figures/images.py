"""Data whose features are pixels: which were selected, and what can be rebuilt from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .style import BLUE, ORANGE, VERMILION, bare, blank

__all__ = ["reconstructions", "selected_pixels"]


def selected_pixels(X: np.ndarray, shape: tuple[int, int], features: Sequence[int]) -> Figure:
    """The selected pixels over the mean image.

    Parameters
    ----------
    X : array (n, height * width)
        Images, row by row.
    shape : (height, width)
        Of an image.
    features : sequence of int
        Selected pixels.
    """
    height, width = _checked(shape, X.shape[1])
    largest = max(height, width)
    figure = blank(3.6 * width / largest + 0.2, 3.6 * height / largest + 0.2)
    axes = figure.subplots()
    axes.imshow(np.asarray(X).mean(0).reshape(height, width), cmap="gray", interpolation="nearest")
    rows, columns = np.divmod(np.asarray(features), width)
    # As large as a pixel, but never too small to be seen.
    side = max(3.6 * 72 / largest, 3.0)
    axes.scatter(columns, rows, s=side**2, marker="s", color=VERMILION, alpha=0.85, linewidths=0)
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    bare(axes)
    return figure


def reconstructions(
    originals: np.ndarray, rebuilt: np.ndarray, shape: tuple[int, int], in_training: Sequence[bool]
) -> Figure:
    """Images above what was rebuilt of them (Fig. S1); of training rows in a blue frame, of test rows in orange.

    Parameters
    ----------
    originals, rebuilt : array (c, height * width)
        Images in columns of the figure.
    shape : (height, width)
        Of an image.
    in_training : sequence of bool (c,)
        Whether the network was trained on it.
    """
    height, width = _checked(shape, originals.shape[1])
    figure = blank(1.1 * len(originals), 2.3 * height / width + 0.2)
    panels = figure.subplots(2, len(originals), squeeze=False)
    for line, images, name in zip(panels, (originals, rebuilt), ("original", "rebuilt"), strict=True):
        for axes, image, limits, known in zip(line, images, originals, in_training, strict=True):
            axes.imshow(image.reshape(height, width), cmap="gray", vmin=limits.min(), vmax=limits.max())
            bare(axes)
            for spine in axes.spines.values():
                spine.set_color(BLUE if known else ORANGE)
                spine.set_linewidth(2)
        line[0].set_ylabel(name, fontsize=9)
    handles = [Rectangle((0, 0), 1, 1, fill=False, edgecolor=color, linewidth=2) for color in (BLUE, ORANGE)]
    figure.legend(handles, ["training", "test"], loc="outside right center", fontsize=8, frameon=False)
    return figure


def _checked(shape: tuple[int, int], d: int) -> tuple[int, int]:
    height, width = shape
    if height < 1 or width < 1 or height * width != d:
        raise ValueError(f"Images of {height} x {width} have {height * width} pixels, and the data have {d} features.")
    return height, width
