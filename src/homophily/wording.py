"""Words that several messages share, and how texts go into csv files."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from rich.markup import escape

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["constant_columns", "counted", "listing", "not_numeric", "printable", "quoting_for", "shown"]

LONG = 200  # characters of a name that are shown


def counted(number: int, what: str, many: str | None = None) -> str:
    """``1 split``, ``2 splits``; ``many`` is the plural where it is another."""
    return f"{number} {what}" if number == 1 else f"{number} {many or f'{what}s'}"


def listing(items: Any, most: int = 8) -> str:
    """``a, b, c and 4 more``."""
    items = [printable(str(item)) for item in items]
    head = ", ".join(items[:most])
    return head if len(items) <= most else f"{head} and {len(items) - most} more"


def printable(text: str) -> str:
    """A name from a file, fit to be shown: a terminal would obey control characters, and scroll for ever."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:LONG])
    return plain if len(text) <= LONG else f"{plain}..."


def shown(name: object) -> str:
    """A name or path that rich is to print as it is."""
    return escape(printable(str(name)))


def constant_columns(names: Any) -> str:
    """Note about columns that do not vary; empty if there are none."""
    names = list(names)
    return f"{counted(len(names), 'constant column')} cannot be selected: {listing(names)}." if names else ""


def not_numeric(wrong: list[tuple[Any, Any]], n_columns: int) -> str:
    """Message about columns, given by name and type, that hold no numbers."""
    named = listing(f"{str(name)!r} ({kind})" for name, kind in wrong)
    return (
        f"{len(wrong)} of {n_columns} columns are not numeric: {named}. "
        "Encode them as numbers or leave them out (in the command line: --label-column, --index-column, --drop)."
    )


def quoting_for(frame: DataFrame) -> int:
    """How :mod:`csv` has to quote ``frame`` for it to be read again, whatever its names and texts hold.

    Python quotes an entry that holds a line end, but not one that holds the other half of it, a carriage return.
    """
    texts = [frame[name].astype(str) for name in frame.columns if frame[name].dtype.kind == "O"]
    returns = [
        *("\r" in str(name) for name in frame.columns),
        *(text.str.contains("\r", regex=False).any() for text in texts),
    ]
    return csv.QUOTE_NONNUMERIC if any(returns) else csv.QUOTE_MINIMAL
