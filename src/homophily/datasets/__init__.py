"""Data to try the methods on."""

from .toy import TOY_NAMES, make_toy

__all__ = ["TOY_NAMES", "make_toy"]
