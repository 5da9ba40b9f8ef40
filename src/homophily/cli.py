"""The command line: ``homophily select``."""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from ._version import __version__
from .base import listing
from .io import Table, read_table, write_reduced
from .joint import DirichletSelector
from .output import check_output, output_folder
from .report import write_report
from .training import Progress

__all__ = ["app", "main"]

USER_ERROR, INTERRUPTED = 2, 130

app = typer.Typer(
    help="Unsupervised feature selection that learns the k-nearest-neighbour graph along with the features.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
err = Console(stderr=True, soft_wrap=True, highlight=False)


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


METHODS: dict[Method, type[DirichletSelector]] = {Method.dirichlet: DirichletSelector}

TRAINING = "Training"
FILES = "Files"


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
    data: Annotated[Path, typer.Argument(help="csv, tsv, parquet, npz, npy or mat: one sample a row.")],
    m: Annotated[int, typer.Option("-m", "--n-features", min=1, help="How many features to select.")],
    method: Annotated[Method, typer.Option(help="Which selector.")] = Method.dirichlet,
    label_column: Annotated[
        str | None, typer.Option(help="Column (or array) with labels: kept out of the selection, carried along.")
    ] = None,
    index_column: Annotated[str | None, typer.Option(help="Column that names the samples.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be given several times.")] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder.", show_default="DATA-selected")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the result in the output folder.")] = False,
    objective: Annotated[
        Objective, typer.Option(help="energy: the paper's. coverage: for data with many near-copies.")
    ] = Objective.energy,
    neighbors: Annotated[
        int, typer.Option("--neighbors", "-k", min=1, help="Neighbours in the graph.", rich_help_panel=TRAINING)
    ] = 5,
    graph: Annotated[GraphKind, typer.Option(help="exact is faster, soft better.", rich_help_panel=TRAINING)] = (
        GraphKind.soft
    ),
    reg: Annotated[float, typer.Option(help="Softness of the graph.", rich_help_panel=TRAINING)] = 0.3,
    max_iter: Annotated[int, typer.Option(min=1, help="Training steps.", rich_help_panel=TRAINING)] = (
        DirichletSelector().max_iter
    ),
    n_init: Annotated[int, typer.Option(min=1, help="Restarts; the best is kept.", rich_help_panel=TRAINING)] = (
        DirichletSelector().n_init
    ),
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Rows a step.", show_default="256", rich_help_panel=TRAINING)
    ] = None,
    n_anchors: Annotated[
        int | None,
        typer.Option(
            min=2, help="Look for neighbours among this many rows.", rich_help_panel=TRAINING, show_default="all"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.", rich_help_panel=TRAINING)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=TRAINING)] = "auto",
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Threads; -1: all.", rich_help_panel=TRAINING)] = -1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Select M features of DATA and learn the k-nearest-neighbour graph that they reveal.

    Writes selected.csv, reduced.*, graph.npz, history.csv, model/ and report.html to the output folder.
    Ctrl-C ends the training early and keeps what has been learned.
    """
    out = Console(soft_wrap=True, highlight=False, quiet=quiet)
    with _user_errors(debug), _collected_warnings() as caught:
        folder = output or Path(f"{data.stem}-selected")
        check_output(folder, overwrite=overwrite)
        table = read_table(data, label_column=label_column, index_column=index_column, drop=drop or ())
        n, d = table.X.shape
        out.print(f"Read [bold]{escape(data.name)}[/]: {n:,} samples, {d:,} features.")
        selector = METHODS[method](
            m,
            n_neighbors=neighbors,
            graph=graph.value,
            reg=reg,
            objective=objective.value,
            max_iter=max_iter,
            n_init=n_init,
            batch_size=batch_size,
            n_anchors=n_anchors,
            device=device,
            n_jobs=jobs,
            verbose=not quiet,
            random_state=seed,
        )
        started = time.perf_counter()
        with _interruptible() as stop_requested:
            selector.fit(table.X, callback=stop_requested)
        seconds = time.perf_counter() - started
        notes = _notes(selector, table, [str(w.message) for w in caught])
        with output_folder(folder, overwrite=overwrite) as draft:
            _write_result(draft, selector, table, _summary(selector, data, table, seconds), notes)
    _show_result(out, selector, table, folder, seconds, notes)
    if selector.interrupted_:
        raise typer.Exit(INTERRUPTED)


def _selection(selector: DirichletSelector, names: list[str]) -> pd.DataFrame:
    """``selected.csv``: one row a chosen feature, the most certain first."""
    chosen = selector.selected_features_
    return pd.DataFrame(
        {
            "rank": np.arange(1, len(chosen) + 1),
            "index": chosen,
            "name": [names[i] for i in chosen],
            "score": selector.scores_[chosen],
        }
    )


def _summary(selector: DirichletSelector, data: Path, table: Table, seconds: float) -> dict[str, Any]:
    n, d = table.X.shape
    return {
        "Data": data.name,
        "Size": f"{n:,} samples, {d:,} features",
        "Command": " ".join(["homophily", *sys.argv[1:]]),
        "Objective": selector.objective,
        "Neighbours": selector.n_neighbors,
        "Energy": f"{selector.energy_:.4g} ({selector.energy_ / n / len(selector.selected_features_):.3f} a sample and "
        "feature; a feature that has nothing to do with the graph has 1)",
        "Training": f"{selector.n_iter_} steps, {len(selector.restart_objectives_)} restarts, {seconds:.1f} s",
        "Seed": selector.random_state,
    }


def _notes(selector: DirichletSelector, table: Table, warned: list[str]) -> list[str]:
    notes = list(table.notes)
    dropped = selector.dropped_features_
    if len(dropped):
        names = listing(table.names[i] for i in dropped)
        notes.append(f"{len(dropped)} constant columns cannot be selected: {names}.")
    if selector.interrupted_:
        notes.append(
            f"The training was stopped after {selector.n_iter_} of {selector.max_iter} steps: this is a partial result "
            f"(confidence {selector.history_['confidence'][-1]:.0%})."
        )
    return notes + list(dict.fromkeys(warned))


def _write_result(
    folder: Path, selector: DirichletSelector, table: Table, summary: dict[str, Any], notes: list[str]
) -> None:
    selection = _selection(selector, table.names)
    selection.to_csv(folder / "selected.csv", index=False)
    write_reduced(table, selector.get_support(indices=True), folder / "reduced")
    sp.save_npz(folder / "graph.npz", selector.graph_)
    history = pd.DataFrame(selector.history_)
    history.insert(0, "step", np.arange(1, len(history) + 1))
    history.to_csv(folder / "history.csv", index=False)
    selector.save(folder / "model")
    write_report(
        folder / "report.html",
        summary=summary,
        selected=selection.to_dict("records"),
        history=selector.history_,
        notes=notes,
    )


def _show_result(
    out: Console,
    selector: DirichletSelector,
    table: Table,
    folder: Path,
    seconds: float,
    notes: list[str],
    most: int = 10,
) -> None:
    selection = _selection(selector, table.names)
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("rank", "right"), ("feature", "left"), ("column", "right"), ("score", "right")):
        grid.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in selection.head(most).itertuples(index=False):
        grid.add_row(str(row.rank), escape(str(row.name)), str(row.index), f"{row.score:.3f}")
    out.print(
        f"Selected {len(selection)} features in {seconds:.1f} s, {selector.n_iter_} steps, "
        f"energy {selector.energy_:.4g}.\n"
    )
    out.print(grid, soft_wrap=False)
    if len(selection) > most:
        out.print(f"     ... and {len(selection) - most} more in selected.csv")
    for note in notes:
        out.print(f"\n[yellow]Note:[/] {escape(note)}")
    written = f"selected.csv, reduced{table.suffix}, graph.npz, history.csv, model/"
    out.print(f"\nWritten to [bold]{escape(str(folder))}[/]: {written}")
    out.print(f"Report: [bold]{escape(str(folder / 'report.html'))}[/]")


@contextmanager
def _interruptible() -> Iterator[Callable[[Progress], bool]]:
    """Yield a callback that is true once Ctrl-C was pressed; a second Ctrl-C ends the program."""
    pressed = False

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        err.print("\nStopping after this step and keeping what has been learned; Ctrl-C again to give up.")

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda progress: pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _collected_warnings() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield caught


@contextmanager
def _user_errors(debug: bool) -> Iterator[None]:
    """Turn a user's mistake into one line and exit code 2."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if debug:
            raise
        err.print(f"[red]Error:[/] {escape(str(error))}")
        raise typer.Exit(USER_ERROR) from error
    except KeyboardInterrupt:
        err.print("Stopped; nothing was written.")
        raise typer.Exit(INTERRUPTED) from None


def main() -> None:
    """Entry point of the command ``homophily``."""
    app()
