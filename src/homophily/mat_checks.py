"""The structure of a MATLAB file of format 4 or 5, checked before SciPy reads it, which believes all and may crash."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .reading import InputError, check_expanded

__all__ = ["Structure", "check_mat"]

CHUNK = 2**20
MATRIX, COMPRESSED = 14, 15  # kinds of elements
NUMBERS = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}
TEXT = {16, 17, 18}
CELL, CHAR, SPARSE, NUMERIC = 1, 4, 5, range(6, 16)  # classes of arrays
DEEP = 20  # cells within cells
COMPLEX = 1 << 11


class Structure(NamedTuple):
    """What a MATLAB file expands to, in bytes, and the variables whose structure is known to be sound."""

    size: int
    sound: set[str]


def check_mat(path: Path) -> Structure | None:
    """Raise if the file is cut off or expands too far; None if it is of format 4, which is checked as a whole."""
    size = expanded = path.stat().st_size
    sound: set[str] = set()
    with path.open("rb") as file:
        head = file.read(128)
        if 0 in head[:4]:  # format 4
            _check_format_4(path, file, size)
            return None
        order = {b"\0\1IM": "<", b"\1\0MI": ">"}.get(head[124:128])
        if order is None:  # format 7.3, or none; SciPy says which
            return Structure(size, sound)
        while (tag := file.read(8)).strip(b"\0"):
            kind, length = struct.unpack(f"{order}II", tag.ljust(8, b"\0"))
            after = file.tell() + length
            if len(tag) < 8 or after > size:  # what was cut off may be a whole variable, such as the labels
                raise InputError(f"{path.name} is cut off: it ends within a variable. Copy or save it again.")
            stream = _Stream(path, file, length, expanded, packed=kind == COMPRESSED)
            if kind == COMPRESSED:
                kind, length = _tag(stream, order)
            if kind == MATRIX:
                name, is_sound = _matrix(stream, order, length)
                if is_sound:
                    sound.add(name)
            stream.skip(stream.left)
            expanded = stream.expanded
            file.seek(after)
    return Structure(expanded, sound)


def _check_format_4(path: Path, file: BinaryIO, size: int) -> None:
    """Raise unless the arrays that the file announces are there: SciPy would ask for the memory first."""
    at = 0
    while at < size:
        file.seek(at)
        head = file.read(20)
        order = "<" if len(head) == 20 and struct.unpack("<i", head[:4])[0] in range(5000) else ">"
        kind, rows, columns, is_complex, length = struct.unpack(f"{order}5i", head.ljust(20, b"\xff"))
        width = dict(enumerate((8, 4, 4, 2, 2, 1))).get(kind // 10 % 10)
        at += 20 + length + rows * columns * (width or 0) * (2 if is_complex else 1)
        if kind not in range(5000) or width is None or min(rows, columns, length) < 0 or at > size:
            raise InputError(f"{path.name} is no MATLAB file, or cut off. Copy or save it again.")
        if kind % 10 == 2:  # its size is among its entries
            raise InputError(f"{path.name} holds a sparse matrix in format 4; save it again with save(..., '-v7').")


class _Stream:
    """The bytes of one element, unpacked if they are ``packed``; counts what they expand to."""

    def __init__(self, path: Path, file: BinaryIO, length: int, expanded: int, *, packed: bool) -> None:
        self.path, self.file, self.stored, self.expanded = path, file, length, expanded
        self.unpacker = zlib.decompressobj() if packed else None
        self.waiting = b""  # packed bytes that have been read

    @property
    def left(self) -> int:
        """Bytes to come, at most."""
        return self.stored if self.unpacker is None else 2**63

    def read(self, n: int) -> bytes:
        """The next ``n`` bytes; fewer only at the end."""
        if self.unpacker is None:
            data = self.file.read(min(n, self.stored))
            self.stored -= len(data)
            return data
        parts, missing = [], n
        while missing:
            if not self.waiting:
                self.waiting = self.file.read(min(self.stored, CHUNK))
                self.stored -= len(self.waiting)
            data = self.unpacker.decompress(self.waiting, missing)
            self.waiting = self.unpacker.unconsumed_tail
            if not data and not self.waiting and (not self.stored or self.unpacker.eof):
                break
            parts.append(data)
            missing -= len(data)
        self.expanded += n - missing
        check_expanded(self.path, self.expanded)
        return b"".join(parts)

    def skip(self, n: int) -> bool:
        """Leave out ``n`` bytes; whether they were there."""
        if self.unpacker is None:
            there = min(n, self.stored)
            self.file.seek(there, 1)
            self.stored -= there
            return there == n
        while n and (data := self.read(min(n, CHUNK))):
            n -= len(data)
        return not n


def _tag(stream: _Stream, order: str) -> tuple[int, int]:
    """Kind and length of the next element, which is no small one."""
    tag = stream.read(8)
    return struct.unpack(f"{order}II", tag) if len(tag) == 8 else (0, 0)


def _element(stream: _Stream, order: str, *, keep: bool = False) -> tuple[int, bytes]:
    """Kind and, if it is to be kept, content of the next element of plain values; kind 0 if there is none."""
    tag = stream.read(8)
    if len(tag) < 8:
        return 0, b""
    kind, length = struct.unpack(f"{order}II", tag)
    if kind >> 16:  # a small element: its content is in the tag
        return (kind & 0xFFFF, tag[4 : 4 + (kind >> 16)]) if kind >> 16 <= 4 else (0, b"")
    if keep and length > CHUNK:
        return 0, b""
    content = stream.read(length) if keep else b""
    there = len(content) == length if keep else stream.skip(length)
    padding = -length % 8
    return (kind, content) if there and stream.skip(padding) else (0, b"")


def _matrix(stream: _Stream, order: str, length: int, depth: int = 0) -> tuple[str, bool]:
    """Name of the next array, whose tag has been read, and whether it has the elements that its class needs."""
    if not length:
        return "", depth > 0  # an empty cell
    flags = _element(stream, order, keep=True)
    dims = _element(stream, order, keep=True)
    name = _element(stream, order, keep=True)
    if flags[0] != 6 or len(flags[1]) != 8 or dims[0] not in (5, 6) or len(dims[1]) % 4 or name[0] not in (1, 16):
        return "", False
    text = name[1].decode("latin-1")
    (kind,) = struct.unpack(f"{order}I", flags[1][:4])
    shape = struct.unpack(f"{order}{len(dims[1]) // 4}i", dims[1])
    if len(shape) < 2 or min(shape) < 0:
        return text, False
    is_complex, kind = bool(kind & COMPLEX), kind & 0xFF
    if kind == CELL:
        return text, depth < DEEP and all(_cell(stream, order, depth) for _ in range(math.prod(shape)))
    if kind == CHAR:
        return text, _element(stream, order)[0] in NUMBERS | TEXT
    if kind == SPARSE or kind in NUMERIC:
        count = (3 if kind == SPARSE else 1) + is_complex
        return text, all(_element(stream, order)[0] in NUMBERS for _ in range(count))
    return text, False  # structs, objects and functions, which are not read


def _cell(stream: _Stream, order: str, depth: int) -> bool:
    kind, length = _tag(stream, order)
    return kind == MATRIX and _matrix(stream, order, length, depth + 1)[1]
