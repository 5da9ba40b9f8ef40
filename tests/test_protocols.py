"""How a comparison chooses parameters, against the paper's algorithms written out."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from homophily.baselines import RSR, AllFeatures, LaplacianScore, RandomSelector
from homophily.evaluation import Comparison, RunStore
from homophily.evaluation.measuring import JUDGE, SELECT, SPLIT
from homophily.evaluation.store import canonical
from homophily.io import InputError

TREES = 3
NEIGHBORS = [1, 2, 4, 8, 16]
REGS = [0.01, 1.0, 100.0]


@pytest.fixture(scope="module")
def data():
    """Noise with a little to find: parameters differ in what they choose, and splits in what is best."""
    rng = np.random.RandomState(0)
    y = np.arange(48) % 3
    return np.hstack([rng.normal(size=(48, 3)) + 0.8 * y[:, None], rng.normal(size=(48, 5))]), y


def compare(data, **options):
    defaults = {
        "methods": {"ls": LaplacianScore()},
        "ms": [1, 3],
        "splits": 3,
        "n_estimators": TREES,
        "random_draws": 1,
        "with_random": False,
        "tasks": ["accuracy"],
        "grids": {"ls": {"n_neighbors": NEIGHBORS}},
    }
    return Comparison(*data, **{**defaults, **options})


def accuracy_by_hand(data, selector, rows, seed):
    """Select on the first rows and let a forest classify the second."""
    X, y = data
    train, test = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = selector.fit(X[train]).selected_features_
    scaler = StandardScaler().fit(X[train][:, chosen])
    forest = RandomForestClassifier(TREES, random_state=seed)
    forest.fit(scaler.transform(X[train][:, chosen]), y[train])
    return forest.score(scaler.transform(X[test][:, chosen]), y[test]), chosen.tolist()


def param_tuning(data, judge, split, rows, make, m, values):
    """The paper's Algorithm S1."""
    best, best_accuracy = None, -1
    for value in values:
        selector = make(m, value, judge.seed_for(SELECT, split, tuning=True))
        accuracy, _ = accuracy_by_hand(data, selector, rows, judge.seed_for(JUDGE, split, tuning=True))
        if accuracy > best_accuracy:
            best, best_accuracy = value, accuracy
    return best


def divided(judge, rows, split, *, tuning=False):
    return train_test_split(rows, test_size=0.2, random_state=judge.seed_for(SPLIT, split, tuning=tuning))


def make_ls(m, value, seed):
    return LaplacianScore(m, n_neighbors=value, random_state=seed)


def make_rsr(m, value, seed):
    return RSR(m, reg=value, random_state=seed)


@pytest.mark.parametrize("protocol", ["paper", "nested"])
@pytest.mark.parametrize(
    ("selector", "param", "values", "make"),
    [(LaplacianScore(), "n_neighbors", NEIGHBORS, make_ls), (RSR(), "reg", REGS, make_rsr)],
    ids=["ls", "rsr"],
)
def test_against_the_algorithms_written_out(data, protocol, selector, param, values, make):
    comparison = compare(data, methods={"it": selector}, grids={"it": {param: values}}, protocol=protocol)
    judge, everything = comparison.judge, np.arange(48)
    found = {(cell.m, cell.split): cell for cell in comparison.run()}
    assert set(found) == {(m, split) for m in (1, 3) for split in range(3)}
    choices = {}
    for m in (1, 3):
        if protocol == "paper":  # one further split for all
            rows = divided(judge, everything, -1, tuning=True)
            best = param_tuning(data, judge, -1, rows, make, m, values)
        for split in range(3):  # Algorithm S2
            train, test = divided(judge, everything, split)
            if protocol == "nested":
                rows = divided(judge, train, split, tuning=True)
                best = param_tuning(data, judge, split, rows, make, m, values)
            selector = make(m, best, judge.seed_for(SELECT, split))
            accuracy, chosen = accuracy_by_hand(data, selector, (train, test), judge.seed_for(JUDGE, split))
            cell = found[(m, split)]
            assert (cell.params, cell.accuracy, list(cell.features)) == (((param, best),), accuracy, chosen)
            choices[(m, split)] = best
    assert set(choices.values()) != {values[0]}  # or any choice would do
    if protocol == "nested":
        assert any(len({choices[(m, split)] for split in range(3)}) > 1 for m in (1, 3))


