"""Mistakes in options and arguments, which Typer finds: in words of ours, and in one line."""

from __future__ import annotations

from typing import Any

__all__ = ["in_words"]

# By what Typer's validation (pydantic) calls it.
EXPECTED = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
}


def in_words(error: Any, command: str) -> str:
    """What was given, what is expected, and where to read more.

    Parameters
    ----------
    error : UsageError
        Of Typer, or of click in older versions of it.
    command : str
        The words that call the command, if the error does not know them.
    """
    context = getattr(error, "ctx", None)
    message = _sentence(_mistake(error))
    return f"{message} {command if context is None else context.command_path} --help says more."


def _mistake(error: Any) -> str:
    parameter = getattr(error, "param", None)
    if parameter is None:  # "Invalid value: " says nothing that a message of ours does not say
        return error.message if hasattr(error, "param") else error.format_message()
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[0] if is_option else parameter.metavar or parameter.name
    if type(error).__name__ == "MissingParameter":
        return f"{name} is missing. Expected: {parameter.help}"
    for found in _validation(error):
        if found["type"] in EXPECTED:
            expected = EXPECTED[found["type"]].format(**found.get("ctx", {}))
            return f"{name} {found['input']!r}: expected {expected}"
    return f"{name}: {error.message.removeprefix('Value error, ')}"


def _validation(error: Any) -> list[dict[str, Any]]:
    """What pydantic says, in the versions of Typer that ask it; the message of older ones has what was given."""
    errors = getattr(error.__cause__, "errors", None)
    return [] if errors is None else errors()


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
