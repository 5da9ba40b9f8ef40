"""How good a selection is: three tasks, many methods on many splits, and a store that loses nothing finished."""

from typing import TYPE_CHECKING

from .._lazy import lazily
from .cell import Cell
from .store import RunStore
from .summary import summary

if TYPE_CHECKING:
    from .comparison import PROTOCOLS, Comparison
    from .paper import paper_ablation, paper_table
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
else:
    # What needs pandas, scikit-learn or torch is loaded when asked for: a look into a store of runs needs none of them.
    __getattr__, __dir__ = lazily(
        __name__,
        {
            **dict.fromkeys(("PROTOCOLS", "Comparison"), "comparison"),
            **dict.fromkeys(("paper_ablation", "paper_table"), "paper"),
            **dict.fromkeys(("best_over_m", "rankings"), "tables"),
            **dict.fromkeys(
                (
                    "aligned_accuracy",
                    "classification_accuracy",
                    "clustering_accuracy",
                    "reconstruct",
                    "reconstruction_rmse",
                    "spectral_clustering_accuracy",
                    "standardize_by_training",
                ),
                "tasks",
            ),
        },
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
