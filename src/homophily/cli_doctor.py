"""``homophily doctor``: what this installation is made of, and whether it works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .cli_common import FAILED, Debug, stderr, user_errors
from .wording import counted

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, for bug reports.")] = False,
    debug: Debug = False,
) -> None:
    """Check this installation: versions, device, optional parts, data sets, and a small fit.

    What is optional may be missing. The exit code is 1 if the fit fails; its time has that of loading torch in it.

    The home folder is written as ~, so that what is printed can be shown to others.
    """
    with user_errors(debug):
        from .doctor import examine

        with stderr().status("Looking ..."):
            found = examine()
        typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(_lines(found)))
    if not found["self_test"]["ok"]:
        raise typer.Exit(FAILED)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"homophily {found['homophily']} in {found['location']}"
    yield f"Python {found['python']} on {found['platform']}"
    for title, entries in (
        ("Packages", [_package(name, look) for name, look in found["packages"].items()]),
        ("Optional", [_optional(name, look) for name, look in found["optional"].items()]),
        ("Device", _device(found["device"])),
        ("Data sets", _data(found["data"])),
        ("Self-test", [_verdict(found["self_test"])]),
    ):
        yield f"\n{title}"
        yield from (f"  {entry}" for entry in entries)


def _package(name: str, look: dict[str, Any]) -> str:
    if look["problem"]:
        return f"{name} {look['version']} cannot be imported: {look['problem']}"
    return f"{name} {look['version'] or 'is missing'}"


def _optional(name: str, look: dict[str, Any]) -> str:
    use = f" ({look['use']})" if look["use"] else ""
    if look["version"]:
        return _package(name, look) + use
    return f"{name} is not installed{use}: {look['install']}"


def _device(look: dict[str, Any]) -> list[str]:
    if "problem" in look:
        return [look["problem"]]
    cuda = ", ".join(look["cuda"]) or "none"
    return [
        f"auto means {look['auto']}",
        f"{counted(look['cores'], 'core')}, {counted(look['threads'], 'thread')} of torch",
        f"CUDA: {cuda}; MPS: {'yes' if look['mps'] else 'none'}",
    ]


def _data(look: dict[str, Any]) -> list[str]:
    if "problem" in look:
        return [look["problem"]]
    folders = [f"{one['path']}{'' if one['exists'] else ' (does not exist yet)'}" for one in look["folders"]]
    return [
        f"searched: {', '.join(folders)}",
        f"cache: {look['cache']}",
        f"here: {', '.join(look['available']) or 'none'}",
        f"not here: {', '.join(look['missing']) or 'none'}",
    ]


def _verdict(look: dict[str, Any]) -> str:
    return f"ok, {look['seconds']} s" if look["ok"] else f"FAILED: {look['problem']}"
