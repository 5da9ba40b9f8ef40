"""What ``homophily reproduce`` does, once its options are read."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill, indent

from joblib import cpu_count
from rich.console import Console
from rich.table import Table as Grid

from .cli_common import FAILED, INTERRUPTED
from .commands import command_line
from .evaluation import Cell, RunStore
from .evaluation.running import Backend, Job
from .evaluation.tables import markdown as as_markdown
from .experiments import EXPERIMENTS, Results, Settings, Study
from .experiments.costs import estimate
from .experiments.drawings import experiment_figures
from .output import STORE, as_csv, check_store_folder, make_folder, write_whole
from .report import Section, results_page
from .run_progress import follow, in_words
from .wording import counted, shown

__all__ = ["run_reproduce"]


def run_reproduce(
    name: str, settings: Settings, *, folder: Path, backend: Backend, plan_only: bool, quiet: bool
) -> int:
    """Do what the folder's store does not hold yet, write and show the tables; returns the exit code.

    Parameters
    ----------
    name : str
        Key of ``EXPERIMENTS``.
    settings : Settings
        How much of it to run.
    folder : Path
        Output folder: empty, or that of an earlier run, which is then continued.
    backend : Backend
        Where the work is done.
    plan_only : bool
        Only say what would be done and how long it may take.
    quiet : bool
        As the option of the command.
    """
    # What was asked for goes to standard output, all else to standard error: a second run prints the same tables again.
    out = Console(soft_wrap=True, highlight=False, quiet=quiet, markup=False)
    log = Console(stderr=True, soft_wrap=True, highlight=False, quiet=quiet)
    check_store_folder(folder)
    experiment = EXPERIMENTS[name](settings)
    log.print(f"{experiment.title}. Data: {', '.join(experiment.datasets)}.")
    if experiment.missing:
        missing = ", ".join(experiment.missing)
        log.print(f"[yellow]Note:[/] Not here, so left out: {missing}; see 'homophily datasets list'.")
    if plan_only:
        with RunStore(folder / STORE if (folder / STORE).is_file() else ":memory:") as store:
            _show_plan(out, experiment, store, backend)
        return 0
    make_folder(folder)
    with RunStore(folder / STORE) as store:
        total, before = len(experiment.cells), experiment.done(store)
        if before:
            log.print(f"{before} of {total} cells are done already.")
        if before < total and not quiet:
            log.print(f"About {_duration(map(estimate, experiment.jobs_left(store)), backend)}.")
        failed, interrupted = follow(
            lambda on_start: experiment.run(store, backend, on_start), total, before, quiet=quiet
        )
        done, results = experiment.done(store), experiment.results(store)
    failures = list(_failures(failed))
    notes = [*results.notes, *failures]
    if done < total and results.tables:
        notes.append(f"{done} of {total} cells are done; means are over what there is.")
    place = folder / _label(name, settings)
    _write(place, experiment, settings, results, notes)
    width = min(Console().width, 120)
    for table in results.tables:
        out.print(table.to_text(width))
    for note in notes:
        out.print(fill(note, width))
    if results.tables:
        log.print(f"\nWritten to [bold]{shown(place)}[/]: {', '.join(sorted(os.listdir(place)))}")
        log.print(f"Report: [bold]{shown(place / 'report.html')}[/]")
    if interrupted:
        log.print(f"Stopped: {done} of {total} cells are done and kept; the same command goes on from there.")
        return INTERRUPTED
    for failure in failures if quiet or not results.tables else ():
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(failure)
    return FAILED if any(not cell.tuning for _, cell in failed) else 0


def _label(name: str, settings: Settings) -> str:
    """The folder of one experiment's tables: those of the last run with that protocol and size."""
    return "-".join([name, *(["quick"] if settings.quick else []), *([settings.protocol] if name == "table" else [])])


def _write(place: Path, experiment: Study, settings: Settings, results: Results, notes: list[str]) -> None:
    if not results.tables:  # stopped before anything was finished
        return
    make_folder(place)
    said = "\n".join(f"- {as_markdown(note)}" for note in notes)
    command = indent(command_line(), "    ", lambda line: True)
    markdown = [f"{command}\n", *(table.turned().to_markdown() for table in results.tables), said]
    texts = {
        "tables.txt": "\n".join([*(table.to_text(120) for table in results.tables), *notes]) + "\n",
        "tables.md": "\n".join(markdown) + "\n",
        "tables.tex": "\n".join(table.turned().to_latex() for table in results.tables),
        "report.html": _report(experiment, settings, results, notes),
    }
    for name, frame in results.frames.items():
        texts[f"{name}.csv"] = as_csv(frame)
    for name, text in texts.items():
        write_whole(place / name, text)


def _report(experiment: Study, settings: Settings, results: Results, notes: list[str]) -> str:
    """``report.html``: what the experiment has of figures, then its tables."""
    figures = experiment_figures(experiment.name, results.frames, settings.seed)
    return results_page(
        experiment.title,
        "the paper's experiment, run again.",
        summary={"Data": ", ".join(experiment.datasets), "Command": command_line(), "Seed": settings.seed},
        sections=[
            *(Section(title, figure, text) for title, figure, text in figures),
            *(Section(table.title, table=table.turned()) for table in results.tables),
        ],
        notes=notes,
    )


def _failures(failed: Iterable[tuple[Job, Cell]]) -> Iterator[str]:
    """One line a data set, method and reason to fail."""
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for job, cell in failed:
        method = f"{cell.method} (tuning)" if cell.tuning else cell.method
        counts[job.owner.dataset, method, str(cell.failed)] += 1
    for (dataset, method, why), count in counts.items():
        yield f"{dataset}: {method} failed in {counted(count, 'cell')}: {why}"


def _duration(seconds: Iterable[float], backend: Backend) -> str:
    """How long so many seconds of one core take, roughly."""
    whole = sum(seconds)
    if backend.scheduler:
        return f"{in_words(whole)} of one core, to be divided by those of the cluster"
    workers = cpu_count() if backend.n_jobs < 0 else backend.n_jobs
    return f"{in_words(whole / workers)} with {counted(workers, 'job')}, give or take a factor of three"


def _show_plan(out: Console, experiment: Study, store: RunStore, backend: Backend) -> None:
    """Cells left and an estimate of the time, by data set and method."""
    total, before = len(experiment.cells), experiment.done(store)
    out.print(f"{total} cells, {before} of them done already, {total - before} left.")
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    cells: dict[str, int] = defaultdict(int)
    for job in experiment.jobs_left(store):
        seconds[job.owner.dataset][job.cells[0].method] += estimate(job)
        cells[job.owner.dataset] += len(job.cells)
    if not cells:
        return
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    grid.add_column("data set", no_wrap=True)
    grid.add_column("cells left", justify="right", no_wrap=True)
    grid.add_column("one core", justify="right", no_wrap=True)
    grid.add_column("longest")
    for dataset, own in seconds.items():
        longest = sorted(own, key=lambda method: -own[method])[:3]
        named = ", ".join(f"{method} {in_words(own[method])}" for method in longest)
        grid.add_row(dataset, str(cells[dataset]), in_words(sum(own.values())), named)
    out.print(grid, soft_wrap=False)
    out.print(f"About {_duration((sum(own.values()) for own in seconds.values()), backend)}.")
