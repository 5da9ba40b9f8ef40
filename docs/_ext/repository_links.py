"""Links of the Markdown pages to files outside docs/, which are right in the repository and have no page here."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup", "within_site"]

PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./([^)#\s]+)(?:#[^)\s]*)?\)")


def within_site(text: str) -> str:
    """Lead to the page that holds the file, or show the file's name where there is none."""

    def replaced(link: re.Match) -> str:
        words, path = link.groups()
        if path in PAGES:
            return f"[{words}]({PAGES[path]})"
        return words if path in words else f"{words} (`{path}`)"

    return OUTSIDE.sub(replaced, text)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = within_site(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Change each page when it is read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
