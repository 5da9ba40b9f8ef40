"""The HTML report of a run."""

from .html import write_report
from .insight import look

__all__ = ["look", "write_report"]
