"""What ``homophily compare`` does, once its options are read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from .cli_common import FAILED, INTERRUPTED
from .commands import command_line
from .evaluation import Cell, Comparison, RunStore, summary
from .evaluation.cell import RANDOM
from .evaluation.comparison import run_all
from .evaluation.running import Backend
from .evaluation.tables import ResultTable
from .evaluation.tables import markdown as as_markdown
from .figures import gains_over_random
from .io import read_table
from .output import STORE, as_csv, check_store_folder, make_folder, write_whole
from .preprocessing import standardize_rows
from .report import Section, results_page
from .run_progress import follow
from .sources import ArrayRows
from .wording import constant_columns, counted, shown

__all__ = ["run_compare"]

RESULTS = ("comparison.csv", "cells.csv", "comparison.md", "report.html")
GAINS = {"accuracy": ("accuracy", 1), "clustering": ("clustering accuracy", 1), "reconstruction": ("less RMSE", -1)}
# Fields of a cell that a comparison does not use.
NOT_SHOWN = ("params", "tuning", "spectral", "distinct", "extra", "by_chance")


def run_compare(
    data: Path,
    *,
    methods: Sequence[str],
    ms: Sequence[int],
    settings: dict[str, Any],
    columns: dict[str, Any],
    folder: Path,
    n_jobs: int,
    quiet: bool,
) -> int:
    """Read ``data``, do what the folder's store does not hold yet, write and show the tables; the exit code.

    Parameters
    ----------
    data : Path
        Input file.
    methods, ms : sequence
        As :class:`~homophily.evaluation.Comparison` takes them.
    settings : dict
        Its other arguments.
    columns : dict
        Arguments of :func:`~homophily.io.read_table`.
    folder : Path
        Output folder: empty, or that of an earlier run, which is then continued.
    n_jobs : int
        Processes.
    quiet : bool
        As the option of the command.
    """
    out = Console(soft_wrap=True, highlight=False, quiet=quiet)
    check_store_folder(folder)
    if data.resolve() in ((folder / name).resolve() for name in RESULTS):
        raise FileExistsError(f"{data} lies in the output folder and would be overwritten; name another with --out.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        table = read_table(data, **columns)
        n, d = table.X.shape
        out.print(f"Read [bold]{shown(data.name)}[/]: {n:,} samples, {d:,} features.")
        for note in table.notes:
            out.print(f"[yellow]Note:[/] {escape(note)}")
        if table.labels is None:
            out.print("[yellow]Note:[/] There are no labels; accuracy and clustering need --label-column.")
        comparison = Comparison(table.X, table.labels, methods=methods, ms=ms, **settings)
        make_folder(folder)
        with RunStore(folder / STORE) as store:
            total, before = len(comparison.cells), len(comparison.finished(store))
            if before:
                out.print(f"{before} of {total} cells are done already.")
            failed, interrupted = follow(
                lambda on_start: run_all([comparison], store, Backend(n_jobs), on_start), total, before, quiet=quiet
            )
            cells = comparison.finished(store)
            others = len(store.keys()) - len(cells)
    done = len(cells)
    cells += [cell for _, cell in failed]
    notes = [*_failures(cells), *_warnings(cells)]
    varying = standardize_rows(ArrayRows(comparison.X), 1).kept  # one row is enough to be held
    constant = constant_columns(table.names[i] for i in np.setdiff1d(np.arange(d), varying))
    if constant:
        notes.append(constant)
    if others:
        notes.append(f"{STORE} also keeps {counted(others, 'result')} of other data or settings, not shown here.")
    if not interrupted:  # joblib would complain about what was cut short
        notes += dict.fromkeys(str(w.message) for w in caught)
    _write_and_show(out, folder, data, comparison, cells, notes)
    if interrupted:
        out.print(f"Stopped: {done} of {total} cells are done and kept; the same command goes on from there.")
        return INTERRUPTED
    return FAILED if any(cell.failed is not None for cell in cells) else 0


def _write_and_show(
    out: Console, folder: Path, data: Path, comparison: Comparison, cells: list[Cell], notes: list[str]
) -> None:
    table = summary(cells)
    if table.empty:  # stopped too early
        return
    labelled = comparison.judge.y is not None
    n, d = comparison.X.shape
    legend = _legend(table)
    markdown = [
        f"# Feature selection on {as_markdown(data.name)}",
        f"{n:,} samples, {d:,} features. Command:",
        indent(command_line(), "    ", lambda line: True),
    ]
    tables = []
    for m, rows in table.groupby("m"):
        header, body = _columns(rows, labelled)
        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for i, name in enumerate(header):
            grid.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
        for line in body:
            grid.add_row(*line)
        title = counted(m, "feature")
        out.print(f"\n[bold]{title}[/]\n")
        out.print(grid, soft_wrap=False)
        tables.append(ResultTable(title, header, body))
        markdown.append(tables[-1].to_markdown().rstrip())
    out.print(f"\n{legend}")
    for note in notes:
        out.print(f"[yellow]Note:[/] {escape(note)}")
    markdown += [legend, "\n".join(f"- {as_markdown(note)}" for note in notes)]

    facts = {
        "Data": data.name,
        "Size": f"{n:,} samples, {d:,} features",
        "Command": command_line(),
        "Splits": f"{comparison.splits}, selected on {1 - comparison.judge.test_size:.0%} of the samples",
        "Seed": comparison.judge.seed,
    }
    texts = (
        as_csv(table),
        as_csv(_as_frame(cells)),
        "\n\n".join(markdown).rstrip() + "\n",
        _report(table, tables, labelled, facts, legend, notes),
    )
    for name, text in zip(RESULTS, texts, strict=True):
        write_whole(folder / name, text)
    out.print(f"\nWritten to [bold]{shown(folder)}[/]: {', '.join((*RESULTS[:-1], STORE))}")
    out.print(f"Report: [bold]{shown(folder / RESULTS[-1])}[/]")


def _report(
    table: pd.DataFrame, tables: list[ResultTable], labelled: bool, facts: dict[str, Any], legend: str, notes: list[str]
) -> str:
    """``report.html``: gains over random columns as a figure, then the tables."""
    gains = pd.concat(
        pd.DataFrame(
            {
                "measure": title,
                "group": [counted(m, "feature") for m in table["m"]],
                "method": table["method"],
                "gain": sign * table[f"{metric}_gain"],
                "error": table[f"{metric}_gain_se"],
            }
        )
        for metric, (title, sign) in GAINS.items()
        if labelled or metric == "reconstruction"
    )
    # All columns are more than the random ones that they would be compared with.
    gains = gains[~gains["method"].isin([RANDOM, "all"]) & gains["gain"].notna()]
    *others, last = tables
    shown = [*others, replace(last, notes=legend.splitlines())]
    sections = [Section(each.title, table=each) for each in shown]
    if not gains.empty:
        text = (
            "Dots are differences to random columns of the same number on the same splits, bars their standard errors, "
            "and the line is chance: a method whose bar crosses it may be no better."
        )
        sections.insert(0, Section("Which method is better than chance?", gains_over_random(gains), text))
    return results_page(
        f"Which method suits {facts['Data']}?",
        "features chosen without labels on a part of the samples, and judged on the others.",
        summary=facts,
        sections=sections,
        notes=notes,
    )


def _columns(rows: pd.DataFrame, labelled: bool) -> tuple[list[str], list[list[str]]]:
    """Header and body of the table of one m."""
    main = "accuracy" if labelled else "reconstruction"
    header = ["method", "seconds", "accuracy", "clustering", "RMSE", "accuracy − random"]
    if not labelled:
        header = ["method", "seconds", "RMSE", "RMSE − random"]
    body = []
    for row in rows.to_dict("records"):
        if not row["splits"]:
            body.append([row["method"], "failed", *[""] * (len(header) - 2)])
            continue
        gain = "" if row["method"] == RANDOM else _pm(row[f"{main}_gain"], row[f"{main}_gain_se"], "+.3f")
        scores = [_pm(row[main], row[f"{main}_sd"])]
        if labelled:
            scores += [f"{row['clustering']:.3f}", f"{row['reconstruction']:.3f}"]
        body.append([row["method"], f"{row['seconds']:.2f}", *scores, gain])
    return header, body


def _pm(mean: float, spread: float, form: str = ".3f") -> str:
    """``0.912 ± 0.013``; one split has no spread, and no split nothing."""
    if pd.isna(mean):
        return ""
    return f"{mean:{form}}" if pd.isna(spread) else f"{mean:{form}} ± {spread:.3f}"


def _legend(table: pd.DataFrame) -> str:
    done = table.loc[table["splits"] > 0, "splits"]
    fewest, most = done.min(), done.max()
    if not most > 1:  # NaN if every method failed
        return "One split; seconds are of one core to select. − random: difference to random columns."
    splits = f"{most}" if fewest == most else f"{fewest} to {most}"
    return (
        f"Means of {splits} splits ± standard deviation; seconds are of one core to select.\n"
        "− random: difference to random columns on the same split ± standard error."
    )


def _failures(cells: Iterable[Cell]) -> Iterator[str]:
    """One line a method and reason to fail."""
    splits: dict[tuple[str, str], set[int]] = {}
    for cell in cells:
        if cell.failed is not None:
            splits.setdefault((cell.method, cell.failed), set()).add(cell.split)
    for (method, why), where in splits.items():
        yield f"{method} failed on {counted(len(where), 'split')}: {why}"


def _warnings(cells: Iterable[Cell]) -> Iterator[str]:
    """The first warning of each method, and on how many splits it had any."""
    warned: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.warnings:
            warned.setdefault(cell.method, []).append(cell)
    for method, own in warned.items():
        yield f"{method}: {own[0].warnings[0]} ({counted(len({cell.split for cell in own}), 'split')})"


def _as_frame(cells: Iterable[Cell]) -> pd.DataFrame:
    """``cells.csv``: one row a cell."""
    return pd.DataFrame(
        {
            **{name: value for name, value in asdict(cell).items() if name not in NOT_SHOWN},
            "m": len(cell.features) if cell.m is None else cell.m,
            "features": " ".join(map(str, cell.features)),
            "warnings": " | ".join(cell.warnings),
        }
        for cell in cells
    )
