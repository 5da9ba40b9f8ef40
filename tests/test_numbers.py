"""Any finite numbers: properties of drawn data sets, from two rows to hundreds of columns in odd units.

A data set is drawn as a description (kind, sizes, units, type, seed) from which NumPy builds it: a failure shrinks to
the smallest description, and drawing costs nothing. ``HOMOPHILY_FUZZ=8`` draws eight times as many.
"""

import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fuzzing import cases
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from homophily import DirichletSelector, PredictiveSelector
from homophily.baselines import (
    AEFS,
    BASELINES,
    DUFS,
    MCFS,
    RSR,
    UDFS,
    WAST,
    ConcreteAutoencoder,
    IndirectConcreteAutoencoder,
    LaplacianScore,
)
from homophily.graph import adaptive_knn_graph, dirichlet_energy, k_nearest
from homophily.nn import KNNGraph, NotConvergedWarning, orthogonalize, soft_topk
from homophily.nn.feature_selector import project
from homophily.nn.soft_topk import soft_indicators
from homophily.objectives import OBJECTIVES, Coverage
from homophily.preprocessing import standardize
from homophily.refinement import exchange_features
from homophily.training import judge

F32, F64 = torch.float32, torch.float64

# --- what is drawn ---------------------------------------------------------------------------------------------------

WELL_POSED = ("noise", "clusters")
DEGENERATE = (
    "row copies",
    "column copies",
    "near copies",
    "ties",
    "rank one",
    "near constant",
    "some constant",
    "one-hot",
    "counts",
    "two values",
    "heavy tails",
    "outlier",
)
TYPES = ("float64", "float32", "float16", "int64", "int8", "bool")
CONTAINERS = (np.asarray, np.asarray, np.asarray, np.asfortranarray, sp.csr_array, sp.csc_matrix, sp.coo_array)


@dataclass(frozen=True)
class Description:
    """What a data set is made from."""

    kind: str
    n: int
    d: int
    seed: int
    units: str = "one"  # or "many": a scale from 1e-12 to 1e12 and an offset a column
    dtype: str = "float64"
    container: int = 0

    def build(self):
        rng = np.random.default_rng(self.seed)
        X = _values(self.kind, self.n, self.d, rng)
        if self.units == "many" and self.dtype in ("float64", "float32"):
            scale = 10.0 ** rng.uniform(-12, 12, self.d)
            X = X * scale + scale * rng.choice([0, 1, -30, 1000], self.d)
        if self.dtype == "float16":
            X = X.clip(-6e4, 6e4)
        elif self.dtype in ("int64", "int8"):
            X = np.round(10 * X).clip(-100, 100)
        elif self.dtype == "bool":
            X = X > 0.5
        X = X.astype(self.dtype)
        make = CONTAINERS[self.container]
        if sp.issparse(make(np.eye(2))) and self.dtype == "float16":  # which SciPy's sparse matrices do not hold
            X = X.astype("float32")
        return make(X)


