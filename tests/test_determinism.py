"""Same seed, same answer: in other processes, with other numbers of threads, in other chunks, after save and load.

What is compared bit for bit is every fitted attribute; where an answer holds up to rounding only, the test says so.
"""

import hashlib
import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from homophily import DirichletSelector
from homophily.baselines import BASELINES
from homophily.datasets import make_toy
from homophily.graph import adaptive_knn_graph, dirichlet_energy

FITS = {
    "screened": {"max_iter": 20},
    "coverage": {"objective": "coverage", "max_iter": 20, "graph": "exact"},
    "energy": {"objective": "energy", "max_iter": 20, "solver": "projection"},
    "restarts": {"objective": "energy", "max_iter": 10, "n_init": 4, "n_jobs": 2, "refine": False},
    "anchors": {"max_iter": 10, "n_anchors": 40, "anchor_choice": "kmeans++", "anchor_refresh": 3},
    "auto": {"n_features_to_select": "auto", "max_iter": 5},
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
BY_BLAS = (
    "rsr",
    "udfs",
    "fsca",
    "fastcan",
    "mcfs",
    "medoids",
)  # whose matrix products BLAS shares out among its threads


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


@pytest.mark.parametrize("name", list(FITS))
def test_threads_that_train_restarts_do_not_matter(name):
    X = data(120, 12)
    one, two = (digests(ours(name).set_params(n_init=3, n_jobs=n_jobs, batch_size=50).fit(X)) for n_jobs in (1, 2))
    assert one == two


@pytest.mark.parametrize("name", [*FITS, *BASELINES])
def test_saved_and_loaded_is_the_same(name, tmp_path):
    X = data(120, 12)
    selector = ours(name) if name in FITS else baseline(name)
    warnings.simplefilter("ignore", ConvergenceWarning)
    loaded = type(selector).load(selector.fit(X).save(tmp_path / "model"))
    assert digests(loaded) == digests(selector)
    assert loaded.get_params() == selector.get_params()
    np.testing.assert_array_equal(loaded.transform(X), selector.transform(X))
    assert digests(loaded.fit(X)) == digests(selector)  # and it can do it again


# Rows are cut into chunks whose sums are added up, or do not meet at all.
EXACTLY = [
    ("homophily.preprocessing", "BLOCK", 100),
    ("homophily.alternatives", "BLOCK", 1000),
    ("homophily.nn.knn_graph", "SEARCH_BUDGET", 4000),
    ("homophily.graph", "CHUNK", 64),
    ("homophily.screening", "BLOCK", 2000),
    ("homophily.nn.soft_topk", "BLOCK_CPU", 2000),
    ("homophily.trials", "BLOCK", 2000),
    ("homophily.refinement", "BLOCK", 2000),
]
UP_TO_ROUNDING = [
    ("homophily.sources", "BLOCK", 1000),  # means and deviations
    ("homophily.training", "CHUNK", 4000),  # objective and gradient of a step
    ("homophily.objectives", "BUDGET", 5000),  # distances in all features
    ("homophily.graph", "BUDGET", 3000),  # the energy
]


@pytest.mark.parametrize(("module", "constant", "value"), EXACTLY)
@pytest.mark.parametrize("name", ["screened", "energy"])
def test_sizes_of_chunks_that_change_no_bit(name, module, constant, value, monkeypatch):
    X = data(150, 16)
    before = digests(ours(name).fit(X))
    assert getattr(sys.modules[module], constant) > value
    monkeypatch.setattr(sys.modules[module], constant, value)
    assert digests(ours(name).fit(X)) == before


@pytest.mark.parametrize(("module", "constant", "value"), UP_TO_ROUNDING)
@pytest.mark.parametrize("name", ["screened", "coverage", "energy"])
def test_sizes_of_chunks_change_no_more_than_rounding(name, module, constant, value, monkeypatch):
    X, _ = make_toy("moons", n_samples=150, random_state=0)
    selector = ours(name).set_params(n_features_to_select=2)
    before = {**vars(selector.fit(X))}
    assert getattr(sys.modules[module], constant) > value
    monkeypatch.setattr(sys.modules[module], constant, value)
    selector.fit(X)
    assert set(selector.selected_features_) == set(before["selected_features_"])
    assert selector.energy_ == pytest.approx(before["energy_"], rel=1e-5)
    np.testing.assert_allclose(selector.graph_.toarray(), before["graph_"].toarray(), atol=1e-4)
    np.testing.assert_allclose(selector.history_["loss"][:3], before["history_"]["loss"][:3], rtol=1e-4)


if __name__ == "__main__":  # what the other processes run
    json.dump({"everything": everything, "by_blas": by_blas}[sys.argv[1]](), sys.stdout)
