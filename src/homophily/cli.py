"""The command line. Only options and errors here, so that ``--help`` is quick; the work is in ``commands``."""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ._version import __version__
from .cli_common import Debug, Method, OneLineErrors, check_jobs, completing, counts, names, tell, user_errors
from .cli_datasets import datasets
from .cli_doctor import doctor
from .cli_reproduce import reproduce
from .cli_runs import runs
from .signals import ending_in_order

__all__ = ["app", "main"]

FILES, TRAINING, JUDGING = "Files", "Training", "Judging"

app = typer.Typer(
    cls=OneLineErrors,
    help="Unsupervised feature selection that learns the k-nearest-neighbour graph along with the features.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Objective(StrEnum):
    """What is minimised."""

    energy = "energy"
    coverage = "coverage"


class FinalGraph(StrEnum):
    """How the graph of the result is found."""

    auto = "auto"
    exact = "exact"
    faiss = "faiss"
    none = "none"


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


DataFile = Annotated[
    Path, typer.Argument(metavar="DATA", help="csv, tsv, parquet, npz, npy, mat or h5ad: one sample a row.")
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Labels: carried along, never used to select.", rich_help_panel=FILES)
]
Layer = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Layer of a h5ad file.", show_default="its X", rich_help_panel=FILES),
]
IndexColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column that names the samples.", rich_help_panel=FILES)
]
DropColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Column to leave out; may be repeated.", rich_help_panel=FILES),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Does the first line of a csv name the columns?", rich_help_panel=FILES),
]


