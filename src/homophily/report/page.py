"""Self-contained pages: one HTML file without anything from the network, whose texts cannot become code."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib.figure import Figure

from .._version import __version__
from ..figures.style import inline_svg

__all__ = ["inline", "rendered"]


def rendered(template: str, **content: Any) -> str:
    """The page that ``template`` makes of ``content``."""
    environment = Environment(loader=PackageLoader("homophily.report"), autoescape=True, trim_blocks=True)
    return environment.get_template(template).render(version=__version__, **content)


def inline(figure: Figure) -> Markup:
    """A figure as part of a page."""
    return Markup(inline_svg(figure))  # matplotlib escapes the texts in it
