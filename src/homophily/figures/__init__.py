"""Figures: functions that take data and return a matplotlib Figure, for print and screen."""

from .graphs import EmbeddedGraph, embedded_graphs, signals_on_graphs
from .images import reconstructions, selected_pixels
from .results import beside_paper, gains_over_random, growth, sensitivity_curves
from .selection import beside_chance, redundancy_map, selection_frequencies
from .style import save
from .toy import ToyResult, toy_panels
from .training import size_path, training_curves

__all__ = [
    "EmbeddedGraph",
    "ToyResult",
    "beside_chance",
    "beside_paper",
    "embedded_graphs",
    "gains_over_random",
    "growth",
    "reconstructions",
    "redundancy_map",
    "save",
    "selected_pixels",
    "selection_frequencies",
    "sensitivity_curves",
    "signals_on_graphs",
    "size_path",
    "toy_panels",
    "training_curves",
]
