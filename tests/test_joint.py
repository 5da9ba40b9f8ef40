"""DirichletSelector: it finds what it should, keeps its contract, and fails in words."""

import pickle
import sys
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from homophily import DirichletSelector
from homophily.datasets import TOY_NAMES, make_toy
from homophily.graph import adaptive_knn_graph, laplacian
from homophily.objectives import Energy
from homophily.training import judge

QUICK = {"max_iter": 10, "n_init": 2, "random_state": 0}
MADELON_USEFUL = {28, 48, 64, 105, 128, 153, 241, 281, 318, 336, 338, 378, 433, 442, 451, 453, 455, 472, 475, 493}


@pytest.fixture(scope="module")
def noise():
    return np.random.RandomState(0).randn(40, 8)


@parametrize_with_checks([DirichletSelector(max_iter=5, n_init=2)])
def test_scikit_learn_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", TOY_NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_defaults_find_the_informative_columns(name, seed):
    X, _ = make_toy(name, random_state=seed)
    selector = DirichletSelector(2, random_state=seed).fit(X)
    assert set(selector.selected_features_) == {0, 1}
    assert set(selector.get_support(indices=True)) == {0, 1}


@pytest.mark.parametrize(
    "params",
    [
        {"graph": "exact"},
        pytest.param({"solver": "bregman", "n_init": 1, "batch_size": 50}, marks=pytest.mark.slow),
        {"solver": "projection"},
        {"unique": False},
        pytest.param({"n_anchors": 100}, marks=pytest.mark.slow),
        pytest.param(
            {"n_anchors": 100, "anchor_choice": "kmeans++", "anchor_refresh": "epoch"}, marks=pytest.mark.slow
        ),
    ],
)
def test_variants_find_the_informative_columns(params):
    """By training alone."""
    X, _ = make_toy("blobs", random_state=0)
    alone = {"objective": "energy", "max_iter": 500, "n_init": 2, "refine": False, "random_state": 0}
    selector = DirichletSelector(2, **{**alone, **params}).fit(X)
    assert set(selector.selected_features_) == {0, 1}


@pytest.mark.parametrize("name", TOY_NAMES)
@pytest.mark.slow
def test_training_alone_finds_the_informative_columns(name):
    """Without exchanging features afterwards: the gradient must do the work.

    A single draw may go wrong: rounding grows from step to step, and differs between processors.
    """
    found, confidence, fall = [], [], []
    for seed in range(3):
        X, _ = make_toy(name, random_state=seed)
        alone = {"objective": "energy", "refine": False, "max_iter": 500, "n_init": 6}
        selector = DirichletSelector(2, random_state=seed, n_jobs=2, **alone).fit(X)
        assert not len(selector.exchanged_features_)
        energy = selector.history_["energy"]
        found.append(set(selector.selected_features_) == {0, 1})
        confidence.append(selector.history_["confidence"][-1])
        fall.append(np.median(energy[-20:]) / np.median(energy[:20]))
    assert sum(found) >= 2
    assert np.median(confidence) > 0.8
    assert np.median(fall) < 0.6


@pytest.mark.parametrize("seed", range(3))
def test_one_feature_among_many(seed):
    """m = 1 has no other features to build a graph with; every column is tried."""
    rng = np.random.RandomState(seed)
    X = rng.randn(100, 60)
    X[:, 41] = np.where(rng.rand(100) < 0.5, -1, 1) + 0.01 * rng.randn(100)
    selector = DirichletSelector(1, max_iter=20, n_init=1, random_state=seed).fit(X)
    assert selector.selected_features_.tolist() == [41]


def test_exchanged_features_are_named_and_take_over_the_score():
    X, _ = make_toy("moons", random_state=0)
    before = DirichletSelector(2, max_iter=5, n_init=1, refine=False, random_state=0).fit(X)
    after = DirichletSelector(2, max_iter=5, n_init=1, random_state=0).fit(X)
    assert set(after.exchanged_features_) == set(after.selected_features_) - set(before.selected_features_)
    assert len(after.exchanged_features_)
    np.testing.assert_allclose(np.sort(after.scores_), np.sort(before.scores_), atol=1e-3)


