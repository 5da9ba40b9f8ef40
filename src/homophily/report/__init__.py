"""HTML reports of runs."""

from .insight import look
from .results import Section, results_page
from .selection import write_report

__all__ = ["Section", "look", "results_page", "write_report"]
