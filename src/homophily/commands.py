"""What the commands do, once their options are read. Imports torch and the like; :mod:`homophily.cli` does not."""

from __future__ import annotations

import math
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from .anndata import NEIGHBORS, write_cells
from .baselines import BASELINES, AllFeatures
from .checkpoint import Checkpoints, forget, is_unfinished
from .cli_common import INTERRUPTED
from .distributed import WorkerLostError, joined, launched
from .errors import OutputError
from .graph import adaptive_knn_graph
from .io import Table, read_table, write_reduced
from .joint import MANY, DirichletSelector
from .memory import fitting
from .methods import METHODS
from .output import CHECKPOINT, RESULTS, as_csv, check_output, output_folder, write_whole
from .predictive import PredictiveSelector
from .preprocessing import standardize
from .refits import FRACTION, Refits, check_refits, described, in_words, refit
from .report import look, write_report
from .signals import on_stop, stop_requested
from .stability import Stability
from .wording import constant_columns, counted, listing, printable, shown

__all__ = ["command_line", "run_select"]


def run_select(
    data: Path,
    *,
    method: str,
    params: dict[str, Any],
    columns: dict[str, Any],
    folder: Path,
    overwrite: bool,
    resume: bool,
    checkpoint_every: float,
    n_subsamples: int,
    n_jobs: int,
    image_shape: tuple[int, int] | None,
    quiet: bool,
) -> int:
    """Read ``data``, fit the selector, write the result folder, show what came out; the exit code.

    Under ``torchrun`` all processes train together, and the first one shows and writes.

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
    n_subsamples : int
        Subsamples to select on again, see :mod:`homophily.refits`; none if 0.
    n_jobs : int
        Processes that do so.
    image_shape : (height, width), optional
        Of samples that are images: the report then shows the chosen pixels.
    overwrite, resume, checkpoint_every, quiet
        As the options of the command.
    """
    if resume and method != "dirichlet":
        raise ValueError(f"--resume goes on with --method dirichlet only; --method {method} keeps no checkpoints.")
    if launched() and method != "dirichlet":
        raise ValueError(f"torchrun trains --method dirichlet only; run --method {method} without it.")
    if launched() and n_subsamples:
        raise ValueError("--stability runs in one process: run the same command without torchrun.")
    with joined(params.get("device", "auto")) as team:
        first = team.rank == 0
        out = Console(soft_wrap=True, highlight=False, quiet=quiet or not first)
        selector = _make(method, params, verbose=first and _drawing(quiet))
        training: dict[str, Any] = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            if first:
                check_output(folder, data, overwrite=overwrite, resume=resume)
            table = read_table(data, **columns, on_disk=partial(_stays_on_disk, method))
            n, d = table.X.shape
            if image_shape is not None and math.prod(image_shape) != d:
                height, width = image_shape
                raise ValueError(
                    f"--image-shape {height}x{width}: such images have {height * width:,} pixels, and "
                    f"{data.name} has {d:,} features."
                )
            out.print(f"Read [bold]{shown(data.name)}[/]: {n:,} samples, {d:,} features.")
            if team.size > 1:
                out.print(
                    f"{team.size} processes share them."
                    if selector.shares(n, d)
                    else f"These are few, so each of the {team.size} processes does all of the work."
                )
            for note in table.notes:
                out.print(f"[yellow]Note:[/] {escape(note)}")
            if method == "dirichlet" and first:
                training["checkpoint"] = _checkpoint(folder, out, resume, checkpoint_every)
            if n_subsamples:
                check_refits(selector, n)
            started = time.perf_counter()
            with _interruptible(first) as stop_requested, _saved_in(folder / CHECKPOINT):
                selector.fit(table.X, callback=stop_requested, **training)
            seconds = time.perf_counter() - started
    if not first:
        return 0
    notes = _notes(selector, table, [str(w.message) for w in caught])
    refits = Refits()
    if n_subsamples:
        if not selector.interrupted_:
            out.print(f"Selecting again on {n_subsamples} random parts of {FRACTION:.0%} of the samples.")
        each = math.inf if resume else seconds  # what was trained before does not count in them
        refits = refit(selector, table.X, n_subsamples, n_jobs=n_jobs, seconds=each, show=_drawing(quiet))
    if refits.note:
        notes.append(refits.note)
    code = INTERRUPTED if selector.interrupted_ else refits.code
    with _saved_in(folder / CHECKPOINT), output_folder(folder) as draft:
        summary = _summary(selector, data, table, seconds)
        _write_result(draft, selector, table, summary, notes, refits.stability, image_shape)
        written = _in_order(draft)
    if method == "dirichlet" and code != INTERRUPTED:
        forget(folder / CHECKPOINT)
    _show_result(out, selector, table, seconds, notes[len(table.notes) :], refits.stability)
    out.print(f"\nWritten to [bold]{shown(folder)}[/]: {', '.join(written)}")
    out.print(f"Report: [bold]{shown(folder / 'report.html')}[/]")
    return code