@pytest.mark.slow
def test_madelon(real_data):
    X, _ = real_data("Madelon")
    selector = DirichletSelector(20, random_state=0).fit(X)
    assert len(MADELON_USEFUL & set(selector.selected_features_)) >= 18


def test_coverage_takes_one_of_each_group_of_copies_where_energy_takes_two_of_one():
    rng = np.random.RandomState(0)
    sources = np.column_stack([rng.randint(0, 3, 150), rng.uniform(-1, 1, 150)])
    X = np.repeat(sources, 4, axis=1) + 0.01 * rng.randn(150, 8)
    groups = {
        objective: set(
            DirichletSelector(2, objective=objective, max_iter=200, random_state=0).fit(X).selected_features_ // 4
        )
        for objective in ("energy", "coverage")
    }
    assert groups == {"energy": {0}, "coverage": {0, 1}}


@given(
    n=st.integers(3, 30),
    d=st.integers(1, 12),
    seed=st.integers(0, 2**31 - 1),
    kind=st.sampled_from(["noise", "copies", "one-hot", "ties", "rank one"]),
    unique=st.booleans(),
    refine=st.booleans(),
    objective=st.sampled_from(["energy", "coverage"]),
    graph=st.sampled_from(["soft", "exact"]),
    data=st.data(),
)
def test_features_are_distinct_and_the_graph_is_sound(n, d, seed, kind, unique, refine, objective, graph, data):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, d)
    if kind == "copies":
        X[:] = X[:, :1]
    elif kind == "one-hot":
        X = np.eye(d)[rng.randint(d, size=n)]
    elif kind == "ties":
        X = np.round(X)
    elif kind == "rank one":
        X = X[:, :1] * rng.randn(d)
    usable = int((X[0] != X).any(0).sum())
    if not usable:
        return
    warnings.simplefilter("ignore", UserWarning)  # an energy of 0 is reported, and tested elsewhere
    m = data.draw(st.integers(1, usable))
    selector = DirichletSelector(
        m,
        n_neighbors=data.draw(st.integers(1, n - 1)),
        max_iter=3,
        n_init=1,
        unique=unique,
        refine=refine,
        objective=objective,
        graph=graph,
        random_state=seed,
    ).fit(X)
    assert len(set(selector.selected_features_)) == m == selector.get_support().sum()
    assert np.isfinite(selector.scores_).all()
    assert (selector.scores_ >= 0).all()
    assert (selector.scores_ <= 1).all()
    assert selector.energy_ >= 0
    np.testing.assert_allclose(selector.graph_.sum(axis=1), 1)
    assert not selector.graph_.diagonal().any()


def test_result_is_consistent(noise):
    selector = DirichletSelector(3, objective="energy", **QUICK).fit(noise)
    Z = ((noise - noise.mean(0)) / noise.std(0))[:, selector.selected_features_]
    expected = adaptive_knn_graph(Z, 5)
    np.testing.assert_allclose(selector.graph_.toarray(), expected.toarray(), atol=1e-5)
    assert selector.energy_ == pytest.approx(np.trace(Z.T @ laplacian(expected) @ Z), rel=1e-5)
    assert selector.energy_ == pytest.approx(selector.restart_objectives_.min() * 3 / 2)
    assert (np.diff(selector.scores_[selector.selected_features_]) <= 0).all()
    assert selector.restart_objectives_.shape == (2,)
    assert set(selector.history_) == {"loss", "energy", "temperature", "confidence"}
    assert {len(v) for v in selector.history_.values()} == {selector.n_iter_} == {10}
    assert selector.logits_.shape == (8, 3)
    assert not selector.interrupted_


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("n_anchors", [None, 20])
def test_restarts_are_judged_by_the_energy(noise, refine, n_anchors):
    selector = DirichletSelector(3, refine=refine, n_anchors=n_anchors, **QUICK).fit(noise)
    assert selector.objective == "energy"
    assert selector.restart_objectives_.shape == (2,)
    points = torch.from_numpy((noise - noise.mean(0)) / noise.std(0))
    value = judge(points, selector.selected_features_, 5, Energy(points))  # in double precision
    assert selector.restart_objectives_.min() == pytest.approx(value, rel=1e-4)
    if not refine:
        assert not len(selector.exchanged_features_)