class Recording(LaplacianScore):
    """Remembers the rows it was fitted on, and the parameters; runs in this process."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y=None):
        self.seen.append((self.n_features_to_select, self.n_neighbors, {tuple(row) for row in X}))
        return super().fit(X)


@pytest.fixture
def recording():
    Recording.seen.clear()
    return Recording()


def test_nested_tuning_sees_no_test_row(data, recording):
    X, _ = data
    comparison = compare(data, methods={"ls": recording}, protocol="nested", splits=2)
    list(comparison.run())
    for split in range(2):
        train, test = comparison.judge.rows(48, split)
        inner = comparison.judge.rows(48, split, tuning=True)
        assert sorted([*inner[0], *inner[1]]) == sorted(train)
        assert not set(train) & set(test)
    n = len(NEIGHBORS)
    tuned = recording.seen[: 2 * n]
    for split in range(2):
        rows = {tuple(row) for row in X[comparison.judge.rows(48, split, tuning=True)[0]]}
        fits = tuned[split * n : (split + 1) * n]
        assert fits == [(3, k, rows) for k in NEIGHBORS]  # one fit serves every m
    for _, _, rows in recording.seen[2 * n :]:
        assert rows in [{tuple(row) for row in X[comparison.judge.rows(48, split)[0]]} for split in range(2)]


def test_the_paper_tunes_once(data, recording):
    comparison = compare(data, methods={"ls": recording}, protocol="paper", splits=2)
    list(comparison.run())
    assert [k for _, k, _ in recording.seen[: len(NEIGHBORS)]] == NEIGHBORS
    tuning_rows = recording.seen[0][2]
    assert all(rows == tuning_rows for _, _, rows in recording.seen[: len(NEIGHBORS)])
    assert all(rows != tuning_rows for _, _, rows in recording.seen[len(NEIGHBORS) :])
    assert {cell.split for cell in comparison.tuning_cells} == {-1}


def test_default_tunes_nothing(data, recording):
    comparison = compare(data, methods={"ls": recording, "rsr": RSR()}, protocol="default", grids=None)
    assert comparison.tuning_cells == []
    with RunStore(":memory:") as store:
        assert comparison.planned(store) == comparison.cells
        assert {cell.params for cell in comparison.run(store)} == {()}
        assert {key["tuning"] for key, _ in store.items()} == {False}
    assert {k for _, k, _ in recording.seen} == {LaplacianScore().n_neighbors}


def test_grids_of_the_selectors_are_the_default(data):
    comparison = compare(data, methods={"rsr": RSR(), "all": AllFeatures()}, protocol="paper", grids=None)
    assert {cell.method for cell in comparison.tuning_cells} == {"rsr"}
    assert [dict(cell.params)["reg"] for cell in comparison.tuning_cells if cell.m == 1] == RSR.param_grid["reg"]


class Constant(RandomSelector):
    """Selects the same whatever its parameters, of which some do not work."""

    nested = False

    def __init__(self, n_features_to_select=None, *, a=0, b=0, fails=(), random_state=None):
        super().__init__(n_features_to_select, random_state=random_state)
        self.a, self.b, self.fails = a, b, fails

    def fit(self, X, y=None):
        if self.a in self.fails:
            raise ValueError(f"a={self.a} does not work.")
        return super().fit(X)


def test_of_equal_ones_the_first_is_taken(data):
    for order in ([5, 3, 4], [4, 3, 5]):
        comparison = compare(
            data, methods={"it": Constant()}, grids={"it": {"a": order, "b": order[::-1]}}, protocol="paper"
        )
        assert {cell.params for cell in comparison.run()} == {(("a", order[0]), ("b", order[-1]))}


def test_parameters_that_fail_are_left_out_and_kept_as_such(data):
    comparison = compare(
        data, methods={"it": Constant(fails=(1, 2))}, grids={"it": {"a": [1, 2, 3]}}, protocol="paper", ms=[2]
    )
    with RunStore(":memory:") as store:
        assert {cell.params for cell in comparison.run(store)} == {(("a", 3),)}
        kept = {key["params"]["a"]: value for key, value in store.items() if key["tuning"]}
        assert kept[1] == {"failed": "a=1 does not work."}
        assert kept[2] == {"failed": "a=2 does not work."}
        assert set(kept) == {1, 2, 3}
        assert "accuracy" in kept[3]
        tried = []
        assert list(comparison.run(store, on_start=tried.append)) == []
        assert tried == []  # nor are the failed ones tried again


class OutOfMemory(Constant):
    """Fails by chance."""

    nested = False
    full = True

    def fit(self, X, y=None):
        if self.a == 1 and type(self).full:
            raise MemoryError("no room")
        return super().fit(X)


def test_failures_by_chance_are_not_kept(data, monkeypatch):
    comparison = compare(
        data, methods={"it": OutOfMemory()}, grids={"it": {"a": [1, 2]}}, protocol="paper", ms=[2], splits=1
    )
    with RunStore(":memory:") as store:
        assert list(comparison.run(store)) == []  # what is best is not known yet
        assert len(store.keys()) == 1
        monkeypatch.setattr(OutOfMemory, "full", False)
        assert [cell.params for cell in comparison.run(store)] == [(("a", 1),)]  # as without the accident


def test_where_all_fail_the_selector_keeps_its_own(data):
    comparison = compare(
        data, methods={"it": Constant(a=7, fails=(1, 2))}, grids={"it": {"a": [1, 2]}}, protocol="nested", ms=[2]
    )
    with RunStore(":memory:") as store:
        cells = list(comparison.run(store))
        assert [(cell.params, cell.failed) for cell in cells] == [((), None)] * 3
        assert [key["params"]["a"] for key, _ in store.items() if not key["tuning"]] == [7] * 3


# --- going on --------------------------------------------------------------------------------------------------------


def outcome(cells):
    return {cell.place: (cell.accuracy, list(cell.features), cell.failed) for cell in cells}


@pytest.mark.parametrize("protocol", ["paper", "nested"])
def test_an_interrupted_run_goes_on(data, tmp_path, protocol):
    undisturbed = outcome(compare(data, protocol=protocol).run())

    class StoppedError(Exception):
        pass

    with RunStore(tmp_path / "runs.sqlite") as store:
        counts = []
        for stop in (2, 4, 1):  # twice while it tunes (nested) or soon after (paper), then among the results
            comparison = compare(data, protocol=protocol)
            begun = []

            def start(job, begun=begun, stop=stop):
                begun.append(job)
                if len(begun) > stop:
                    raise StoppedError

            with pytest.raises(StoppedError):
                list(comparison.run(store, on_start=start))
            counts.append(len(store.keys()))
        assert counts == sorted(set(counts))  # each got further
        comparison = compare(data, protocol=protocol)
        cells = comparison.run(store)
        next(cells)
        cells.close()
        rest = list(comparison.run(store))
        assert 0 < len(rest) < len(comparison.cells)
        assert outcome(comparison.finished(store)) == undisturbed
        assert list(comparison.run(store)) == []
        assert len(store.keys()) == len(comparison.cells) + len(comparison.tuning_cells)


def test_results_are_planned_once_their_tuning_is_complete(data):
    comparison = compare(data, methods={"ls": LaplacianScore(), "all": AllFeatures()}, protocol="nested")
    with RunStore(":memory:") as store:
        assert {cell.method for cell in comparison.planned(store)} == {"all"}
        of_first = [cell for cell in comparison.tuning_cells if cell.split == 0]
        for cell in of_first[:-1]:
            store.put(comparison.key(cell), {"accuracy": 0.5 + 0.01 * dict(cell.params)["n_neighbors"]})
        planned = [cell for cell in comparison.planned(store) if cell.method == "ls"]
        last = of_first[-1]
        assert [(cell.m, cell.split, cell.params) for cell in planned] == [(1, 0, (("n_neighbors", 16),))]
        assert last.m == 3
        store.put(comparison.key(last), {"failed": "no"})
        assert comparison.chosen(store)[("ls", 3, 0)] == (("n_neighbors", 8),)


def test_more_splits_keep_what_was_tuned(data):
    with RunStore(":memory:") as store:
        first = outcome(compare(data, protocol="paper", splits=1).run(store))
        begun = []
        more = compare(data, protocol="paper", splits=3)
        assert len(list(more.run(store, on_start=begun.append))) == 4
        assert not any(cell.tuning for job in begun for cell in job.cells)
        assert first.items() <= outcome(more.finished(store)).items()


# --- keys and mistakes -----------------------------------------------------------------------------------------------


def test_cells_with_the_same_parameters_are_shared_by_protocols(data):
    with RunStore(":memory:") as store:
        tuned = list(compare(data, protocol="paper", ms=[3]).run(store))
        ((_, best),) = tuned[0].params
        plain = compare(data, methods={"ls": LaplacianScore(n_neighbors=best)}, ms=[3])
        found = {cell.split: cell.accuracy for cell in plain.finished(store)}
        assert found == {cell.split: cell.accuracy for cell in tuned}
        other = compare(data, methods={"ls": LaplacianScore(n_neighbors=best + 1)}, ms=[3])
        assert other.finished(store) == []


def test_keys_differ_in_whatever_changes_a_tuned_result(data):
    keys = []
    for comparison in (
        compare(data, protocol="paper"),
        compare(data, protocol="nested"),
        compare(data, protocol="paper", seed=1),
        compare(data, protocol="paper", n_estimators=4),
        compare(data, protocol="paper", test_size=0.3),
        compare(data, protocol="paper", methods={"ls": LaplacianScore(sigma=2.0)}),
        compare(data, protocol="paper", experiment="other"),
        compare(data, protocol="paper", dataset="other"),
    ):
        keys += [canonical(comparison.key(cell)) for cell in comparison.tuning_cells]
    assert len(set(keys)) == len(keys)
    comparison = compare(data, protocol="paper")
    cells = [canonical(comparison.key(cell)) for cell in comparison.cells]
    assert not set(cells) & set(keys)  # the search and its result on the same split are two things
    results = [
        compare(data),
        compare(data, tasks=["accuracy", "reconstruction"]),
        compare(data, tasks=["accuracy", "reconstruction"], max_updates=10),
    ]
    assert len({canonical(each.key(each.cells[0])) for each in results}) == 3


def test_what_tuning_does_not_depend_on_is_not_in_its_key(data):
    keys = [
        [canonical(comparison.key(cell)) for cell in comparison.tuning_cells]
        for comparison in (
            compare(data, protocol="paper"),
            compare(data, protocol="paper", splits=1),
            compare(data, protocol="paper", tasks=["clustering", "reconstruction"], max_updates=10),
        )
    ]
    assert keys[0] == keys[1] == keys[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "oracle"}, "protocol='oracle' is none of default, nested, paper"),
        ({"tasks": ["accuracy", "fun"]}, "tasks=.*'fun'.*: expected some of accuracy, clustering, reconstruction"),
        ({"tasks": []}, "expected some of accuracy"),
        ({"grids": {"rsr": {"reg": [1]}}}, r"grids has \['rsr'\], which are none of the methods \['ls'\]"),
        ({"grids": {"ls": {"random_state": [1]}}}, "The grid of 'ls' has random_state, set by ms and seed"),
        ({"grids": {"ls": {"n_features_to_select": [1]}}}, "has n_features_to_select, set by ms and seed"),
        ({"splits": 0}, "splits=0: at least 1 is needed"),
        ({"grids": {"ls": {"neighbours": [1]}}}, "The grid of 'ls' has neighbours, which are no parameters of it"),
    ],
)
@pytest.mark.parametrize("protocol", ["default", "paper"])
def test_mistakes_are_refused(data, protocol, options, message):
    with pytest.raises(ValueError, match=message):
        compare(data, **{"protocol": protocol, **options})


@pytest.mark.parametrize("protocol", ["nested", "paper"])
def test_tuning_without_labels_is_refused(data, protocol):
    with pytest.raises(InputError, match=f"protocol='{protocol}' chooses parameters by accuracy, and there are no lab"):
        compare(data[:1], protocol=protocol)


def test_columns_constant_in_the_rows_to_tune_with_are_counted(data):
    X, y = data
    comparison = compare(data)
    _, left_out = comparison.judge.rows(48, -1, tuning=True)
    kept = [comparison.judge.rows(48, split)[0] for split in range(3)]
    row = next(row for row in left_out if all(row in rows for rows in kept))
    rare = np.column_stack([X, np.arange(48) == row])
    assert compare((rare, y), ms=[9]).cells
    with pytest.raises(InputError, match="only 8 of 9 columns vary over the 38 training rows to tune with"):
        compare((rare, y), ms=[9], protocol="paper")
