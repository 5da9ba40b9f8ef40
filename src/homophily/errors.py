"""Errors that have a name of their own because callers may want to tell them apart."""

from __future__ import annotations

__all__ = ["InputError", "OutputError"]


class InputError(ValueError):
    """A file cannot be used as it is. The message says what was found and what to do."""


class OutputError(OSError):
    """A file cannot be written: the disk is full, say. The message says which one, why and what to do.

    Parameters
    ----------
    message : str
        What is told.
    number : int, optional
        The number of the system's error, ``errno``.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number
