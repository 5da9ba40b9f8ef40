"""The number of features: its parts against brute force, the whole on data whose number is known."""

from functools import partial

import numpy as np
import pytest
import samples
import torch
from samples import scaled
from sklearn.base import clone

from homophily import DirichletSelector, joint, size
from homophily.nn import KNNGraph
from homophily.screening import Screen, discovery_threshold
from homophily.size import _path, choose_size, knee, nested_ranking
from homophily.trials import Trials

F64 = torch.float64
QUICK = {"max_iter": 5, "random_state": 0}
planted = partial(samples.planted, reach=3)


def similarities(X, features, k):
    return KNNGraph(k, exact=True)(X[:, features]).to_dense()  # (n, n)


def apart(X, Y, S):
    """What a graph between X and Y leaves unexplained of each column: half the weighted mean of squared differences."""
    return torch.stack([(S * (x[:, None] - y).square()).sum() for x, y in zip(X.T, Y.T, strict=True)]) / (2 * len(X))


def explained(X, features, k):
    """Of every column, of the given ones by the others; what relabelled neighbours explain, (orders, d); its spread."""
    screen = Screen(Trials(X, k, len(features), n_rows=len(X)))
    S = similarities(X, features, k)
    r = 1 - apart(X, X, S)
    null = torch.stack([1 - apart(X, X[order], S) for order in screen.relabelled])
    for f in features:
        others = [g for g in features if g != f]
        r[f] = 1 - apart(X[:, [f]], X[:, [f]], similarities(X, others, k))[0] if others else 0
    return r, null, screen._spread(null)


def check_path(path, d, m):
    assert set(path) == {"n_features", "explained", "by_chance", "discovered"}
    sizes = path["n_features"]
    assert {values.shape for values in path.values()} == {sizes.shape}
    assert (np.diff(sizes) > 0).all()
    assert sizes[0] == 1
    assert sizes[-1] <= d
    assert m in sizes
    assert (path["discovered"] >= 0).all()
    assert (path["discovered"] <= d).all()
    assert (path["explained"] <= 1 + 1e-6).all()


# The knee.


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0.8, 0.9, 0.95, 1], 2),  # .55 above the line at 2, .4 at 3
        ([0, 0.3, 0.9, 0.95, 1], 4),  # .05 at 2, .4 at 4
        ([0, 0.5, 0.8, 1, 0.1], 2),  # the line ends at the highest point
        ([0, 1, 2, 3, 4], 1),  # nowhere above the line
        ([0, 0, 1, 3, 10], 1),  # nor here
        ([5, 4, 3, 2, 1], 1),
        ([2, 2, 2, 2, 2], 1),
    ],
)
def test_knee(values, expected):
    sizes = np.array([1, 2, 4, 6, 9] if expected == 4 else [1, 2, 3, 4, 5])
    assert knee(sizes, np.array(values, dtype=float)) == expected


def test_knee_of_one_point():
    assert knee(np.array([7]), np.array([0.3])) == 7


@pytest.mark.parametrize("seed", range(5))
def test_knee_does_not_depend_on_units(seed):
    rng = np.random.default_rng(seed)
    sizes, values = np.arange(1, 31), np.cumsum(rng.exponential(size=30) / np.arange(1, 31) ** 2)
    found = knee(sizes, values)
    assert 1 < found < 30
    assert knee(8 * sizes, values) == 8 * found
    assert knee(sizes + 5, values) == found + 5
    assert knee(sizes, 4 * values - 3) == found


# The ranking.


@pytest.mark.parametrize(("n_planted", "screened"), [(6, True), (0, False)])
def test_ranking_is_greedy_and_then_by_what_is_explained(n_planted, screened):
    k, chosen = 4, [8, 1, 5, 0]
    X = planted(50, 9, n_planted)
    r, null, spread = explained(X, chosen, k)
    counted = r / spread > discovery_threshold(r / spread, (null / spread).flatten())
    assert bool(counted.any()) == screened
    C = X[:, counted] if screened else X
    target = (C[:, None] - C).square().sum(-1)
    expected, left = [], chosen.copy()
    while left:
        values = [float((similarities(X, [*expected, f], k) * target).sum()) for f in left]
        expected.append(left.pop(int(np.argmin(values))))
    assert expected != chosen
    expected += [f for f in r.argsort(descending=True).tolist() if f not in chosen]
    assert nested_ranking(X, np.array(chosen), k).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("m", [1, 7, 20])
def test_ranking_holds_every_feature_once(m, dtype):
    X = planted(60, 20, 8).to(dtype)
    chosen = np.random.RandomState(0).permutation(20)[:m]
    ranking = nested_ranking(X, chosen, 5)
    assert sorted(ranking.tolist()) == list(range(20))
    assert set(ranking[:m].tolist()) == set(chosen.tolist())


# The path.


