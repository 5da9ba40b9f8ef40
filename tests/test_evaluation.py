"""The tasks against oracles, and the engine that runs them."""

import functools
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from homophily.baselines import RSR, LaplacianScore, RandomSelector
from homophily.evaluation import (
    Cell,
    Comparison,
    RunStore,
    aligned_accuracy,
    classification_accuracy,
    clustering_accuracy,
    measuring,
    reconstruct,
    reconstruction_rmse,
    spectral_clustering_accuracy,
    standardize_by_training,
    summary,
    tasks,
)
from homophily.io import InputError

# --- tasks -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=20))
def test_aligned_accuracy_is_the_best_over_all_matchings(pairs):
    y, clusters = np.array(pairs).T
    best = max(
        np.mean([classes[c] == label for label, c in zip(y, clusters, strict=True)])
        for classes in itertools.permutations([0, 1, 2, 3, None], 5)  # five clusters, of which one matches no class
    )
    assert aligned_accuracy(y, clusters) == pytest.approx(best)


@pytest.fixture
def blobs():
    X, y = make_blobs(90, n_features=4, centers=3, cluster_std=0.5, random_state=0)
    return X[:60], y[:60], X[60:], y[60:]


def test_separable_classes_are_found(blobs):
    X_train, y_train, X_test, y_test = blobs
    assert classification_accuracy(X_train, y_train, X_test, y_test, n_estimators=20, random_state=0) == 1
    assert clustering_accuracy(X_test, y_test, random_state=0) == 1
    chance = classification_accuracy(
        X_train, np.random.RandomState(0).permutation(y_train), X_test, y_test, n_estimators=20, random_state=0
    )
    assert chance < 0.7


def test_accuracy_does_not_depend_on_threads(blobs):
    X_train, y_train, X_test, y_test = blobs
    noise = np.random.RandomState(0).normal(scale=6, size=X_train.shape)
    scores = [
        classification_accuracy(X_train + noise, y_train, X_test, y_test, n_estimators=30, random_state=1, n_jobs=jobs)
        for jobs in (1, 2)
    ]
    assert scores[0] == scores[1] < 1


@pytest.fixture
def recorded(monkeypatch):
    """Forests and k-means that note how they were asked, and then take less time."""
    seen = []

    class Forest(RandomForestClassifier):
        def fit(self, X, y):
            seen.append((self.n_estimators, self.n_jobs))
            return self.set_params(n_estimators=5)._fit(X, y)

        def _fit(self, X, y):
            return super().fit(X, y)

        def predict(self, X):
            seen.append(self.n_jobs)
            return super().predict(X)

    class Means(KMeans):
        def fit_predict(self, X):
            seen.append((self.n_clusters, self.n_init, self.random_state))
            return super().fit_predict(X)

    monkeypatch.setattr(tasks, "RandomForestClassifier", Forest)
    monkeypatch.setattr(tasks, "KMeans", Means)
    return seen


def test_a_thousand_trees_vote_in_one_thread(blobs, recorded):
    X_train, y_train, X_test, y_test = blobs
    X_train = X_train + np.random.RandomState(0).normal(scale=6, size=X_train.shape)
    score = classification_accuracy(X_train, y_train, X_test, y_test, random_state=3, n_jobs=2)
    assert recorded == [(1000, 2), 1]
    forest = RandomForestClassifier(5, random_state=3).fit(X_train, y_train)
    assert score == np.mean(forest.predict(X_test) == y_test) < 1


