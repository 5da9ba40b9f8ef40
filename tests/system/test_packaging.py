"""The wheel and the source archive hold what they should, and the wheel works where nothing else of ours is."""

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from homophily import __version__

pytest.importorskip("build")
pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGE = ROOT / "src" / "homophily"


def called(*arguments, cwd):
    done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with the source archive, and the wheel that was built from it and not from the repository."""
    folder = tmp_path_factory.mktemp("dist")
    called(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    return email.message_from_bytes(wheel.read(f"homophily-{__version__}.dist-info/METADATA"))


def ours():
    """Every file of the package in the repository."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE.parent).as_posix() for path in files}


def test_names_of_the_files(built):
    assert {path.name for path in built.iterdir()} == {
        f"homophily-{__version__}.tar.gz",
        f"homophily-{__version__}-py3-none-any.whl",
    }


def test_the_wheel_is_the_package_with_its_data_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == ours()
    for name in (
        "homophily/py.typed",
        *(f"homophily/report/templates/{name}.html.j2" for name in ("page", "selection", "results")),
        "homophily/evaluation/data/table2.csv",
        "homophily/evaluation/data/ablation.csv",
        "homophily/experiments/data/costs.csv",
    ):
        assert name in names


def test_the_archive_is_what_a_contributor_needs(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in ours()} <= names
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "Makefile"):
        assert name in names
    assert {"pyproject.toml", "constraints.txt", "tests/system/test_packaging.py", "docs/scaling.md"} <= names
    assert not [name for name in names if re.match(r"(\.venv|\.git/|demo/|dist/)", name)]


def test_metadata(metadata):
    assert metadata["Name"] == "homophily"
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata.get_payload().lstrip().startswith("# homophily")
    assert {"faiss", "dask", "test", "dev"} <= set(metadata.get_all("Provides-Extra"))
    assert set(metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert {plain(line) for line in needed} == {plain(line) for line in PROJECT["dependencies"]}


def test_entry_point_and_licence(wheel):
    info = f"homophily-{__version__}.dist-info"
    assert "homophily = homophily.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_whatever_can_be_installed_is_pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {plain(line) for line in lines if "==" in line and not line.startswith("#")}
    wanted = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    assert {plain(line) for line in wanted} <= {"homophily", *pinned}


def test_the_wheel_works_in_an_empty_folder(built, tmp_path):
    (path,) = built.glob("*.whl")
    target = tmp_path / "installed"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
    called(*pip, "--no-deps", "--target", str(target), str(path), cwd=tmp_path)
    first = f"import sys; sys.path.insert(0, {str(target)!r}); "
    look = """
import homophily
from homophily.evaluation import paper_ablation, paper_table
from homophily.experiments.costs import coefficients
from homophily.report import write_report
from importlib.resources import files
assert len(paper_table()) and len(paper_ablation()) and coefficients()
assert files("homophily.report").joinpath("templates/page.html.j2").is_file()
print(homophily.__file__)
"""
    assert called(sys.executable, "-I", "-c", first + look, cwd=tmp_path).startswith(str(target))
    run = (
        first
        + "import runpy; sys.argv = ['homophily', '--version']; runpy.run_module('homophily', run_name='__main__')"
    )
    assert called(sys.executable, "-I", "-c", run, cwd=tmp_path).strip() == f"homophily {__version__}"


def plain(requirement):
    """Name of the package that a line asks for."""
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")