@app.command()
def select(
    data: DataFile,
    m: Annotated[
        str,
        typer.Option(
            "-m", "--n-features", metavar="M", help="How many features to select, or auto: let the data say it."
        ),
    ],
    method: Annotated[
        Method,
        typer.Option(metavar="NAME", help=f"Which selector: {', '.join(Method)}."),
    ] = Method.predictive,
    label_column: LabelColumn = None,
    index_column: IndexColumn = None,
    drop: DropColumns = None,
    header: Header = None,
    layer: Layer = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            readable=False,
            help="Output folder.",
            show_default="DATA-selected",
            rich_help_panel=FILES,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the result in the output folder.", rich_help_panel=FILES)
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the unfinished run in the output folder.", rich_help_panel=FILES),
    ] = False,
    checkpoint_every: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="How often to save the training.", rich_help_panel=FILES),
    ] = 30.0,
    final_graph: Annotated[
        FinalGraph | None,
        typer.Option(
            metavar="HOW",
            help="Graph of the result: auto, exact, faiss (approximate, for many rows) or none.",
            show_default="auto",
            rich_help_panel=FILES,
        ),
    ] = None,
    objective: Annotated[
        Objective | None,
        typer.Option(
            metavar="NAME",
            help="Of dirichlet. energy: the paper's; coverage: all features vary little between neighbours.",
            show_default="energy",
        ),
    ] = None,
    stability: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=10_000,
            help="Select again on N subsamples, such as 20: which features would other samples give?",
            show_default="0, off",
        ),
    ] = 0,
    neighbors: Annotated[
        int | None,
        typer.Option(
            "--neighbors",
            "-k",
            metavar="N",
            min=1,
            help="Neighbours in the graph.",
            show_default="5",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    graph: Annotated[
        GraphKind | None,
        typer.Option(
            metavar="NAME", help="exact is faster, soft better.", show_default="soft", rich_help_panel=TRAINING
        ),
    ] = None,
    reg: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Softness of the graph; for rsr, udfs and aefs the penalty.",
            show_default="0.3",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Training steps.", show_default="150", rich_help_panel=TRAINING),
    ] = None,
    n_init: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Restarts; the best is kept.", show_default="1", rich_help_panel=TRAINING
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Rows a step.", show_default="256", rich_help_panel=TRAINING)
    ] = None,
    n_anchors: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Look for neighbours among this many rows.",
            show_default="all up to 8192 rows, then 2048",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="Any other parameter of the method; may be repeated.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=2**32 - 1, help="Seed of all that is drawn.", rich_help_panel=TRAINING),
    ] = 0,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completing(lambda: ("auto", "cpu", "cuda", "mps")),
            help="auto, cpu, cuda or mps.",
            show_default="auto",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    image_shape: Annotated[
        str | None,
        typer.Option(
            metavar="HxW",
            help="Samples are images, row by row, such as 28x28: the report shows the pixels.",
            show_default=False,
            rich_help_panel=FILES,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            help="Threads, or processes of --stability; -1: all.",
            show_default="-1",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            metavar="SIZE",
            help="Memory that may be taken, such as 2GB or 800MB.",
            show_default="all there is",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Debug = False,
) -> None:
    """Select M features of DATA and build the k-nearest-neighbour graph of its samples on them.

    The default method selects the features that predict all the others. The training options are those of --method
    dirichlet, the paper's learner; other methods have some of them, with their own defaults.

    Writes selected.csv, reduced.*, graph.npz, path.csv or history.csv, model/ and report.html to the output folder.

    Ctrl-C or SIGTERM end the search or training early and keep what has been found. With --method dirichlet, --resume
    goes on, also after a crash, and torchrun -m homophily select ... trains on many cores or machines.

    npy, parquet and h5ad files may be larger than memory.
    """
    check_jobs(jobs, "threads")
    if stability == 1:
        raise typer.BadParameter("--stability 1: one selection agrees with itself; give 2 subsamples or more, or 0.")
    with user_errors(debug), ExitStack() as limits:
        from .claim import claimed
        from .commands import run_select
        from .distributed import leads
        from .memory import memory_limit

        folder = output or Path(f"{data.stem}-selected")
        if leads():
            limits.enter_context(claimed(folder))
        if memory is not None:
            limits.enter_context(memory_limit(memory))

        given = {
            "n_neighbors": neighbors,
            "graph": None if graph is None else graph.value,
            "reg": reg,
            "objective": None if objective is None else objective.value,
            "max_iter": max_iter,
            "n_init": n_init,
            "batch_size": batch_size,
            "n_anchors": n_anchors,
            "final_graph": None if final_graph is None else final_graph.value,
            "device": device,
        }
        if method is Method.dirichlet:  # the others use --jobs for --stability alone
            given["n_jobs"] = -1 if jobs is None else jobs
        code = run_select(
            data,
            method=method.value,
            params={
                "n_features_to_select": _number(m, method),
                "random_state": seed,
                **{name: value for name, value in given.items() if value is not None},
                **dict(map(_parameter, param or ())),
            },
            columns=_columns(label_column, index_column, drop, header, layer),
            folder=folder,
            overwrite=overwrite,
            resume=resume,
            checkpoint_every=checkpoint_every,
            n_subsamples=stability,
            n_jobs=-1 if jobs is None else jobs,
            image_shape=None if image_shape is None else _height_and_width(image_shape),
            quiet=quiet,
        )
    if code:
        raise typer.Exit(code)


@app.command()
def compare(
    data: DataFile,
    m: Annotated[
        str, typer.Option("-m", "--n-features", metavar="M,...", help="How many features to select, such as 25,50.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            autocompletion=completing(lambda: Method),
            metavar="NAME,...",
            help=f"Which of {', '.join(Method)}; random is always added.",
            show_default="every one",
        ),
    ] = None,
    label_column: LabelColumn = None,
    index_column: IndexColumn = None,
    drop: DropColumns = None,
    header: Header = None,
    layer: Layer = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            readable=False,
            help="Output folder; an earlier comparison in it is continued.",
            show_default="DATA-compared",
            rich_help_panel=FILES,
        ),
    ] = None,
    splits: Annotated[int, typer.Option(metavar="N", min=1, help="Random splits.", rich_help_panel=JUDGING)] = 5,
    test_size: Annotated[
        float, typer.Option(metavar="X", help="Fraction of rows to test on.", rich_help_panel=JUDGING)
    ] = 0.2,
    stratify: Annotated[
        bool, typer.Option("--stratify", help="Keep the proportions of the classes.", rich_help_panel=JUDGING)
    ] = False,
    trees: Annotated[
        int, typer.Option(metavar="N", min=1, help="Trees of the random forest.", rich_help_panel=JUDGING)
    ] = 1000,
    random_draws: Annotated[
        int, typer.Option(metavar="N", min=1, help="Random selections a split.", rich_help_panel=JUDGING)
    ] = 5,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Seed of all that is drawn.", rich_help_panel=JUDGING)
    ] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Processes; -1: one a core.")] = -1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Debug = False,
) -> None:
    """Compare selectors on DATA: how well the features they choose classify, cluster and reconstruct.

    Selectors see the training rows of random splits and no labels, a forest, k-means and a network judge the rest.

    Writes report.html, comparison.csv, cells.csv, comparison.md and runs.sqlite to the output folder.

    Ctrl-C keeps what is finished; the same command goes on from there.
    """
    check_jobs(jobs)
    with user_errors(debug, "what is finished is kept, the same command goes on from there"):
        ms = counts(m)
        from .compare import run_compare
        from .methods import METHODS

        code = run_compare(
            data,
            methods=names(methods, "--methods") or list(METHODS),
            ms=ms,
            settings={
                "splits": splits,
                "test_size": test_size,
                "stratify": stratify,
                "seed": seed,
                "n_estimators": trees,
                "random_draws": random_draws,
            },
            columns=_columns(label_column, index_column, drop, header, layer),
            folder=output or Path(f"{data.stem}-compared"),
            n_jobs=jobs,
            quiet=quiet,
        )
    if code:
        raise typer.Exit(code)


