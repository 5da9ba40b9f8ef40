"""Result folders: complete or not there, and never over something that was there before."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checkpoint import is_unfinished
from .drafts import draft_of, is_draft, remove_abandoned, replacing, sync, writing
from .errors import OutputError
from .persistence import ARRAYS, DESCRIPTION
from .reading import FORMATS
from .signals import held
from .wording import listing, quoting_for

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "STORE",
    "as_csv",
    "check_output",
    "check_store_folder",
    "check_writable",
    "harmless",
    "is_empty",
    "make_folder",
    "output_folder",
    "write_whole",
]

# What a run writes, so what --overwrite may remove.
SELECTED, MODEL = "selected.csv", "model"
REDUCED = tuple(f"reduced{suffix}" for suffix in FORMATS)
RESULTS = (SELECTED, *REDUCED, "graph.npz", "path.csv", "history.csv", MODEL, "report.html")
HEADER = b"rank,"  # by which our selected.csv is known
STORE = "runs.sqlite"  # what compare and reproduce keep their finished cells in
CHECKPOINT = "checkpoint"  # folder for the state of an unfinished run
RESULT = "result"  # of which the drafts are folders
# Folders in those: a result that is being written; is complete, so that it counts; takes the place of the old one.
NEW, WHOLE, MOVING, OLD = "new", "whole", "moving", "old"

# What a spreadsheet takes for a formula, or for the end of the cell before one; also behind apostrophes of ours.
FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def check_output(folder: Path, data: Path, *, overwrite: bool, resume: bool = False) -> None:
    """Raise if ``folder`` cannot take the result of a run on ``data``, before any work is done."""
    check_writable(folder)
    checkpoint = folder / CHECKPOINT
    if os.path.lexists(checkpoint) and not checkpoint.is_dir():
        raise FileExistsError(
            f"{checkpoint} is not a folder, and states of the training are saved in a folder of that name; rename it, "
            "or name another output folder with --out."
        )
    _finish_exchanges(folder)
    if is_empty(folder):
        return
    unfinished = is_unfinished(folder / CHECKPOINT)
    if unfinished and not (resume or overwrite):
        raise FileExistsError(
            f"An unfinished run is in {folder / CHECKPOINT}. Add --resume to go on with it, --overwrite to begin anew, "
            "or name another folder with --out."
        )
    if resume and not unfinished and not overwrite:
        raise FileExistsError(
            f"There is nothing to resume in {folder}, and it is not empty: the run in it has finished. Name another "
            "folder with --out, or add --overwrite to begin anew."
        )
    if not overwrite and not resume:
        raise FileExistsError(
            f"The output folder {folder} is not empty. Name another with --out, or add --overwrite to replace the "
            "result in it."
        )
    if any(data.resolve().is_relative_to(path.resolve()) for path in _results_in(folder)):
        raise FileExistsError(f"{data} lies in the output folder and would be overwritten; name another with --out.")
    foreign = _foreign(folder)
    if foreign:
        raise FileExistsError(
            f"{listing(path.relative_to(folder).as_posix() for path in foreign)} in {folder} would be overwritten, and "
            "does not look like the result of an earlier select; move it, or name another folder with --out."
        )


def check_store_folder(folder: Path) -> None:
    """Raise unless ``folder`` can be written to and is empty or holds a store of results to go on with."""
    check_writable(folder)
    if not is_empty(folder) and not (folder / STORE).is_file():
        raise FileExistsError(
            f"The output folder {folder} is not empty and holds no results ({STORE}) to go on with. Name another with "
            "--out."
        )


def check_writable(folder: Path, instead: str = "name another output folder with --out") -> None:
    """Raise if ``folder`` is no folder or cannot be made or written to; ``instead`` is what to do then."""
    with writing(folder):  # one that may not be entered does not tell whether anything is there
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists() or path.is_symlink())
    if not there.exists():
        raise FileExistsError(
            f"{there} is a link to {os.readlink(there)}, which is not there; make that folder, or {instead}."
        )
    if not there.is_dir():
        raise FileExistsError(f"{there} is a file, so {folder} cannot be a folder; {instead}.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OutputError(f"{there} cannot be written to; {instead}.", errno.EACCES)
    if there == folder and not os.access(there, os.R_OK):
        raise OutputError(
            f"{there} cannot be read, so that nobody knows what would be overwritten in it; {instead}.", errno.EACCES
        )


def is_empty(folder: Path) -> bool:
    """Whether there is nothing in ``folder``, or no folder; what a killed process had begun to write is nothing."""
    return not folder.is_dir() or all(
        is_draft(path) or (path.name == CHECKPOINT and path.is_dir() and is_empty(path)) for path in folder.iterdir()
    )


def make_folder(folder: Path) -> None:
    """Make ``folder`` and those that it lies in, unless they are there."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` such that whoever reads it finds the old content or the new, never a part."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace")  # names of files need not be text


