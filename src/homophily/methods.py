"""Every selector by its short name."""

from __future__ import annotations

from .base import BaseSelector
from .baselines import BASELINES
from .joint import DirichletSelector
from .predictive import PredictiveSelector

__all__ = ["METHODS"]

METHODS: dict[str, type[BaseSelector]] = {
    "predictive": PredictiveSelector,
    "dirichlet": DirichletSelector,
    **BASELINES,
}
