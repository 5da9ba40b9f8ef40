"""What all commands share: exit codes, and errors in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

__all__ = ["INTERRUPTED", "USER_ERROR", "WORKER_LOST", "stderr", "user_errors"]

USER_ERROR, WORKER_LOST, INTERRUPTED = 2, 3, 130


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