def test_clustering_is_the_mean_over_seeds_of_the_tightest_of_ten_starts(recorded):
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(40, 2)), rng.choice(["a", "b", "c", "d"], size=40)
    score = clustering_accuracy(X, y, random_state=5)
    asked = recorded.copy()
    assert [(clusters, starts) for clusters, starts, _ in asked] == [(4, 10)] * 10
    seeds = [seed for *_, seed in asked]
    assert len(set(seeds)) == 10
    alone = [aligned_accuracy(y, KMeans(4, n_init=10, random_state=seed).fit_predict(X)) for seed in seeds]
    assert score == pytest.approx(np.mean(alone))
    recorded.clear()
    clustering_accuracy(X, y, n_clusters=6, n_init=2, n_repeats=3, random_state=5)
    assert [asked[:2] for asked in recorded] == [(6, 2)] * 3
    recorded.clear()
    assert spectral_clustering_accuracy(np.exp(-np.square(X[:, None] - X).sum(2)), y, random_state=5) < 1
    assert [asked[:2] for asked in recorded] == [(4, 10)] * 10
    recorded.clear()
    spectral_clustering_accuracy(blocks(1, 2), [0, 1, 1], n_clusters=5, n_repeats=1, random_state=5)
    assert [asked[:2] for asked in recorded] == [(3, 10)]  # no more clusters than rows


def test_clustering_with_few_or_equal_rows():
    assert clustering_accuracy([[0.0], [5.0]], ["a", "b"], n_clusters=9, random_state=0) == 1
    assert clustering_accuracy(np.zeros((4, 2)), [0, 0, 0, 1], n_clusters=2, random_state=0) == 0.75


def test_reconstruction_of_linear_data_and_of_noise():
    rng = np.random.RandomState(0)
    Z = rng.normal(size=(400, 3))
    X = np.hstack([Z, Z @ rng.normal(size=(3, 9))])  # of rank 3, and its first columns span it
    noise = rng.normal(size=(400, 12))
    train, test = slice(0, 300), slice(300, None)
    assert reconstruction_rmse(X[train], X[test], [0, 1, 2], random_state=0) < 0.3
    assert reconstruction_rmse(X[train], X[test], [0], random_state=0) > 0.6
    assert 0.9 < reconstruction_rmse(noise[train], noise[test], [0], random_state=0) < 1.1


def test_reconstructed_rows_have_the_error_that_is_reported():
    X = np.random.RandomState(0).normal(size=(60, 5)) * [1, 10, 1e-3, 1, 0] + [0, 5, 0, -3, 7]  # the last is constant
    X[:, 3] = X[:, 0] - X[:, 3]
    rebuilt = reconstruct(X[:40], X[40:], [0, 1], random_state=0)
    assert [part.shape for part in rebuilt] == [(40, 5), (20, 5)]
    assert (rebuilt[1][:, 4] == 7).all()
    errors = (rebuilt[1] - X[40:])[:, :4] / X[:40, :4].std(0)
    expected = reconstruction_rmse(X[:40], X[40:], [0, 1], random_state=0)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(expected, rel=1e-5)


def test_reconstruction_ignores_units_order_and_constants():
    X = np.random.RandomState(0).normal(size=(60, 6))
    score = reconstruction_rmse(X[:40], X[40:], [1, 4], n_epochs=5, random_state=0)
    wide = np.insert(X * [1, 1e3, 1, 1e-200, 1, 1] + [7, 7, 7, 0, 7, 7], 2, 5.0, axis=1)  # column 2 is constant
    assert reconstruction_rmse(wide[:40], wide[40:], [5, 1, 2], n_epochs=5, random_state=0) == pytest.approx(score)
    sparse = sp.csr_array(X)
    assert reconstruction_rmse(sparse[:40], sparse[40:], [1, 4], n_epochs=5, random_state=0) == pytest.approx(score)
    with pytest.raises(ValueError, match="None of the features varies"):
        reconstruction_rmse(wide[:40], wide[40:], [2])


