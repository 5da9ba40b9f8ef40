"""Unsupervised feature selection that learns the k-nearest-neighbour graph along with the features."""

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .joint import DirichletSelector

__all__ = ["DirichletSelector", "__version__"]


def __getattr__(name: str) -> Any:
    # Loaded when asked for: torch takes seconds, and the command line's help does not need it.
    if name == "DirichletSelector":
        from .joint import DirichletSelector

        return DirichletSelector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