def _stays_on_disk(method: str, n: int, d: int) -> bool:
    """Whether the rows of a file of that shape are read block by block, if its kind allows it."""
    return method in ("predictive", "dirichlet") and (n > MANY or launched() or fitting(n, 8 * d, 1 / 4) < n)


def _drawing(quiet: bool) -> bool:
    """Whether progress is to be drawn."""
    return not quiet and sys.stderr.isatty()


def _checkpoint(folder: Path, out: Console, resume: bool, every: float) -> Checkpoints:
    """Where the state of the training goes; what an earlier run left there goes unless it is to go on."""
    place = folder / CHECKPOINT
    if resume and is_unfinished(place):
        out.print(f"Going on from {shown(place)}.")
    elif resume:
        out.print("No checkpoint yet: this is the beginning.")
    return Checkpoints(place, every, anew=not resume)


def command_line() -> str:
    """The command as it was given."""
    return shlex.join(["homophily", *sys.argv[1:]])


def _make(method: str, params: dict[str, Any], *, verbose: bool) -> Any:
    """The selector, or an error that says which of ``params`` it does not have."""
    cls = METHODS[method]
    known = cls().get_params()
    unknown = [name for name in params if name not in known]
    if unknown:
        learned = method == "predictive" and set(unknown) <= set(DirichletSelector().get_params())
        raise ValueError(
            f"--method {method} has no parameter {listing(map(repr, unknown))}; it has {listing(sorted(known), 30)}."
            + (" Those of the paper's learner go with --method dirichlet." if learned else "")
        )
    return cls(**params, **({"verbose": verbose} if "verbose" in known else {}))


def _selection(selector: Any, names: list[str], stability: Stability | None) -> pd.DataFrame:
    """``selected.csv``: one row a chosen feature, the best first."""
    chosen = selector.selected_features_
    selection = pd.DataFrame(
        {
            "rank": np.arange(1, len(chosen) + 1),
            "index": chosen,
            "name": [names[i] for i in chosen],
            "score": selector.scores_[chosen],
        }
    )
    if stability is not None:
        selection["frequency"] = stability.frequency[chosen]
    if hasattr(selector, "alternatives_"):
        selection["alternatives"] = ["; ".join(copies) for copies in _near_copies(selector, names)]
    return selection


def _near_copies(selector: Any, names: list[str]) -> list[list[str]]:
    """Names of what could replace each chosen feature, the closest first; none for methods that do not look for them.

    One list a chosen feature.
    """
    found = getattr(selector, "alternatives_", [[]] * len(selector.selected_features_))
    return [[names[i] for i in copies if i >= 0] for copies in found]


def _summary(selector: Any, data: Path, table: Table, seconds: float) -> dict[str, Any]:
    n, d = table.X.shape
    facts: dict[str, Any] = {
        "Data": data.name,
        "Size": f"{n:,} samples, {d:,} features",
        "Command": command_line(),
        "Method": type(selector).__name__,
    }
    if isinstance(selector, DirichletSelector):
        each = selector.energy_ / n / len(selector.selected_features_)
        restarts = f", {counted(len(selector.restart_objectives_), 'restart')}"
        facts |= {
            "Objective": selector.objective,
            "Neighbours": selector.n_neighbors,
            "Energy": f"{selector.energy_:.4g} ({each:.3f} a sample and feature; a feature that has nothing to do with "
            "the graph has 1)",
        }
    elif isinstance(selector, PredictiveSelector):
        restarts = ""
        facts["Predicted"] = _predicted(selector)
    else:
        restarts = ""
        set_by_user = _changed(selector)
        if set_by_user:
            facts["Parameters"] = ", ".join(f"{name} = {value}" for name, value in set_by_user.items())
    steps = f"{selector.n_iter_} steps{restarts}, " if selector.n_iter_ else ""
    what = "Training" if getattr(selector, "history_", None) else "Search"
    return facts | {what: f"{steps}{seconds:.1f} s", "Seed": selector.random_state}


def _predicted(selector: PredictiveSelector) -> str:
    """What the selection is worth, in a sentence that a terminal has room for."""
    return (
        f"They predict {selector.explained_:.0%} of the data on rows left out; "
        f"all columns together {selector.explained_by_all_:.0%}."
    )