def test_exchange_lowers_the_energy():
    X, _ = make_toy("moons", n_samples=100, random_state=0)
    before, after = (DirichletSelector(2, refine=refine, **QUICK).fit(X) for refine in (False, True))
    assert (after.restart_objectives_ <= before.restart_objectives_).all()
    assert after.restart_objectives_.min() < before.restart_objectives_.min()
    assert len(after.exchanged_features_)


@pytest.mark.parametrize("turn", [1, 2, 9])
def test_exchange_stopped_at_any_turn(noise, turn):
    """No restart ends worse than training left it."""
    turns = []

    def callback(progress):
        if progress.stage == "exchange":
            turns.append(progress.step)
        return len(turns) == turn

    before = DirichletSelector(3, refine=False, **QUICK).fit(noise)
    selector = DirichletSelector(3, **QUICK).fit(noise, callback=callback)
    assert selector.interrupted_
    assert len(turns) == turn
    assert (selector.restart_objectives_ <= before.restart_objectives_).all()
    assert len(set(selector.selected_features_)) == 3


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_same_seed_same_result_for_any_n_jobs(n_jobs):
    X, _ = make_toy("moons", n_samples=300, random_state=0)
    kwargs = {"max_iter": 40, "n_init": 5, "random_state": 3}
    a, b = DirichletSelector(2, **kwargs).fit(X), DirichletSelector(2, n_jobs=n_jobs, **kwargs).fit(X)
    assert np.array_equal(a.selected_features_, b.selected_features_)
    assert np.array_equal(a.logits_, b.logits_)
    assert np.array_equal(a.restart_objectives_, b.restart_objectives_)
    for name, values in a.history_.items():
        assert np.array_equal(values, b.history_[name])


def test_other_seed_other_training(noise):
    a, b = (DirichletSelector(3, max_iter=10, random_state=seed).fit(noise) for seed in (0, 1))
    assert not np.array_equal(a.history_["loss"], b.history_["loss"])


def test_global_state_is_left_alone(noise):
    before = torch.get_rng_state(), np.random.get_state(), torch.get_num_threads()
    selectors = [DirichletSelector(3, max_iter=n, random_state=0) for n in (3, 30)]
    overlapping = [threading.Thread(target=selector.fit, args=(noise,)) for selector in selectors]
    for thread in overlapping:
        thread.start()
    for thread in overlapping:
        thread.join()
    assert torch.equal(before[0], torch.get_rng_state())
    assert all(map(np.array_equal, before[1], np.random.get_state()))
    assert before[2] == torch.get_num_threads()


def test_units_and_types_do_not_matter(noise):
    reference = DirichletSelector(3, **QUICK).fit(noise)
    for same in (noise * 2.0**30, sp.csr_matrix(noise), sp.csc_array(noise)):
        selector = DirichletSelector(3, **QUICK).fit(same)
        assert np.array_equal(selector.selected_features_, reference.selected_features_)
        assert selector.energy_ == pytest.approx(reference.energy_, rel=1e-4)
    for rounded in (noise.astype(np.float32), noise + 1.0):  # scores may differ, and so the order
        selector = DirichletSelector(3, **QUICK).fit(rounded)
        assert set(selector.selected_features_) == set(reference.selected_features_)
        assert selector.energy_ == pytest.approx(reference.energy_, rel=1e-4)


def test_input_is_not_changed(noise):
    X = noise.copy()
    DirichletSelector(3, **QUICK).fit(X)
    assert np.array_equal(X, noise)


def test_transform_keeps_dtype_and_sparsity(noise):
    selector = DirichletSelector(3, **QUICK).fit(noise.astype(np.float32))
    assert selector.transform(noise.astype(np.float32)).dtype == np.float32
    assert sp.issparse(selector.transform(sp.csr_matrix(noise)))
    np.testing.assert_array_equal(selector.transform(noise), noise[:, selector.get_support()])