def test_path_against_dense_graphs():
    X, k = planted(40, 20, 5, seed=3), 4
    ranking = np.array([2, 7, 0, 4, 8, 1])
    path = _path(X, ranking, 3, k)
    assert path["n_features"].tolist() == [1, 2, 3, 4, 5, 6]
    for at in (0, 1, 3):
        r, null, spread = explained(X, ranking[: at + 1].tolist(), k)
        count = (r / spread > discovery_threshold(r / spread, (null / spread).flatten(), size.RATE)).sum()
        assert path["explained"][at] == pytest.approx(float(r.mean()), rel=1e-6)
        assert path["by_chance"][at] == pytest.approx(np.quantile(null.mean(1), 0.95), rel=1e-6)
        assert path["discovered"][at] == count
    assert path["discovered"].max() > 1


def test_a_long_path_has_few_points_and_the_number_itself():
    X = planted(30, 60, 0)
    path = _path(X, np.arange(60), 41, 5)
    assert 41 in path["n_features"]
    assert path["n_features"][-1] == 60
    assert len(path["n_features"]) <= size.POINTS + 1


def test_more_neighbours_than_the_path_looks_among(monkeypatch):
    monkeypatch.setattr(size, "PATH_AMONG", 8)
    found = choose_size(planted(40, 4, 0), 12)
    check_path(found.path, 4, found.n_features)


# The number.


@pytest.mark.parametrize(
    ("n", "d", "n_planted", "dtype", "seed"),
    [(250, 30, 5, torch.float32, 0), (250, 30, 5, F64, 1), (300, 60, 10, torch.float32, 1), (300, 60, 10, F64, 0)],
)
@pytest.mark.slow
def test_as_many_as_were_planted(n, d, n_planted, dtype, seed):
    X = planted(n, d, n_planted, n_clusters=3 if n_planted == 5 else 4, seed=seed).to(dtype)
    before = X.clone()
    found = choose_size(X, 5)
    assert found.rule == "explained"
    assert abs(found.n_features - n_planted) <= 0.2 * n_planted
    assert torch.equal(X, before)
    check_path(found.path, d, found.n_features)
    at = found.path["n_features"].tolist().index(found.n_features)
    assert found.path["explained"][at] > 2 * found.path["by_chance"][at]
    assert abs(found.path["discovered"][at] - n_planted) <= 0.4 * n_planted


@pytest.mark.slow
def test_the_same_again_whatever_is_drawn_elsewhere():
    X = planted(100, 20, 5)
    first = choose_size(X, 5)
    torch.rand(3)
    np.random.rand(3)
    again = choose_size(X, 5)
    assert (again.n_features, again.rule) == (first.n_features, first.rule)
    for name, values in first.path.items():
        np.testing.assert_array_equal(again.path[name], values)


def copies_of_three():
    rng = np.random.default_rng(0)
    return scaled(np.repeat(rng.uniform(-1, 1, (120, 3)), 8, axis=1) + 0.1 * rng.standard_normal((120, 24)))


@pytest.mark.parametrize("X", [planted(150, 24, 24), copies_of_three()], ids=["planted", "copies"])
@pytest.mark.slow
def test_the_knee_where_nothing_is_noise(X):
    found = choose_size(X, 5)
    assert found.rule == "knee"
    assert 2 <= found.n_features <= 8
    check_path(found.path, 24, found.n_features)
    assert found.path["n_features"][-1] == 12
    assert found.n_features == knee(found.path["n_features"], found.path["explained"])


@pytest.mark.slow
def test_copies_of_three_sources_need_three():
    assert choose_size(copies_of_three(), 5).n_features == 3


@pytest.mark.slow
def test_few_where_all_is_noise():
    found = choose_size(planted(150, 30, 0), 5)
    assert (found.n_features, found.rule) == (2, "none")
    check_path(found.path, 30, 2)
    assert np.abs(found.path["by_chance"]).max() < 0.1
    assert np.abs(found.path["explained"]).max() < 0.1
    assert found.path["discovered"].max() <= 1


@pytest.mark.parametrize(("d", "expected"), [(1, 1), (2, 2), (3, 2)])
def test_hardly_any_columns(d, expected):
    found = choose_size(planted(20, d, 0), 3)
    assert (found.n_features, found.rule) == (expected, "none")
    check_path(found.path, d, expected)


def test_one_of_two_copies():
    X = planted(40, 1, 0)
    found = choose_size(torch.cat([X, -X], 1), 3)
    assert (found.n_features, found.rule) == (1, "knee")


@pytest.mark.parametrize("n", [6, 7])
def test_hardly_more_samples_than_neighbours(n):
    found = choose_size(planted(n, 10, 5), 5)
    assert 1 <= found.n_features <= 10
    check_path(found.path, 10, found.n_features)


def test_samples_that_repeat():
    X = scaled(planted(12, 10, 5).repeat(7, 1))
    found = choose_size(X, 5)
    assert 1 <= found.n_features <= 10
    check_path(found.path, 10, found.n_features)
    assert all(np.isfinite(values).all() for values in found.path.values())