def test_reconstruction_is_seeded_and_leaves_the_global_state_alone():
    X = np.random.RandomState(0).normal(size=(60, 6))

    def score(seed):
        return reconstruction_rmse(X[:40], X[40:], [1, 4], n_epochs=5, random_state=seed)

    torch.manual_seed(0)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first = score(0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    torch.manual_seed(5)
    assert score(0) == first != score(1)


def test_hidden_layer_is_bounded():
    X = np.random.RandomState(0).normal(size=(30, 40))
    everything = np.arange(40)
    scores = [
        reconstruction_rmse(X[:20], X[20:], everything, n_epochs=2, max_hidden=h, random_state=0) for h in (40, 60, 8)
    ]
    assert scores[0] == scores[1] != scores[2]


def test_a_bound_on_updates_is_a_number_of_passes():
    X = np.random.RandomState(0).normal(size=(60, 6))

    def score(**options):
        return reconstruction_rmse(X[:40], X[40:], [1, 4], random_state=0, **options)

    # 40 rows in batches of 16: three updates a pass, and the pass in which the bound is met is ended.
    passes = {n: score(n_epochs=n) for n in (0, 1, 2, 7)}
    assert len(set(passes.values())) == 4
    for bound, n in {0: 0, 1: 1, 3: 1, 4: 2, 6: 2, 21: 7}.items():
        assert score(max_updates=bound) == passes[n]
    assert score(n_epochs=2, max_updates=1000) == passes[2]  # not more than without


def test_many_rows_are_256_batches():
    X = np.random.RandomState(0).normal(size=(5200, 2))  # batches of 5120 // 256 = 20 rows: 256 updates a pass

    def score(**options):
        return reconstruction_rmse(X[:5120], X[5120:], [1], random_state=0, **options)

    one, two = score(n_epochs=1), score(n_epochs=2)
    assert one != two
    assert score(max_updates=256) == one
    assert score(max_updates=257) == two


@pytest.mark.parametrize(("chosen", "hidden"), [([1, 4], 3), ([3], 1), ([0, 1, 2, 3, 4, 5], 6)])
def test_reconstruction_against_a_network_written_out(chosen, hidden):
    """One hidden layer of 3m/2 ReLUs, or d, and Adam from its paper, on the same initial weights and batches."""
    rng = np.random.RandomState(0)
    X = rng.normal(size=(75, 6)) @ rng.normal(size=(6, 6))
    mean, std = X[:50].mean(0), X[:50].std(0)
    train, test = (X[:50] - mean) / std, (X[50:] - mean) / std
    generator = torch.Generator().manual_seed(int(np.random.RandomState(3).randint(2**31 - 1)))

    def uniform(*shape, n_in):
        return ((torch.rand(shape, generator=generator) * 2 - 1) / n_in**0.5).double().numpy()

    m, d = len(chosen), 6
    weights = [uniform(hidden, m, n_in=m), uniform(hidden, n_in=m), uniform(d, hidden, n_in=hidden)]
    weights.append(uniform(d, n_in=hidden))
    first, second = ([np.zeros_like(w) for w in weights] for _ in range(2))
    t = 0
    for _ in range(6):
        order = torch.randperm(50, generator=generator).numpy()
        for rows in (order[:16], order[16:32], order[32:48], order[48:]):
            W, b, V, c = weights
            inside = train[rows][:, chosen] @ W.T + b
            relu = np.maximum(inside, 0)
            slope = 2 * (relu @ V.T + c - train[rows]) / (len(rows) * d)  # of the mean square error
            back = slope @ V * (inside > 0)
            gradients = [back.T @ train[rows][:, chosen], back.sum(0), slope.T @ relu, slope.sum(0)]
            t += 1
            for i, g in enumerate(gradients):
                first[i] = 0.9 * first[i] + 0.1 * g
                second[i] = 0.999 * second[i] + 0.001 * g**2
                step = first[i] / (1 - 0.9**t) / (np.sqrt(second[i] / (1 - 0.999**t)) + 1e-8)
                weights[i] = weights[i] - 0.02 * step
    W, b, V, c = weights
    error = np.maximum(test[:, chosen] @ W.T + b, 0) @ V.T + c - test
    found = reconstruction_rmse(X[:50], X[50:], chosen, n_epochs=6, learning_rate=0.02, random_state=3)
    assert found == pytest.approx(np.sqrt((error**2).sum() / (25 * d)), rel=1e-4)


@pytest.fixture(params=["dense", "arpack"])
def solver(request, monkeypatch):
    """Both ways to find eigenvectors, that of many rows with few."""
    if request.param == "arpack":
        monkeypatch.setattr(tasks, "DENSE_ROWS", 5)


def blocks(*sizes):
    return np.kron(np.eye(len(sizes)), np.ones((max(sizes), max(sizes))))[
        np.ix_(*[[max(sizes) * i + j for i, size in enumerate(sizes) for j in range(size)]] * 2)
    ]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_blocks_of_a_graph_are_its_clusters(solver, kind):
    S, y = blocks(9, 6, 12), np.repeat(["a", "b", "c"], [9, 6, 12])
    order = np.random.RandomState(0).permutation(27)
    S, y = S[np.ix_(order, order)], y[order]
    assert spectral_clustering_accuracy(kind(S), y, random_state=0) == 1
    assert spectral_clustering_accuracy(kind(np.triu(S)), y, random_state=0) == 1  # symmetrised
    swapped = np.where(y == "b", "c", y)  # two classes in three blocks: the smaller of them is lost
    assert spectral_clustering_accuracy(kind(S), swapped, n_clusters=3, random_state=0) == pytest.approx(21 / 27)


def test_spectral_clusters_are_those_of_scikit_learn(solver):
    X, classes = make_blobs(60, centers=3, cluster_std=1.5, random_state=1)
    S = np.exp(-np.square(X[:, None] - X[None]).sum(2) / 8)
    partition = SpectralClustering(3, affinity="precomputed", assign_labels="kmeans", random_state=0).fit_predict(S)
    assert 0.8 < aligned_accuracy(classes, partition) < 1  # not as easy as blocks
    assert spectral_clustering_accuracy(S, partition, random_state=0) == 1
    found = spectral_clustering_accuracy(S, classes, random_state=0)
    assert found == pytest.approx(aligned_accuracy(classes, partition))


def test_both_solvers_span_the_same_space(monkeypatch):
    rng = np.random.RandomState(0)
    S = rng.uniform(size=(40, 40)) * (rng.uniform(size=(40, 40)) < 0.3)
    S = S + S.T
    dense = tasks._spectral_embedding(S, 4)
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1)
    np.testing.assert_allclose(*(E @ E.T for E in (tasks._spectral_embedding(S / 1e6, 4), dense)))  # in any unit
    monkeypatch.setattr(tasks, "DENSE_ROWS", 5)
    for graph in (S, sp.csr_array(S), S / 1e6):
        found = tasks._spectral_embedding(graph, 4)
        np.testing.assert_allclose(found @ found.T, dense @ dense.T, atol=1e-8)  # whatever the basis


