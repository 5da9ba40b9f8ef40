"""Show the matplotlib figures that an example leaves in its variables: those of homophily are not pyplot's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

__all__ = ["_get_sg_image_scraper", "figures_of_example"]

DPI = 130


def figures_of_example(block: tuple, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures that this block of an example has made; a scraper of sphinx-gallery."""
    variables = block_vars["example_globals"]
    shown = variables.setdefault("__shown__", [])  # the figures themselves: ids of dead ones are used again
    paths = []
    for figure in list(variables.values()):
        if isinstance(figure, Figure) and not any(figure is other for other in shown):
            shown.append(figure)
            paths.append(next(block_vars["image_path_iterator"]))
            figure.savefig(paths[-1], dpi=DPI, facecolor="white")
    return figure_rst(paths, gallery_conf["src_dir"])


def _get_sg_image_scraper() -> Callable:  # what sphinx-gallery asks of a module that it is given by name
    return figures_of_example
