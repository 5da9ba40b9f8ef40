"""``homophily reproduce``: options of the paper's experiments."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .cli_common import Debug, Method, check_jobs, completing, counts, dataset_names, names, user_errors

__all__ = ["reproduce"]

SIZE, ENGINE = "How much", "Where"


class ExperimentName(StrEnum):
    """The paper's experiments."""

    toy = "toy"
    table = "table"
    ablation = "ablation"
    sensitivity = "sensitivity"
    figures = "figures"


class Protocol(StrEnum):
    """How parameters are chosen."""

    default = "default"
    nested = "nested"
    paper = "paper"


class BackendName(StrEnum):
    """Who does the work."""

    local = "local"
    dask = "dask"


def reproduce(
    experiment: Annotated[
        ExperimentName,
        typer.Argument(
            metavar="EXPERIMENT", help="toy (Fig. 3), table (2, S1-S3), ablation (3, S4, S5), sensitivity; or figures."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A part that takes minutes, instead of all that the paper did.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done and how long it may take.")] = False,
    protocol: Annotated[
        Protocol,
        typer.Option(
            metavar="NAME",
            help="default: no tuning. nested: tuned on training rows. paper: as the paper, on test rows.",
            rich_help_panel=SIZE,
        ),
    ] = Protocol.default,
    datasets: Annotated[
        str | None,
        typer.Option(
            autocompletion=completing(dataset_names),
            metavar="NAME,...",
            help="Which data sets.",
            show_default="those here",
            rich_help_panel=SIZE,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            autocompletion=completing(lambda: Method),
            metavar="NAME,...",
            help="Which methods.",
            show_default="the paper's",
            rich_help_panel=SIZE,
        ),
    ] = None,
    m: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--n-features",
            metavar="M,...",
            help="Numbers of features.",
            show_default="the paper's; with --quick two",
            rich_help_panel=SIZE,
        ),
    ] = None,
    splits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Random splits; of toy, draws.",
            show_default="10, quick 2; toy 100, 10",
            rich_help_panel=SIZE,
        ),
    ] = None,
    trees: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Trees of the forest.", show_default="1000, quick 200", rich_help_panel=SIZE
        ),
    ] = None,
    random_draws: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Random selections a split.", show_default="5, quick 2", rich_help_panel=SIZE
        ),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Most steps of the network that reconstructs.",
            show_default="200 passes, quick 2000 steps",
            rich_help_panel=SIZE,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**32 - 1, help="Seed of all that is drawn.", rich_help_panel=SIZE)
    ] = 0,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the data sets.",
            show_default="HOMOPHILY_DATA, then the cache",
            rich_help_panel=ENGINE,
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            readable=False,
            help="Output folder; what is in it is continued.",
            rich_help_panel=ENGINE,
        ),
    ] = Path("reproduced"),
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", help="Processes; -1: one a core.", rich_help_panel=ENGINE)
    ] = -1,
    backend: Annotated[
        BackendName, typer.Option(metavar="NAME", help="local, or dask: a cluster.", rich_help_panel=ENGINE)
    ] = BackendName.local,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of Dask, such as tcp://host:8786.", rich_help_panel=ENGINE)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Debug = False,
) -> None:
    """Run an experiment of the paper and put its figures beside ours.

    Tables go to the output folder as txt, md, tex and csv, and every finished cell to runs.sqlite there.

    Ctrl-C keeps what is finished, and the same command goes on, also after a crash. Several may share a folder.

    The exit code is 1 if a method failed somewhere, which is then tried again next time.

    figures draws what the results in the output folder and the data sets allow, and says what is missing.
    """
    check_jobs(jobs)
    if (backend is BackendName.dask) != (scheduler is not None):
        raise typer.BadParameter("--backend dask and --scheduler ADDRESS go together.")
    if experiment is not ExperimentName.table and (protocol is not Protocol.default or methods is not None):
        raise typer.BadParameter(f"--protocol and --methods belong to table; {experiment.value} has its own methods.")
    if experiment is ExperimentName.toy and any(given is not None for given in (m, trees, random_draws, updates)):
        raise typer.BadParameter("toy selects 2 features and classifies nothing: no -m, --trees and the like.")
    if experiment is ExperimentName.figures:
        given = (datasets, m, splits, trees, random_draws, updates, scheduler)
        if quick or plan or any(option is not None for option in given):
            raise typer.BadParameter("figures takes --out, --data-dir, --seed, --quiet and --debug only.")
        with user_errors(debug, "figures that were finished are kept"):
            from .draw import run_figures

            run_figures(output, data_dir, seed, quiet=quiet)
        return
    with user_errors(debug, "what is finished is kept, the same command goes on from there"):
        ms = None if m is None else counts(m)
        from .evaluation.running import Backend
        from .experiments import Settings
        from .reproduce import run_reproduce

        settings = Settings(
            quick=quick,
            protocol=protocol.value,
            datasets=names(datasets, "--datasets"),
            methods=names(methods, "--methods"),
            ms=ms,
            splits=splits,
            n_estimators=trees,
            random_draws=random_draws,
            max_updates=updates,
            seed=seed,
            data_dir=data_dir,
        )
        code = run_reproduce(
            experiment.value,
            settings,
            folder=output,
            backend=Backend(jobs, scheduler),
            plan_only=plan,
            quiet=quiet,
        )
    if code:
        raise typer.Exit(code)