def test_data_frames_keep_their_names(noise):
    frame = pd.DataFrame(noise, columns=[f"gene {i}" for i in range(8)], index=range(100, 140))
    selector = DirichletSelector(3, **QUICK).set_output(transform="pandas").fit(frame)
    reduced = selector.transform(frame)
    assert list(reduced.columns) == list(selector.get_feature_names_out())
    pd.testing.assert_frame_equal(reduced, frame.loc[:, selector.get_support()])


def test_pipeline_grid_search_clone_and_pickle(noise):
    y = (noise[:, 0] > 0).astype(int)
    pipeline = make_pipeline(StandardScaler(), DirichletSelector(**QUICK), RandomForestClassifier(5, random_state=0))
    search = GridSearchCV(pipeline, {"dirichletselector__n_features_to_select": [2, 4]}, cv=2).fit(noise, y)
    assert search.best_params_["dirichletselector__n_features_to_select"] in (2, 4)
    selector = clone(DirichletSelector(3, **QUICK)).fit(noise)
    copy = pickle.loads(pickle.dumps(selector))
    np.testing.assert_array_equal(copy.transform(noise), selector.transform(noise))


def test_half_of_the_varying_columns_by_default(noise):
    X = np.hstack([noise, np.ones((40, 3))])
    assert len(DirichletSelector(**QUICK).fit(X).selected_features_) == 4


def test_constant_columns_are_dropped_reported_and_never_selected(noise):
    X = np.insert(noise, [0, 3], 7.0, axis=1)
    X[:, 5] = 0.1 + np.spacing(0.1) * (np.arange(40) % 2)  # constant but for rounding
    selector = DirichletSelector(7, **QUICK).fit(X)
    assert selector.dropped_features_.tolist() == [0, 4, 5]
    assert not set(selector.selected_features_) & {0, 4, 5}
    assert (selector.scores_[[0, 4, 5]] == 0).all()
    assert sorted(selector.selected_features_) == [1, 2, 3, 6, 7, 8, 9]


def test_duplicate_rows(noise):
    X = np.repeat(noise[:5], 8, axis=0)
    with pytest.warns(UserWarning, match="energy of the selected features is 0.* 35 of the 40 rows repeat others"):
        selector = DirichletSelector(3, **QUICK).fit(X)
    assert selector.energy_ == 0
    np.testing.assert_allclose(selector.graph_.sum(axis=1), 1)


def test_few_valued_features_of_no_energy_are_named(noise):
    X = np.hstack([noise[:, :4], noise[:, 4:] > 0])
    with pytest.warns(UserWarning, match=r"they take few values.* columns \d \(2 values\)"):
        DirichletSelector(1, **QUICK).fit(X)


@pytest.mark.parametrize("batch_size", [40, 1000, "all"])
def test_a_batch_of_all_rows_is_the_full_batch(noise, batch_size):
    full = DirichletSelector(3, **QUICK).fit(noise)
    batch = DirichletSelector(3, batch_size=batch_size, **QUICK).fit(noise)
    assert np.array_equal(full.history_["loss"], batch.history_["loss"])


def test_as_many_anchors_as_rows_is_no_restriction(noise):
    full = DirichletSelector(3, **QUICK).fit(noise)
    anchors = DirichletSelector(3, n_anchors=40, **QUICK).fit(noise)
    assert np.array_equal(full.history_["loss"], anchors.history_["loss"])


def test_callback_sees_every_step_and_can_stop(noise):
    seen = []

    def callback(progress):
        seen.append(progress)
        return progress.step == 4

    selector = DirichletSelector(3, max_iter=10, n_init=2, random_state=0).fit(noise, callback=callback)
    assert [(p.stage, p.step) for p in seen[:4]] == [("training", i) for i in (1, 2, 3, 4)]
    assert {p.stage for p in seen[4:]} <= {"exchange"}
    assert len(seen) <= 5  # a run that was stopped does not go on with another stage
    seen = seen[:4]
    assert seen[0].temperature > seen[-1].temperature
    assert seen[-1].max_iter == 10
    assert selector.interrupted_
    assert selector.n_iter_ == 4
    assert len(set(selector.selected_features_)) == 3


