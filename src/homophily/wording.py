"""Words that several messages share."""

from __future__ import annotations

from typing import Any

__all__ = ["constant_columns", "counted", "listing", "not_numeric"]


def counted(number: int, what: str, many: str | None = None) -> str:
    """``1 split``, ``2 splits``; ``many`` is the plural where it is another."""
    return f"{number} {what}" if number == 1 else f"{number} {many or f'{what}s'}"


def listing(items: Any, most: int = 8) -> str:
    """``a, b, c and 4 more``."""
    items = [str(item) for item in items]
    head = ", ".join(items[:most])
    return head if len(items) <= most else f"{head} and {len(items) - most} more"


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
