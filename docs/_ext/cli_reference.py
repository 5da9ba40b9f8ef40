"""The directive ``cli-reference``: every command of ``homophily`` with its options, from the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer
from docutils import nodes
from rich.text import Text
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from homophily.cli import app as program

__all__ = ["commands", "setup"]


class CliReference(SphinxDirective):
    """One section a command, in the order of ``homophily --help``."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        return [_section(name, command) for name, command in commands()]


def commands(name: str = "homophily", command: Any = None) -> Iterator[tuple[str, Any]]:
    """The program and all commands within it, with what to type for each."""
    command = command or typer.main.get_command(program)
    yield name, command
    for word, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from commands(f"{name} {word}", child)


def _section(name: str, command: Any) -> nodes.section:
    section = nodes.section(ids=[nodes.make_id(name)], names=[nodes.fully_normalize_name(name)])
    section += nodes.title("", "", nodes.literal("", name))
    for paragraph in _plain(command.help or "").split("\n\n"):
        if paragraph.strip():
            section += nodes.paragraph(text=" ".join(paragraph.split()))
    children = getattr(command, "commands", {})
    if children:
        summaries = {child: _plain(children[child].help or "").split("\n\n")[0] for child in children}
        section += _table(("command", "what it does"), [([child], words) for child, words in summaries.items()])
    parameters = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if not children:
        arguments = [_names(parameter)[0] for parameter in parameters if _is_argument(parameter)]
        usage = " ".join([name, "[OPTIONS]", *arguments])
        section += nodes.literal_block(usage, usage, language="text")
    panels: dict[str, list[tuple[list[str], str]]] = {}
    for parameter in parameters:
        panel = parameter.rich_help_panel or ("Arguments" if _is_argument(parameter) else "Options")
        panels.setdefault(panel, []).append((_names(parameter), _meaning(parameter)))
    for panel, rows in panels.items():
        section += _table((panel, "meaning"), rows)
    return section


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _names(parameter: Any) -> list[str]:
    value = parameter.metavar or parameter.name.upper()
    if _is_argument(parameter):
        return [value if parameter.required else f"[{value}]"]
    names = [*parameter.opts, *parameter.secondary_opts]
    return names if parameter.is_flag else [*names[:-1], f"{names[-1]} {value}"]


def _meaning(parameter: Any) -> str:
    words = " ".join(_plain(parameter.help or "").split())
    default = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    if isinstance(parameter.show_default, str):
        default = parameter.show_default
    if parameter.required:
        return f"{words} Required."
    if parameter.show_default and isinstance(default, str | int | float) and default is not False and default != "":
        return f"{words} Default: {'yes' if default is True else default}."
    return words


def _plain(text: str) -> str:
    return Text.from_markup(text).plain


def _table(head: tuple[str, str], rows: list[tuple[list[str], str]]) -> nodes.table:
    table = nodes.table(classes=["cli"])
    group = nodes.tgroup(cols=2)
    table += group
    group += [nodes.colspec(colwidth=35), nodes.colspec(colwidth=65)]
    group += nodes.thead("", nodes.row("", *(nodes.entry("", nodes.paragraph(text=word)) for word in head)))
    body = nodes.tbody()
    group += body
    for names, meaning in rows:
        terms = nodes.paragraph()
        for at, name in enumerate(names):
            terms += [nodes.Text(", ")] if at else []
            terms += nodes.literal(text=name)
        body += nodes.row("", nodes.entry("", terms), nodes.entry("", nodes.paragraph(text=meaning)))
    return table


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("cli-reference", CliReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