def test_isolated_rows_and_empty_graphs(solver):
    S, y = blocks(6, 8), np.repeat([0, 1], [6, 8])
    S[0] = S[:, 0] = 0
    S[3, 4:] = 1e-320  # underflows
    for kind in (np.asarray, sp.csr_array):
        assert spectral_clustering_accuracy(kind(S), y, random_state=0) >= 13 / 14
        # Without an edge all rows are alike: one cluster.
        assert spectral_clustering_accuracy(kind(np.zeros((14, 14))), y, random_state=0) == pytest.approx(8 / 14)


def test_spectral_clustering_is_seeded(solver):
    rng = np.random.RandomState(0)
    S, y = rng.uniform(size=(60, 60)) ** 8, rng.randint(12, size=60)
    scores = [spectral_clustering_accuracy(S, y, n_repeats=1, random_state=seed) for seed in (0, 0, 1, 2, 3, 4)]
    assert scores[0] == scores[1]
    assert len(set(scores)) > 1
    assert spectral_clustering_accuracy(sp.csr_array(S), y, n_repeats=1, random_state=0) == scores[0]


def test_standardize_by_training_agrees_with_scikit_learn():
    rng = np.random.RandomState(0)
    X = rng.normal(3, 5, size=(50, 4))
    X[:30, 2] = 1
    X[5] = 0
    X[5, 2] = 1
    train, test, kept = standardize_by_training(X[:30], X[30:])
    assert kept.tolist() == [0, 1, 3]
    scaler = StandardScaler().fit(X[:30, kept])
    np.testing.assert_allclose(train, scaler.transform(X[:30, kept]), atol=1e-5)
    np.testing.assert_allclose(test, scaler.transform(X[30:, kept]), atol=1e-5)