def test_callback_can_stop_the_exchange(noise):
    def callback(progress):
        return progress.stage == "exchange"

    selector = DirichletSelector(3, max_iter=10, n_init=2, random_state=0).fit(noise, callback=callback)
    assert selector.interrupted_
    assert selector.n_iter_ == 10
    assert len(set(selector.selected_features_)) == 3


def test_early_stop_when_the_columns_are_certain():
    X, _ = make_toy("blobs", random_state=0)
    params = {"max_iter": 100, "refine": False, "graph": "exact", "random_state": 0}
    whole = DirichletSelector(2, tol=0, **params).fit(X).history_["confidence"]
    level = 0.999 * whole.max()
    first = int(np.argmax(whole >= level)) + 1
    selector = DirichletSelector(2, tol=1 - float(level), **params).fit(X)
    assert selector.n_iter_ == first
    np.testing.assert_array_equal(selector.history_["confidence"], whole[:first])
    assert DirichletSelector(2, tol=0.99, **params).fit(X).n_iter_ < first


def test_from_paper_sets_every_choice_and_runs(noise):
    selector = DirichletSelector.from_paper(3, max_iter=5, random_state=0)
    params = selector.get_params()
    expected = {
        "solver": "bregman",
        "scale": "none",
        "n_candidates": "all",
        "temperature": (10.0, 0.01),
        "init_std": "glorot",
        "n_init": 1,
        "refine": False,
        "literal": True,
        "objective": "energy",
        "graph": "soft",
        "unique": True,
        "tol": 0.0,
        "batch_size": "all",
    }
    assert {name: params[name] for name in expected} == expected
    assert DirichletSelector.from_paper(3).max_iter == 1000
    assert len(set(selector.fit(noise).selected_features_)) == 3


def test_verbose_shows_progress_on_standard_error(noise, capsys):
    DirichletSelector(3, verbose=True, **QUICK).fit(noise)
    captured = capsys.readouterr()
    assert not captured.out
    assert "100%" in captured.err


def test_save_and_load(noise, tmp_path):
    frame = pd.DataFrame(noise, columns=[f"c{i}" for i in range(8)])
    selector = DirichletSelector(3, temperature=(2.0, 0.1), **QUICK).fit(frame)
    selector.save(tmp_path / "model")
    loaded = DirichletSelector.load(tmp_path / "model")
    assert loaded.get_params() == selector.get_params()
    assert list(loaded.get_feature_names_out()) == list(selector.get_feature_names_out())
    pd.testing.assert_frame_equal(
        loaded.set_output(transform="pandas").transform(frame),
        selector.set_output(transform="pandas").transform(frame),
    )
    assert (loaded.graph_ != selector.graph_).nnz == 0
    assert loaded.energy_ == selector.energy_
    for name, values in selector.history_.items():
        np.testing.assert_array_equal(loaded.history_[name], values)
    with pytest.raises(FileExistsError, match="exists already"):
        selector.save(tmp_path / "model")


