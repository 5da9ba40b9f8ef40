"""Result folders: complete or not there, and never over something that was there before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_output", "output_folder"]


def check_output(folder: Path, *, overwrite: bool) -> None:
    """Raise if ``folder`` cannot take a result, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name another output folder with --out.")
    if not overwrite and folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(
            f"The output folder {folder} is not empty. Name another with --out, or add --overwrite to replace the "
            "result in it."
        )


@contextmanager
def output_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder to write to; its content moves to ``folder`` only if nothing went wrong.

    With ``overwrite`` entries of the same name are replaced; everything else in ``folder`` stays.
    """
    check_output(folder, overwrite=overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield draft
        folder.mkdir(exist_ok=True)
        for entry in sorted(draft.iterdir()):
            final = folder / entry.name
            if final.is_dir():
                shutil.rmtree(final)
            entry.replace(final)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
