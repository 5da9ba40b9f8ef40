"""Methods to compare with, the paper's and others, each a scikit-learn selector, and their short names."""

from .aefs import AEFS
from .base import Baseline
from .cae import ConcreteAutoencoder
from .dufs import DUFS
from .fastcan import FastCan
from .fsca import FSCA
from .ipcae import IndirectConcreteAutoencoder
from .laplacian_score import LaplacianScore, laplacian_score, laplacian_smoothness
from .mcfs import MCFS
from .medoids import FeatureMedoids
from .random import AllFeatures, RandomSelector
from .rsr import RSR
from .udfs import UDFS
from .variance import VarianceSelector
from .wast import WAST

__all__ = [
    "AEFS",
    "BASELINES",
    "DUFS",
    "FSCA",
    "MCFS",
    "RSR",
    "UDFS",
    "WAST",
    "AllFeatures",
    "Baseline",
    "ConcreteAutoencoder",
    "FastCan",
    "FeatureMedoids",
    "IndirectConcreteAutoencoder",
    "LaplacianScore",
    "RandomSelector",
    "VarianceSelector",
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
    "fsca": FSCA,
    "fastcan": FastCan,
    "mcfs": MCFS,
    "ipcae": IndirectConcreteAutoencoder,
    "variance": VarianceSelector,
    "medoids": FeatureMedoids,
    "random": RandomSelector,
    "all": AllFeatures,
}
