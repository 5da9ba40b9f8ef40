"""PyTorch pieces of the method, usable on their own."""

from .dirichlet import dirichlet_energy, laplacian
from .feature_selector import UniqueFeatureSelector, algorithm_1, gumbel_softmax, orthogonalize
from .knn_graph import (
    KNNGraph,
    NeighborGraph,
    cross_squared_distances,
    exact_similarities,
    nearest,
    soft_similarities,
    squared_distances,
)
from .soft_topk import NotConvergedWarning, soft_indicators, soft_topk

__all__ = [
    "KNNGraph",
    "NeighborGraph",
    "NotConvergedWarning",
    "UniqueFeatureSelector",
    "algorithm_1",
    "cross_squared_distances",
    "dirichlet_energy",
    "exact_similarities",
    "gumbel_softmax",
    "laplacian",
    "nearest",
    "orthogonalize",
    "soft_indicators",
    "soft_similarities",
    "soft_topk",
    "squared_distances",
]
