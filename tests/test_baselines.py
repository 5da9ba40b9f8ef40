"""What holds for every method that we compare with."""

import inspect

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from homophily import baselines
from homophily.baselines import (
    AEFS,
    BASELINES,
    DUFS,
    FSCA,
    MCFS,
    RSR,
    UDFS,
    WAST,
    AllFeatures,
    ConcreteAutoencoder,
    FastCan,
    FeatureMedoids,
    IndirectConcreteAutoencoder,
    LaplacianScore,
    RandomSelector,
    VarianceSelector,
)

QUICK = {
    "ls": LaplacianScore(),
    "rsr": RSR(max_iter=30),
    "udfs": UDFS(max_iter=30),
    "cae": ConcreteAutoencoder(max_iter=3),
    "dufs": DUFS(max_iter=5),
    "wast": WAST(max_iter=2),
    "aefs": AEFS(max_iter=3, n_hidden=8),
    "fsca": FSCA(),
    "fastcan": FastCan(),
    "mcfs": MCFS(),
    "ipcae": IndirectConcreteAutoencoder(max_iter=3),
    "variance": VarianceSelector(),
    "medoids": FeatureMedoids(),
    "random": RandomSelector(),
    "all": AllFeatures(),
}
ITERATIVE = ("rsr", "udfs", "cae", "dufs", "wast", "aefs", "ipcae")
every = pytest.mark.parametrize("name", list(QUICK))
# Three epochs are no training; that is the point of a quick test.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make(name, m=None, **params):
    return type(QUICK[name])(**{**QUICK[name].get_params(), "n_features_to_select": m, "random_state": 0, **params})


@pytest.fixture(name="X")
def data():
    return np.random.RandomState(0).randn(30, 7) * [1, 10, 0.1, 1, 1e3, 1, 1] + 5


@parametrize_with_checks(list(QUICK.values()))
def test_scikit_learn_estimator(estimator, check):
    check(estimator)


def test_registry_has_the_short_names():
    paper, others = ["ls", "rsr", "udfs", "cae", "dufs", "wast", "aefs"], ["random", "all"]
    assert list(BASELINES) == [*paper, "fsca", "fastcan", "mcfs", "ipcae", "variance", "medoids", *others]
    assert {name: type(selector) for name, selector in QUICK.items()} == BASELINES
    assert {cls.__name__ for cls in BASELINES.values()} <= set(baselines.__all__)


@every
def test_selects_distinct_columns_and_scores_all(name, X):
    before = X.copy()
    selector = make(name, 3).fit(X)
    m = 7 if name == "all" else 3
    assert len(set(selector.selected_features_)) == len(selector.selected_features_) == m
    assert selector.scores_.shape == (7,)
    assert np.isfinite(selector.scores_).all()
    assert (np.diff(selector.scores_[selector.selected_features_]) <= 0).all()
    assert selector.transform(X).shape == (30, m)
    np.testing.assert_array_equal(X, before)


@every
def test_same_seed_same_result(name, X):
    first, second = (make(name, 3).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.scores_, second.scores_)
    np.testing.assert_array_equal(first.selected_features_, second.selected_features_)


@pytest.mark.parametrize("name", ["cae", "dufs", "wast", "aefs", "ipcae", "random"])
def test_the_seed_matters(name, X):
    assert (make(name, 3, random_state=1).fit(X).scores_ != make(name, 3).fit(X).scores_).any()


@pytest.mark.parametrize("name", [name for name in QUICK if name != "variance"])
def test_units_and_offsets_do_not_matter(name, X):
    scaled = make(name, 3).fit(X * [1e6, 1e-6, -3, 1, 1, 1, 1] + [0, 1, 7, 0, 0, 0, -1])
    # The network with random weights sees the sign; all others must not.
    X = X * [1, 1, -1, 1, 1, 1, 1] if name in ("cae", "wast", "aefs", "ipcae") else X
    np.testing.assert_allclose(scaled.scores_, make(name, 3).fit(X).scores_, rtol=2e-3, atol=1e-4)


@every
def test_constant_columns_are_never_selected(name, X):
    X[:, [0, 4]] = [3.0, 0.0]
    selector = make(name, 5).fit(X)
    assert set(selector.selected_features_) == {1, 2, 3, 5, 6}
    np.testing.assert_array_equal(selector.dropped_features_, [0, 4])
    assert (selector.scores_[[0, 4]] == 0).all()
    if name != "all":
        with pytest.raises(ValueError, match="n_features_to_select=6, but X has 5 columns to choose from; 2 more"):
            make(name, 6).fit(X)


@every
@pytest.mark.parametrize(("n", "d"), [(30, 1), (30, 2), (7, 40), (6, 6)])
def test_every_column_can_be_asked_for(name, n, d):
    """m = d, one column, more columns than rows, fewer rows than a batch."""
    X = np.random.RandomState(1).randn(n, d)
    selector = make(name, d).fit(X)
    assert set(selector.selected_features_) == set(range(d))


@every
def test_ties_and_duplicate_rows(name):
    """Whole rows repeated, columns repeated, only two values."""
    rng = np.random.RandomState(0)
    X = np.repeat(rng.randn(5, 4), 8, axis=0)  # each row has 7 exact copies
    for data in (X, np.hstack([X, X]), np.sign(X) + 0.0, rng.randint(0, 2, (40, 6)).astype(float)):
        selector = make(name, 2).fit(data)
        assert np.isfinite(selector.scores_).all()
        assert len(set(selector.selected_features_)) >= 2


