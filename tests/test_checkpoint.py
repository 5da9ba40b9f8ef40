"""Unfinished runs go on to the result that they would have had."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.preprocessing import StandardScaler

from homophily import DirichletSelector
from homophily.checkpoint import Checkpoint, Checkpoints, forget, is_unfinished, saved_seeds
from homophily.datasets import make_toy
from homophily.shapes import Of

X, _ = make_toy("moons", n_samples=80, random_state=0)

CLUSTERS = np.random.RandomState(0).randn(90, 14)
CLUSTERS[:, :4] += 4 * np.random.RandomState(1).randn(3, 4)[np.arange(90) % 3]


def selector(**params):
    return DirichletSelector(2, **{"max_iter": 30, "n_init": 3, "batch_size": 200, "random_state": 0, **params})


class Stop:
    """Callback that ends the run after a number of calls."""

    def __init__(self, calls):
        self.left = calls

    def __call__(self, progress):
        self.left -= 1
        return self.left <= 0


def same(one, other):
    assert one.selected_features_.tolist() == other.selected_features_.tolist()
    np.testing.assert_array_equal(one.logits_, other.logits_)
    assert one.n_iter_ == other.n_iter_
    for name, values in one.history_.items():
        np.testing.assert_array_equal(values, other.history_[name])


@pytest.mark.parametrize("params", [{}, {"n_anchors": 30, "anchor_refresh": 4}, {"graph": "exact", "batch_size": 16}])
@pytest.mark.parametrize("calls", [1, 12, 37])
def test_a_stopped_run_goes_on_to_the_same_result(tmp_path, params, calls):
    """Also when it was stopped in the second group of restarts."""
    undisturbed = selector(**params).fit(X)
    stopped = selector(**params).fit(X, callback=Stop(calls), checkpoint=tmp_path)
    assert stopped.interrupted_
    resumed = selector(**params).fit(X, checkpoint=tmp_path)
    assert not resumed.interrupted_
    same(resumed, undisturbed)
    steps = []
    again = selector(**params).fit(X, checkpoint=tmp_path, callback=lambda p: steps.append(p.stage) and None)
    assert "training" not in steps
    same(again, undisturbed)


def test_a_crash_loses_what_came_after_the_last_state(tmp_path):
    class CrashError(Exception):
        pass

    def crash(progress):
        if progress.step == 17:
            raise CrashError

    with pytest.raises(CrashError):
        selector(n_init=1).fit(X, callback=crash, checkpoint=Checkpoints(tmp_path, every=0))
    state = load_file(tmp_path / "training-0.safetensors")
    assert state["history/loss"].shape == (16, 1)
    steps = []
    resumed = selector(n_init=1).fit(
        X, checkpoint=tmp_path, callback=lambda p: steps.append((p.stage, p.step)) and None
    )
    assert steps[0] == ("training", 17)
    same(resumed, selector(n_init=1).fit(X))


def test_a_state_of_another_run_is_refused(tmp_path):
    selector().fit(X, callback=Stop(3), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"another run: reg was 0\.3 and is 0\.5\. Give the same"):
        selector(reg=0.5).fit(X, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="n_samples was 80 and is 79"):
        selector().fit(X[1:], checkpoint=tmp_path)
    with pytest.raises(ValueError, match="other data of the same size"):
        selector().fit(X**3, checkpoint=tmp_path)
    selector(n_jobs=2, verbose=False).fit(X, checkpoint=tmp_path)  # how it is run makes no difference


def test_data_with_the_same_means_and_deviations_is_told_apart(tmp_path):
    rng = np.random.RandomState(0)
    one, other = (StandardScaler().fit_transform(rng.rand(60, 5)) for _ in range(2))
    DirichletSelector(2, max_iter=4, random_state=0).fit(one, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="other data of the same size"):
        DirichletSelector(2, max_iter=4, random_state=0).fit(other, checkpoint=tmp_path)


def test_rows_in_another_order_are_other_data(tmp_path):
    selector().fit(X, checkpoint=tmp_path)
    other = X.copy()
    other[[40, 60]] = X[[60, 40]]
    with pytest.raises(ValueError, match="other data of the same size"):
        selector().fit(other, checkpoint=tmp_path)


def test_to_begin_anew_is_not_to_go_on(tmp_path):
    selector(n_init=3).fit(X, callback=Stop(3), checkpoint=tmp_path)
    for random_state in (0, None):
        steps = []
        anew = selector(reg=0.5, n_init=1, random_state=random_state)
        anew.fit(
            X,
            checkpoint=Checkpoints(tmp_path, anew=True),
            callback=lambda p, steps=steps: steps.append(p.step) and None,
        )
        assert steps[0] == 1
        assert [path.name for path in tmp_path.iterdir()] == ["training-0.safetensors"]


def test_numpy_numbers_as_parameters(tmp_path):
    params = {"n_neighbors": np.int64(4), "reg": np.float32(0.5), "random_state": np.int64(3)}
    first = selector(**params).fit(X, checkpoint=tmp_path)
    same(selector(**params).fit(X, checkpoint=tmp_path), first)


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(5)])
def test_seeds_that_nobody_chose_are_kept(tmp_path, random_state):
    """The run that goes on draws what the one before would have drawn, not something new."""
    seen = []
    full = selector(random_state=random_state, n_init=1).fit(X, checkpoint=Checkpoints(tmp_path / "full"))
    state = load_file(tmp_path / "full" / "training-0.safetensors")
    selector(random_state=random_state, n_init=1).fit(X, callback=Stop(9), checkpoint=tmp_path / "part")
    seeds = saved_seeds(tmp_path / "part")
    assert seeds != saved_seeds(tmp_path / "full")
    for _ in range(2):
        shutil.copytree(tmp_path / "part", tmp_path / f"copy{len(seen)}")
        resumed = selector(random_state=random_state, n_init=1).fit(X, checkpoint=tmp_path / f"copy{len(seen)}")
        seen.append(resumed.logits_)
    np.testing.assert_array_equal(seen[0], seen[1])
    assert len(state["history/loss"]) == full.n_iter_


def test_damaged_states_are_refused_in_words(tmp_path):
    (tmp_path / "training-0.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="not a checkpoint of homophily, or damaged"):
        selector().fit(X, checkpoint=tmp_path)
    save_file({"a": np.zeros(2)}, tmp_path / "training-0.safetensors")
    with pytest.raises(ValueError, match="not a checkpoint of homophily, or damaged"):
        selector().fit(X, checkpoint=tmp_path)


def test_a_state_replaces_the_one_before_as_a_whole(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "new" / "a.safetensors", {"x": (1, 2)}, np.ones(3))
    expected = {"v": Of("i", ("length",))}
    assert checkpoint.load(expected, {}) == (None, False)
    checkpoint.save({"v": np.arange(3)}, finished=False)

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("homophily.checkpoint.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save({"v": np.arange(9)}, finished=True)
    arrays, finished = checkpoint.load(expected, {"length": 3})
    assert arrays["v"].tolist() == [0, 1, 2]
    assert not finished
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.safetensors"]


def test_states_are_written_when_they_are_due(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("homophily.checkpoint.time.monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "a.safetensors", {}, np.ones(1), every=30)
    assert not checkpoint.is_due()
    now[0] += 31
    assert checkpoint.is_due()
    checkpoint.save({}, finished=False)
    assert not checkpoint.is_due()
    assert json.loads(json.dumps(checkpoint.run)) == {}


def test_only_states_are_forgotten(tmp_path):
    assert not is_unfinished(tmp_path / "nowhere")
    forget(tmp_path / "nowhere")
    place = tmp_path / "checkpoint"
    place.mkdir()
    for name in ("training-0.safetensors", "training-1.safetensors", ".training-1.safetensors.123"):
        (place / name).write_text("")
    assert is_unfinished(place)
    (place / "mine").write_text("")
    forget(place)
    assert [path.name for path in place.iterdir()] == ["mine"]
    (place / "mine").unlink()
    forget(place)
    assert not place.exists()
