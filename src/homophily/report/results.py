"""The report of a comparison or an experiment: tables to sort, and the figures that go with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from ..evaluation.tables import ResultTable
from .page import inline, rendered

__all__ = ["Section", "results_page"]


@dataclass(frozen=True)
class Section:
    """A heading with a figure, a table, or both."""

    title: str
    figure: Figure | None = None
    text: str = ""  # how to read the figure
    table: ResultTable | None = None

    @property
    def svg(self) -> Markup:
        """The figure as part of a page."""
        return Markup() if self.figure is None else inline(self.figure)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings over columns of the table, and how many columns each is over."""
        return [(name, len(list(same))) for name, same in groupby(self.table.groups if self.table else ())]


def results_page(
    title: str, lead: str, *, summary: dict[str, Any], sections: Sequence[Section], notes: Sequence[str]
) -> str:
    """The page.

    Parameters
    ----------
    title, lead : str
        What it is about, and a sentence on that.
    summary : dict
        Facts of the run, shown in order.
    sections : sequence of Section
        What came out.
    notes : sequence of str
        What the reader should know: failures, warnings, what was left out.
    """
    return rendered("results.html.j2", title=title, lead=lead, summary=summary, sections=sections, notes=notes)