# --- the engine ------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Judge with less effort: what the tasks find does not matter to the engine."""
    less = {"reconstruction_rmse": {"n_epochs": 2}, "clustering_accuracy": {"n_repeats": 2, "n_init": 2}}
    for task, options in less.items():
        whole = getattr(measuring, task)
        monkeypatch.setattr(measuring, task, functools.partial(whole, **options))


@pytest.fixture(scope="module")
def data():
    X, y = make_blobs(50, n_features=3, centers=2, cluster_std=2, random_state=0)
    return np.hstack([X, np.random.RandomState(0).normal(size=(50, 4))]), y


def compare(data, **options):
    defaults = {"methods": ["ls"], "ms": [1, 2], "splits": 2, "n_estimators": 10, "random_draws": 2}
    return Comparison(*data, **{**defaults, **options})


def measured(cells):
    """What has to be equal in two runs: all but the seconds, and not the order."""
    return {
        (c.method, c.m, c.split, c.draw): (c.accuracy, c.clustering, c.reconstruction, list(c.features), c.failed)
        for c in cells
    }


class Separate(LaplacianScore):
    nested = False


class Broken(RandomSelector):
    def fit(self, X, y=None):
        raise RuntimeError("no luck")


class Loud(RandomSelector):
    def fit(self, X, y=None):
        for _ in range(2):
            warnings.warn("not\nconverged", ConvergenceWarning, stacklevel=2)
        return super().fit(X)


def test_plan_is_split_by_split_and_has_random_and_all_once(data):
    cells = compare(data, methods=["all", "ls"], ms=[2, 1, 2]).cells
    assert [c.split for c in cells] == sorted(c.split for c in cells)
    first = [(c.method, c.m, c.draw) for c in cells if c.split == 0]
    random = [("random", m, draw) for draw in (0, 1) for m in (1, 2)]
    assert first == [("all", None, 0), ("ls", 1, 0), ("ls", 2, 0), *random]


def test_results_do_not_depend_on_the_number_of_jobs(data):
    comparison = compare(data, methods=["rsr", "all"])
    alone = list(comparison.run())
    assert measured(alone) == measured(comparison.run(n_jobs=2))
    assert len(alone) == len(comparison.cells)
    for cell in alone:
        assert len(cell.features) == (7 if cell.method == "all" else cell.m)
        assert cell.seconds > 0
        assert 0 <= cell.accuracy <= 1
    draws = {tuple(c.features) for c in alone if c.method == "random" and c.m == 2}
    assert len(draws) > 1


def test_selectors_see_the_training_rows_only(data, quick, monkeypatch):
    seen = []

    def fit(self, rows, y=None, **others):
        assert y is None
        seen.append(rows)
        return RSR.fit(self, rows)

    monkeypatch.setattr(LaplacianScore, "fit", fit)
    comparison = compare(data)
    list(comparison.run())
    assert len(seen) == 2  # one fit a split serves both m
    for split, rows in enumerate(seen):
        train, test = comparison.judge.rows(50, split)
        assert sorted([*train, *test]) == list(range(len(data[0])))
        np.testing.assert_array_equal(rows, data[0][train])


def test_one_fit_of_a_nested_method_is_as_good_as_many(data, quick):
    nested = measured(compare(data, methods={"method": LaplacianScore()}).run())
    assert nested == measured(compare(data, methods={"method": Separate()}).run())