app.command()(reproduce)
app.add_typer(runs, name="runs")
app.add_typer(datasets, name="datasets")
app.command()(doctor)


def _columns(
    label_column: str | None, index_column: str | None, drop: list[str] | None, header: bool | None, layer: str | None
) -> dict[str, Any]:
    """Arguments of :func:`~homophily.io.read_table`."""
    return {
        "label_column": label_column,
        "index_column": index_column,
        "drop": drop or (),
        "header": header,
        "layer": layer,
    }


def _number(text: str, method: Method) -> int | str:
    """What ``-m`` asks for."""
    if text == "auto":
        if method is not Method.predictive:
            raise ValueError(f"-m auto works with --method predictive only; give --method {method} a number.")
        return text
    if re.fullmatch(r"\s*0*[1-9][0-9]{0,17}\s*", text) is None:
        raise typer.BadParameter(f"-m {text!r} is no number of features: give a whole number from 1 on, or auto.")
    return int(text)


def _height_and_width(text: str) -> tuple[int, int]:
    """What ``--image-shape`` says."""
    found = re.fullmatch(r"([0-9]{1,6})[x×]([0-9]{1,6})", text.strip().lower())
    if found is None or 0 in (shape := (int(found[1]), int(found[2]))):
        raise ValueError(f"--image-shape {text!r}: expected height and width, such as 28x28.")
    return shape


def _parameter(text: str) -> tuple[str, Any]:
    """Name and value of ``NAME=VALUE``; what is no number, list, true, false or null is text."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not name or not equals:
        raise ValueError(f"--param {text!r}: expected NAME=VALUE, such as n_clusters=4 or temperature=[10,0.1].")
    own = {"n_features_to_select": "-m", "random_state": "--seed", "verbose": "--quiet"}
    if name in own:
        raise ValueError(f"--param {text!r}: use {own[name]} for that.")
    for read in (json.loads, float):
        try:
            return name, read(value)
        except ValueError:
            pass
        except RecursionError as error:
            raise ValueError(f"--param {name}: its value has lists in lists, and too many of them.") from error
    return name, value


def main() -> None:
    """Entry point of the command ``homophily``."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as daemons start commands
            setattr(sys, name, io.StringIO())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show is no reason to fail
    try:
        with ending_in_order():
            app()
    except Exception as error:  # outside of the commands, which end with SystemExit
        sys.exit(tell(error, debug="--debug" in sys.argv))