def test_load_refuses_what_is_not_a_model(noise, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no saved model"):
        DirichletSelector.load(tmp_path)
    folder = DirichletSelector(3, **QUICK).fit(noise).save(tmp_path / "model")
    description = folder / "model.json"
    text = description.read_text()
    description.write_text(text.replace('"DirichletSelector"', '"Other"'))
    with pytest.raises(ValueError, match="holds a Other in format 2, expected DirichletSelector in format 2 or 1"):
        DirichletSelector.load(folder)
    (folder / "model.safetensors").write_bytes(b"no")
    description.write_text(text)
    with pytest.raises(ValueError, match="is damaged"):
        DirichletSelector.load(folder)
    description.write_text("{")
    with pytest.raises(ValueError, match="not a homophily model description"):
        DirichletSelector.load(folder)


# What goes wrong is said in words.


def test_m_beyond_the_usable_columns(noise):
    X = np.hstack([noise, np.ones((40, 2))])
    with pytest.raises(
        ValueError, match=r"n_features_to_select=9, but X has 8 columns to choose from; 2 more are const"
    ):
        DirichletSelector(9).fit(X)


@pytest.mark.parametrize("m", [0, -1, 2.5])
def test_m_below_one(noise, m):
    with pytest.raises(ValueError, match="n_features_to_select"):
        DirichletSelector(m).fit(noise)


def test_k_not_below_n(noise):
    with pytest.raises(ValueError, match="n_neighbors=40 must be less than the number of samples, n_samples = 40"):
        DirichletSelector(3, n_neighbors=40).fit(noise)


def test_too_few_anchors(noise):
    with pytest.raises(ValueError, match="n_anchors=4 must be greater than n_neighbors=5"):
        DirichletSelector(3, n_anchors=4).fit(noise)


def test_too_few_candidates(noise):
    with pytest.raises(ValueError, match="n_candidates=5 must be greater than n_neighbors=5"):
        DirichletSelector(3, n_candidates=5).fit(noise)


def test_all_columns_constant():
    with pytest.raises(ValueError, match="All 3 columns of X are constant"):
        DirichletSelector(1).fit(np.ones((10, 3)))


def test_one_row():
    with pytest.raises(ValueError, match="1 sample"):
        DirichletSelector(1).fit(np.ones((1, 3)))


@pytest.mark.parametrize("shape", [(40,), (4, 5, 6)])
def test_wrong_dimension(shape):
    with pytest.raises(ValueError, match=r"Expected 2D array|dim"):
        DirichletSelector(1).fit(np.random.RandomState(0).randn(*shape))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_non_finite_entries_are_counted_and_located(noise, make):
    X = noise.copy()
    X[3, 2], X[4, 2], X[5, 6] = np.nan, np.inf, np.nan
    with pytest.raises(
        ValueError,
        match=r"2 NaN and 1 infinity \(inf\) entries, in 2 of 8 columns: 2 \(2 rows\), 6 \(1 row\)\. Fill them in",
    ):
        DirichletSelector(1).fit(make(X))


def test_non_finite_entries_are_named(noise):
    frame = pd.DataFrame(noise.copy(), columns=list("abcdefgh"))  # before pandas 3 a frame shares what it is made of
    frame.loc[3, "c"] = np.nan
    with pytest.raises(ValueError, match="in 1 of 8 columns: 'c'"):
        DirichletSelector(1).fit(frame)


def test_text_and_categories_are_named(noise):
    frame = pd.DataFrame(noise, columns=list("abcdefgh"))
    frame["b"] = "red"
    frame["e"] = pd.Categorical(["x", "y"] * 20)
    frame["f"] = frame["f"] > 0
    with pytest.raises(ValueError, match=r"2 of 8 columns are not numeric: 'b' \(\w+\), 'e' \(category\)"):
        DirichletSelector(1).fit(frame)
    DirichletSelector(4, **QUICK).fit(frame.drop(columns=["b", "e"]))


def test_unknown_device(noise):
    with pytest.raises(ValueError, match="device='tpu9000' is not available here"):
        DirichletSelector(1, device="tpu9000").fit(noise)


@pytest.mark.parametrize("temperature", [(1.0,), (0, 1), ("hot", "cold"), (1, 2, 3)])
def test_bad_temperature(noise, temperature):
    with pytest.raises(ValueError, match="temperature must be two positive numbers"):
        DirichletSelector(1, temperature=temperature).fit(noise)


def test_transform_needs_the_same_columns(noise):
    selector = DirichletSelector(3, **QUICK).fit(noise)
    with pytest.raises(ValueError, match="8 features"):
        selector.transform(noise[:, :5])


def test_no_memory_of_the_size_n_n_k(monkeypatch):
    """All rows against all candidates: the chunks of a step stay within their budget."""
    largest = 0
    module = sys.modules["homophily.nn.soft_topk"]
    semi_dual = module._semi_dual

    def watched(scores, g, nu):
        nonlocal largest
        largest = max(largest, scores.numel())
        return semi_dual(scores, g, nu)

    monkeypatch.setattr(module, "_semi_dual", watched)
    monkeypatch.setattr("homophily.training.CHUNK", 20_000)
    X = np.random.RandomState(0).randn(150, 5)
    DirichletSelector(2, n_candidates="all", max_iter=2, n_init=1, random_state=0).fit(X)
    assert largest <= 20_000 < 150 * 149 * 7