def test_other_seeds_give_other_splits(data, quick):
    cells = [measured(compare(data, methods=[], ms=[2], splits=1, seed=seed).run()) for seed in (0, 1)]
    assert cells[0] != cells[1]


def test_without_labels_only_reconstruction_is_measured(data, quick):
    X, _ = data
    cells = list(compare((sp.csr_array(X),), splits=1).run())
    assert all(c.accuracy is None and c.clustering is None and c.reconstruction > 0 for c in cells)
    table = summary(cells)
    assert table["accuracy"].isna().all()
    assert table.groupby("m")["reconstruction"].apply(lambda scores: scores.is_monotonic_increasing).all()


def test_a_failing_method_stops_no_other_and_is_tried_again(data, quick, tmp_path):
    comparison = compare(data, methods={"broken": Broken(), "ls": LaplacianScore()}, ms=[2])
    with RunStore(tmp_path / "runs.sqlite") as store:
        cells = list(comparison.run(store))
        assert {c.failed for c in cells if c.method == "broken"} == {"RuntimeError: no luck"}
        again = list(comparison.run(store))
        assert [c.method for c in again] == ["broken"] * 2
    table = summary(cells).set_index("method")
    assert table.loc["broken", ["splits", "failed_splits", "failure"]].tolist() == [0, 2, "RuntimeError: no luck"]
    assert table.loc["ls", ["splits", "failed_splits", "failure"]].tolist() == [2, 0, ""]
    assert table.index[-1] == "broken"


def test_warnings_of_a_fit_are_kept_as_text(data, quick):
    cells = list(compare(data, methods={"loud": Loud()}, ms=[2], splits=1).run())
    assert [list(c.warnings) for c in cells] == [["not converged"], [], []]


def test_finished_cells_are_not_run_again(data, quick, tmp_path):
    with RunStore(tmp_path / "runs.sqlite") as store:
        short = compare(data, ms=[1], splits=1)
        first = {c.method: c.seconds for c in short.run(store)}
        longer = compare(data, ms=[1, 2], splits=2)
        assert len(longer.finished(store)) == 3
        assert len(list(longer.run(store))) == len(longer.cells) - 3
        kept = {c.method: c.seconds for c in longer.finished(store) if (c.m, c.split) == (1, 0)}
        assert kept == first
        assert measured(longer.finished(store)) == measured(longer.run())


def test_whatever_changes_the_result_changes_the_key(data):
    X, y = data
    variants = [
        compare(data),
        compare((X + 1e-9, y)),
        compare((X, 1 - y)),
        compare((X,)),
        compare((pd.DataFrame(X, columns=list("abcdefg")), y)),
        compare((pd.DataFrame(X, columns=list("abcdefh")), y)),
        compare(data, methods={"ls": LaplacianScore(n_neighbors=4)}),
        compare(data, seed=1),
        compare(data, test_size=0.3),
        compare(data, stratify=True),
        compare(data, n_estimators=11),
    ]
    keys = [repr(comparison.key(comparison.cells[0])) for comparison in variants]
    assert len(set(keys)) == len(keys)
    assert repr(compare(data, splits=3, ms=[1, 3]).key(variants[0].cells[0])) == keys[0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.linspace(0, 1, 50), "50 distinct values in 50 rows, so they are no classes"),
        (np.arange(50) // 1.5, "no classes"),
        (np.where(np.arange(50) < 3, np.nan, np.arange(50) % 2), "3 of 50 labels are missing"),
        (["a"] * 50, "All labels are a; accuracy needs at least 2 classes"),
        ([0, 1], "2 labels for 50 samples"),
    ],
)
def test_labels_that_are_no_classes(data, labels, message):
    with pytest.raises(InputError, match=message):
        compare((data[0], labels))


