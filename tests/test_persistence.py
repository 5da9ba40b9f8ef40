"""Saved models: whole or not there, and refused if anything in them is not as it should be."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file

from homophily import DirichletSelector
from homophily.baselines import RSR, WAST, ConcreteAutoencoder
from homophily.checkpoint import _checksum, saved_seeds

X = np.random.RandomState(0).randn(40, 7)
X[:, 5] = 1.0  # a constant column
FRAME = pd.DataFrame(X, columns=list("abcdefg"))
QUICK = {"max_iter": 4, "refine": False, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    return DirichletSelector(3, **QUICK).fit(FRAME)


@pytest.fixture
def folder(fitted, tmp_path):
    return fitted.save(tmp_path / "model")


def edit(folder, change):
    """Change the description."""
    path = folder / "model.json"
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))


def edit_arrays(folder, **changed):
    """Change arrays, and the description to a format that has no checksum of them."""
    path = folder / "model.safetensors"
    save_file({name: np.ascontiguousarray(value) for name, value in {**load_file(path), **changed}.items()}, path)
    edit(folder, lambda description: description.update(format=1))


def test_a_model_holds_the_checksum_of_its_arrays(folder, fitted):
    assert len(json.loads((folder / "model.json").read_text())["sha256"]) == 64
    assert DirichletSelector.load(folder).selected_features_.tolist() == fitted.selected_features_.tolist()
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1  # in the middle of a number, which nothing else would tell
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: its SHA-256 is .*, expected .*copy it whole"):
        DirichletSelector.load(folder)


def test_models_of_the_first_format_are_read(folder, fitted):
    edit(folder, lambda d: (d.update(format=1), d.pop("sha256")))
    np.testing.assert_array_equal(DirichletSelector.load(folder).scores_, fitted.scores_)


@pytest.mark.parametrize("cls", [RSR, ConcreteAutoencoder, WAST])
def test_attributes_of_other_methods(cls, tmp_path):
    params = {} if cls is RSR else {"max_iter": 3}
    selector = cls(2, random_state=0, **params).fit(FRAME)
    again = cls.load(selector.save(tmp_path / "model"))
    for name, value in vars(selector).items():
        if name.endswith("_") and name != "history_":
            np.testing.assert_array_equal(getattr(again, name), value)
            assert type(getattr(again, name)) is type(value) or isinstance(value, np.generic)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.update(format=3), "in format 3, expected DirichletSelector in format 2 or 1"),
        (lambda d: d.update({"class": "RSR"}), "holds a RSR in format 2, expected DirichletSelector"),
        (lambda d: d.pop("sha256"), "'sha256' is missing"),
        (lambda d: d.update(sha256="0" * 64), "expected 000000"),
        (lambda d: d.update(sha256=None), "sha256 should be text"),
        (lambda d: d.pop("params"), "'params' is missing"),
        (lambda d: d.update(params=[]), "should be dicts"),
        (lambda d: d.update(fitted="x"), "should be dicts"),
        (lambda d: d["params"].update(no_such=1), "has no parameter 'no_such'; it has anchor_choice"),
        (lambda d: d["params"].update(__class__="x"), "has no parameter '__class__'"),
        (lambda d: d["params"].update(n_neighbors=-1), "n_neighbors.*must be an int"),
        (lambda d: d["fitted"].update(__class__="x"), "an attribute '__class__', expected some of n_features_in_"),
        (lambda d: d["fitted"].update(fit="x"), "an attribute 'fit'"),
        (lambda d: d["fitted"].update(_secret_=1), "an attribute '_secret_'"),
        (lambda d: d["fitted"].update(n_features_in_=8), "'feature_names_in_' is an array of object of shape .7,., "),
        (lambda d: d["fitted"].update(n_features_in_=0), "n_features_in_ is 0, expected a whole number of at least 1"),
        (lambda d: d["fitted"].update(n_features_in_=10**30), "is an array"),
        (lambda d: d["fitted"].update(n_features_in_=True), "n_features_in_ is True"),
        (lambda d: d["fitted"].pop("n_features_in_"), "n_features_in_ is None"),
        (lambda d: d["fitted"].pop("scores_"), "'scores_' is missing, expected real numbers of shape .d."),
        (lambda d: d["fitted"].update(scores_=[1, 2]), "'scores_' is tuple"),
        (lambda d: d["fitted"].update(scores_=None), "'scores_' is NoneType"),
        (lambda d: d["fitted"].update(scores_={"array": "nowhere"}), "'nowhere' is missing"),
        (lambda d: d["fitted"].update(scores_={"array": "selected_features_"}), "'scores_' is an array of int64"),
        (lambda d: d["fitted"].update(n_iter_="4"), "'n_iter_' is str '4', expected whole numbers"),
        (lambda d: d["fitted"].update(history_=3), "'history_' is int '3', expected a dict of"),
        (
            lambda d: d["fitted"]["graph_"].update(shape=[41, 40]),
            "index pointer size 41 should be 42",
        ),
        (lambda d: d["fitted"]["graph_"].update(shape=[40, 10**12]), "'graph_' is a sparse matrix"),
        (lambda d: d["fitted"]["graph_"].update(csr="logits_"), "is missing"),
    ],
)
def test_descriptions_that_do_not_fit(folder, change, match):
    edit(folder, change)
    with pytest.raises(ValueError, match=match) as caught:
        DirichletSelector.load(folder)
    assert str(folder) in str(caught.value)


GRAPH = sp.csr_array(np.eye(40))


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"selected_features_": np.array([0, 0, 1])}, "'selected_features_' holds the same number twice"),
        ({"selected_features_": np.array([0, 1, 7])}, "'selected_features_' holds 0 to 7, expected 0 to 6"),
        ({"selected_features_": np.array([0, 1, -1])}, "holds -1 to 1, expected 0 to 6"),
        ({"selected_features_": np.array([0.0, 1, 2])}, "'selected_features_' is an array of float64"),
        ({"scores_": np.ones(6)}, r"shape \(6,\), expected real numbers of shape \(d\) where d = 7"),
        ({"scores_": np.ones((7, 1))}, r"shape \(7, 1\)"),
        ({"logits_": np.ones((6, 4))}, r"shape \(6, 4\), expected .* where m = 3"),
        ({"alternatives_": np.full((3, 2), 9)}, "'alternatives_' holds 9 to 9, expected -1 to 6"),
        ({"dropped_features_": np.array([99])}, "'dropped_features_' holds 99 to 99"),
        ({"history_/loss": np.ones(9)}, "history_\\['energy'\\]"),
        ({"graph_/indices": np.full(200, 40)}, "not the description of a DirichletSelector"),
        ({"graph_/indices": np.full(200, -1)}, "not the description of a DirichletSelector"),
        ({"graph_/indptr": np.arange(41)[::-1].copy()}, "not the description of a DirichletSelector"),
        ({"graph_/indptr": np.full(41, 10**6)}, "not the description of a DirichletSelector"),
        ({"graph_/data": np.ones(3)}, "not the description of a DirichletSelector"),
        ({"graph_/data": np.array(["a"] * 4, dtype="S1").view(np.uint8)}, "not the description of a DirichletSelector"),
    ],
)
def test_arrays_that_do_not_fit_together(folder, arrays, match):
    edit_arrays(folder, **arrays)
    with pytest.raises(ValueError, match=match) as caught:
        DirichletSelector.load(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", "[" * 100_000, '{"class": []}', "\ufeff{}", '"' + "9" * 9]
)
def test_descriptions_that_are_none(folder, text):
    (folder / "model.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"model\.json is not a homophily model description"):
        DirichletSelector.load(folder)


@pytest.mark.parametrize("failing", ["write_bytes", "write_text"])
def test_a_model_is_there_as_a_whole_or_not_at_all(fitted, tmp_path, monkeypatch, failing):
    def fail(self, *args, **options):
        self.touch()
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(f"pathlib.Path.{failing}", fail)
        with pytest.raises(OSError, match="disk full"):
            fitted.save(tmp_path / "model")
    assert not list((tmp_path / "model").iterdir())
    fitted.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]


def test_a_stranger_s_file_is_not_replaced(fitted, tmp_path):
    (tmp_path / "model.safetensors").write_text("mine")
    with pytest.raises(FileExistsError, match=r"model\.safetensors exists already"):
        fitted.save(tmp_path)
    assert (tmp_path / "model.safetensors").read_text() == "mine"


# Checkpoints.


def training(**params):
    return DirichletSelector(2, **{**QUICK, "final_graph": "none", **params})


@pytest.fixture
def state(tmp_path):
    training().fit(FRAME, checkpoint=tmp_path, callback=lambda progress: progress.step == 2)
    path = tmp_path / "training-0.safetensors"
    return path, load_file(path), metadata(path)


def metadata(path):
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        return file.metadata()


@pytest.mark.parametrize(
    ("name", "changed", "match"),
    [
        (
            "logits",
            np.ones((1, 6, 3), np.float32),
            r"'logits' is an array of float32 of shape \(1, 6, 3\), expected real",
        ),
        ("logits", np.ones((1, 6, 2), np.int64), "'logits' is an array of int64"),
        ("logits", np.full((1, 6, 2), np.nan, np.float32), "'logits' holds NaN or infinity"),
        ("logits", None, "'logits' is missing, expected real numbers of shape"),
        ("exp_avg", np.ones(3, np.float32), "'exp_avg' is an array"),
        ("step", np.ones(2, np.float32), "'step' is an array"),
        ("history/loss", np.ones((2, 5), np.float32), "'history/loss' is an array"),
        ("history/energy", np.ones((3, 1), np.float32), "'history/energy' is an array|expected"),
        ("history/loss", None, "'history/loss' is missing"),
        ("data", None, "'data' is missing"),
        ("data", np.ones((4, 3)), r"'data' is an array of float64 of shape \(4, 3\)"),
        ("data", np.array([[1]]), "'data' is an array of int64"),
    ],
)
def test_states_whose_arrays_do_not_fit(state, name, changed, match):
    path, arrays, told = state
    arrays = {key: value for key, value in {**arrays, name: changed}.items() if value is not None}
    save_file(arrays, path, {**told, "sha256": _checksum(arrays)})
    with pytest.raises(ValueError, match=match) as caught:
        training().fit(FRAME, checkpoint=path.parent)
    assert str(path) in str(caught.value)
    assert "Begin anew in another place" in str(caught.value)


def test_a_state_with_another_number_is_damaged(state):
    path, arrays, told = state
    arrays["logits"] = arrays["logits"] + 1e-3
    save_file(arrays, path, told)
    with pytest.raises(ValueError, match=r"damaged: the SHA-256 of its arrays is"):
        training().fit(FRAME, checkpoint=path.parent)


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"run": "[]"}, "expected a dict"),
        ({"run": "{"}, "not a checkpoint"),
        ({"finished": "3"}, "expected a dict and a bool"),
        ({"run": "[" * 10**5}, "not a checkpoint"),
    ],
)
def test_states_that_say_something_else_of_themselves(state, told, match):
    path, arrays, before = state
    save_file(arrays, path, {**before, **told})
    with pytest.raises(ValueError, match=match):
        training().fit(FRAME, checkpoint=path.parent)


@pytest.mark.parametrize("seeds", [None, [1], ["a", "b"], [1, -2], [1, 2, 3], {"a": 1}, [1.5, 2.5], [2**70, 1]])
def test_seeds_that_are_none(tmp_path, seeds):
    training(random_state=None).fit(FRAME, checkpoint=tmp_path, callback=lambda progress: progress.step == 2)
    path = tmp_path / "training-0.safetensors"
    assert len(saved_seeds(tmp_path)) == 2
    told = metadata(path)
    run = json.loads(told["run"])
    save_file(load_file(path), path, {**told, "run": json.dumps({**run, "seeds": seeds})})
    with pytest.raises(ValueError, match=r"training-0\.safetensors is not a checkpoint.*seeds"):
        training(random_state=None).fit(FRAME, checkpoint=tmp_path)