def _values(kind, n, d, rng):
    X = rng.standard_normal((n, d))
    if kind == "clusters":
        return 0.1 * X + rng.standard_normal((3, d))[rng.integers(3, size=n)]
    if kind == "row copies":
        return X[rng.integers(max(1, n // 4), size=n)]
    if kind == "column copies":
        return X[:, rng.integers(max(1, d // 4), size=d)]
    if kind == "near copies":
        return X[:, :1] + 1e-9 * X
    if kind == "ties":
        return np.round(X)
    if kind == "rank one":
        return np.outer(X[:, 0], X[0])
    if kind == "near constant":
        return 1 + X * 10.0 ** rng.integers(-17, -1, size=d)
    if kind == "some constant":
        X[:, rng.random(d) < 0.5] = 3.0
    elif kind == "one-hot":
        return np.eye(d)[rng.integers(d, size=n)]
    elif kind == "counts":
        return rng.poisson(0.1, size=(n, d)).astype(float)
    elif kind == "two values":
        return (X > 0).astype(float)
    elif kind == "heavy tails":
        return np.sign(X) * np.exp(5 * np.abs(X))
    elif kind == "outlier":
        X[rng.integers(n)] = 1e9
    return X


@st.composite
def descriptions(draw, *, n=(2, 40), d=(1, 12), kinds=WELL_POSED + DEGENERATE, plain=False):
    sizes = draw(st.integers(*n)), draw(st.integers(*d))
    seed = draw(st.integers(0, 2**32 - 1))
    kind = draw(st.sampled_from(kinds))
    if plain:
        return Description(kind, *sizes, seed)
    units, dtype = draw(st.sampled_from(("one", "many"))), draw(st.sampled_from(TYPES))
    return Description(kind, *sizes, seed, units, dtype, draw(st.integers(0, len(CONTAINERS) - 1)))


def usable_columns(X):
    """How many columns vary, after a check of what is said about those that count as constant."""
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    eps = np.finfo(dense.dtype).eps if dense.dtype == np.float32 else np.finfo(np.float64).eps
    dense = dense.astype(np.float64)
    if dense.dtype.kind != "f" or len(np.unique(dense)) == 1:
        return 0
    kept = np.zeros(dense.shape[1], dtype=bool)
    kept[standardize(sp.csr_array(X) if sp.issparse(X) else X.astype(_as_checked(X.dtype))).kept] = True
    largest = np.abs(dense).max(0)
    scaled = dense / np.where(largest > 0, largest, 1)
    assert not kept[(dense == dense[0]).all(0)].any()
    assert kept[(scaled - scaled.mean(0)).std(0) > 8 * eps].all()
    return int(kept.sum())


def _as_checked(dtype):
    return dtype if dtype in (np.float32, np.float64) else np.float64


@st.composite
def settings_of_fits(draw, n, usable):
    """Parameters of :class:`DirichletSelector` for ``n`` rows of which ``usable`` columns vary."""
    k = draw(st.one_of(st.integers(1, min(6, n - 1)), st.integers(1, n - 1)))
    solver = draw(st.sampled_from(("newton", "newton", "projection", "bregman")))
    if solver == "bregman" and n * k > 100:  # 200 iterations a step
        solver = "projection"
    chosen = {
        "n_features_to_select": draw(st.one_of(st.integers(1, usable), st.just(usable), st.none())),
        "n_neighbors": k,
        "objective": draw(st.sampled_from(("energy", "coverage"))),
        "graph": draw(st.sampled_from(("soft", "soft", "exact"))),
        "solver": solver,
        "reg": draw(st.sampled_from((0.3, 1e-4, 1e-2, 10.0))),
        "scale": draw(st.sampled_from(("row", "row", "none"))),
        "refine": draw(st.booleans()),
        "unique": draw(st.sampled_from((True, True, False))),
        "literal": draw(st.sampled_from((False, False, True))),
        "epsilon": draw(st.sampled_from((1e-10, 1e-30))),
        "max_iter": draw(st.sampled_from((5, 1, 20))),
        "n_init": draw(st.sampled_from((1, 1, 2))),
        "final_graph": draw(st.sampled_from(("auto", "auto", "none"))),
    }
    if draw(st.integers(0, 3)) == 0:
        chosen["batch_size"] = draw(st.integers(1, n))
    if draw(st.integers(0, 3)) == 0:
        chosen["n_anchors"] = draw(st.integers(max(2, k + 1), n + 1))
        chosen["anchor_choice"] = draw(st.sampled_from(("random", "kmeans++")))
    return chosen


# --- what holds for every fit ----------------------------------------------------------------------------------------

TOLD = (  # warnings that are part of an answer
    "The energy of the selected features is 0",
    "No column of X is predicted by the others better than noise is",
)


def fitted(selector, X, told=TOLD):
    """Fit; any warning but those that are ``told`` is a failure."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        selector.fit(X)
    others = [str(warning.message) for warning in caught if not str(warning.message).startswith(told)]
    assert not others, others
    return selector


def assert_finite(selector):
    """No NaN and no infinity in any fitted attribute."""

    def check(name, value):
        if isinstance(value, dict):
            for key, part in value.items():
                check(f"{name}[{key!r}]", part)
        elif sp.issparse(value):
            check(name, value.data)
        elif isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
            assert np.isfinite(value).all(), name

    for name, value in vars(selector).items():
        if name.endswith("_"):
            check(name, value)


def assert_sound(selector, X, m):
    n, d = X.shape
    assert_finite(selector)
    features = selector.selected_features_
    assert len(features) == len(set(features.tolist())) == m == selector.get_support().sum()
    assert not set(features) & set(selector.dropped_features_)
    assert selector.scores_.shape == (d,)
    assert (np.diff(selector.scores_[features]) <= 0).all()
    out = selector.transform(X)
    assert out.shape == (n, m)
    dense, chosen = (x.toarray() if sp.issparse(x) else x for x in (X, out))
    np.testing.assert_array_equal(chosen, dense[:, np.sort(features)].astype(chosen.dtype))


def assert_sound_graph(selector, n):
    assert selector.energy_ >= 0
    if selector.final_graph == "none":
        assert selector.graph_ is None
        return
    assert selector.graph_.shape == (n, n)
    assert (selector.graph_.data >= 0).all()
    assert not selector.graph_.diagonal().any()
    np.testing.assert_allclose(selector.graph_.sum(axis=1), 1, rtol=0, atol=1e-9)


def check_fit(description, data):
    X = description.build()
    usable = usable_columns(X)
    if not usable:
        with pytest.raises(ValueError, match="columns of X are constant over its"):
            DirichletSelector().set_params(n_neighbors=1).fit(X)
        return
    params = data.draw(settings_of_fits(description.n, usable))
    try:
        selector = fitted(DirichletSelector(random_state=description.seed, **params), X)
        m = params["n_features_to_select"] or max(1, usable // 2)
        assert_sound(selector, X, m)
        assert_sound_graph(selector, description.n)
        assert (selector.scores_ >= 0).all()
        assert (selector.scores_ <= 1).all()
    except Exception as error:
        error.add_note(f"{description!r}, {params!r}")
        raise


@pytest.mark.parametrize("kind", WELL_POSED + DEGENERATE)
@cases(12)
@given(data=st.data())
def test_any_fit_is_sound(kind, data):
    check_fit(data.draw(descriptions(kinds=(kind,))), data)


@cases(6)
@given(description=descriptions(n=(60, 500), d=(10, 60)), data=st.data())
def test_any_larger_fit_is_sound(description, data):
    check_fit(description, data)


@cases(3)
@given(description=descriptions(n=(20, 500), d=(60, 300)), data=st.data())
def test_any_wide_fit_is_sound(description, data):
    check_fit(description, data)


@cases(6)
@given(description=descriptions(n=(7, 40)), k=st.integers(1, 5))
def test_defaults_are_sound(description, k):
    X = description.build()
    usable = usable_columns(X)
    assume(usable)
    selector = fitted(DirichletSelector(n_neighbors=k, random_state=0), X)
    assert_sound(selector, X, max(1, usable // 2))
    assert_sound_graph(selector, description.n)


@cases(12)
@given(description=descriptions(), k=st.integers(1, 6), seed=st.integers(0, 100))
def test_any_number_that_is_found_is_sound(description, k, seed):
    X = description.build()
    usable = usable_columns(X)
    assume(usable)
    k = min(k, description.n - 1)
    selector = fitted(PredictiveSelector("auto", n_neighbors=k, random_state=seed), X)
    assert 1 <= len(selector.selected_features_) <= usable
    assert_sound(selector, X, len(selector.selected_features_))
    assert_sound_graph(selector, description.n)


@cases(10)
@given(description=descriptions())
def test_more_features_than_vary_is_an_error_that_says_so(description):
    X = description.build()
    usable = usable_columns(X)
    assume(usable)
    with pytest.raises(ValueError, match=rf"n_features_to_select={usable + 1}, but X has {usable} columns to choose"):
        DirichletSelector(usable + 1, n_neighbors=1).fit(X)


# --- the same numbers in another guise -------------------------------------------------------------------------------

QUICK = {"max_iter": 5, "random_state": 0}


def assert_same_fit(one, other):
    """The whole answer, bit for bit."""
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        if sp.issparse(value):
            assert (value != getattr(other, name)).nnz == 0
        elif isinstance(value, dict):
            for key, part in value.items():
                np.testing.assert_array_equal(part, getattr(other, name)[key])
        elif name.endswith("_"):
            np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)


@cases(15)
@given(
    description=descriptions(kinds=(*WELL_POSED, "ties", "counts", "one-hot", "two values")),
    dtype=st.sampled_from(TYPES),
    container=st.integers(1, len(CONTAINERS) - 1),
    objective=st.sampled_from(tuple(OBJECTIVES)),
)
def test_types_and_containers_do_not_matter(description, dtype, container, objective):
    X = Description(description.kind, description.n, description.d, description.seed, "one", dtype, container).build()
    assume(usable_columns(X))
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    # Single precision calls a column constant sooner, so it stays single precision.
    dense = dense.astype(np.float32) if X.dtype == np.float32 else dense
    k = min(3, description.n - 1)
    one, other = (
        fitted(DirichletSelector(n_neighbors=k, objective=objective, **QUICK), x)
        for x in (X, np.ascontiguousarray(dense))
    )
    assert_same_fit(one, other)


@cases(15)
@given(description=descriptions(plain=True), objective=st.sampled_from(tuple(OBJECTIVES)), data=st.data())
def test_units_that_are_powers_of_two_change_nothing_at_all(description, objective, data):
    X = description.build()
    assume(usable_columns(X))
    powers = 2.0 ** np.random.default_rng(description.seed).integers(-40, 41, description.d)
    params = {"n_neighbors": data.draw(st.integers(1, min(6, description.n - 1))), "objective": objective, **QUICK}
    one, other = (fitted(DirichletSelector(**params), x) for x in (X, X * powers))
    assert_same_fit(one, other)


@cases(20)
@given(description=descriptions(plain=True, n=(2, 100)))
def test_standardised_values_know_neither_unit_nor_sign_nor_order(description):
    X = description.build()
    assume(usable_columns(X))
    rng = np.random.default_rng(description.seed)
    reference = standardize(X)
    power, sign = 2.0 ** rng.integers(-40, 41, X.shape[1]), rng.choice([-1.0, 1.0], X.shape[1])
    flipped = standardize(X * power * sign)
    np.testing.assert_array_equal(flipped.kept, reference.kept)
    np.testing.assert_array_equal(flipped.values, reference.values * sign[reference.kept].astype(np.float32))
    columns = rng.permutation(X.shape[1])
    moved = standardize(X[:, columns])
    np.testing.assert_array_equal(np.sort(columns[moved.kept]), reference.kept)
    places = np.searchsorted(reference.kept, columns[moved.kept])
    np.testing.assert_array_equal(moved.values, reference.values[:, places])
    # A sum of other rows first rounds otherwise: up to rounding, which near-constant columns magnify.
    spread = X.std(0) / np.abs(X).max(0).clip(min=1e-300)
    clear = spread > 1e-6
    rows = rng.permutation(X.shape[0])
    shuffled = standardize(X[rows])
    assert set(np.flatnonzero(clear)) <= set(shuffled.kept) & set(reference.kept)
    for f in np.flatnonzero(clear):
        one, other = (z.values[:, np.searchsorted(z.kept, f)] for z in (reference, shuffled))
        np.testing.assert_allclose(other, one[rows], rtol=1e-6, atol=1e-6)


@cases(3)
@given(seed=st.integers(0, 10_000))
def test_any_units_offsets_and_signs_leave_what_is_planted(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 12))
    X[:, :3] += 3 * rng.standard_normal((4, 3))[rng.integers(4, size=120)]
    scale = 10.0 ** rng.uniform(-12, 12, 12)
    moved = X * scale + scale * rng.choice([0.0, 1.0, -1e3], 12)
    params = {"max_iter": 60, "random_state": 0}
    one, other = (DirichletSelector(3, **params).fit(x) for x in (X, moved))
    assert set(one.selected_features_) == set(other.selected_features_)
    # Training mixes columns, so a sign changes its way; what the exact objective prefers in the end it does not.
    signs = rng.choice([-1.0, 1.0], 12)
    assert set(DirichletSelector(3, **params).fit(X * signs).selected_features_) == set(one.selected_features_)


# --- graphs, energies and exact objectives ---------------------------------------------------------------------------


@cases(40)
@given(description=descriptions(plain=True, n=(3, 80)), data=st.data())
def test_exact_graph_and_energy_do_not_depend_on_order_sign_or_place(description, data):
    Z = standardize(description.build())
    assume(len(Z.kept))
    X = Z.values.astype(np.float64)
    n, d = X.shape
    k = data.draw(st.integers(1, n - 1))
    rng = np.random.default_rng(description.seed)
    S = adaptive_knn_graph(X, k)
    energy = dirichlet_energy(X, S)
    assert energy >= 0
    assert S.has_sorted_indices
    assert (np.diff(S.indptr) == k).all()
    assert (S.data >= 0).all()
    assert not S.diagonal().any()
    np.testing.assert_allclose(S.sum(axis=1), 1, rtol=0, atol=1e-12)
    tolerance = {"rtol": 1e-9, "atol": 1e-10 * n * float(np.square(X).sum(1).max())}
    rows, columns, signs = rng.permutation(n), rng.permutation(d), rng.choice([-1.0, 1.0], d)
    for other in (X[rows], X[:, columns], X + 3):
        np.testing.assert_allclose(dirichlet_energy(other, adaptive_knn_graph(other, k)), energy, **tolerance)
    assert (adaptive_knn_graph(X * signs, k) != S).nnz == 0
    assert (adaptive_knn_graph(X * 2.0**20, k) != S).nnz == 0
    if description.kind in WELL_POSED:  # no ties: the graph itself is carried along
        np.testing.assert_allclose(adaptive_knn_graph(X[rows], k).toarray(), S.toarray()[rows][:, rows], atol=1e-6)
        np.testing.assert_allclose(adaptive_knn_graph(X[:, columns], k).toarray(), S.toarray(), atol=1e-6)


def test_rows_of_the_graph_sum_to_one_among_near_copies_far_from_the_centre():
    """The search orders them by rounding; the weights must belong to the neighbours that are kept."""
    rng = np.random.default_rng(0)
    X = 1e3 + 1e-6 * rng.standard_normal((60, 5))
    X[0] = -1e5
    for k in (1, 4, 20):
        np.testing.assert_allclose(adaptive_knn_graph(X, k).sum(axis=1), 1, rtol=0, atol=1e-12)
        near = k_nearest(X, k)
        E = ((X[:, None] - X[near]) ** 2).sum(-1)
        assert (np.diff(E, axis=1) >= 0).all()


@cases(40)
@given(
    description=descriptions(plain=True, n=(3, 60)),
    exact=st.booleans(),
    solver=st.sampled_from(("newton", "projection")),
    reg=st.sampled_from((0.3, 1e-4, 10.0)),
    dtype=st.sampled_from((F32, F64)),
    data=st.data(),
)
def test_layer_graph_and_its_gradient(description, exact, solver, reg, dtype, data):
    Z = standardize(description.build())
    assume(len(Z.kept))
    X = torch.from_numpy(Z.values).to(dtype).requires_grad_()
    n, d = X.shape
    k = data.draw(st.integers(1, min(n - 1, 12)))
    layer = KNNGraph(k, exact=exact, solver=solver, reg=reg)
    S = layer(X)
    eps = torch.finfo(dtype).eps
    assert torch.isfinite(S.weights).all()
    assert (S.weights >= 0).all()
    assert not S.to_dense().diagonal().any()
    # Where all candidates are equally far the weights are delta / k, as exact as the solver's marginals.
    rounding = 1e3 * eps if exact or solver == "projection" else k * (1e-8 if dtype == F64 else 1e-5)
    torch.testing.assert_close(S.weights.sum(-1), torch.ones(n, dtype=dtype), rtol=0, atol=rounding)
    if S.weights.requires_grad:
        (S.weights * S.distances).sum().backward()
        assert torch.isfinite(X.grad).all()
    X = X.detach()
    signs = torch.from_numpy(np.random.default_rng(description.seed).choice([-1.0, 1.0], d)).to(dtype)
    assert torch.equal(layer(X * signs).to_dense(), S.to_dense().detach())
    assert torch.equal(layer(X * 2.0**10).to_dense(), S.to_dense().detach())


def drawn_objective(description, name):
    X = torch.from_numpy(standardize(description.build()).values).double()
    assume(X.shape[1])
    return X, OBJECTIVES[name](X), np.random.default_rng(description.seed)


@cases(25)
@given(
    description=descriptions(plain=True, n=(3, 60), d=(2, 12)),
    name=st.sampled_from(tuple(OBJECTIVES)),
    data=st.data(),
)
def test_exact_objectives_do_not_depend_on_order_or_sign(description, name, data):
    X, objective, rng = drawn_objective(description, name)
    n, d = X.shape
    k, m = data.draw(st.integers(1, n - 1)), data.draw(st.integers(1, d))
    features = rng.permutation(d)[:m]
    value = judge(X, features, k, objective)
    assert np.isfinite(value)
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], d))
    assert judge(X * signs, features, k, OBJECTIVES[name](X * signs)) == value
    assert value >= 0
    tolerance = {"rel": 1e-6, "abs": 1e-9 * n * float(X.square().sum(1).max())}
    rows, columns = rng.permutation(n), rng.permutation(d)
    moved = X[:, torch.from_numpy(columns)]
    assert judge(moved, np.argsort(columns)[features], k, OBJECTIVES[name](moved)) == pytest.approx(value, **tolerance)
    if name == "energy" or description.kind in WELL_POSED:  # among equally near samples, coverage depends on which
        moved = X[torch.from_numpy(rows)]
        assert judge(moved, features, k, OBJECTIVES[name](moved)) == pytest.approx(value, **tolerance)


@cases(15)
@given(
    description=descriptions(plain=True, n=(8, 50), d=(2, 12)),
    name=st.sampled_from(tuple(OBJECTIVES)),
    data=st.data(),
)
def test_exchange_is_sound_and_follows_the_columns(description, name, data):
    X, objective, rng = drawn_objective(description, name)
    n, d = X.shape
    assume(d > 1)
    k, m = data.draw(st.integers(1, 6)), data.draw(st.integers(1, d))
    start = rng.permutation(d)[:m]
    found = exchange_features(X, start, k, objective)
    assert len(set(found.tolist())) == m
    # Coverage depends on which of equally near samples are neighbours, and exchanges leave that to chance.
    if name == "energy" or description.kind in WELL_POSED:
        before, after = (judge(X, features, k, objective) for features in (start, found))
        assert after <= before * (1 + 1e-6) + 1e-9 * n * float(X.square().sum(1).max())
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], d))
    again = exchange_features(X * signs, start, k, OBJECTIVES[name](X * signs))
    np.testing.assert_array_equal(again, found)
    if description.kind in WELL_POSED:
        columns = rng.permutation(d)
        moved = X[:, torch.from_numpy(columns)]
        again = exchange_features(moved, np.argsort(columns)[start], k, OBJECTIVES[name](moved))
        np.testing.assert_array_equal(columns[again], found)


def test_coverage_of_more_samples_than_distances_are_kept_of():
    """Beyond 4096 samples the differences in all features are computed for each batch of rows."""
    X = torch.from_numpy(np.random.default_rng(0).standard_normal((4200, 3)))
    kept = Coverage(X)
    assert kept.D is None
    kept.D = torch.cdist(X, X).square() / 3
    value = judge(X, np.array([0, 2]), 4, Coverage(X), 300)
    assert value == pytest.approx(judge(X, np.array([0, 2]), 4, kept, 300))


# --- orthogonalisation -----------------------------------------------------------------------------------------------


@cases(60)
@given(
    d=st.integers(1, 40),
    share=st.floats(0, 1),
    kind=st.sampled_from(("soft", "hard", "repeated", "nearly repeated", "uniform", "zero")),
    epsilon=st.sampled_from((1e-10, 1e-30, 1e-300, 1e-3)),
    exponent=st.integers(-8, 8),
    dtype=st.sampled_from((F32, F64)),
    seed=st.integers(0, 2**32 - 1),
)
def test_orthogonalisation_survives_any_columns(d, share, kind, epsilon, exponent, dtype, seed):
    rng = np.random.default_rng(seed)
    m = 1 + int(share * (d - 1))
    logits = torch.from_numpy(rng.standard_normal((d, m)))
    if kind == "hard":
        logits *= 1e3
    elif kind == "repeated":
        logits = logits[:, rng.integers(max(1, m // 3), size=m)]
    elif kind == "nearly repeated":
        logits = logits[:, :1] + 1e-7 * logits
    elif kind == "uniform":
        logits *= 0
    F_hat = logits.softmax(0)
    if kind == "zero":
        F_hat[:, rng.random(m) < 0.5] = 0
        epsilon = max(epsilon, 1e-30)  # the derivative of a column that is 0 is 1 / sqrt(epsilon)
    F_hat = (F_hat * 10.0**exponent).to(dtype).requires_grad_()
    F = orthogonalize(F_hat, epsilon)
    assert torch.isfinite(F).all()
    assert (F.detach().double().norm(dim=0) < 1 + 1e-3).all()
    F.sum().backward()
    assert torch.isfinite(F_hat.grad).all()
    X = torch.from_numpy(rng.standard_normal((3, d))).to(dtype)
    points = project(X, F_hat.detach(), epsilon)
    assert torch.isfinite(points).all()


@pytest.mark.parametrize("factor", [1.0, 1e8, 1e-8])
def test_a_singular_matrix_gets_a_larger_ridge_in_any_unit(factor, monkeypatch):
    """The fallback of the factorisation is reached, and enough."""
    tried = []
    factorise = torch.linalg.cholesky_ex

    def counted(A):
        L, info = factorise(A)
        tried.append(bool(info.any()))
        return L, info

    monkeypatch.setattr(torch.linalg, "cholesky_ex", counted)
    F_hat = factor * torch.rand(30, 8, dtype=F64, generator=torch.Generator().manual_seed(0))
    F_hat[:, 4:] = F_hat[:, :4].flip(1)
    F = orthogonalize(F_hat, 1e-300)
    assert tried[0]
    assert not tried[-1]
    assert len(tried) <= 13
    eye = torch.eye(4, dtype=F64)
    torch.testing.assert_close(F[:, :4].T @ F[:, :4], eye, atol=1e-6, rtol=0)
    assert (F[:, 4:].norm(dim=0) < 1e-2).all()


# --- soft selection --------------------------------------------------------------------------------------------------

ROWS = {
    "uniform": lambda rng, shape: rng.random(shape),
    "all equal": lambda rng, shape: np.full(shape, rng.random()),
    "all zero": lambda rng, shape: np.zeros(shape),
    "ties": lambda rng, shape: np.round(3 * rng.random(shape)),
    "copies": lambda rng, shape: rng.random(shape) * (rng.random(shape) < 0.5),
    "nearly equal": lambda rng, shape: 1 + 1e-12 * rng.random(shape),
    "two groups": lambda rng, shape: rng.random(shape) + 1e6 * (rng.random(shape) < 0.5),
    "wide": lambda rng, shape: 10.0 ** rng.uniform(-20, 20, shape),
    "huge": lambda rng, shape: 10.0 ** rng.uniform(-150, 150, shape),
    "whole range": lambda rng, shape: 10.0 ** rng.uniform(-307, 308, shape),
    "far from 0": lambda rng, shape: 1e8 + rng.random(shape),
    "negative": lambda rng, shape: -5 * rng.random(shape),
}


@cases(120)
@given(
    c=st.integers(2, 20),
    share=st.floats(0, 1),
    n_rows=st.integers(1, 4),
    kind=st.sampled_from(tuple(ROWS)),
    exponent=st.floats(-4, 1),
    solver=st.sampled_from(("newton", "newton", "projection", "projection", "bregman")),
    scale=st.sampled_from(("row", "none")),
    dtype=st.sampled_from((F32, F64)),
    seed=st.integers(0, 2**32 - 1),
)
def test_soft_selection_survives_any_distances(c, share, n_rows, kind, exponent, solver, scale, dtype, seed):
    rng = np.random.default_rng(seed)
    k = 1 + int(share * (c - 2))
    E = torch.from_numpy(ROWS[kind](rng, (n_rows, c))).clamp(*(torch.finfo(dtype).min, torch.finfo(dtype).max))
    E = E.to(dtype).requires_grad_()
    plan = soft_topk(E, k, reg=10.0**exponent, solver=solver, scale=scale)  # and no warning
    tolerance = 1e-4 if dtype == F32 else 1e-6
    assert torch.isfinite(plan).all()
    assert (plan >= -tolerance).all()
    torch.testing.assert_close(plan.sum(-1), torch.ones_like(E), rtol=0, atol=tolerance)
    if solver != "bregman":
        torch.testing.assert_close(
            plan[..., : k + 1].sum(-2), torch.ones(n_rows, k + 1, dtype=dtype), rtol=0, atol=c * tolerance
        )
        # What is far is not taken for near.
        ordered = plan[..., :k].sum(-1).detach().gather(-1, E.detach().argsort(-1))
        assert (ordered.diff(dim=-1) <= tolerance).all()
    (plan * torch.from_numpy(rng.standard_normal(plan.shape)).to(dtype)).sum().backward()
    assert torch.isfinite(E.grad).all()


@cases(40)
@given(
    c=st.integers(3, 20),
    share=st.floats(0, 1),
    kind=st.sampled_from(("uniform", "ties", "copies", "two groups")),
    exponent=st.floats(-3, 1),
    solver=st.sampled_from(("newton", "projection")),
    seed=st.integers(0, 2**32 - 1),
)
def test_soft_selection_follows_its_entries(c, share, kind, exponent, solver, seed):
    rng = np.random.default_rng(seed)
    k, reg = 1 + int(share * (c - 2)), 10.0**exponent
    E = torch.from_numpy(ROWS[kind](rng, (2, c)))
    plan = soft_topk(E, k, reg=reg, solver=solver)
    order = torch.from_numpy(rng.permutation(c))
    torch.testing.assert_close(soft_topk(E[:, order], k, reg=reg, solver=solver), plan[:, order], rtol=0, atol=1e-6)
    assert torch.equal(soft_topk(E * 2.0**30, k, reg=reg, solver=solver), plan)
    for row, weights in zip(E, plan, strict=True):  # equals are selected equally
        same = row[:, None] == row
        apart = (weights[:, None] - weights).abs().amax(-1)
        assert apart[same].max() <= 1e-9
    delta, xi = soft_indicators(E, k, reg=reg, solver=solver)
    torch.testing.assert_close(delta, plan[..., :k].sum(-1), rtol=0, atol=1e-9)
    torch.testing.assert_close(xi, plan[..., k], rtol=0, atol=1e-9)


def test_newton_that_does_not_converge_says_so_and_still_gives_whole_rows(monkeypatch):
    """The fallback: rows are exact, the residual is told, the gradient is finite."""
    monkeypatch.setattr(sys.modules["homophily.nn.soft_topk"], "NEWTON_MAX_ITER", 1)
    E = torch.rand(4, 12, dtype=F64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with pytest.warns(NotConvergedWarning, match="marginals wrong by up to"):
        plan = soft_topk(E, 5, reg=3.0)
    torch.testing.assert_close(plan.sum(-1), torch.ones(4, 12, dtype=F64))
    plan[..., :5].square().sum().backward()
    assert torch.isfinite(E.grad).all()


@pytest.mark.parametrize("solver", ["newton", "bregman"])
def test_gaps_without_end_change_nothing(solver):
    """A row of near-copies: their unit is tiny and everything else is far, how far does not matter."""
    near, far = torch.tensor([0.0, 1.0, 2.5], dtype=F64), torch.tensor([0.0, 1.0, 1.5, 7.0, 9.0], dtype=F64)
    rows = torch.stack([torch.cat([near, far + gap]) for gap in (1e2, 1e3, 1e5, 1e9, 1e30)]).requires_grad_()
    for k in (2, 4):
        plan = soft_topk(rows, k, reg=0.3, solver=solver, scale="none")
        torch.testing.assert_close(plan[3, :3], plan[0, :3], rtol=0, atol=1e-6)
        torch.testing.assert_close(plan[:4], plan[:1].expand(4, -1, -1), rtol=0, atol=1e-6)  # 1e30 + 7 is 1e30
        torch.testing.assert_close(plan[4, :3], plan[0, :3], rtol=0, atol=1e-6)
        (grad,) = torch.autograd.grad(plan[..., :k].square().sum(), rows)
        torch.testing.assert_close(grad[:4], grad[:1].expand(4, -1), rtol=1e-5, atol=1e-8)


def test_two_values_do_not_keep_newton_from_converging():
    """Almost hard columns over yes and no: copies, near-copies, and all others equally far."""
    X = np.zeros((25, 2), dtype=bool)
    X[[11, 18, 19], 0] = X[19, 1] = True
    fitted(DirichletSelector(1, n_neighbors=1, random_state=0), X)


@pytest.mark.parametrize("reg", [1e-4, 1e-2, 1.0])
def test_projection_keeps_its_sums_whatever_the_range(reg):
    """Copies, neighbours and ties of other galaxies in one row."""
    E = torch.tensor([[0.0, 1e-20, 1.0, 1e20, 1e20, 1e20, 1e30]], dtype=F64, requires_grad=True)
    plan = soft_topk(E, 4, reg=reg, solver="projection", scale="none")
    torch.testing.assert_close(plan[0, :, :5].sum(0), torch.ones(5, dtype=F64))
    torch.testing.assert_close(plan[0, 3:6, :4].sum(-1), torch.full((3,), 1 / 3, dtype=F64))
    plan[..., :4].square().sum().backward()
    assert torch.isfinite(E.grad).all()


# --- the methods that we compare with --------------------------------------------------------------------------------

BRIEF = {
    "ls": {},
    "rsr": {"max_iter": 20},
    "udfs": {"max_iter": 20},
    "cae": {"max_iter": 2},
    "dufs": {"max_iter": 5},
    "wast": {"max_iter": 2, "n_hidden": 20},
    "aefs": {"max_iter": 2, "n_hidden": 4},
    "fsca": {},
    "fastcan": {},
    "mcfs": {},
    "ipcae": {"max_iter": 2},
    "variance": {},
    "medoids": {},
    "random": {},
    "all": {},
}
WITH_NEIGHBORS = (LaplacianScore, UDFS, DUFS, MCFS)


@pytest.mark.parametrize("name", list(BASELINES))
@cases(12)
@given(description=descriptions(), data=st.data())
def test_any_fit_of_the_others_is_sound(name, description, data):
    X = description.build()
    usable = usable_columns(X)
    assume(usable)
    cls, m = BASELINES[name], data.draw(st.integers(1, usable))
    params = dict(BRIEF[name])
    if cls in WITH_NEIGHBORS:
        params["n_neighbors"] = data.draw(st.integers(1, min(6, description.n - 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # two epochs are no training
        selector = cls(m, random_state=description.seed % 2**31, **params).fit(X)
    assert_sound(selector, X, usable if name == "all" else m)


@pytest.mark.parametrize("cls", [LaplacianScore, RSR])
@cases(10)
@given(description=descriptions(plain=True, n=(3, 40), kinds=WELL_POSED))
def test_methods_without_chance_follow_the_columns(cls, description):
    X = description.build()
    params = {"n_neighbors": min(3, description.n - 1)} if cls is LaplacianScore else {"max_iter": 10}
    rng = np.random.default_rng(description.seed)
    columns, signs = rng.permutation(description.d), rng.choice([-1.0, 1.0], description.d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        scores, moved = (cls(**params).fit(x).scores_ for x in (X, (X * signs)[:, columns]))
    np.testing.assert_allclose(moved, scores[columns], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cls", [AEFS, DUFS, WAST, ConcreteAutoencoder, IndirectConcreteAutoencoder])
def test_two_rows_and_one_column_are_enough_for_networks(cls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        selector = cls(1, random_state=0, max_iter=2).fit([[0.0], [1e-12]])
    assert_finite(selector)


def test_helpers_of_this_file_can_fail():
    selector = DirichletSelector(1, n_neighbors=1, max_iter=1, random_state=0).fit(
        np.random.default_rng(0).random((5, 2))
    )
    selector.logits_[0, 0] = np.nan
    with pytest.raises(AssertionError, match="logits_"):
        assert_finite(selector)
