"""The methods that the paper compares with, each a scikit-learn selector, and their short names."""

from .aefs import AEFS
from .base import Baseline
from .cae import ConcreteAutoencoder
from .dufs import DUFS
from .laplacian_score import LaplacianScore, laplacian_score, laplacian_smoothness
from .random import AllFeatures, RandomSelector
from .rsr import RSR
from .udfs import UDFS
from .wast import WAST

__all__ = [
    "AEFS",
    "BASELINES",
    "DUFS",
    "RSR",
    "UDFS",
    "WAST",
    "AllFeatures",
    "Baseline",
    "ConcreteAutoencoder",
    "LaplacianScore",
    "RandomSelector",
    "laplacian_score",
    "laplacian_smoothness",
]

BASELINES: dict[str, type[Baseline]] = {
    "ls": LaplacianScore,
    "rsr": RSR,
    "udfs": UDFS,
    "cae": ConcreteAutoencoder,
    "dufs": DUFS,
    "wast": WAST,
    "aefs": AEFS,
    "random": RandomSelector,
    "all": AllFeatures,
}