def test_labels_of_any_kind(data, quick):
    X, y = data
    kinds = np.array([3, "three"], dtype=object)[y]
    assert measured(compare((X, kinds), splits=1).run()) == measured(compare((X, y == 1), splits=1).run())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ms": [1, 8]}, "n_features_to_select=8, but only 7 of 7 columns vary over the 40 training rows"),
        ({"ms": []}, "expected numbers of features"),
        ({"ms": [0]}, "each at least 1"),
        ({"methods": ["ls", "foo"]}, "no method 'foo'; known are predictive, dirichlet, ls"),
        ({"test_size": 1.0}, "test_size=1.0 must be between 0 and 1"),
        ({"labels": None, "stratify": True}, "there are no labels"),
        ({"labels": [0] * 49 + [1], "stratify": True}, "50 rows cannot be split"),
    ],
)
def test_mistakes_are_found_before_the_work(data, options, message):
    X, y = data
    labels = options.pop("labels", y)
    with pytest.raises(ValueError, match=message):
        compare((X, labels), **options)


def test_columns_constant_in_a_training_part_are_counted(data):
    X, y = data
    rare = np.column_stack([X, np.zeros(50)])
    rare[0, -1] = 1  # varies, but not where its row is tested
    with pytest.raises(InputError, match="only 7 of 8 columns vary"):
        compare((rare, y), ms=[8], splits=20)


def test_stratified_splits_hold_all_classes(data):
    X, _ = data
    y = np.array([0] * 45 + [1] * 5)
    comparison = compare((X, y), stratify=True, splits=5)
    assert all(y[comparison.judge.rows(50, split)[1]].sum() == 1 for split in range(5))


# --- the summary -----------------------------------------------------------------------------------------------------


def finished(method, m, split, draw, accuracy, reconstruction=1.0):
    features = range(9 if m is None else m)
    scores = {"accuracy": accuracy, "clustering": 0.5, "reconstruction": reconstruction}
    return Cell(method, m, split, draw, seconds=2.0, features=features, **scores)


def test_summary_against_a_hand_computation():
    cells = [
        finished("random", 2, 0, 0, 0.1),
        finished("random", 2, 0, 1, 0.3),  # mean of split 0: 0.2
        finished("random", 2, 1, 0, 0.4),
        finished("random", 2, 1, 1, 0.4),  # mean of split 1: 0.4
        finished("ls", 2, 0, 0, 0.6),  # 0.4 better
        finished("ls", 2, 1, 0, 0.6),  # 0.2 better
        finished("all", None, 0, 0, 0.9, 0.1),  # 0.7 better; split 1 is not done yet
    ]
    table = summary(cells)
    assert table["method"].tolist() == ["all", "ls", "random"]
    table = table.set_index("method")
    assert table["splits"].tolist() == [1, 2, 2]
    assert table["n_features"].tolist() == [9, 2, 2]
    np.testing.assert_allclose(table["accuracy"], [0.9, 0.6, 0.3])
    np.testing.assert_allclose(table["accuracy_sd"], [np.nan, 0, 0.02**0.5])
    np.testing.assert_allclose(table["accuracy_gain"], [0.7, 0.3, 0], atol=1e-12)
    # Differences 0.4 and 0.2: standard deviation 0.1 * sqrt(2), by sqrt(2).
    np.testing.assert_allclose(table["accuracy_gain_se"], [np.nan, 0.1, 0], atol=1e-12)
    np.testing.assert_allclose(table["reconstruction_gain"], [-0.9, 0, 0])


def test_summary_shows_all_features_at_every_m():
    cells = [finished("random", m, 0, 0, 0.1) for m in (2, 3)] + [finished("all", None, 0, 0, 0.9)]
    assert summary(cells)[["m", "method"]].to_numpy().tolist() == [[2, "all"], [2, "random"], [3, "all"], [3, "random"]]


def test_summary_of_too_little_is_empty():
    assert summary([]).empty
    assert summary([finished("all", None, 0, 0, 0.9)]).empty
