"""``homophily runs``: look into a store of finished cells, export it, clean it, save what is left of a damaged one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .cli_common import Debug, Method, completing, dataset_names, stderr, user_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .evaluation import RunStore

__all__ = ["runs"]

runs = typer.Typer(help="Finished cells of compare and reproduce: list, export, clean, recover.", no_args_is_help=True)

Place = Annotated[Path, typer.Argument(metavar="STORE", help="runs.sqlite, or the output folder that it is in.")]
WhichExperiment = Annotated[str | None, typer.Option(metavar="NAME", help="Only cells of this experiment.")]
WhichDataset = Annotated[
    str | None,
    typer.Option(metavar="NAME", autocompletion=completing(dataset_names), help="Only cells of this data set."),
]
WhichMethod = Annotated[
    str | None,
    typer.Option(metavar="NAME", autocompletion=completing(lambda: Method), help="Only cells of this method."),
]


class Format(StrEnum):
    """How cells are exported."""

    csv = "csv"
    jsonl = "jsonl"


@runs.command("list")
def list_runs(
    store: Place,
    experiment: WhichExperiment = None,
    dataset: WhichDataset = None,
    method: WhichMethod = None,
    debug: Debug = False,
) -> None:
    """Count the finished cells by experiment, data set, method and version."""
    with user_errors(debug):
        from .wording import shown

        found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        with _opened(store) as opened:
            for key in opened.keys():  # noqa: SIM118
                if _wanted(key, experiment, dataset, method):
                    place = (*(str(key.get(name, "")) for name in ("experiment", "dataset", "method")), _version(key))
                    found.setdefault(place, []).append(key)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("experiment", "data set", "method", "version"):
            table.add_column(name, no_wrap=True)
        for name in ("cells", "splits", "m"):
            table.add_column(name, justify="right")
        for place, keys in sorted(found.items()):
            ms = sorted({key["m"] for key in keys if key.get("m") is not None})
            splits = {key.get("split") for key in keys if not key.get("tuning")}
            table.add_row(*map(shown, place), str(len(keys)), str(len(splits)), ", ".join(map(str, ms)))
        console = Console(highlight=False)
        console.print(table)
        console.print(f"{sum(map(len, found.values()))} cells.")


@runs.command()
def export(
    store: Place,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", readable=False, help="File to write.", show_default="standard output"
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", metavar="NAME", help="csv or jsonl.")] = Format.csv,
    experiment: WhichExperiment = None,
    dataset: WhichDataset = None,
    method: WhichMethod = None,
    debug: Debug = False,
) -> None:
    """Write the finished cells, one a line: what they depend on and what was measured."""
    with user_errors(debug):
        import json

        import pandas as pd

        from .output import as_csv, write_whole
        from .wording import shown

        if output is not None and output.exists():
            raise FileExistsError(f"{output} exists already; name another file with --out.")
        with _opened(store) as opened:
            cells = [(key, value) for key, value in opened.items() if _wanted(key, experiment, dataset, method)]
        if form is Format.jsonl:
            text = "".join(json.dumps({"key": key, "value": value}, sort_keys=True) + "\n" for key, value in cells)
        else:
            rows = ({name: _flat(entry) for name, entry in {**key, **_entries(value)}.items()} for key, value in cells)
            text = as_csv(pd.DataFrame(rows)) if cells else ""
        if output is None:
            typer.echo(text, nl=False)
        else:
            write_whole(output, text)
            stderr().print(f"Wrote {len(cells)} cells to {shown(output)}.")


@runs.command()
def clean(
    store: Place,
    experiment: WhichExperiment = None,
    dataset: WhichDataset = None,
    method: WhichMethod = None,
    other_versions: Annotated[
        bool, typer.Option("--other-versions", help="Only cells of other versions of the code than this one.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every cell.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    debug: Debug = False,
) -> None:
    """Remove finished cells for good, once you have said yes to how many they are."""
    if not (everything or other_versions or experiment or dataset or method):
        raise typer.BadParameter("Say which cells: --experiment, --dataset, --method, --other-versions or --all.")
    with user_errors(debug, stopped="nothing was removed"):
        from .evaluation.comparison import versions

        def unwanted(key: dict[str, Any]) -> bool:
            other = key.get("versions") != versions()
            return _wanted(key, experiment, dataset, method) and (other or not other_versions)

        with _opened(store) as opened:
            count = sum(unwanted(key) for key in opened.keys())  # noqa: SIM118
            if count and not yes and not typer.confirm(f"Remove {count} finished cells for good?"):
                stderr().print("Nothing was removed.")
                raise typer.Exit(1)
            stderr().print(f"Removed {opened.remove(unwanted) if count else 0} cells.")


@runs.command()
def recover(
    damaged: Annotated[
        Path, typer.Argument(metavar="STORE", help="The damaged runs.sqlite, or the output folder that it is in.")
    ],
    new: Annotated[
        Path, typer.Argument(metavar="NEW", readable=False, help="File to write: a store with what could be read.")
    ],
    debug: Debug = False,
) -> None:
    """Save every cell of a damaged store that can still be read to a new one, and leave the damaged one as it is.

    With the new store in the place of the damaged one, the command that made it does the cells that are missing.

    Cells that were removed by clean may be among those that are found.
    """
    with user_errors(debug):
        import json

        from .drafts import replacing
        from .evaluation import RunStore
        from .evaluation.salvage import salvaged
        from .output import check_writable
        from .wording import counted, shown

        path = _path(damaged)
        if new.exists():
            raise FileExistsError(f"{new} exists already; name a file that is not there yet.")
        check_writable(new.absolute().parent, "name another file")
        cells = salvaged(path)
        if not cells:
            raise ValueError(f"No cell could be read from {path}: it is no store of results, or nothing is left of it.")
        with replacing(new) as draft, RunStore(draft) as store:
            store.put_all((json.loads(key), json.loads(value)) for key, value in cells.items())
        stderr().print(f"Saved {counted(len(cells), 'cell')} of {shown(path)} to {shown(new)}.")


def _opened(place: Path) -> RunStore:
    """The store in that place; none is made."""
    from .evaluation import RunStore

    return RunStore(_path(place))


def _path(place: Path) -> Path:
    """The file of the store in that place."""
    from .output import STORE

    path = place / STORE if place.is_dir() else place
    if not path.is_file():
        raise FileNotFoundError(f"There is no store {path}; name runs.sqlite or the folder that it is in.")
    return path


def _wanted(key: dict[str, Any], experiment: str | None, dataset: str | None, method: str | None) -> bool:
    wishes = {"experiment": experiment, "dataset": dataset, "method": method}
    return all(wish is None or key.get(name) == wish for name, wish in wishes.items())


def _version(key: dict[str, Any]) -> str:
    return str(_entries(key.get("versions", {})).get("homophily", ""))


def _entries(value: Any) -> dict[str, Any]:
    """What a cell holds, by name; a store may hold anything."""
    return value if isinstance(value, dict) else {"value": value}


def _flat(entry: Any) -> Any:
    """A list or a mapping as text."""
    if isinstance(entry, list):
        return " ".join(map(str, entry))
    return " ".join(_pairs(entry)) if isinstance(entry, dict) else entry


def _pairs(entries: dict[str, Any]) -> Iterator[str]:
    return (f"{name}={value}" for name, value in sorted(entries.items()))
