"""Same seed, same answer in other processes, with other hash seeds and other numbers of threads."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
from repeatable import FITS, baseline, data, digest, digests, ours
from sklearn.exceptions import ConvergenceWarning

from homophily.baselines import BASELINES
from homophily.graph import adaptive_knn_graph, dirichlet_energy

HELPERS = Path(__file__).parents[1]  # repeatable.py
# Methods whose matrix products BLAS shares out among its threads.
BY_BLAS = ("rsr", "udfs", "fsca", "fastcan", "mcfs", "medoids")


def everything():
    """Digests of all fits, and of a graph with more edges than one thread of BLAS would add up."""
    X, points = data(), data(3000, 4)
    S = adaptive_knn_graph(points, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return {
            "graph": {
                "weights": digest(S.data),
                "neighbours": digest(S.indices),
                "energy": dirichlet_energy(points, S),
            },
            **{name: digests(ours(name).fit(X)) for name in FITS},
            **{name: digests(baseline(name).fit(X)) for name in BASELINES if name not in BY_BLAS},
        }


def elsewhere(what, *, threads, hash_seed):
    """The same in a fresh process."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONHASHSEED": str(hash_seed)}
    environment["PYTHONPATH"] = os.pathsep.join([str(HELPERS), *filter(None, [environment.get("PYTHONPATH")])])
    ran = subprocess.run([sys.executable, __file__, what], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_other_processes_hash_seeds_and_threads_give_the_same_bits():
    """Two fresh processes; the one that compares is a third, which has fitted other things before."""
    here = everything()
    for threads, hash_seed in ((1, 1), (4, 2)):
        there = elsewhere("everything", threads=threads, hash_seed=hash_seed)
        assert there.keys() == here.keys()
        for name, attributes in here.items():
            assert there[name] == attributes, name


def by_blas():
    """Selections and scores of the methods that solve large systems."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = {name: baseline(name).fit(data(600, 60)) for name in BY_BLAS}
    return {name: [fit.selected_features_.tolist(), fit.scores_.tolist()] for name, fit in fits.items()}


def test_threads_of_blas_change_scores_by_no_more_than_rounding():
    one, again, four = (elsewhere("by_blas", threads=t, hash_seed=seed) for t, seed in ((1, 0), (1, 7), (4, 0)))
    assert again == one  # with as many threads, the same bits
    for name in BY_BLAS:
        assert four[name][0] == one[name][0]
        np.testing.assert_allclose(four[name][1], one[name][1], rtol=1e-6, atol=1e-9)


if __name__ == "__main__":  # what the other processes run
    json.dump({"everything": everything, "by_blas": by_blas}[sys.argv[1]](), sys.stdout)
