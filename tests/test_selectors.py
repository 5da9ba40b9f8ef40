"""Selectors of any make in a comparison, and what the key of a result says about them."""

import functools
import json
import operator
import subprocess
import sys

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold, f_classif

from homophily.baselines import AllFeatures, LaplacianScore, RandomSelector, laplacian_smoothness
from homophily.evaluation import Comparison, RunStore, summary
from homophily.evaluation.selectors import (
    chosen_features,
    described,
    number_parameter,
    prepared,
    unknown_parameters,
)
from homophily.evaluation.store import canonical


def first_loadings(pca):
    return np.abs(pca.components_[0])


def spread(X, y=None):
    return X.std(0)


def narrowness(X, y=None):
    return -X.std(0)


class Widest:
    """The least that a selector needs; it has no get_params."""

    def __init__(self, n_features_to_select=None, power=1):
        self.n_features_to_select, self.power = n_features_to_select, power

    def fit(self, X):
        scores = np.asarray(X).std(0) ** self.power
        self.mask = np.isin(np.arange(len(scores)), np.argsort(-scores, kind="stable")[: self.n_features_to_select])

    def get_support(self):
        return self.mask


class WidestFirst(Widest):
    """The same with indices, the best first."""

    def fit(self, X):
        self.order = np.argsort(-(np.asarray(X).std(0) ** self.power), kind="stable")

    def get_support(self):
        return self.order[: self.n_features_to_select]


class TooFew(Widest):
    def get_support(self):
        return np.flatnonzero(self.mask)[:1]


class TooMany(Widest):
    def get_support(self):
        return np.ones_like(self.mask)


class NoneAtAll(Widest):
    def get_support(self):
        return np.zeros_like(self.mask)


class ZerosAndOnes(Widest):
    def get_support(self):
        return self.mask.astype(int)


@pytest.fixture(scope="module")
def data():
    """Columns of falling width: 1 is the widest, then 4, 0, 3, 2."""
    rng = np.random.RandomState(0)
    return rng.normal(size=(40, 5)) * [3, 9, 1, 2, 5], np.arange(40) % 2


def compare(data, methods, **options):
    defaults = {"ms": [2, 3], "splits": 1, "n_estimators": 3, "with_random": False, "tasks": ["accuracy"]}
    return Comparison(*data, methods=methods, **{**defaults, **options})


def features(cells):
    return {(cell.method, cell.m): list(cell.features) for cell in cells if cell.failed is None}


# --- what they choose ------------------------------------------------------------------------------------------------


def selectors_of_others():
    return {
        "threshold": VarianceThreshold(2.5**2),  # no m: it decides itself
        "loadings": SelectFromModel(PCA(1), threshold=-np.inf, importance_getter=first_loadings),
        "best": SelectKBest(spread),
        "ours": SelectKBest(laplacian_smoothness),
        "mask": Widest(),
        "indices": WidestFirst(),
    }


def test_selectors_of_others_run_through(data):
    methods = selectors_of_others()
    comparison = compare(data, methods)
    with RunStore(":memory:") as store:
        cells = list(comparison.run(store))
        assert [cell.failed for cell in cells] == [None] * len(cells)
        found = features(cells)
        assert found[("threshold", None)] == [0, 1, 4]
        for name in ("mask", "best"):
            assert found[(name, 2)] == [1, 4]
            assert found[(name, 3)] == [0, 1, 4]
        assert found[("indices", 3)] == [1, 4, 0]
        assert found[("loadings", 2)][0] == 1
        train, _ = comparison.judge.rows(40, 0)
        ours = SelectKBest(laplacian_smoothness, k=3).fit(data[0][train])
        assert found[("ours", 3)] == ours.get_support(indices=True).tolist()
        # Equal features are judged equally, by whomever they were found.
        scores = {(cell.method, cell.m): cell.accuracy for cell in cells}
        assert scores[("mask", 3)] == scores[("best", 3)] == scores[("threshold", None)]
        # The same things, made anew, are found again.
        again = compare(data, selectors_of_others())
        assert features(again.finished(store)) == found
        assert list(again.run(store)) == []
    assert set(summary(cells)["method"]) == set(methods)