@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.slow
def test_it_stops_when_asked(calls, monkeypatch):
    X = planted(100, 40, 8)
    undisturbed, asked, rounds = [], [], []
    counted = size._discovered
    monkeypatch.setattr(size, "_discovered", lambda *args: rounds.append(1) or counted(*args))
    choose_size(X, 5, should_stop=lambda turn: undisturbed.append(turn))
    assert len(rounds) > 1
    rounds.clear()
    found = choose_size(X, 5, should_stop=lambda turn: asked.append(turn) or len(asked) >= calls)
    assert len(rounds) == 1
    # Each exchange under way or begun makes one turn: there are two at first and one at a knee.
    assert calls <= len(asked) <= calls + 2
    assert len(undisturbed) > 2 * len(asked)
    assert 1 <= found.n_features <= 40
    check_path(found.path, 40, found.n_features)


# The selector.


@pytest.mark.parametrize("objective", ["screened", "coverage", "energy"])
@pytest.mark.slow
def test_auto_selects_that_many(objective):
    X = planted(120, 20, 5, n_clusters=3).numpy()
    X = np.insert(X, 3, 1.5, axis=1)  # a constant column is not counted
    selector = DirichletSelector("auto", objective=objective, **QUICK).fit(X)
    expected = choose_size(torch.from_numpy(np.delete(X, 3, axis=1)).float(), 5)
    assert selector.size_rule_ == expected.rule == "explained"
    assert len(set(selector.selected_features_)) == expected.n_features == selector.get_support().sum()
    check_path(selector.path_, 20, expected.n_features)
    np.testing.assert_array_equal(selector.path_["n_features"], expected.path["n_features"])
    if objective == "screened":
        assert len(set(selector.selected_features_) & {0, 1, 2, 4, 5}) >= 4


def test_a_given_number_has_no_path_even_after_auto(tmp_path):
    X = planted(100, 15, 5).numpy()
    selector = DirichletSelector("auto", **QUICK).fit(X)
    loaded = DirichletSelector.load(selector.save(tmp_path / "auto"))
    assert loaded.n_features_to_select == "auto"
    assert loaded.size_rule_ == selector.size_rule_ != "given"
    assert set(loaded.path_) == set(selector.path_)
    for name, values in selector.path_.items():
        np.testing.assert_array_equal(loaded.path_[name], values)
        assert loaded.path_[name].dtype == values.dtype
    selector.set_params(n_features_to_select=3).fit(X)
    assert (selector.path_, selector.size_rule_, len(selector.selected_features_)) == ({}, "given", 3)
    loaded = DirichletSelector.load(selector.save(tmp_path / "given"))
    assert (loaded.path_, loaded.size_rule_) == ({}, "given")


def test_auto_is_a_parameter_like_others():
    selector = clone(DirichletSelector("auto", **QUICK))
    assert selector.get_params()["n_features_to_select"] == "auto"


@pytest.mark.parametrize("wrong", ["Auto", "half", ""])
def test_other_words_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"n_features_to_select.*'auto'.* Got '{wrong}' instead"):
        DirichletSelector(wrong).fit(np.eye(9))


def test_auto_warns_where_all_is_noise():
    X = planted(60, 12, 0).numpy()
    with pytest.warns(UserWarning, match='beyond chance.* n_features_to_select="auto" takes 2') as caught:
        selector = DirichletSelector("auto", **QUICK).fit(X)
    assert [warning.filename for warning in caught] == [__file__]
    assert selector.size_rule_ == "none"
    assert len(selector.selected_features_) == 2


def test_auto_of_many_rows(monkeypatch):
    """Of many rows a sample tells, and training looks at anchors; here 200 are many."""
    monkeypatch.setattr(joint, "JUDGED", 200)
    monkeypatch.setattr(joint, "MANY", 250)
    seen = []
    monkeypatch.setattr(joint, "choose_size", lambda X, k, **others: seen.append(X) or choose_size(X, k, **others))
    X = planted(700, 12, 4).numpy()
    params = {"batch_size": 32, "n_anchors": 64, "final_graph": "none"}
    selector = DirichletSelector("auto", **params, **QUICK).fit(X)
    assert [tuple(sample.shape) for sample in seen] == [(250, 12)]
    assert len(seen[0].unique(dim=0)) == 250
    assert selector.size_rule_ == "explained"
    assert set(range(4)) <= set(selector.selected_features_)
    assert len(selector.selected_features_) <= 5


def test_auto_ends_when_the_callback_says_so():
    X = planted(100, 30, 8).numpy()
    seen = []
    selector = DirichletSelector("auto", **QUICK).fit(X, callback=lambda p: seen.append(p.stage) or True)
    assert selector.interrupted_
    assert seen.count("training") == 1
    assert seen.count("exchange") <= 3
    assert len(selector.selected_features_) in selector.path_["n_features"]
