"""The default against its definition: ridge regressions fitted again without each row."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st
from samples import planted, standardized
from sklearn.utils.estimator_checks import parametrize_with_checks

from homophily import PredictiveSelector
from homophily.datasets import make_planted, make_toy
from homophily.predictive import lines, search
from homophily.predictive.lines import AllColumns, LeaveOneOut
from homophily.predictive.search import exchange, grow, nested_order
from homophily.predictive.size import knee, predictable_columns


def literal(Z, chosen, ridge, weights):
    """J by fitting one ridge regression for each row and column that is left out."""
    J = 0.0
    for f in range(Z.shape[1]):
        B = Z[:, [a for a in chosen if a != f]]
        for i in range(len(Z)):
            rest = np.arange(len(Z)) != i
            normal = B[rest].T @ B[rest] + ridge * np.eye(B.shape[1])
            J += weights[f] * (Z[i, f] - B[i] @ np.linalg.solve(normal, B[rest].T @ Z[rest, f])) ** 2
    return J


def _bounded(Z):
    C = np.clip(Z.astype(np.float32), -3, 3)
    return (C - C.mean(0)).astype(np.float64)


def correlated(n, d, seed):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, d)) + rng.standard_normal((n, 2)) @ rng.standard_normal((2, d))
    return (Z - Z.mean(0)) / Z.std(0), rng.random(d), rng


shapes = given(st.integers(3, 12), st.integers(2, 9), st.floats(0.1, 3), st.integers(0, 10**6))


@cases(15)
@shapes
def test_updates_of_rank_one_equal_regressions_fitted_again(n, d, ridge, seed):
    Z, weights, rng = correlated(n, d, seed)
    order = rng.permutation(d).tolist()
    model = LeaveOneOut(Z, ridge * n, weights)
    for t in order[: d // 2 + 1]:
        model.add(t)
    model.remove(order[0])
    chosen = order[1 : d // 2 + 1]
    assert model.chosen == chosen
    value = literal(Z, chosen, ridge * n, weights)
    assert model.value() == pytest.approx(value, rel=1e-8)
    assert LeaveOneOut(Z, ridge * n, weights, chosen).value() == pytest.approx(value, rel=1e-8)
    J, best = model.values(d)
    for t in np.setdiff1d(np.arange(d), chosen):
        assert J[t] == pytest.approx(literal(Z, [*chosen, t], ridge * n, weights), rel=1e-8)
    assert set(best) == set(np.setdiff1d(np.arange(d), chosen))
    for f, without in zip(chosen, model.without(), strict=True):
        assert without == pytest.approx(literal(Z, [a for a in chosen if a != f], ridge * n, weights), rel=1e-8)


@cases(15)
@shapes
def test_all_columns_predict_as_regressions_on_all_others(n, d, ridge, seed):
    Z, _, rng = correlated(n, d, seed)
    predictors = AllColumns(Z, ridge * n)
    shares = predictors.shares()
    one = np.zeros(d)
    for f in range(d):
        one[f] = 1 - literal(Z, range(d), ridge * n, np.eye(d)[f]) / n
    np.testing.assert_allclose(shares, one, rtol=1e-8, atol=1e-10)
    other = rng.standard_normal((n, 1))
    wider = np.hstack([Z, other])
    expected = 1 - literal(wider, range(d), ridge * n, np.eye(d + 1)[d]) / np.square(other).sum()
    assert predictors.shares_of(other)[0] == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize(("n", "d"), [(20, 12), (12, 20)])
def test_greedy_choice_is_that_of_brute_force(n, d):
    Z, weights, _ = correlated(n, d, 0)
    model = LeaveOneOut(Z, n, weights)
    grow(model, 5, lambda J: False)
    chosen = []
    for _ in range(5):
        values = {t: literal(Z, [*chosen, t], n, weights) for t in range(d) if t not in chosen}
        chosen.append(min(values, key=values.get))
    assert model.chosen == chosen


def test_exchange_never_raises_the_objective_and_keeps_the_size():
    Z, weights, rng = correlated(40, 15, 3)
    model = LeaveOneOut(Z, 40, weights, rng.permutation(15)[:4].tolist())
    values = [model.value()]
    exchange(model, lambda J: values.append(J) or False)
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < values[0]
    assert values[-1] == pytest.approx(literal(Z, model.chosen, 40, weights), rel=1e-8)
    assert len(set(model.chosen)) == 4


def test_selected_columns_are_ranked_as_they_would_be_added():
    Z, weights, _ = correlated(30, 8, 1)
    chosen = [0, 3, 5, 6]
    order = nested_order(LeaveOneOut(Z, 30, weights, chosen))
    assert sorted(order) == chosen
    for i, t in enumerate(order):
        values = {f: literal(Z, [*order[:i], f], 30, weights) for f in order[i:]}
        assert min(values, key=values.get) == t


def test_a_shortlist_finds_the_same_where_it_holds_the_best(monkeypatch):
    Z = np.asarray(planted(200, 60, 8))
    chosen = []
    for most in (60, 20):
        monkeypatch.setattr(search, "SHORTLIST", most)
        chosen.append(PredictiveSelector(8, final_graph="none").fit(Z).selected_features_)
    np.testing.assert_array_equal(*chosen)


@pytest.mark.parametrize("ridge", [0.01, 1.0])
@pytest.mark.parametrize("entries", [2**22, 0])
def test_exact_copies_in_either_precision(entries, ridge, monkeypatch):
    monkeypatch.setattr(lines, "EXACT_ENTRIES", entries)  # 0: single precision
    Z = np.asarray(standardized(60, 5))
    X = np.hstack([Z, Z, Z])
    selector = PredictiveSelector(12, ridge=ridge).fit(X)
    assert np.isfinite(selector.scores_).all()
    assert len(set(selector.selected_features_)) == 12
    assert selector.explained_ <= 1
    selector = PredictiveSelector(5, ridge=ridge).fit(X)
    assert set(selector.selected_features_ % 5) == set(range(5)), "a copy was selected beside its original"


def test_single_precision_selects_what_double_does(monkeypatch):
    Z = np.asarray(planted(300, 80, 10))
    double = PredictiveSelector(20, final_graph="none").fit(Z)
    monkeypatch.setattr(lines, "EXACT_ENTRIES", 0)
    single = PredictiveSelector(20, final_graph="none").fit(Z)
    assert set(double.selected_features_) >= set(range(10)) <= set(single.selected_features_)
    np.testing.assert_allclose(single.explained_, double.explained_, rtol=1e-4)


@pytest.mark.parametrize("name", ["blobs", "moons", "circles"])
def test_toys(name):
    for seed in range(4):
        X, _ = make_toy(name, random_state=seed)
        assert sorted(PredictiveSelector(2, random_state=seed).fit(X).selected_features_) == [0, 1]


@pytest.mark.parametrize(("m", "d"), [(8, 60), (10, 1000)])
def test_planted_columns_are_found(m, d):
    X, _, columns = make_planted(500, d, m, spacing=1.0, random_state=0)
    selector = PredictiveSelector(m, final_graph="none").fit(X)
    np.testing.assert_array_equal(np.sort(selector.selected_features_), columns)


@pytest.mark.parametrize(("m", "d"), [(5, 60), (10, 500)])
def test_auto_finds_the_number_that_was_planted(m, d):
    X, _, columns = make_planted(300, d, m, random_state=1)
    selector = PredictiveSelector("auto", random_state=0, final_graph="none").fit(X)
    assert selector.size_rule_ == "predicted"
    np.testing.assert_array_equal(np.sort(selector.selected_features_), columns)


def test_auto_says_that_all_is_noise():
    with pytest.warns(UserWarning, match="better than noise"):
        selector = PredictiveSelector("auto", random_state=0).fit(np.asarray(standardized(100, 20)))
    assert selector.size_rule_ == "none"
    assert len(selector.selected_features_) == 1


def test_auto_takes_the_knee_where_next_to_no_column_is_noise():
    selector = PredictiveSelector("auto", random_state=0).fit(np.asarray(planted(200, 40, 40)))
    assert selector.size_rule_ == "knee"
    assert 1 < len(selector.selected_features_) < 20
    size = predictable_columns(np.asarray(planted(200, 40, 40)), 200.0, np.random.default_rng(0))
    assert size == (20, "knee")


def test_the_knee_is_the_corner():
    assert knee(np.array([1, 2, 3, 4, 4.1, 4.2, 4.3])) == 4
    assert knee(np.array([3.0, 2.0, 1.0])) == 1


def test_madelon(real_data):
    X, _ = real_data("Madelon")
    selector = PredictiveSelector(20, random_state=0, final_graph="none").fit(X)
    useful = [28, 48, 64, 105, 128, 153, 241, 281, 318, 336, 338, 378, 433, 442, 451, 453, 455, 472, 475, 493]
    assert sorted(selector.selected_features_) == useful


def test_what_is_learned_belongs_together():
    Z = np.asarray(planted(150, 25, 6))
    X = np.hstack([Z, np.ones((150, 1))])
    selector = PredictiveSelector(6, n_neighbors=4).fit(X)
    assert (np.diff(selector.scores_[selector.selected_features_]) <= 0).all()
    assert selector.scores_[25] == 0
    assert selector.dropped_features_.tolist() == [25]
    assert selector.ranking_[25] == 26
    assert sorted(selector.ranking_) == list(range(1, 27))
    assert set(np.argsort(selector.ranking_)[:6]) == set(selector.selected_features_)
    assert 0 < selector.explained_ < 1
    assert selector.path_["n_features"].tolist() == list(range(1, 7))
    assert selector.explained_ >= selector.path_["explained"][-1] - 1e-9
    assert selector.graph_.shape == (150, 150)
    np.testing.assert_allclose(selector.graph_.sum(axis=1), 1)
    assert selector.energy_ > 0
    assert selector.n_iter_ == 12
    assert selector.size_rule_ == "given"


def test_scores_are_what_the_explained_share_would_change_by():
    Z = np.asarray(planted(100, 12, 5))
    selector = PredictiveSelector(5).fit(Z)
    C = _bounded(Z)
    weights = np.clip(AllColumns(C, 100.0).shares(), 0, 1)
    total = weights @ np.square(C).sum(0)
    chosen = selector.selected_features_.tolist()

    def explained(columns):
        return 1 - literal(C, columns, 100.0, weights) / total

    assert selector.explained_ == pytest.approx(explained(chosen), rel=1e-6)
    for f in chosen:
        lost = explained(chosen) - explained([a for a in chosen if a != f])
        assert selector.scores_[f] == pytest.approx(max(lost, 0), abs=1e-6)
    for f in np.setdiff1d(np.arange(12), chosen):
        gained = explained([*chosen, f]) - explained(chosen)
        assert selector.scores_[f] == pytest.approx(max(gained, 0), abs=1e-6)


def test_a_few_outliers_buy_nothing(monkeypatch):
    Z = np.asarray(planted(200, 30, 5)).copy()
    Z[:2, 5:] = 10  # all columns of noise take part in it, and one row predicts the other
    selector = PredictiveSelector(5, final_graph="none").fit(Z)
    assert set(selector.selected_features_) == set(range(5))
    monkeypatch.setattr("homophily.predictive.selector.FARTHEST", np.inf)
    unbounded = PredictiveSelector(5, final_graph="none").fit(Z)
    assert not set(unbounded.selected_features_) & set(range(5))


@pytest.mark.parametrize("m", [2, 3])
def test_few_columns_are_not_noise_with_equal_values(m):
    X, _, _ = make_planted(300, 30, m, random_state=0)
    rng = np.random.default_rng(0)
    for levels in (2, 3):
        wider = np.hstack([X, rng.integers(levels, size=(300, 5))])
        for rows in (slice(None), np.lexsort(wider.T)):
            selector = PredictiveSelector(m, random_state=0).fit(wider[rows])
            assert (selector.selected_features_ < 30).all()


def test_of_noise_nothing_is_predicted():
    selector = PredictiveSelector(1, n_neighbors=1).fit(np.asarray(standardized(30, 1)))
    assert (selector.explained_, selector.explained_by_all_) == (0, 0)


def test_units_and_shifts_change_nothing_and_rows_may_come_in_any_order():
    Z = np.asarray(planted(120, 20, 5))
    rng = np.random.default_rng(0)
    first = PredictiveSelector(6).fit(Z).selected_features_
    moved = Z * np.exp(rng.uniform(-5, 5, 20)) * rng.choice([-1, 1], 20) + rng.uniform(-9, 9, 20)
    np.testing.assert_array_equal(PredictiveSelector(6).fit(moved).selected_features_, first)
    np.testing.assert_array_equal(PredictiveSelector(6).fit(Z[rng.permutation(120)]).selected_features_, first)
    order = rng.permutation(20)
    np.testing.assert_array_equal(order[PredictiveSelector(6).fit(Z[:, order]).selected_features_], first)


def test_a_fraction_is_a_share_of_the_columns_that_vary():
    X = np.hstack([np.asarray(standardized(30, 10)), np.ones((30, 10))])
    assert len(PredictiveSelector(0.3).fit(X).selected_features_) == 3
    assert len(PredictiveSelector().fit(X).selected_features_) == 5


def test_a_sample_of_rows_stands_for_all(tmp_path):
    X, _, columns = make_planted(3000, 40, 6, random_state=0)
    path = tmp_path / "rows.npy"
    np.save(path, X)
    small = {"max_rows": 300, "final_graph": "none", "random_state": 0}
    in_memory = PredictiveSelector(6, **small).fit(X)
    on_disk = PredictiveSelector(6, **small).fit(path)
    np.testing.assert_array_equal(np.sort(in_memory.selected_features_), columns)
    np.testing.assert_array_equal(in_memory.selected_features_, on_disk.selected_features_)
    assert in_memory.graph_ is None
    assert in_memory.energy_ is None


def test_a_sample_may_have_fewer_rows_than_neighbours():
    selector = PredictiveSelector(2, max_rows=3, n_neighbors=8, random_state=0).fit(np.asarray(standardized(40, 6)))
    assert len(selector.selected_features_) == 2
    assert (np.diff(selector.graph_.indptr) == 8).all()


@pytest.mark.parametrize("kind", ["sparse", "frame", "memory map", "parquet"])
def test_other_kinds_of_input_give_the_same(kind, tmp_path):
    X, _, _ = make_planted(100, 15, 4, random_state=0)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(15)])
    if kind == "memory map":
        np.save(tmp_path / "x.npy", X)
    if kind == "parquet":
        frame.to_parquet(tmp_path / "x.parquet")
    given_as = {
        "sparse": lambda: sp.csr_matrix(X),
        "frame": lambda: frame,
        "memory map": lambda: np.load(tmp_path / "x.npy", mmap_mode="r"),
        "parquet": lambda: tmp_path / "x.parquet",
    }[kind]()
    expected = PredictiveSelector(4).fit(X)
    found = PredictiveSelector(4).fit(given_as)
    np.testing.assert_array_equal(found.selected_features_, expected.selected_features_)
    np.testing.assert_allclose(found.scores_, expected.scores_, atol=1e-6)


def test_save_and_load(tmp_path):
    Z = np.asarray(planted(60, 10, 4))
    selector = PredictiveSelector(4, random_state=0).fit(Z)
    loaded = PredictiveSelector.load(selector.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.ranking_, selector.ranking_)
    np.testing.assert_array_equal(loaded.transform(Z), selector.transform(Z))
    assert loaded.explained_ == selector.explained_


def test_a_callback_ends_the_search_and_keeps_what_was_found():
    Z = np.asarray(planted(80, 20, 6))
    steps = []
    selector = PredictiveSelector(6).fit(Z, callback=lambda step: steps.append(step) or step.step == 3)
    assert selector.interrupted_
    assert selector.n_iter_ == 3
    assert len(selector.selected_features_) == 6
    assert [step.total for step in steps] == [12] * 3
    grown = LeaveOneOut(_bounded(Z), 80.0, np.clip(AllColumns(_bounded(Z), 80.0).shares(), 0, 1))
    grow(grown, 3, lambda J: False)
    assert set(grown.chosen) <= set(selector.selected_features_)
    assert not PredictiveSelector(6).fit(Z).interrupted_


@pytest.mark.parametrize(
    ("X", "m"),
    [
        (np.array([[0.0, 1, 5], [1, 0, 5]]), 1),
        (np.array([[0.0, 1, 5], [1, 0, 5]]), 2),
        (np.asarray(standardized(6, 20)), 10),
        (np.asarray(standardized(30, 4)), 4),
        (np.asarray(standardized(30, 1)), 1),
        (np.repeat(np.asarray(standardized(5, 6)), 4, axis=0), 3),
        (np.eye(40), 5),
        (np.asarray(standardized(40, 5)) * [1e-200, 1e200, 1, 1e-30, 1e30], 3),
    ],
)
def test_small_and_odd_data(X, m):
    selector = PredictiveSelector(m, n_neighbors=1).fit(X)
    assert len(set(selector.selected_features_)) == m
    assert np.isfinite(selector.scores_).all()
    assert np.isfinite([selector.explained_, selector.explained_by_all_]).all()
    assert (selector.scores_ >= 0).all()


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"n_features_to_select": 5}, "n_features_to_select=5, but X has 3 columns"),
        ({"n_features_to_select": 1.5}, "must be"),
        ({"n_features_to_select": "some"}, "must be"),
        ({"n_neighbors": 10}, "n_neighbors=10 must be less than"),
        ({"ridge": 0.0}, "ridge"),
        ({"max_rows": 1}, "max_rows"),
    ],
)
def test_wrong_parameters_are_named(params, error):
    with pytest.raises(ValueError, match=error):
        PredictiveSelector(**params).fit(np.asarray(standardized(10, 3)))


@parametrize_with_checks([PredictiveSelector(n_neighbors=1)])
def test_scikit_learn_estimator(estimator, check):
    check(estimator)