def test_failures_are_kept_in_words_and_others_go_on(data):
    methods = {
        "needs y": SelectKBest(f_classif),
        "too few": TooFew(),
        "none": NoneAtAll(),
        "numbers": ZerosAndOnes(),
        "loadings": SelectFromModel(PCA(1), importance_getter=first_loadings),  # only those above the mean
        "fine": Widest(),
    }
    with RunStore(":memory:") as store:
        cells = {(cell.method, cell.m): cell for cell in compare(data, methods).run(store)}
        assert {key["method"] for key, _ in store.items()} == {"fine"}
    assert "requires y to be passed" in cells[("needs y", 2)].failed
    assert cells[("too few", 2)].failed == "2 columns were asked for, and 1 were selected."
    assert cells[("none", 2)].failed == "No column was selected."
    assert "get_support has to return a mask of bool, or indices" in cells[("numbers", 3)].failed
    assert "3 columns were asked for" in cells[("loadings", 3)].failed
    assert all(cells[("fine", m)].failed is None for m in (2, 3))


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (LaplacianScore, r"Method 'it' is <class .*LaplacianScore'>, a class; give an instance"),
        (VarianceThreshold, "a class; give an instance"),
        (PCA(), r"PCA\(\), without get_support"),
        (3, "is 3, without fit and get_support"),
    ],
)
def test_what_is_no_selector_is_refused(data, selector, message):
    with pytest.raises(TypeError, match=message):
        compare(data, {"it": selector})


def test_the_number_goes_where_the_selector_wants_it():
    selectors = {
        LaplacianScore(): "n_features_to_select",
        SelectFromModel(PCA()): "max_features",
        SelectKBest(): "k",
        Widest(): "n_features_to_select",
        VarianceThreshold(): None,
        AllFeatures(): None,
    }
    for selector, name in selectors.items():
        assert number_parameter(selector) == name
        fresh = prepared(selector, 7, 3, {})
        assert fresh is not selector
        if name is not None:
            assert getattr(fresh, name) == 7
            assert getattr(selector, name) != 7


def test_parameters_and_seeds_are_set_on_a_copy():
    selector = Widest(power=1)
    assert vars(prepared(selector, 2, 3, {"power": 5})) == {"n_features_to_select": 2, "power": 5}
    assert selector.power == 1
    assert prepared(RandomSelector(random_state=1), 2, 3, {}).random_state == 3
    inner = SelectFromModel(RandomForestClassifier(max_depth=2))
    assert prepared(inner, 2, 3, {"estimator__max_depth": 4}).estimator.max_depth == 4
    assert inner.estimator.max_depth == 2


def test_selected_features_count_before_the_support():
    X = np.random.RandomState(0).normal(size=(20, 5))
    fitted = RandomSelector(4, random_state=1).fit(X)
    assert chosen_features(fitted, 4) == fitted.selected_features_.tolist() != sorted(fitted.selected_features_)


def test_unknown_parameters():
    assert unknown_parameters(Widest(), ["power", "height", "n_features_to_select"]) == ["height"]
    assert unknown_parameters(SelectFromModel(PCA()), ["estimator__n_components", "estimate__x"]) == ["estimate__x"]


# --- how they are described ------------------------------------------------------------------------------------------


def test_own_classes_are_told_apart_by_their_code():
    def made(sign):
        class Mine(Widest):
            def fit(self, X):
                self.mask = np.arange(X.shape[1]) * sign > 0

        return Mine()

    def edited():
        class Mine(Widest):
            def fit(self, X):
                self.mask = np.arange(X.shape[1]) > 1

        return Mine()

    assert text(made(1)) == text(made(1)) != text(made(-1))
    assert json.loads(text(made(1)))["code"] != json.loads(text(edited()))["code"]
    assert "code" not in described(LaplacianScore())


def test_more_columns_than_asked_for_are_refused():
    selector = TooMany(2)
    selector.fit(np.eye(4))
    with pytest.raises(ValueError, match="2 columns were asked for, and 4 were selected"):
        chosen_features(selector, 2)


def text(selector, **tuned):
    return canonical(described(selector, tuned))


def adding(number):
    return lambda X, y=None: X.std(0) + number


