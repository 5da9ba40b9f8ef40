"""Fits that are compared bit for bit, in one process and between processes."""

import hashlib

import numpy as np
import scipy.sparse as sp

from homophily import DirichletSelector
from homophily.baselines import BASELINES

FITS = {
    "coverage": {"objective": "coverage", "max_iter": 20, "graph": "exact"},
    "energy": {"objective": "energy", "max_iter": 20, "solver": "projection"},
    "restarts": {"objective": "energy", "max_iter": 10, "n_init": 4, "n_jobs": 2, "refine": False},
    "anchors": {
        "objective": "coverage",
        "max_iter": 10,
        "n_anchors": 40,
        "anchor_choice": "kmeans++",
        "anchor_refresh": 3,
    },
}
BRIEF = {
    "cae": {"max_iter": 5},
    "dufs": {"max_iter": 20},
    "wast": {"max_iter": 2},
    "aefs": {"max_iter": 10},
    "ipcae": {"max_iter": 5},
    "udfs": {"max_iter": 20},
    "rsr": {"max_iter": 20},
}


def data(n=300, d=24):
    """Clusters in a quarter of the columns, then noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X[:, : d // 4] += 2 * rng.standard_normal((4, d // 4))[rng.integers(4, size=n)]
    return X


def ours(name):
    return DirichletSelector(**{"n_features_to_select": 5, "random_state": 3, **FITS[name]})


def baseline(name):
    return BASELINES[name](5, random_state=3, **BRIEF.get(name, {}))


def digest(value):
    array = np.ascontiguousarray(value)
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def digests(selector):
    """A hash of every fitted attribute."""

    def flat(name, value):
        if isinstance(value, dict):
            return {key: part for item in value for key, part in flat(f"{name}/{item}", value[item]).items()}
        if sp.issparse(value):
            parts = {part: getattr(value, part) for part in ("data", "indices", "indptr")}
            return flat(name, parts)
        return {name: digest(value)}

    found = [flat(name, value) for name, value in vars(selector).items() if name.endswith("_")]
    return {key: part for each in found for key, part in each.items()}
