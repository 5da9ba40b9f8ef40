"""Names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


def lazily(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``.

    ``places`` says in which module of the package each name is found; a module that is a name itself is its own place.
    A name that its module shares, such as ``summary`` in ``summary.py``, cannot be had this way: Python puts the module
    there as soon as anybody imports it.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = import_module(f"{package}.{places[name]}")
        if places[name] != name:
            found = getattr(found, name)
        setattr(sys.modules[package], name, found)  # next time it is simply there
        return found

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*vars(sys.modules[package]), *places})

    return __getattr__, __dir__
