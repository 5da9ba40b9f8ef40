"""What all commands share: exit codes, errors in one line, names of methods and their completion in the shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum

import typer
from rich.console import Console
from rich.markup import escape

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "USER_ERROR",
    "WORKER_LOST",
    "Method",
    "completing",
    "counts",
    "dataset_names",
    "names",
    "parts",
    "stderr",
    "user_errors",
]

FAILED, USER_ERROR, WORKER_LOST, INTERRUPTED = 1, 2, 3, 130


class Method(StrEnum):
    """Selectors by their short names."""

    dirichlet = "dirichlet"
    ls = "ls"
    rsr = "rsr"
    udfs = "udfs"
    cae = "cae"
    dufs = "dufs"
    wast = "wast"
    aefs = "aefs"
    random = "random"
    all = "all"


@contextmanager
def user_errors(debug: bool, stopped: str = "nothing was written") -> Iterator[None]:
    """Turn a user's mistake into one line and exit code 2."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        if debug:
            raise
        stderr().print(f"[red]Error:[/] {escape(_in_options(str(error)))}")
        raise typer.Exit(USER_ERROR) from error
    except RuntimeError as error:
        if debug or type(error).__name__ != "WorkerLostError":  # by name: torch is not imported here
            raise
        stderr().print(f"[red]Error:[/] {escape(str(error))}")
        raise typer.Exit(WORKER_LOST) from error
    except KeyboardInterrupt:
        stderr().print(f"Stopped; {stopped}.")
        raise typer.Exit(INTERRUPTED) from None


def parts(text: str) -> list[str]:
    """What commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def names(text: str | None, option: str) -> list[str] | None:
    """What commas separate in the value of an option, if it was given."""
    if text is None:
        return None
    found = parts(text)
    if not found:
        raise ValueError(f"{option} {text!r}: expected names separated by commas.")
    return found


def completing(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What the shell offers for an option that takes one of the ``known`` names, or several separated by commas."""

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",")
        rest = (name for name in map(str, known()) if name not in parts(done))
        return [f"{done}{comma}{name}" for name in rest if name.startswith(last)]

    return complete


def dataset_names() -> Iterable[str]:
    """The paper's data sets."""
    from .datasets import PAPER_DATASETS

    return PAPER_DATASETS


def counts(text: str) -> list[int]:
    """The numbers of ``25,50``."""
    numbers = parts(text)
    if not numbers or not all(number.isascii() and number.isdigit() and int(number) for number in numbers):
        raise ValueError(f"-m {text!r}: expected numbers of features separated by commas, such as 25,50.")
    return [int(number) for number in numbers]


def _in_options(message: str) -> str:
    """Speak of options where the library speaks of its parameters."""
    for parameter, option in (
        ("n_features_to_select=", "-m "),
        ("n_neighbors=", "-k "),
        ("n_anchors=", "--n-anchors "),
        ("final_graph=", "--final-graph "),
        ("test_size=", "--test-size "),
    ):
        message = message.replace(parameter, option)
    return message


def stderr() -> Console:
    """Where messages go, so that results can be piped."""
    return Console(stderr=True, soft_wrap=True, highlight=False)
