"""A warning, and so a failed build, if a page would ask a foreign host for anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

__all__ = ["foreign_requests", "setup"]

# What a browser fetches by itself: src and srcset of anything, href of <link>, url() and @import of style sheets.
# Links that a reader may follow are none of that.
HOST = r"(?:https?:)?//[^\s\"')>]+"
PAGE = re.compile(
    rf"""\s(?:src|srcset|poster|data)\s*=\s*["']?\s*({HOST})|<link\b[^>]*\bhref\s*=\s*["']?\s*({HOST})""",
    re.IGNORECASE,
)
STYLE = re.compile(rf"""(?:url\(\s*["']?|@import\s+["'])\s*({HOST})""", re.IGNORECASE)
SCRIPT = re.compile(
    rf"""(?:fetch|importScripts|import|\.open)\(\s*["'](?:GET["'],\s*["'])?({HOST})|\.src\s*=\s*["']({HOST})"""
)


def foreign_requests(text: str, suffix: str) -> list[str]:
    """Addresses of other hosts that a file with this ``suffix`` makes a browser fetch."""
    patterns = {".html": (PAGE, STYLE, SCRIPT), ".css": (STYLE,), ".js": (SCRIPT,), ".svg": (PAGE, STYLE)}
    found = [match.group(match.lastindex) for pattern in patterns.get(suffix, ()) for match in pattern.finditer(text)]
    return sorted({address for address in found if "www.w3.org" not in address})  # names of XML, not addresses


def _check(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    logger = logging.getLogger(__name__)
    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in {".html", ".css", ".js", ".svg"}:
            for address in foreign_requests(path.read_text(encoding="utf-8"), path.suffix):
                logger.warning("%s asks another host for %s", path.relative_to(app.outdir), address)


def setup(app: Sphinx) -> dict[str, Any]:
    """Look at all files when the site is built."""
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