@pytest.mark.parametrize("name", ["ls", "udfs", "dufs", "mcfs"])
def test_more_neighbours_than_there_are(name, X):
    make(name, 2, n_neighbors=29).fit(X)
    with pytest.raises(ValueError, match="n_neighbors=30 must be less than the number of samples, n_samples = 30"):
        make(name, 2, n_neighbors=30).fit(X)


@every
def test_one_fit_serves_fewer_features(name, X):
    """``nested`` says whether the best m are the first of more."""
    if not BASELINES[name].nested:
        pytest.skip("m matters")
    if name != "all":
        five, three = make(name, 5).fit(X), make(name, 3).fit(X)
        np.testing.assert_array_equal(five.selected_features_[:3], three.selected_features_)


@every
def test_data_frames_and_sparse_matrices(name, X):
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    selector = make(name, 3).set_output(transform="pandas").fit(frame)
    assert list(selector.transform(frame).columns) == list(selector.get_feature_names_out())
    scores = make(name, 3).fit(sp.csr_array(X)).scores_
    np.testing.assert_allclose(scores, selector.scores_, rtol=1e-3, atol=1e-5)


@every
def test_pipeline(name, X):
    y = np.arange(30) % 2
    assert make_pipeline(make(name, 3), DecisionTreeClassifier()).fit(X, y).predict(X).shape == (30,)


@every
def test_save_and_load(name, X, tmp_path):
    selector = make(name, 3).fit(X)
    again = type(selector).load(selector.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.selected_features_, selector.selected_features_)
    np.testing.assert_array_equal(again.scores_, selector.scores_)
    assert again.get_params() == selector.get_params()
    assert again.history_.keys() == selector.history_.keys()


@pytest.mark.parametrize("name", ITERATIVE)
def test_callback_is_told_of_each_step_and_can_stop(name, X):
    steps = []

    def stop_at_two(step):
        steps.append(step)
        return step.step == 2

    selector = make(name, 3, **({"tol": 0.0} if name in ("rsr", "udfs") else {})).fit(X, callback=stop_at_two)
    assert [step.step for step in steps] == [1, 2]
    assert all(step.total >= 2 and step.values for step in steps)
    assert selector.interrupted_
    assert selector.n_iter_ == 2
    assert all(len(values) == 2 for values in selector.history_.values())
    assert not make(name, 3).fit(X).interrupted_


@pytest.mark.parametrize("name", ITERATIVE)
def test_verbose_shows_progress(name, X, capfd):
    make(name, 3, verbose=True).fit(X)
    assert "%" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["cae", "dufs", "wast", "aefs", "ipcae"])
def test_unknown_device(name, X):
    with pytest.raises(ValueError, match="device='tpu' is not available here"):
        make(name, 3, device="tpu").fit(X)


@pytest.mark.parametrize("name", ["cae", "dufs", "wast", "aefs", "ipcae"])
def test_global_random_state_is_not_touched(name, X):
    import torch

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    np.random.seed(0)
    make(name, 3).fit(X)
    assert torch.rand(1) == expected
    assert np.random.rand() == np.random.RandomState(0).rand()


@every
def test_the_papers_settings_are_parameters(name):
    cls = BASELINES[name]
    known = set(inspect.signature(cls).parameters)
    assert known >= {"n_features_to_select", "random_state"}
    assert known >= set(cls.param_grid) | set(cls.paper_params)
    for params in ParameterGrid(cls.param_grid):
        cls(**params)._validate_params()
    assert (
        cls.from_paper(5, random_state=3).get_params().items()
        >= {
            **cls.paper_params,
            "n_features_to_select": 5,
            "random_state": 3,
        }.items()
    )


def test_the_papers_settings_by_data_set():
    assert [WAST.from_paper(5, dataset=name).attention for name in ("Madelon", "PCMAC", "Yale", "SRBCT", "SMK")] == [
        *(0.9, 0.9, 0.4, 0.1, 0.01)
    ]
    assert WAST.from_paper(5, dataset="SMK").learning_rate == 0.01
    assert WAST.from_paper(5, dataset="Yale").learning_rate == 0.1
    assert [DUFS.from_paper(5, dataset=name).kernel_scale for name in ("SRBCT", "COIL20", "coil-20", "PIX10")] == [
        2
    ] * 4
    assert DUFS.from_paper(5, dataset="Yale").kernel_scale == 5
    assert RSR.from_paper(5, dataset="Yale", reg=7).reg == 7
    with pytest.raises(ValueError, match="dataset='MNIST' is none of the paper's: PCMAC, Madelon"):
        WAST.from_paper(5, dataset="MNIST")


def test_random_draws_without_preference():
    X = np.random.RandomState(0).randn(10, 6)
    counts = np.zeros(6)
    for seed in range(300):
        counts[RandomSelector(2, random_state=seed).fit(X).selected_features_] += 1
    assert counts.min() > 60  # 100 expected, standard deviation 8
    assert counts.max() < 140


@pytest.mark.parametrize("method", [AEFS, ConcreteAutoencoder, IndirectConcreteAutoencoder, WAST])
def test_a_training_that_diverges_is_an_error_that_says_what_to_lower(method):
    X = np.random.RandomState(0).normal(size=(60, 8))
    with pytest.raises(ValueError, match=r"diverged in epoch 1: the loss is (inf|nan)\. Lower learning_rate=1e\+30"):
        method(3, learning_rate=1e30, random_state=0).fit(X)
