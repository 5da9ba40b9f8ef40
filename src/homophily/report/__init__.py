"""The HTML report of a run."""

from .html import write_report

__all__ = ["write_report"]
