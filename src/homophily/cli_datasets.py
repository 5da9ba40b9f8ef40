"""``homophily datasets``: which of the paper's data sets are here, and how to get the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .cli_common import Debug, completing, dataset_names, stderr, tell, user_errors

__all__ = ["datasets"]

datasets = typer.Typer(help="The paper's data sets: list them, fetch them, find their files.", no_args_is_help=True)

DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with the files.", show_default="HOMOPHILY_DATA, then the cache"),
]


@datasets.command("list")
def list_datasets(data_dir: DataDir = None, debug: Debug = False) -> None:
    """Show the data sets and where they are."""
    with user_errors(debug):
        from .datasets import PAPER_DATASETS, dataset_path, search_folders

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("name", no_wrap=True)
        for heading in ("samples", "features", "classes"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("kind", no_wrap=True)
        table.add_column("where", overflow="fold")
        by_hand, fetchable = [], False
        for data in PAPER_DATASETS.values():
            path = dataset_path(data.name, data_dir=data_dir)
            if path is not None:
                where = str(path.parent)
            elif data.sha256 is not None:
                where, fetchable = "can be fetched", True
            else:
                where = "not here, see below"
                by_hand.append(f"  {data.name}: {data.source} from {data.origin}")
            counts = map(str, (*data.shape, data.n_classes))
            table.add_row(data.name, *counts, data.kind, Text(where))
        console = Console(highlight=False)
        console.print(table)
        if fetchable:
            console.print("\nFetch one with 'homophily datasets fetch NAME', or 'all'.")
        if by_hand:
            lines = f"\nNot available here; put the file into {search_folders(data_dir)[0]}:", *by_hand
            console.print(escape("\n".join(lines)), soft_wrap=True)


@datasets.command()
def fetch(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...|all",
            autocompletion=completing(lambda: ("all", *dataset_names())),
            help="Which; those that are here are skipped.",
        ),
    ],
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", readable=False, help="Folder to write to.", show_default="the cache"),
    ] = None,
    debug: Debug = False,
) -> None:
    """Download data sets, checked against their sums.

    HOMOPHILY_DATA_URL names a mirror, HOMOPHILY_CACHE another folder for the cache.
    """
    with user_errors(debug, stopped="what was written is complete and kept"):
        from .datasets import PAPER_DATASETS, paper_dataset
        from .datasets import fetch as download
        from .datasets.download import intact_path

        everything = any(name.casefold() == "all" for name in names)
        wanted = list(PAPER_DATASETS) if everything else [paper_dataset(name).name for name in names]
        code = 0
        for name in dict.fromkeys(wanted):
            there = intact_path(name, data_dir=data_dir)
            if there is not None:
                typer.echo(f"{name}: already there, {there}")
                continue
            try:
                with stderr().status(f"Fetching {name} ..."):
                    path = download(name, data_dir=data_dir)
            except OSError as error:
                code = max(code, tell(error, debug=debug))
            else:
                typer.echo(f"{name}: written to {path}")
    if code:
        raise typer.Exit(code)


@datasets.command()
def path(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", autocompletion=completing(dataset_names), help="Which; without it, the folders searched."
        ),
    ] = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Print the path of a data set's file, or the folders where files are looked for."""
    with user_errors(debug):
        from .datasets import locate, search_folders

        for line in search_folders(data_dir) if name is None else [locate(name, data_dir=data_dir)]:
            typer.echo(line)
