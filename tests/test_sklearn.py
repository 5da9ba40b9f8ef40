"""scikit-learn in depth: pipelines, searches, columns of several kinds, metadata routing, its own callbacks."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from homophily import DirichletSelector
from homophily.baselines import LaplacianScore, RandomSelector, laplacian_smoothness
from homophily.training import Progress

try:
    from sklearn.callback import ProgressBar
except ImportError:
    ProgressBar = None
needs_callbacks = pytest.mark.skipif(ProgressBar is None, reason="scikit-learn has callbacks from version 1.9 on")
NAMES = list("abcdefgh")
QUICK = {"max_iter": 10, "n_init": 2, "random_state": 0}


@pytest.fixture(name="frame")
def data():
    return pd.DataFrame(np.random.RandomState(0).randn(40, 8), columns=NAMES)


def labels(frame):
    return (frame["a"] > 0).astype(int).to_numpy()


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_column_transformer_names_what_it_lets_through(frame, output):
    if output == "polars":
        pytest.importorskip("polars")
    mixed = frame.assign(colour=["red", "blue"] * 20)
    mixed.loc[3, "b"] = np.nan
    numbers = make_pipeline(SimpleImputer(), DirichletSelector(3, **QUICK))
    columns = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("colours", OneHotEncoder(sparse_output=False), ["colour"]),
        ],
        verbose_feature_names_out=False,
    ).set_output(transform=output)
    reduced = columns.fit_transform(mixed)
    chosen = columns.named_transformers_["numbers"][-1].get_feature_names_out()
    assert len(chosen) == 3
    assert set(chosen) <= set(NAMES)
    assert list(reduced.columns) == [*chosen, "colour_blue", "colour_red"]
    same = frame.fillna(mixed["b"].mean()) if "b" not in chosen else mixed.fillna({"b": mixed["b"].mean()})
    np.testing.assert_array_equal(reduced.to_numpy()[:, :3], same[list(chosen)].to_numpy())


def test_grid_search_over_a_pipeline_of_frames(frame):
    pipeline = Pipeline(
        [("scale", StandardScaler()), ("select", DirichletSelector(**QUICK)), ("forest", RandomForestClassifier(5))]
    ).set_output(transform="pandas")
    candidates = [each.set_output(transform="pandas") for each in (DirichletSelector(2, **QUICK), LaplacianScore(4))]
    grid = {"select": candidates, "select__n_neighbors": [3, 5]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(frame, labels(frame))
    assert len(search.cv_results_["params"]) == 4
    best = search.best_estimator_
    assert best["forest"].feature_names_in_.tolist() == list(best[:-1].get_feature_names_out())
    assert set(best["select"].get_feature_names_out()) <= set(NAMES)


def test_union_and_clusters_without_labels(frame):
    union = FeatureUnion([("graph", DirichletSelector(2, **QUICK)), ("score", LaplacianScore(3))])
    pipeline = make_pipeline(union.set_output(transform="pandas"), KMeans(2, n_init=1, random_state=0))
    assert set(pipeline.fit_predict(frame)) == {0, 1}
    names = pipeline[0].get_feature_names_out()
    assert [name.split("__")[0] for name in names] == ["graph"] * 2 + ["score"] * 3


def test_words_of_documents_stay_sparse():
    documents = [" ".join(f"w{(i * j) % 7}" for j in range(1, 5)) for i in range(30)]
    pipeline = make_pipeline(TfidfVectorizer(), LaplacianScore(3))
    reduced = pipeline.fit_transform(documents)
    assert sp.issparse(reduced)
    assert reduced.shape == (30, 3)
    assert set(pipeline.get_feature_names_out()) <= {f"w{i}" for i in range(7)}


def test_metadata_routing_on_and_nothing_asked(frame):
    y, selector = labels(frame), DirichletSelector(3, **QUICK)
    expected = clone(selector).fit(frame).get_support()
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), selector, RandomForestClassifier(5, random_state=0))
        pipeline.fit(frame, y)
        np.testing.assert_array_equal(pipeline[1].get_support(), expected)
        forest = RandomForestClassifier(5, random_state=0).set_fit_request(sample_weight=True)
        weighted = make_pipeline(DirichletSelector(3, **QUICK), forest)
        weighted.fit(frame, y, sample_weight=np.ones(40))
        np.testing.assert_array_equal(weighted[0].get_support(), expected)
        search = GridSearchCV(pipeline, {"dirichletselector__n_neighbors": [3, 5]}, cv=2, error_score="raise")
        assert search.fit(frame, y).best_params_["dirichletselector__n_neighbors"] in (3, 5)


def test_callback_and_checkpoint_are_routed_if_asked(frame, tmp_path):
    told = []
    with config_context(enable_metadata_routing=True):
        selector = DirichletSelector(3, **QUICK).set_fit_request(callback=True, checkpoint=True)
        pipeline = make_pipeline(StandardScaler(), selector, KMeans(2, n_init=1))
        pipeline.fit(frame, callback=told.append, checkpoint=tmp_path / "state")
        with pytest.raises(TypeError, match="callback"):
            make_pipeline(StandardScaler(), KMeans(2, n_init=1)).fit(frame, callback=told.append)
    assert all(isinstance(progress, Progress) for progress in told)
    assert [progress.step for progress in told if progress.stage == "training"] == list(range(1, 11))
    assert (tmp_path / "state").is_dir()


def test_callback_goes_through_a_pipeline_without_routing(frame):
    told = []
    pipeline = make_pipeline(StandardScaler(), RandomSelector(5), DirichletSelector(3, **QUICK))
    pipeline.fit(frame, dirichletselector__callback=told.append)
    assert told


@pytest.mark.parametrize("kind", ["pandas", "nullable", "polars", "csr"])
def test_select_k_best_by_smoothness(frame, kind):
    X = {"pandas": frame, "nullable": frame.astype("Float64"), "csr": sp.csr_array(frame.to_numpy())}.get(kind)
    if kind == "polars":
        X = pytest.importorskip("polars").DataFrame(frame.to_dict("list"))
    best = SelectKBest(laplacian_smoothness, k=5).fit(X)
    expected = LaplacianScore(5).fit(frame)
    np.testing.assert_array_equal(best.get_support(), expected.get_support())
    np.testing.assert_allclose(best.scores_, expected.scores_)
    if kind != "csr":
        assert list(best.get_feature_names_out()) == list(expected.get_feature_names_out())
        assert list(best.set_output(transform="pandas").transform(X).columns) == list(best.get_feature_names_out())


class Listener:
    """A callback of scikit-learn that notes what it is told, and stops after some steps."""

    def __init__(self, stop_after=None):
        self.stop_after, self.events = stop_after, []

    def setup(self, estimator, context):
        self.events.append("setup")

    def on_fit_task_begin(self, estimator, context, *, X=None):
        self.events.append(("begin", context.task_name, context.task_id, context.max_subtasks, X is not None))

    def on_fit_task_end(self, estimator, context):
        self.events.append(("end", context.task_name, context.task_id))
        return self.stop_after is not None and context.task_id + 1 == self.stop_after

    def teardown(self, estimator, context):
        self.events.append("teardown")


@needs_callbacks
def test_callbacks_of_scikit_learn_are_told_of_every_step(frame):
    listener = Listener()
    selector = DirichletSelector(3, tol=0.0, **QUICK).set_callbacks(listener).fit(frame)
    steps = [
        event
        for i in range(10)
        for event in (("begin", "step", i, 0, True), ("end", "step", i))
    ]  # fmt: skip
    assert listener.events == ["setup", ("begin", "fit", 0, 10, True), *steps, ("end", "fit", 0), "teardown"]
    assert not selector.interrupted_
    plain = DirichletSelector(3, tol=0.0, **QUICK).fit(frame)
    np.testing.assert_array_equal(plain.scores_, selector.scores_)


@needs_callbacks
def test_callbacks_of_scikit_learn_can_stop(frame):
    ours = []
    selector = DirichletSelector(3, tol=0.0, **QUICK).set_callbacks(Listener(stop_after=4))
    selector.fit(frame, callback=ours.append)
    assert selector.interrupted_
    assert selector.n_iter_ == 4
    assert len(ours) == 4


@needs_callbacks
def test_callbacks_of_scikit_learn_end_with_a_fit_that_fails(frame):
    listener = Listener()
    selector = DirichletSelector(99, **QUICK).set_callbacks(listener)
    with pytest.raises(ValueError, match="n_features_to_select=99"):
        selector.fit(frame)
    assert listener.events[0] == "setup"
    assert listener.events[-1] == "teardown"


@needs_callbacks
def test_progress_bar_of_a_pipeline_reaches_the_selector(frame, capsys):
    pipeline = make_pipeline(StandardScaler(), DirichletSelector(3, **QUICK)).set_callbacks(ProgressBar())
    pipeline.fit(frame)
    assert "DirichletSelector" in capsys.readouterr().out
    pipeline.set_callbacks()
    pipeline.fit(frame)
    assert capsys.readouterr().out == ""


def test_no_private_state_is_left_behind(frame):
    selector = DirichletSelector(3, **QUICK)
    before = set(vars(selector))
    make_pipeline(StandardScaler(), selector).fit(frame)
    assert not [name for name in set(vars(selector)) - before if name.startswith("_") and "output" not in name]
    assert isinstance(clone(selector), BaseEstimator)
