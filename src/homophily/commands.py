"""What the commands do, once their options are read. Imports torch and the like; :mod:`homophily.cli` does not."""

from __future__ import annotations

import shlex
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from .base import listing
from .io import Table, read_table, write_reduced
from .joint import DirichletSelector
from .output import check_output, output_folder
from .report import write_report
from .training import Progress

__all__ = ["METHODS", "run_select"]

METHODS: dict[str, type[DirichletSelector]] = {"dirichlet": DirichletSelector}


def run_select(
    data: Path,
    *,
    method: str,
    params: dict[str, Any],
    columns: dict[str, Any],
    folder: Path,
    overwrite: bool,
    quiet: bool,
) -> bool:
    """Read ``data``, fit the selector, write the result folder, show what came out; true if training was interrupted.

    Parameters
    ----------
    data : Path
        Input file.
    method : str
        Key of ``METHODS``.
    params : dict
        Parameters of the selector.
    columns : dict
        Arguments of :func:`~homophily.io.read_table`.
    folder : Path
        Output folder.
    overwrite, quiet : bool
        As the options of the command.
    """
    out = Console(soft_wrap=True, highlight=False, quiet=quiet)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        check_output(folder, data, overwrite=overwrite)
        table = read_table(data, **columns)
        n, d = table.X.shape
        out.print(f"Read [bold]{escape(data.name)}[/]: {n:,} samples, {d:,} features.")
        for note in table.notes:
            out.print(f"[yellow]Note:[/] {escape(note)}")
        selector = METHODS[method](**params, verbose=not quiet and sys.stderr.isatty())
        started = time.perf_counter()
        with _interruptible() as stop_requested:
            selector.fit(table.X, callback=stop_requested)
        seconds = time.perf_counter() - started
    notes = _notes(selector, table, [str(w.message) for w in caught])
    with output_folder(folder) as draft:
        _write_result(draft, selector, table, _summary(selector, data, table, seconds), notes)
    _show_result(out, selector, table, folder, seconds, notes[len(table.notes) :])
    return selector.interrupted_


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
        "Command": shlex.join(["homophily", *sys.argv[1:]]),
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
    if len(selector.exchanged_features_):
        names = listing(table.names[i] for i in selector.exchanged_features_)
        notes.append(
            f"Put in after training, by exchange, because that lowers the exact {selector.objective}; the score is "
            f"that of the feature that was replaced: {names}."
        )
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
        message = "Stopping after this step and keeping what has been learned; Ctrl-C again to give up."
        Console(stderr=True, soft_wrap=True).print(f"\n{message}")

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda progress: pressed
    finally:
        signal.signal(signal.SIGINT, before)