def _changed(selector: Any) -> dict[str, Any]:
    """Parameters of the method that are not its default."""
    default = type(selector)().get_params()
    return {
        name: value
        for name, value in selector.get_params().items()
        if value != default[name] and name not in ("n_features_to_select", "random_state", "verbose")
    }


def _notes(selector: Any, table: Table, warned: list[str]) -> list[str]:
    notes = list(table.notes)
    constant = constant_columns(table.names[i] for i in selector.dropped_features_)
    if constant:
        notes.append(constant)
    if isinstance(selector, AllFeatures) and selector.n_features_to_select != len(selector.selected_features_):
        notes.append(f"{type(selector).__name__} takes every column that varies; -m is not used.")
    exchanged = getattr(selector, "exchanged_features_", ())
    if len(exchanged):
        names = listing(table.names[i] for i in exchanged)
        were, whose = ("was", "its") if len(exchanged) == 1 else ("were", "their")
        notes.append(
            f"{len(exchanged)} of the {counted(len(selector.selected_features_), 'feature')} {were} put in after "
            f"training, by exchange, because that lowers the exact objective; {whose} score is that of the feature "
            f"that was replaced: {names}."
        )
    if selector.interrupted_:
        notes.append(_partial(selector))
    return notes + list(dict.fromkeys(warned))


def _partial(selector: Any) -> str:
    if isinstance(selector, PredictiveSelector):
        return f"The search was stopped after {selector.n_iter_} steps: this is a partial result."
    sure = selector.history_.get("confidence")
    confidence = "" if sure is None else f" (confidence {sure[-1]:.0%})"
    return (
        f"The training was stopped after {selector.n_iter_} of {selector.max_iter} steps: this is a partial "
        f"result{confidence}." + (" The same command with --resume goes on." if sure is not None else "")
    )


def _write_result(
    folder: Path,
    selector: Any,
    table: Table,
    summary: dict[str, Any],
    notes: list[str],
    stability: Stability | None,
    image_shape: tuple[int, int] | None,
) -> None:
    selection = _selection(selector, table.names, stability)
    write_whole(folder / "selected.csv", as_csv(selection))
    graph = _graph(selector, table)
    if graph is not None:
        sp.save_npz(folder / "graph.npz", graph)
    if table.annotated is None:
        write_reduced(table, selector.get_support(indices=True), folder / "reduced")
    else:
        write_cells(table.annotated, selector, graph, folder / "reduced.h5ad")
    if getattr(selector, "path_", None):
        write_whole(folder / "path.csv", as_csv(pd.DataFrame(selector.path_)))
    watched = getattr(selector, "history_", {})
    if watched:
        history = pd.DataFrame(watched)
        history.insert(0, "step", np.arange(1, len(history) + 1))
        write_whole(folder / "history.csv", as_csv(history))
    selector.save(folder / "model")
    write_report(
        folder / "report.html",
        summary=summary,
        selected=selection.assign(
            shown=_readable(selection["score"]),
            copies=[listing(copies, 3) for copies in _near_copies(selector, table.names)],
        ).to_dict("records"),
        score_meaning=selector.score_meaning,
        history=watched,
        notes=notes,
        usage=_usage(selector),
        insight=look(
            table.X,
            selector.selected_features_,
            getattr(selector, "n_neighbors", NEIGHBORS),
            table.labels,
            mean=image_shape is not None,
        ),
        n_samples=table.X.shape[0],
        image_shape=image_shape,
        path=getattr(selector, "path_", {}) if _size_reason(selector) else {},
        size_reason=_size_reason(selector),
        stability=None if stability is None else described(stability, selector.selected_features_, table.names),
    )


def _size_reason(selector: Any) -> str:
    """Why there are so many features, if it was left to the data."""
    rule = getattr(selector, "size_rule_", "given")
    if rule == "given":
        return ""
    m, path = len(selector.selected_features_), selector.path_
    return {
        "predicted": f"{m} features, because as many are predicted by others better than noise is.",
        "knee": f"{m} features, because more would add little: these predict {selector.explained_:.0%} of the data, "
        f"and {len(path['n_features'])} features {path['explained'][-1]:.0%}.",
        "none": f"{counted(m, 'feature')}, though none is predicted by others better than noise is.",
    }[rule]


def _graph(selector: Any, table: Table) -> sp.csr_array | None:
    """The graph that was learned, or for the other methods that of the samples on the chosen columns."""
    if hasattr(selector, "graph_"):
        return selector.graph_
    support = selector.get_support(indices=True)
    chosen = table.X.iloc[:, support].to_numpy() if hasattr(table.X, "iloc") else table.X[:, support]
    return adaptive_knn_graph(standardize(chosen).values, min(NEIGHBORS, table.X.shape[0] - 1))


