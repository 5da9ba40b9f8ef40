"""Result folders: complete or not there, and never over something that was there before."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .checkpoint import is_unfinished
from .persistence import replacing

__all__ = ["STORE", "check_output", "check_store_folder", "check_writable", "output_folder", "write_whole"]

# What a run writes, so what --overwrite may remove.
RESULTS = ("selected.csv", "reduced.*", "graph.npz", "path.csv", "history.csv", "model", "report.html")
STORE = "runs.sqlite"  # what compare and reproduce keep their finished cells in
CHECKPOINT = "checkpoint"  # folder for the state of an unfinished run


def check_output(folder: Path, data: Path, *, overwrite: bool, resume: bool = False) -> None:
    """Raise if ``folder`` cannot take the result of a run on ``data``, before any work is done."""
    check_writable(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
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
    if data.resolve() in (path.resolve() for path in _results_in(folder)):
        raise FileExistsError(f"{data} lies in the output folder and would be overwritten; name another with --out.")


def check_store_folder(folder: Path) -> None:
    """Raise unless ``folder`` can be written to and is empty or holds a store of results to go on with."""
    check_writable(folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / STORE).is_file():
        raise FileExistsError(
            f"The output folder {folder} is not empty and holds no results ({STORE}) to go on with. Name another with "
            "--out."
        )


def check_writable(folder: Path) -> None:
    """Raise if ``folder`` is no folder or cannot be made or written to."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise FileExistsError(f"{there} is a file, so {folder} cannot be a folder; name another with --out.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{there} cannot be written to; name another output folder with --out.")


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` such that whoever reads it finds the old content or the new, never a part."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write to; what is in it takes the place of an earlier result only if nothing went wrong.

    Whatever else lies in ``folder`` stays.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        new, old = draft / "new", draft / "old"
        new.mkdir()
        old.mkdir()
        yield new
        folder.mkdir(exist_ok=True)
        for path in _results_in(folder):
            path.replace(old / path.name)
        for path in sorted(new.iterdir()):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _results_in(folder: Path) -> list[Path]:
    return [path for pattern in RESULTS for path in sorted(folder.glob(pattern))]
