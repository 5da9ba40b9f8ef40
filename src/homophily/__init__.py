"""Unsupervised feature selection that learns the k-nearest-neighbour graph along with the features."""

from ._version import __version__
from .joint import DirichletSelector

__all__ = ["DirichletSelector", "__version__"]
