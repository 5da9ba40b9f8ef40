"""What all figures have in common: colours that everyone tells apart, quiet axes, and files that come out the same."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..drafts import replacing

__all__ = [
    "BLUE",
    "COLORS",
    "GREEN",
    "GREY",
    "ORANGE",
    "PINK",
    "SKY",
    "VERMILION",
    "bare",
    "blank",
    "inline_svg",
    "literal",
    "plain",
    "save",
]

# Okabe and Ito's palette.
BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
COLORS = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY)
GREY = "#8a94a2"
DPI = 150


def blank(width: float, height: float) -> Figure:
    """An empty figure of so many inches that lays itself out. It has no window, and nothing of pyplot keeps it."""
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Axes) -> None:
    """Small ticks, and no frame above and to the right."""
    axes.tick_params(labelsize=8, which="both")
    axes.spines[["top", "right"]].set_visible(False)


def bare(axes: Axes) -> None:
    """No ticks: where only the relative place of points matters."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(GREY)
        spine.set_linewidth(0.5)


def literal(text: str, most: int = 40) -> str:
    """Text of the data in a figure: not too long, and without mathematics, so that ``$`` is a sign like any other."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(sign if sign.isprintable() else " " for sign in short).replace("$", r"\$")


def save(figure: Figure, path: Path) -> list[Path]:
    """Write the figure as SVG and PNG beside each other; the same figure gives the same files."""
    files = [path.with_suffix(suffix) for suffix in (".svg", ".png")]
    with replacing(files[0]) as draft:
        draft.write_text(_svg(figure, transparent=False), encoding="utf-8")
    with replacing(files[1]) as draft:
        figure.savefig(draft, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs={"optimize": True})
    return files


def inline_svg(figure: Figure) -> str:
    """SVG for a page: without a background, in the colour of the text, which the fonts of the reader draw."""
    with rc_context({"svg.fonttype": "none"}):
        svg = _svg(figure, transparent=True)
    return svg[svg.index("<svg") :].replace("#000000", "currentColor")


def _svg(figure: Figure, *, transparent: bool) -> str:
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "homophily"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)  # of scripts that a page can show
        figure.savefig(buffer, format="svg", transparent=transparent, metadata={"Date": None, "Creator": None})
    return re.sub(r"[ \t]+$", "", buffer.getvalue(), flags=re.MULTILINE)
