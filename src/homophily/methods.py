"""Every selector by its short name."""

from __future__ import annotations

from .base import BaseSelector
from .baselines import BASELINES
from .joint import DirichletSelector

__all__ = ["METHODS"]

METHODS: dict[str, type[BaseSelector]] = {"dirichlet": DirichletSelector, **BASELINES}
