"""Formulas as MathML, which browsers draw themselves: no script, no font, no network, no LaTeX."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

__all__ = ["setup"]

# What the translation does not know, and what says the same or nearly so.
OTHERWISE = {
    re.compile(r"\\mathrel\{([^{}]*)\}"): r"\1",
    re.compile(r"\\dots(?![a-zA-Z])"): r"\\ldots",
    re.compile(r"\\textstyle(?![a-zA-Z])\s*"): "",
    re.compile(r"\\([bB]igg?)(?=[(\[])"): r"\\\1l",
    re.compile(r"\\([bB]igg?)(?=[)\]])"): r"\\\1r",
}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_translated(node, as_block=False))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(_translated(node, as_block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def _translated(node: nodes.Element, *, as_block: bool) -> str:
    tex = node.astext()
    for pattern, words in OTHERWISE.items():
        tex = pattern.sub(words, tex)
    try:
        return tex2mathml(_aligned(tex) if as_block else tex, as_block=as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("formula %r: %s", tex, error, location=node)
        return f"<code>{escape(tex)}</code>"


def _aligned(tex: str) -> str:
    """Lines that ``&`` lines up need an environment around them."""
    tex = tex.strip()
    return rf"\begin{{aligned}}{tex}\end{{aligned}}" if r"\\" in tex and r"\begin" not in tex else tex


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer as ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
