"""Same seed, same answer: in other processes, with other numbers of threads, in other chunks, after save and load.

What is compared bit for bit is every fitted attribute; where an answer holds up to rounding only, the test says so.
"""

import sys
import warnings

import numpy as np
import pytest
from repeatable import FITS, baseline, data, digests, ours
from sklearn.exceptions import ConvergenceWarning

from homophily.baselines import BASELINES
from homophily.datasets import make_toy


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
    ("homophily.nn.soft_topk", "BLOCK_CPU", 2000),
    ("homophily.refinement", "BLOCK", 2000),
]
UP_TO_ROUNDING = [
    ("homophily.sources", "BLOCK", 1000),  # means and deviations
    ("homophily.training", "CHUNK", 4000),  # objective and gradient of a step
    ("homophily.graph", "BUDGET", 3000),  # the energy
]


@pytest.mark.parametrize(("module", "constant", "value"), EXACTLY)
@pytest.mark.parametrize("name", ["coverage", "energy"])
def test_sizes_of_chunks_that_change_no_bit(name, module, constant, value, monkeypatch):
    X = data(150, 16)
    before = digests(ours(name).fit(X))
    assert getattr(sys.modules[module], constant) > value
    monkeypatch.setattr(sys.modules[module], constant, value)
    assert digests(ours(name).fit(X)) == before


@pytest.mark.parametrize(("module", "constant", "value"), UP_TO_ROUNDING)
@pytest.mark.parametrize("name", ["coverage", "energy"])
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
