"""The command line. Only options and errors here, so that ``--help`` is quick; the work is in ``commands``."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from ._version import __version__

__all__ = ["app", "main"]

USER_ERROR, INTERRUPTED = 2, 130
FILES, TRAINING = "Files", "Training"

app = typer.Typer(
    help="Unsupervised feature selection that learns the k-nearest-neighbour graph along with the features.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Method(StrEnum):
    """Selectors by their short names."""

    dirichlet = "dirichlet"


class Objective(StrEnum):
    """What is minimised."""

    energy = "energy"
    coverage = "coverage"


class GraphKind(StrEnum):
    """How the gradient sees the neighbours."""

    soft = "soft"
    exact = "exact"


def _version(show: bool) -> None:
    if show:
        typer.echo(f"homophily {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def select(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="csv, tsv, parquet, npz, npy or mat: one sample a row.")],
    m: Annotated[int, typer.Option("-m", "--n-features", min=1, metavar="M", help="How many features to select.")],
    method: Annotated[Method, typer.Option(help="Which selector.")] = Method.dirichlet,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Labels: carried along, never used to select.", rich_help_panel=FILES),
    ] = None,
    index_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column that names the samples.", rich_help_panel=FILES)
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Column to leave out; may be repeated.", rich_help_panel=FILES),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header", help="Does the first line of a csv name the columns?", rich_help_panel=FILES
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Output folder.", show_default="DATA-selected", rich_help_panel=FILES
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the result in the output folder.", rich_help_panel=FILES)
    ] = False,
    objective: Annotated[
        Objective, typer.Option(help="energy: the paper's. coverage: for data with many near-copies.")
    ] = Objective.energy,
    neighbors: Annotated[
        int, typer.Option("--neighbors", "-k", min=1, help="Neighbours in the graph.", rich_help_panel=TRAINING)
    ] = 5,
    graph: Annotated[
        GraphKind, typer.Option(help="exact is faster, soft better.", rich_help_panel=TRAINING)
    ] = GraphKind.soft,
    reg: Annotated[float, typer.Option(help="Softness of the graph.", rich_help_panel=TRAINING)] = 0.3,
    max_iter: Annotated[int, typer.Option(min=1, help="Training steps.", rich_help_panel=TRAINING)] = 500,
    n_init: Annotated[int, typer.Option(min=1, help="Restarts; the best is kept.", rich_help_panel=TRAINING)] = 2,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows a step.", show_default="256", rich_help_panel=TRAINING)
    ] = None,
    n_anchors: Annotated[
        int | None,
        typer.Option(
            min=2, help="Look for neighbours among this many rows.", show_default="all", rich_help_panel=TRAINING
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of all that is drawn.", rich_help_panel=TRAINING)
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=TRAINING)] = "auto",
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Threads; -1: all.", rich_help_panel=TRAINING)] = -1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Select M features of DATA and learn the k-nearest-neighbour graph that they reveal.

    Writes selected.csv, reduced.*, graph.npz, history.csv, model/ and report.html to the output folder.

    Ctrl-C ends the training early and keeps what has been learned.
    """
    if jobs == 0:
        raise typer.BadParameter("0 threads cannot do anything; give a number of threads, or -1 for all.")
    with _user_errors(debug):
        from .commands import run_select

        interrupted = run_select(
            data,
            method=method.value,
            params={
                "n_features_to_select": m,
                "n_neighbors": neighbors,
                "graph": graph.value,
                "reg": reg,
                "objective": objective.value,
                "max_iter": max_iter,
                "n_init": n_init,
                "batch_size": batch_size,
                "n_anchors": n_anchors,
                "device": device,
                "n_jobs": jobs,
                "random_state": seed,
            },
            columns={"label_column": label_column, "index_column": index_column, "drop": drop or (), "header": header},
            folder=output or Path(f"{data.stem}-selected"),
            overwrite=overwrite,
            quiet=quiet,
        )
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _user_errors(debug: bool) -> Iterator[None]:
    """Turn a user's mistake into one line and exit code 2."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if debug:
            raise
        _stderr().print(f"[red]Error:[/] {escape(_in_options(str(error)))}")
        raise typer.Exit(USER_ERROR) from error
    except KeyboardInterrupt:
        _stderr().print("Stopped; nothing was written.")
        raise typer.Exit(INTERRUPTED) from None


def _in_options(message: str) -> str:
    """Speak of options where the library speaks of its parameters."""
    for parameter, option in (
        ("n_features_to_select=", "-m "),
        ("n_neighbors=", "-k "),
        ("n_anchors=", "--n-anchors "),
    ):
        message = message.replace(parameter, option)
    return message


def _stderr() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False)


def main() -> None:
    """Entry point of the command ``homophily``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show is no reason to fail
    app()
