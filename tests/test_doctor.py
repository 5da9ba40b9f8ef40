"""``homophily doctor`` says what is there, survives what is not, and gives nobody away."""

import importlib.metadata
import json
import os
import platform
from pathlib import Path

import numpy as np
import pytest
from command_line import run as invoke

import homophily
from homophily import doctor
from homophily.datasets import PAPER_DATASETS


def run(*arguments, code=0):
    return invoke("doctor", *arguments, code=code).stdout


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder of somebody whose name nobody should see."""
    folder = tmp_path / "some.body"
    folder.mkdir()
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(folder))
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder / "data"))
    monkeypatch.setenv("HOMOPHILY_CACHE", str(folder / "cache"))
    return folder


def test_everything_in_json(home):
    (home / "data").mkdir()
    np.savez(home / "data" / "yale.npz", X=np.zeros((2, 2)))
    text = run("--json")
    found = json.loads(text)
    assert found["homophily"] == homophily.__version__
    assert found["python"] == platform.python_version()
    assert found["packages"]["torch"]["version"] == importlib.metadata.version("torch")
    assert all(look["version"] and look["problem"] is None for look in found["packages"].values())
    assert all(look["problem"] is None for look in found["optional"].values())
    assert found["device"]["cores"] == os.cpu_count()
    assert found["data"]["available"] == ["Yale"]
    assert found["data"]["missing"] == [name for name in PAPER_DATASETS if name != "Yale"]
    assert found["data"]["folders"] == [
        {"path": str(Path("~/data")), "exists": True},
        {"path": str(Path("~/cache")), "exists": False},
    ]
    assert found["self_test"]["ok"] is True
    assert "some.body" not in text


def test_words_say_the_same(home):
    text = run()
    assert f"homophily {homophily.__version__} in " in text
    assert f"torch {importlib.metadata.version('torch')}\n" in text
    assert "Self-test\n  ok, " in text
    assert f"searched: {Path('~/data')} (does not exist yet)" in text
    assert "some.body" not in text


def test_what_is_optional_may_be_missing_or_broken(home, monkeypatch):
    def version(package):
        if package in ("distributed", "polars"):
            raise importlib.metadata.PackageNotFoundError(package)
        return importlib.metadata.version(package)

    def import_module(name):
        if name == "faiss":
            raise RuntimeError(f"module compiled against\nanother NumPy in {home}/lib")
        return importlib.import_module(name)

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor, "import_module", import_module)
    text = run()
    assert 'distributed is not installed (experiments on a Dask cluster): pip install "homophily[dask]"' in text
    assert "cannot be imported: RuntimeError: module compiled against another NumPy in ~/lib" in text
    assert "Self-test\n  ok, " in text


def test_an_installation_without_metadata(home, monkeypatch):
    def requires(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(doctor, "requires", requires)
    assert "Self-test\n  ok, " in run()


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_failing_fit_is_told_and_is_the_exit_code(home, monkeypatch, arguments):
    def fit(self, X):
        raise OSError(f"cannot load {home}/lib/libgomp.so")

    monkeypatch.setattr(homophily.DirichletSelector, "fit", fit)
    text = run(*arguments, code=1)
    assert "OSError: cannot load ~/lib/libgomp.so" in text
    if arguments:
        assert json.loads(text)["self_test"] == {"ok": False, "problem": "OSError: cannot load ~/lib/libgomp.so"}
    else:
        assert "FAILED" in text


def test_a_wrong_selection_fails_the_self_test(home, monkeypatch):
    monkeypatch.setattr(
        homophily.DirichletSelector, "selected_features_", property(lambda self: np.array([4, 1])), raising=False
    )
    monkeypatch.setattr(homophily.DirichletSelector, "fit", lambda self, X: self)
    assert "expected the columns 0 and 1 to be selected, got [1, 4]" in run(code=1)


def test_torch_that_does_not_load_stops_nothing(home, monkeypatch):
    def broken():
        raise ImportError("libcudart.so: cannot open")

    monkeypatch.setattr(doctor, "_device", broken)
    monkeypatch.setattr(doctor, "_find_planted_columns", broken)
    text = run(code=1)
    assert "Device\n  ImportError: libcudart.so: cannot open" in text
    assert "Data sets\n  searched: " in text


def test_extras_are_those_of_the_metadata(monkeypatch):
    lines = ["torch>=2", "a.b>=1; extra == 'x'", 'Zed; python_version > "3" and extra == "y-z"', "c; extra == 'dev'"]
    monkeypatch.setattr(doctor, "requires", lambda package: lines)
    lines += ["d; extra == 'test'", "homophily[x]; extra == 'system'"]
    assert doctor._extras() == {"a.b": "x", "zed": "y-z"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{home}", "~"), ("in {home}/a: {home}/b", "in ~/a: ~/b"), ("{home}work/a", "{home}work/a"), ("", ""), (3, 3)],
)
def test_only_the_home_folder_is_abbreviated(home, text, expected):
    fill = [one.format(home=home) if isinstance(one, str) else one for one in (text, expected)]
    assert doctor.anonymous({"a": [fill[0]]}) == {"a": [fill[1]]}


@pytest.mark.parametrize("own", ["/", ""])
def test_a_home_folder_that_is_no_name(monkeypatch, own):
    monkeypatch.setenv("HOME", own)
    assert doctor.anonymous("/usr/lib and nothing") == "/usr/lib and nothing"