def _usage(selector: Any) -> str:
    cls = type(selector)
    package = "homophily.baselines" if cls in BASELINES.values() else "homophily"
    lines = [
        f"from {package} import {cls.__name__}",
        "",
        f'selector = {cls.__name__}.load("model")   # in the folder of this report',
        "selector.transform(X)   # the chosen columns",
        "selector.scores_   # one a column",
    ]
    if getattr(selector, "graph_", None) is not None:
        lines.append("selector.graph_   # the learned k-NN graph, SciPy CSR")
    return "\n".join(lines)


def _readable(scores: pd.Series) -> list[str]:
    """Three decimals where they show something."""
    return [f"{score:.3f}" if scores.abs().max() >= 0.01 else f"{score:.2e}" for score in scores]


def _in_order(folder: Path) -> list[str]:
    """What was written, in the order in which a reader wants it; the report is named apart."""
    names = [path.name for pattern in RESULTS[:-1] for path in sorted(folder.glob(pattern))]
    return [f"{name}/" if (folder / name).is_dir() else name for name in names]


def _show_result(
    out: Console,
    selector: Any,
    table: Table,
    seconds: float,
    notes: list[str],
    stability: Stability | None,
    most: int = 10,
) -> None:
    selection = _selection(selector, table.names, stability)
    cells = {
        "rank": selection["rank"].astype(str),
        "feature": selection["name"].map(printable).map(escape),
        "column": selection["index"].astype(str),
        "score": _readable(selection["score"]),
    }
    if stability is not None:
        cells["frequency"] = selection["frequency"].map("{:.0%}".format)
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name in cells:
        grid.add_column(name, justify="left" if name == "feature" else "right", overflow="fold")
    for row in list(zip(*cells.values(), strict=True))[:most]:
        grid.add_row(*row)
    steps = f", {selector.n_iter_} steps" if selector.n_iter_ else ""
    energy = f", energy {selector.energy_:.4g}" if isinstance(selector, DirichletSelector) else ""
    out.print(f"Selected {counted(len(selection), 'feature')} in {seconds:.1f} s{steps}{energy}.")
    out.print(f"{_predicted(selector)}\n" if isinstance(selector, PredictiveSelector) else "")
    if _size_reason(selector):
        out.print(f"auto: {_size_reason(selector)}\n")
    out.print(grid, soft_wrap=False)
    if len(selection) > most:
        out.print(f"     ... and {len(selection) - most} more in selected.csv")
    if stability is not None:
        out.print(f"\n{in_words(stability)}")
    replaceable = sum(map(bool, _near_copies(selector, table.names)))
    if replaceable:
        have = (
            "has near-copies that could replace it" if replaceable == 1 else "have near-copies that could replace them"
        )
        out.print(f"\n{replaceable} of the {len(selection)} {have}: see selected.csv.")
    for note in notes:
        out.print(f"\n[yellow]Note:[/] {escape(note)}")


@contextmanager
def _saved_in(checkpoint: Path) -> Iterator[None]:
    """Say where the training is saved when another process is lost, the result cannot be written or the user stops."""
    saved = f"training is saved in {checkpoint}: the same command with --resume goes on from there"
    try:
        yield
    except (WorkerLostError, OSError) as error:
        if not is_unfinished(checkpoint):
            raise
        message = f"{str(error).rstrip('.')}. The {saved}."
        if isinstance(error, OutputError):
            raise OutputError(message, error.errno) from error
        raise (WorkerLostError if isinstance(error, WorkerLostError) else OSError)(message) from error
    except KeyboardInterrupt:
        if not is_unfinished(checkpoint):
            raise
        raise KeyboardInterrupt(f"the {saved}") from None


@contextmanager
def _interruptible(aloud: bool = True) -> Iterator[Callable[[Any], bool]]:
    """Yield a callback that is true once Ctrl-C or SIGTERM asked to stop; another Ctrl-C ends the program."""
    pressed = stop_requested()

    def stop() -> None:
        nonlocal pressed
        if pressed:
            if launched():  # torchrun passes on what the processes may have got themselves, and ends who does not stop
                return
            raise KeyboardInterrupt
        pressed = True
        if not aloud:
            return
        message = "Stopping after this step and keeping what has been learned; Ctrl-C again to give up."
        Console(stderr=True, soft_wrap=True).print(f"\n{message}")

    with on_stop(stop, even_if_ignored=True):
        yield lambda progress: pressed
