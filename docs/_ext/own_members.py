"""Of what classes inherit, only what is ours: scikit-learn and torch document theirs, with links that lead nowhere."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup"]


def _skip(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    function = getattr(member, "fget", member)  # of a property
    module = getattr(function, "__module__", None)
    return True if what == "class" and callable(function) and not str(module).startswith("homophily") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Ask at every member."""
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