PAIRS = [  # equal descriptions
    (LaplacianScore(n_neighbors=3), LaplacianScore(7, n_neighbors=3, random_state=5)),
    (SelectKBest(spread, k=2), SelectKBest(spread, k=5)),
    (SelectKBest(adding(1)), SelectKBest(adding(1))),
    (SelectKBest(functools.partial(spread, y=2)), SelectKBest(functools.partial(spread, y=2))),
    (SelectFromModel(PCA(2), max_features=1), SelectFromModel(PCA(2), max_features=3)),
    (SelectFromModel(RandomForestClassifier(n_jobs=1)), SelectFromModel(RandomForestClassifier(n_jobs=2, verbose=1))),
    (SelectFromModel(PCA(), threshold=np.float64(0.5)), SelectFromModel(PCA(), threshold=0.5)),
    (Widest(2, power=np.array([1, 2])), Widest(3, power=[1, 2])),
    (Widest(power={"b": 1, "a": (2, None)}), Widest(power={"a": [2, None], "b": 1})),
    (Widest(power={"some", "words", "in", "no", "order"}), Widest(power={"order", "no", "in", "words", "some"})),
    (Widest(power=np.random.RandomState(1)), Widest(power=np.random.RandomState(1))),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_equal_parameters_are_described_equally(one, other):
    assert text(one) == text(other)
    assert json.loads(text(one)) == json.loads(json.dumps(described(one)))  # plain JSON


def test_different_parameters_are_described_differently():
    selectors = [
        LaplacianScore(),
        LaplacianScore(n_neighbors=4),
        AllFeatures(),
        SelectKBest(spread),
        SelectKBest(narrowness),
        SelectKBest(lambda X, y=None: X.std(0)),
        SelectKBest(lambda X, y=None: X.mean(0)),
        SelectKBest(lambda X, y=None: X.std(1)),
        SelectKBest(lambda X, y=1: X.std(0)),
        SelectKBest(lambda X, y=None: (lambda: X.std(0))()),
        SelectKBest(lambda X, y=None: (lambda: X.std(1))()),
        SelectKBest(adding(1)),
        SelectKBest(adding(2)),
        SelectKBest(functools.partial(spread, y=1)),
        SelectKBest(functools.partial(spread, y=2)),
        SelectKBest(functools.partial(narrowness, y=2)),
        SelectKBest(operator.itemgetter(1)),
        SelectKBest(operator.itemgetter(2)),
        SelectKBest(np.add),
        SelectKBest(np.subtract),
        SelectKBest(Widest(power=1).fit),
        SelectKBest(Widest(power=2).fit),
        SelectFromModel(PCA(1)),
        SelectFromModel(PCA(2)),
        SelectFromModel(PCA(1, random_state=1)),  # nobody sets that
        SelectFromModel(KMeans(1)),
        SelectFromModel(PCA(1), threshold=np.inf),
        SelectFromModel(PCA(1), threshold=-np.inf),
        SelectFromModel(PCA(1), threshold="mean"),
        SelectFromModel(RandomForestClassifier(max_features=1)),  # no number of selected columns
        SelectFromModel(RandomForestClassifier(max_features=2)),
        SelectFromModel(SelectFromModel(PCA(2))),
        Widest(),
        Widest(power=2),
        Widest(power=[1]),
        Widest(power=PCA),
        Widest(power=KMeans),
        Widest(power=float("nan")),
        Widest(power={1, 2}),
        Widest(power={1, 3}),
        Widest(power=np.random.RandomState(1)),
        Widest(power=np.random.RandomState(2)),
        WidestFirst(),
    ]
    texts = [text(selector) for selector in selectors]
    assert [i for i, each in enumerate(texts) if texts.index(each) != i] == []


def test_a_second_name_of_numbers_is_a_parameter_like_others():
    class Nearest(Widest):
        def __init__(self, k):
            super().__init__(2)
            self.k = k

    assert text(Nearest(3)) != text(Nearest(4))


def test_tuned_parameters_are_described_like_own_ones():
    assert text(SelectFromModel(PCA(1)), threshold=-np.inf) == text(SelectFromModel(PCA(1), threshold=-np.inf))
    assert text(SelectFromModel(PCA(1)), estimator=KMeans(3)) == text(SelectFromModel(KMeans(3)))
    assert text(SelectKBest(), score_func=spread) == text(SelectKBest(spread))
    assert text(SelectKBest(spread)) != text(SelectKBest(spread), score_func=narrowness)


@pytest.mark.slow
def test_descriptions_are_the_same_in_every_process(tmp_path):
    script = tmp_path / "describe.py"
    script.write_text(
        "import sys, functools\n"
        "from sklearn.feature_selection import SelectKBest\n"
        "from homophily.evaluation.selectors import described\n"
        "from homophily.evaluation.store import canonical\n"
        "f = lambda X, c=[1, 'a']: [x for x in X if x > 2]\n"
        "print(canonical([described(SelectKBest(g)) for g in (f, functools.partial(f, c={'x', 'y', 'z'}))]))\n"
    )
    found = {subprocess.check_output([sys.executable, str(script)], text=True) for _ in range(2)}  # hashes are salted
    assert len(found) == 1
    assert "SelectKBest" in found.pop()


def test_tuning_over_estimators_and_functions(data):
    methods = {"model": SelectFromModel(PCA(1), importance_getter=first_loadings), "best": SelectKBest(spread)}
    grids = {"model": {"threshold": [np.inf, -np.inf]}, "best": {"score_func": [f_classif, narrowness]}}
    comparison = compare(data, methods, ms=[2], protocol="paper", grids=grids)
    with RunStore(":memory:") as store:
        cells = {cell.method: cell for cell in comparison.run(store)}
        assert cells["model"].params == (("threshold", -np.inf),)  # nothing is above infinity
        assert cells["best"].params == (("score_func", narrowness),)  # the other needs y
        assert list(cells["best"].features) == [2, 3]
        assert list(comparison.run(store)) == []
