"""What can still be read of a damaged store, page by page: SQLite itself gives up where its tree is broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .store import canonical

__all__ = ["salvaged"]

MAGIC = b"SQLite format 3\0"
INTERIOR, LEAF = 2, 10  # kinds of pages that hold the entries of a table WITHOUT ROWID
FIRST = 100  # bytes of the header, on the first page
PAGE_SIZES = [2**power for power in range(9, 17)]


def salvaged(path: Path) -> dict[str, str]:
    """Keys and values, both JSON, of all cells of the store that are still whole.

    Every page is read by itself, so what is lost is what was on the damaged ones. Of a damaged header nothing is
    needed. Cells that were removed may come back, if SQLite had not used their place again.
    """
    content = path.read_bytes()
    size = int.from_bytes(content[16:18], "big")
    size = 65536 if size == 1 else size
    if content.startswith(MAGIC) and size in PAGE_SIZES:
        return dict(_cells(content, size, content[20]))
    return max((dict(_cells(content, each, 0)) for each in PAGE_SIZES), key=len)


def _cells(content: bytes, size: int, reserved: int) -> Iterator[tuple[str, str]]:
    """Of a file whose pages have ``size`` bytes, ``reserved`` of which are not used."""
    content += bytes(-len(content) % size)  # of a page that was cut
    for number in range(len(content) // size):
        page = content[number * size : (number + 1) * size]
        if page[0] not in (INTERIOR, LEAF):
            continue
        interior = page[0] == INTERIOR
        pointers = 12 if interior else 8
        for i in range(int.from_bytes(page[3:5], "big")):
            place = pointers + 2 * i
            start = int.from_bytes(page[place : place + 2], "big") + (4 if interior else 0)
            try:
                yield _checked(_record(_payload(content, page, start, size, size - reserved)))
            except (IndexError, ValueError, TypeError, RecursionError):  # not a cell of ours, or not whole
                continue


def _payload(content: bytes, page: bytes, start: int, size: int, usable: int) -> bytes:
    """The bytes of an entry: on its page, and if they are many, on a chain of further ones."""
    length, start = _varint(page, start)
    most, least = (usable - 12) * 64 // 255 - 23, (usable - 12) * 32 // 255 - 23
    here = length
    if length > len(content):
        raise ValueError("The entry is longer than the file.")
    if length > most:
        here = least + (length - least) % (usable - 4)
        here = here if here <= most else least
    payload = page[start : start + here]
    following = int.from_bytes(page[start + here : start + here + 4], "big")
    while len(payload) < length:
        place = (following - 1) * size
        if not 0 < place < len(content):
            raise ValueError("The chain of pages is broken.")
        payload += content[place + 4 : place + 4 + min(usable - 4, length - len(payload))]
        following = int.from_bytes(content[place : place + 4], "big")
    return payload


def _record(payload: bytes) -> list[str]:
    """The columns of an entry, all of which are text."""
    end, place = _varint(payload, 0)
    lengths = []
    while place < end:
        kind, place = _varint(payload, place)
        if kind < 13 or kind % 2 == 0:
            raise ValueError("A column is no text.")
        lengths.append((kind - 13) // 2)
    if place + sum(lengths) != len(payload):
        raise ValueError("The entry has another length.")
    texts = []
    for length in lengths:
        texts.append(payload[place : place + length].decode())
        place += length
    return texts


def _varint(text: bytes, place: int) -> tuple[int, int]:
    """A number in SQLite's variable length, and the place after it."""
    value = 0
    for i in range(8):
        value = value << 7 | text[place + i] & 127
        if text[place + i] < 128:
            return value, place + i + 1
    return value << 8 | text[place + 8], place + 9


def _checked(columns: list[Any]) -> tuple[str, str]:
    """Key and value, if that is what they are."""
    key, value = columns
    entries = json.loads(key)
    if not isinstance(entries, dict) or canonical(entries) != key:
        raise ValueError("The key is not one of ours.")
    json.loads(value)
    return key, value
