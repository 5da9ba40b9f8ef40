"""What ``homophily reproduce figures`` does, once its options are read."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from .experiments.drawings import DRAWINGS, MissingInputError, Sources
from .figures import save
from .output import check_writable, is_empty, make_folder, write_whole
from .wording import shown

__all__ = ["run_figures"]

INDEX = "figures.md"  # the list of the figures, by which a folder is known to be ours


def run_figures(folder: Path, data_dir: Path | None, seed: int, *, quiet: bool) -> None:
    """Draw to ``folder/figures`` what the results in ``folder`` and the data sets allow, and say what is missing.

    Parameters
    ----------
    folder : Path
        Output folder of ``homophily reproduce``.
    data_dir : Path, optional
        Folder with the data sets.
    seed : int
        Of all that is drawn or trained for a figure.
    quiet : bool
        As the option of the command.
    """
    out = Console(soft_wrap=True, highlight=False, quiet=quiet)
    log = Console(stderr=True, soft_wrap=True, highlight=False, quiet=quiet)
    place = folder / "figures"
    check_writable(place)
    if not is_empty(place) and not (place / INDEX).is_file():
        raise FileExistsError(
            f"{place} is not empty and not of an earlier run ({INDEX}); name another folder with --out."
        )
    make_folder(place)
    source = Sources(folder, data_dir, seed)
    drawn, missing = [], []
    for drawing in DRAWINGS:
        with log.status(f"{drawing.title} ..."):
            try:
                figure = drawing.draw(source)
            except MissingInputError as lack:
                missing.append((drawing.title, lack))
                continue
            drawn.append(f"## {drawing.title}\n\n![{drawing.title}]({drawing.name}.png)\n")
            write_whole(place / INDEX, "\n".join(drawn))
            path = save(figure, place / drawing.name)[-1]
        out.print(f"{shown(path)}: {drawing.title}")
    if missing:
        log.print("\nNot drawn:")
    for title, what in missing:
        log.print(f"  {title}: {escape(str(what))}. This makes it:\n    [bold]{escape(what.command)}[/]")
