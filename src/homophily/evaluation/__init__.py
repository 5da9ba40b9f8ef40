"""How good a selection is: three tasks, many methods on many splits, and a store that loses nothing finished."""

from .comparison import Cell, Comparison, summary
from .store import RunStore
from .tasks import (
    aligned_accuracy,
    classification_accuracy,
    clustering_accuracy,
    reconstruction_rmse,
    standardize_by_training,
)

__all__ = [
    "Cell",
    "Comparison",
    "RunStore",
    "aligned_accuracy",
    "classification_accuracy",
    "clustering_accuracy",
    "reconstruction_rmse",
    "standardize_by_training",
    "summary",
]
