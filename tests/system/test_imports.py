"""What an import loads, and that names loaded late are all there."""

import inspect
import pickle
import subprocess
import sys
from functools import cache
from importlib import import_module

import pytest

import homophily

HEAVY = {"torch", "pandas", "matplotlib", "sklearn", "scipy", "pyarrow", "numpy", "joblib", "distributed", "faiss"}
PACKAGES = ("homophily", "homophily.evaluation", "homophily.datasets", "homophily.baselines", "homophily.nn")


@cache
def loaded_by(statement):
    """Packages of HEAVY that a fresh Python has loaded after the statement."""
    code = f"import sys\n{statement}\nprint('LOADED', *({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())


def called(*arguments):
    """A statement that runs the command line with these arguments."""
    return f"from homophily.cli import app\napp({list(arguments)!r}, standalone_mode=False)"


def test_the_watch_sees_what_is_loaded():
    assert "torch" in loaded_by("from homophily import DirichletSelector")
    assert "matplotlib" in loaded_by("import homophily.figures")


@pytest.mark.parametrize(
    "statement",
    ["import homophily", "import homophily; dir(homophily); hasattr(homophily, 'nothing')", "import homophily.cli"],
)
def test_importing_the_package_loads_nothing_heavy(statement):
    assert loaded_by(statement) == set()


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["select", "--help"], ["datasets", "--help"], ["doctor", "--help"]]
)
def test_help_and_version_load_nothing_heavy(arguments):
    assert loaded_by(called(*arguments)) == set()


def test_listing_data_sets_and_runs_needs_neither_torch_nor_scikit_learn(tmp_path):
    assert loaded_by(called("datasets", "list", "--data-dir", str(tmp_path))) <= {"numpy", "scipy"}
    store = tmp_path / "runs.sqlite"
    made = f"from homophily.evaluation import RunStore\nwith RunStore({str(store)!r}): pass\n"
    assert loaded_by(made + called("runs", "list", str(store))) <= {"numpy", "scipy"}


def test_the_estimator_loads_no_matplotlib_and_no_more_than_it_needs():
    own = loaded_by("from homophily import DirichletSelector")
    assert own <= {"pyarrow", "joblib", *loaded_by("import torch"), *loaded_by("import sklearn.feature_selection")}
    assert not own & {"matplotlib", "distributed", "faiss"}


def test_the_torch_modules_load_torch_alone():
    assert loaded_by("from homophily.nn import KNNGraph") <= loaded_by("import torch")
    assert not loaded_by("from homophily.nn import KNNGraph") & {"sklearn", "pandas", "scipy"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_listed(package):
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_star_import(package):
    names = {}
    exec(f"from {package} import *", names)
    assert set(names) - {"__builtins__"} == set(import_module(package).__all__)


@pytest.mark.parametrize("package", ["homophily", "homophily.evaluation"])
def test_a_name_that_does_not_exist(package):
    module = import_module(package)
    assert not hasattr(module, "nothing")
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {package} import nothing")


def test_modules_are_attributes_without_an_import_of_their_own():
    code = "import homophily\n"
    for name in sorted(homophily.MODULES, key=["datasets", "nn"].__contains__, reverse=True):  # the least loading first
        code += f"assert homophily.{name}.__name__ == 'homophily.{name}'\n"
    assert "matplotlib" in loaded_by(code)  # in a process of its own: here all are loaded already
    assert set(homophily.MODULES) <= set(dir(homophily))


def test_functions_are_not_hidden_by_modules_of_their_name():
    code = "import homophily.evaluation.summary, homophily.evaluation.tasks, homophily.baselines.laplacian_score\n"
    code += "from homophily.evaluation import summary, reconstruct\nfrom homophily.baselines import laplacian_score\n"
    loaded_by(code + "assert callable(summary) and callable(reconstruct) and callable(laplacian_score)")
    assert inspect.isfunction(import_module("homophily.evaluation").summary)


def test_a_pickled_selector_finds_its_class_in_a_fresh_process(tmp_path):
    (tmp_path / "selector.pickle").write_bytes(pickle.dumps(homophily.DirichletSelector(3, reg=0.5)))
    code = f"import pickle\nselector = pickle.loads(open({str(tmp_path / 'selector.pickle')!r}, 'rb').read())\n"
    code += "import homophily\nassert type(selector) is homophily.DirichletSelector and selector.reg == 0.5"
    assert "torch" in loaded_by(code)
