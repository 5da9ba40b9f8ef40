"""What goes wrong in csv files of other programs: mended where the meaning is plain, else explained."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from .reading import InputError, in_bytes, looks_like
from .wording import counted, listing

__all__ = [
    "check_text",
    "explain_parser",
    "mend_columns",
    "not_text",
    "single_column",
    "spoiled_numbers",
]

UNNAMED = re.compile(r"Unnamed: \d+")  # what pandas calls a column without a name
GROUPED = r"[-+]?\d{1,3}([.,' \u00a0\u202f]\d{3})+([.,]\d+)?"  # 1.234,5 or 1,234.5
SHOWN = 3  # entries that a message quotes
CHUNK = 2**20
LINE = 2**27  # characters of a line, at most: as many as a million columns need


def check_text(path: Path) -> bool:
    """Raise if the file holds NUL, at which pandas would cut off an entry, or lines that no table has.

    True if it holds a carriage return with a space after it: of a few such bytes pandas can make an endless table,
    unless it is given line ends of one kind.
    """
    length = 0  # of the line that has begun
    last, strange = b"", False
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            strange = strange or any(mark in last + chunk for mark in (b"\r ", b"\r\t"))
            last = chunk[-1:]
            if b"\0" in chunk:
                raise not_text(path, "it holds NUL bytes")
            end = chunk.rfind(b"\n")
            length = length + len(chunk) if end < 0 else len(chunk) - end
            if length > LINE:
                raise InputError(
                    f"{path.name} has a line of over {in_bytes(LINE)}; expected one line a sample. Save large data as "
                    ".parquet or .npy."
                )
    return strange


def not_text(path: Path, reason: str) -> InputError:
    """The error to raise about a file that should be text."""
    found = looks_like(path)
    looks = "" if found is None else f" Its content looks like {found}."
    return InputError(
        f"{path.name} is not text in UTF-8 ({reason}).{looks} Save it again as UTF-8 (in Excel: CSV UTF-8), or give it "
        "the ending of its format."
    )


def mend_columns(frame: pd.DataFrame, notes: list[str], *, header: bool, longer: bool) -> pd.DataFrame:
    """Give all fields of a row their column, if rows are ``longer`` than the first line; drop columns that are empty.

    pandas then takes the first field as the index: right for row names as R writes them, wrong for rows that end with
    a delimiter.
    """
    if not frame.index.equals(pd.RangeIndex(len(frame))) or longer:
        if frame.index.nlevels > 1:
            more = counted(frame.index.nlevels, "field")
            raise ValueError(f"its rows have {more} more than the first line, which should name every column")
        names = list(frame.columns)
        frame = frame.reset_index()
        last = frame.iloc[:, -1]
        frame.columns = pd.Index([*names, "Unnamed: last"] if last.isna().all() else ["Unnamed: 0", *names])
        if last.isna().all():
            notes.append("Rows end with a delimiter, which was left out.")
            return frame.iloc[:, :-1]
    unnamed = [name for name in frame.columns if not header or UNNAMED.fullmatch(str(name))]
    empty = [name for name in unnamed if frame[name].isna().all()]
    if empty and len(empty) < frame.shape[1]:
        notes.append(f"{counted(len(empty), 'column')} without name and entries left out.")
        frame = frame.drop(columns=empty)
    return frame


def single_column(frame: pd.DataFrame) -> str | None:
    """What may be wrong with a file that seems to have but one column, of text."""
    if frame.shape[1] != 1 or pd.api.types.is_numeric_dtype(frame.dtypes.iloc[0]):
        return None
    return (
        f"only one column was found, named {str(frame.columns[0])[:60]!r}. Columns should be separated by commas, "
        "semicolons or tabs, and the first line should name them: delete what comes before it."
    )


def spoiled_numbers(features: pd.DataFrame, decimal: str) -> str | None:
    """The first column that holds numbers but for some entries, or numbers written in a way that is not read."""
    for name in features.select_dtypes(exclude=["number", "bool"]).columns:
        given = features[name].dropna().astype(str)
        if given.empty:
            continue
        plain = given.str.translate(str.maketrans(",.", ".,")) if decimal == "," else given
        wrong = given[pd.to_numeric(plain, errors="coerce").isna()]
        marked = wrong[wrong.str.fullmatch(GROUPED)]
        if 2 * len(marked) > len(given):
            return (
                f"the column {str(name)!r} holds numbers with marks between the thousands, such as {marked.iloc[0]!r}. "
                "Write them without these marks, as 1234.5."
            )
        if 2 * len(wrong) < len(given):
            entries = counted(len(wrong), "entry", "entries")
            shown = listing((f"{wrong.loc[row]!r} in row {row + 1}" for row in wrong.index), SHOWN)
            return (
                f"the column {str(name)!r} holds numbers but for {entries}: {shown} of the data. Correct that, or "
                "leave out the column (--drop)."
            )
    return None


def explain_parser(message: str) -> str:
    """Speak of lines and fields where pandas speaks of its tokenizer."""
    unclosed = re.search(r"EOF inside string starting at row (\d+)", message)
    if unclosed is not None:
        return (
            f"the quotation mark that opens in row {int(unclosed[1]) + 1} of the file is never closed. Close or delete "
            "it, or check that the file was copied whole"
        )
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message)
    if found is None:
        return message
    return (
        f"line {found[2]} has {found[3]} fields, the lines before it {found[1]}. Text that holds the delimiter should "
        "stand in quotes, and lines above the column names should be deleted"
    )
