"""The default: columns that predict all the others."""

from .selector import PredictiveSelector

__all__ = ["PredictiveSelector"]
