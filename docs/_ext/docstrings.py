"""Docstrings of the reference: of inherited members only ours, and shapes such as (n_features_in_,) as they are."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext import autosummary

__all__ = ["setup"]

FIELD = re.compile(r"\s*[\w, ]+ : ")  # of numpydoc: names and a type
NAME = re.compile(r"\b(\w+)_(?=[,)])")


def _escape(app: Sphinx, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """A name that ends in an underscore would be a link."""
    lines[:] = [NAME.sub(r"\1\\_", line) if FIELD.match(line) else line for line in lines]


def _skip(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn and torch document themselves, with links that lead nowhere from here."""
    function = getattr(member, "fget", member)  # of a property
    module = getattr(function, "__module__", None)
    return True if what == "class" and callable(function) and not str(module).startswith("homophily") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Look at every member and docstring, the latter before numpydoc does."""
    autosummary.WELL_KNOWN_ABBREVIATIONS += ("Alg.", "App.", "Eq.", "Fig.", "Sec.")  # end no sentence
    app.connect("autodoc-process-docstring", _escape, priority=100)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
