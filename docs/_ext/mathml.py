"""Formulas as MathML, which browsers draw themselves: no script, no font, no network, no LaTeX."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from latex2mathml import exceptions
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

__all__ = ["mathml", "setup"]

# What the translation, or browsers, do not know, and what says the same.
OTHERWISE = {
    re.compile(r"\\mathrel\{([^{}]*)\}"): r"\1",
    re.compile(r"\\arg(?![a-zA-Z])"): r"\\mathrm{arg}\\,",
    re.compile(r"\\mathbb\s*\{?R\}?"): "ℝ",
    re.compile(r"\\mathcal\s*\{?L\}?"): "ℒ",
}
LIMITS = re.compile(r"\\(min|max)_")
NAME = re.compile(r"<mrow>((?:<mi mathvariant=\"normal\">\w</mi>){2,})</mrow>")
ERRORS = tuple(value for value in vars(exceptions).values() if isinstance(value, type))
LETTER = re.compile(r">(\w)<")


def mathml(tex: str, *, as_block: bool) -> str:
    """A formula of LaTeX in MathML."""
    for pattern, words in OTHERWISE.items():
        tex = pattern.sub(words, tex)
    if as_block:
        tex = LIMITS.sub(r"\\\1\\limits_", tex)
    found = convert(tex.strip(), display="block" if as_block else "inline")
    # Upright letters side by side are a word, "tr" or "mean", and are to look like one.
    return NAME.sub(lambda word: f"<mi>{''.join(LETTER.findall(word[1]))}</mi>", found)


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
    try:
        found = mathml(tex, as_block=as_block)
        unknown = re.findall(r"\\[a-zA-Z]+|<mi>&</mi>", found)  # is handed through as text
    except ERRORS as error:
        found, unknown = f"<code>{escape(tex)}</code>", [repr(error)]
    if unknown:
        logging.getLogger(__name__).warning("formula %r: cannot translate %s", tex, ", ".join(unknown), location=node)
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer as ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