def as_csv(table: DataFrame) -> str:
    """Our own table as csv, which a spreadsheet can open without running anything: see :func:`harmless`."""
    texts = {name: column.map(_cell) for name, column in table.items() if column.dtype.kind == "O"}
    safe = table.assign(**texts).rename(columns=_cell)
    return safe.to_csv(index=False, lineterminator="\n", quoting=quoting_for(safe))


def _cell(value: Any) -> Any:
    return harmless(value) if isinstance(value, str) else value


def harmless(text: str) -> str:
    """A text that begins like a formula with an apostrophe before it; one that is a number stays as it is.

    Removing one apostrophe before ``=``, ``+``, ``-``, ``@``, a tab or the end of a line, or before further
    apostrophes and one of these, undoes it.

    Examples
    --------
    >>> from homophily.output import harmless
    >>> [harmless(text) for text in ("=1+1", "'=1+1", "width", "-1.5")]
    ["'=1+1", "''=1+1", 'width', '-1.5']
    """
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write to; what is in it takes the place of an earlier result only if nothing went wrong.

    Whatever else lies in ``folder`` stays. Of a process that is killed while files change places, the next run with
    this folder finishes that.
    """
    made = not folder.is_dir()
    make_folder(folder)
    _finish_exchanges(folder)
    remove_abandoned(folder / RESULT)
    draft = draft_of(folder / RESULT)  # within the folder: beside it may be another disk, or not allowed
    try:
        with writing(folder, draft):
            (draft / NEW).mkdir(parents=True)
            yield draft / NEW
            for path in draft.rglob("*"):
                sync(path)
            with held():
                _exchange(draft, folder)
            sync(folder)
    finally:
        if not _is_whole(draft):  # else not all of it has found its place
            shutil.rmtree(draft, ignore_errors=True)
        if made and not any(folder.iterdir()):
            folder.rmdir()


def _is_whole(draft: Path) -> bool:
    return (draft / WHOLE).is_dir() or (draft / MOVING).is_dir()


def _exchange(draft: Path, folder: Path) -> None:
    """Put the new result in ``draft`` into ``folder`` and the old one into ``draft``, or nothing if that fails.

    If the process is killed meanwhile, :func:`_finish_exchanges` does the rest.
    """
    undo: list[tuple[Path, Path]] = []

    def move(source: Path, target: Path) -> None:
        source.replace(target)
        undo.append((target, source))

    try:
        if (draft / NEW).is_dir():
            (draft / OLD).mkdir()
            move(draft / NEW, draft / WHOLE)
        if (draft / WHOLE).is_dir():
            for path in _results_in(folder):
                move(path, draft / OLD / path.name)
            move(draft / WHOLE, draft / MOVING)
        for path in sorted((draft / MOVING).iterdir()):
            move(path, folder / path.name)
        (draft / MOVING).rmdir()
    except BaseException:
        for source, target in reversed(undo):
            source.replace(target)
        raise


def _finish_exchanges(folder: Path) -> None:
    """Do what processes that were killed have left to do: those that had written a result but not put it in place."""
    for draft in sorted(folder.glob(f".{RESULT}.*")):
        if is_draft(draft) and _is_whole(draft):
            with writing(folder):
                _exchange(draft, folder)
            shutil.rmtree(draft, ignore_errors=True)


def _results_in(folder: Path) -> list[Path]:
    return [path for name in RESULTS if (path := folder / name).exists() or path.is_symlink()]


def _foreign(folder: Path) -> list[Path]:
    """What has the name of a result in ``folder`` but was not written by us, as far as can be seen."""
    found = _results_in(folder)
    odd = [path for path in found if path.is_dir() != (path.name == MODEL)]
    if odd or not found:
        return odd
    selected = folder / SELECTED
    if not selected.is_file():
        return found
    with selected.open("rb") as file:
        if file.read(len(HEADER)) != HEADER:
            return found
    inside = sorted((folder / MODEL).iterdir()) if (folder / MODEL).is_dir() else []
    return [path for path in inside if path.name not in (ARRAYS, DESCRIPTION) and not is_draft(path)]
