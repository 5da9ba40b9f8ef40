"""Unsupervised feature selection that learns the k-nearest-neighbour graph along with the features."""

from typing import TYPE_CHECKING

from ._lazy import lazily
from ._version import __version__

MODULES = (
    *("anndata", "baselines", "datasets", "evaluation", "figures", "graph", "io", "memory", "nn", "objectives"),
    "stability",
)

if TYPE_CHECKING:
    from . import anndata as anndata
    from . import baselines as baselines
    from . import datasets as datasets
    from . import evaluation as evaluation
    from . import figures as figures
    from . import graph as graph
    from . import io as io
    from . import memory as memory
    from . import nn as nn
    from . import objectives as objectives
    from . import stability as stability
    from .joint import DirichletSelector
    from .predictive import PredictiveSelector
else:
    # Loaded when asked for: torch and scikit-learn take seconds, and the command line's help does not need them.
    __getattr__, __dir__ = lazily(
        __name__,
        {"DirichletSelector": "joint", "PredictiveSelector": "predictive", **{name: name for name in MODULES}},
    )

__all__ = ["DirichletSelector", "PredictiveSelector", "__version__"]
