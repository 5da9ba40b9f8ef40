"""HDF5 files that we read hold their data themselves: no other file is opened, and little storage stays little."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from .reading import InputError, check_expanded
from .wording import listing

__all__ = ["check_hdf5", "check_survives"]

HARMLESS = {2, 3, 5, 6}  # filters that do not make data larger: shuffle, checksum, n-bit, scale and offset
BLOCKWISE = ("X", "layers", "raw")  # what is read in parts, or not at all
# Reads attributes and texts, over whose damaged heap the HDF5 library loops for ever or crashes; errors come up again.
PROBE = """
import resource, sys
from contextlib import suppress
import h5py
_, most = resource.getrlimit(resource.RLIMIT_CPU)
resource.setrlimit(resource.RLIMIT_CPU, (20, most))
def look(name, thing):
    for key in thing.attrs:
        with suppress(Exception):
            thing.attrs[key]
    if isinstance(thing, h5py.Dataset) and thing.dtype.kind == "O" and thing.size < 1_000_000:
        with suppress(Exception):
            thing[()]
with suppress(Exception), h5py.File(sys.argv[1], "r") as file:
    look("", file)
    file.visititems(look)
"""


def check_survives(path: Path) -> None:
    """Raise if the HDF5 library loops or crashes over ``path``, which is tried in a process of its own."""
    if os.name != "posix" or not sys.executable:
        return
    command = [sys.executable, "-c", PROBE, str(path.absolute())]
    code = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True).returncode
    if code < 0 and -code not in (signal.SIGINT, signal.SIGTERM):
        how = "does not come to an end" if -code in (signal.SIGXCPU, signal.SIGKILL) else "crashes"
        raise InputError(
            f"{path.name} is damaged: the HDF5 library {how} over it. Check that it was copied whole, or save it again."
        )


def check_hdf5(path: Path, file: Any) -> None:
    """Raise if the open ``file`` would lead to other files, or expands beyond measure.

    The links in an HDF5 file, the parts of a virtual data set and the storage of an external one may lie anywhere on
    the machine: a stranger's file could show the content of our own.
    """
    import h5py

    elsewhere: list[str] = []
    sizes = {True: 0, False: 0}  # bytes in memory of what is read in parts, and of the others

    def look_at_link(name: str | bytes, link: Any) -> None:
        if not isinstance(link, h5py.HardLink):
            elsewhere.append(f"{_text(name)} is a link")

    def look_at(name: str | bytes, thing: Any) -> None:
        if not isinstance(thing, h5py.Dataset):
            return
        name = _text(name)
        if thing.is_virtual or thing.external:
            elsewhere.append(f"{name} is stored in another file")
            return
        filters = thing.id.get_create_plist()
        codes = [filters.get_filter(i)[0] for i in range(filters.get_nfilters())]
        if sum(code not in HARMLESS for code in codes) > 1:
            raise InputError(f"{path.name}: {name} is compressed twice, which is not done to data; save it again.")
        sizes[name.split("/")[0] in BLOCKWISE] += math.prod(thing.shape or ()) * thing.dtype.itemsize

    file.visititems_links(look_at_link)
    file.visititems(look_at)
    if elsewhere:
        raise InputError(
            f"{path.name} refers to data outside of itself, which is not followed: {listing(elsewhere, 3)}. Save it "
            "again with the data inside (read it with anndata.read_h5ad and write it)."
        )
    check_expanded(path, sizes[False])
    check_expanded(path, sum(sizes.values()), in_memory=False)


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
