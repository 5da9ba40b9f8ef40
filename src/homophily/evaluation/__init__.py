"""How good a selection is: three tasks, many methods on many splits, and a store that loses nothing finished."""

from .cell import Cell
from .comparison import PROTOCOLS, Comparison
from .paper import paper_ablation, paper_table
from .store import RunStore
from .summary import summary
from .tables import best_over_m, rankings
from .tasks import (
    aligned_accuracy,
    classification_accuracy,
    clustering_accuracy,
    reconstruct,
    reconstruction_rmse,
    spectral_clustering_accuracy,
    standardize_by_training,
)

__all__ = [
    "PROTOCOLS",
    "Cell",
    "Comparison",
    "RunStore",
    "aligned_accuracy",
    "best_over_m",
    "classification_accuracy",
    "clustering_accuracy",
    "paper_ablation",
    "paper_table",
    "rankings",
    "reconstruct",
    "reconstruction_rmse",
    "spectral_clustering_accuracy",
    "standardize_by_training",
    "summary",
]
