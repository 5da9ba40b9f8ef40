"""The command ``homophily reproduce`` on small stand-ins for the paper's data, for the tests of both tiers."""

import numpy as np
from command_line import run
from sklearn.datasets import make_blobs

from homophily.datasets import PAPER_DATASETS
from homophily.evaluation import RunStore

SMALL = ("--methods", "ls,rsr", "-m", "2,4", "--splits", 2, "--trees", 5, "--random-draws", 1, "--updates", 20)
TABLES = ("tables.txt", "tables.md", "tables.tex", "table.csv", "every_m.csv", "beside_random.csv", "report.html")


def stand_in(dataset, width=None):
    """Three clusters and noise, in the shape of one of the paper's data sets."""
    data = PAPER_DATASETS[dataset]
    d = width or data.n_features
    rng = np.random.RandomState(0)
    X, _ = make_blobs(data.n_samples, n_features=8, centers=3, random_state=rng)
    y = np.arange(data.n_samples) % data.n_classes
    return np.hstack([X, rng.normal(size=(data.n_samples, d - 8))]), y


def reproduce(experiment, *more, out="out", code=0):
    return run("reproduce", experiment, "--quick", "--jobs", 1, "--out", out, *more, code=code)


def table(*more, out="out", code=0):
    # Of an option that is given twice the last counts.
    return reproduce("table", "--datasets", "Jaffe", *SMALL, *more, out=out, code=code)


def cells_in(out="out"):
    with RunStore(f"{out}/runs.sqlite") as store:
        return store.keys()
