"""The site: every page and name has its place, figures are those of the results, and it builds without network."""

import importlib
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

import homophily

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = sorted((DOCS / "api").glob("*.rst"))
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


@pytest.fixture
def extension(monkeypatch):
    """A module of docs/_ext by its name."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    return importlib.import_module


def listed(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = [line.strip() for block in TOCTREE.findall(text) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


@pytest.mark.parametrize("page", sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "index"))
def test_page_is_in_the_table_of_contents_once(page):
    assert sum(fnmatch(page, entry) for entry in listed("index.md")) == 1


def test_what_the_table_of_contents_lists_exists():
    for entry in listed("index.md"):
        assert entry == "gallery/index" or list(DOCS.glob(f"{entry}.md"))
    assert listed("api/index.md") == [
        name for name in listed("api/index.md") if (DOCS / "api" / f"{name}.rst").is_file()
    ]
    assert sorted(listed("api/index.md")) == [page.stem for page in API]


def documented(page):
    """Names of the library that a page of the reference describes."""
    module, names = None, set()
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif line.startswith(".. py:data::"):
            name = line.split()[-1]
            names.add(name if "." in name else f"{module}.{name}")
        elif re.fullmatch(r"   \w+", line) and module:
            names.add(f"{module}.{line.strip()}")
    return names


PUBLIC = (
    "homophily",
    "homophily.nn",
    "homophily.graph",
    "homophily.baselines",
    "homophily.datasets",
    "homophily.evaluation",
    "homophily.figures",
    "homophily.stability",
    "homophily.anndata",
    "homophily.memory",
    "homophily.objectives",
)


def test_reference_has_every_public_name_and_no_other():
    found = set().union(*(documented(page) for page in API))
    assert {name.rpartition(".")[2] for name in PUBLIC[1:]} | {"io"} == set(homophily.MODULES)
    public = {f"{module}.{name}" for module in PUBLIC for name in importlib.import_module(module).__all__}
    assert found == (public - {"homophily.__version__"}) | {"homophily.base.BaseSelector", "homophily.methods.METHODS"}


def test_figures_of_choosing_are_those_of_the_results():
    text = (DOCS / "choosing.md").read_text(encoding="utf-8")
    results = (ROOT / "results" / "quality.md").read_text(encoding="utf-8")
    figures = re.findall(r"[+-]\d\.\d{3} ± \d\.\d{3}(?:, \d+/10)?|\d+\.\d s", text)
    assert len(figures) > 30
    assert [figure for figure in figures if figure not in results] == []


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ('<script src="https://cdn.example/a.js"></script>', ".html"),
        ("<img alt='' src='//pictures.example/a.png'>", ".html"),
        ('<link rel="stylesheet" href="https://fonts.example/css">', ".html"),
        ('<style>@import "https://fonts.example/css";</style>', ".html"),
        ("@font-face {src: url(https://fonts.example/a.woff2)}", ".css"),
        ('fetch("https://data.example/a.json")', ".js"),
    ],
)
def test_request_to_another_host_is_found(extension, text, suffix):
    assert len(extension("offline").foreign_requests(text, suffix)) == 1


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ('<a href="https://github.com/a">a link to follow</a><img src="_images/a.png">', ".html"),
        ('<link rel="stylesheet" href="_static/a.css"><math xmlns="http://www.w3.org/1998/Math/MathML">', ".html"),
        ("a {background: url(data:image/svg+xml;base64,AAAA)}", ".css"),
        ("// see https://example.org\nfetch('searchindex.js')", ".js"),
    ],
)
def test_what_is_no_request_is_left_alone(extension, text, suffix):
    assert extension("offline").foreign_requests(text, suffix) == []


def test_links_out_of_the_docs(extension):
    within = extension("repository_links").within_site
    assert within("see the [README](../README.md#a).") == "see the [README](index.md)."
    assert within("[results/reproduce](../results/reproduce) has") == "results/reproduce has"
    assert within("[it](../benchmarks/a.py)") == "it (`benchmarks/a.py`)"
    assert within("[page](scaling.md) ![picture](../a.png)") == "[page](scaling.md) ![picture](../a.png)"


@pytest.mark.parametrize(
    ("tex", "parts"),
    [
        (r"\frac12 \sum_i", ["<mfrac><mn>1</mn><mn>2</mn></mfrac>", "&#x02211;"]),
        (r"\hat x_i", ["<msub><mover", "<mi>x</mi>", "</mover><mi>i</mi></msub>"]),
        (r"\mathrm{tr}(\hat X^\top L_S)", ["<mi>tr</mi>", "<msub><mi>L</mi><mi>S</mi></msub>"]),
        (r"\min_{y} \mathcal L", ["<munder><mo>min</mo>", "ℒ"]),
        (r"a \mathrel{+}= b", ["<mo>&#x0002B;</mo><mo>&#x0003D;</mo>"]),
    ],
)
def test_formula_becomes_mathml(extension, tex, parts):
    pytest.importorskip("latex2mathml")
    found = extension("mathml").mathml(tex, as_block=True)
    assert [part for part in parts if part not in found] == []
    assert "\\" not in found


def test_command_reference_has_every_command(extension):
    names = [name for name, _ in extension("cli_reference").commands()]
    assert len(names) == len(set(names))
    assert {"homophily", "homophily select", "homophily compare", "homophily datasets fetch"} <= set(names)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, but for what the examples draw."""
    for package in ("sphinx", "numpydoc", "sphinx_gallery", "myst_parser", "furo"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    made = shutil.ignore_patterns("_build", "gallery", "generated", "__pycache__")
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=made)
    shutil.copy(ROOT / "CHANGELOG.md", folder)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-D", "plot_gallery=0"]
    done = subprocess.run(
        [*command, str(folder / "docs"), str(folder / "html")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_site_builds_without_warnings(site):
    pages = {path.stem for path in DOCS.glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}


def test_formulas_are_drawn_by_the_browser(site):
    method = (site / "method.html").read_text(encoding="utf-8")
    assert method.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') >= 7
    assert [name for name in re.findall(r'<script[^>]*\ssrc="([^"]*)"', method) if "math" in name.lower()] == []
    assert r"\frac" not in method


def test_command_line_is_shown(site):
    page = (site / "cli.html").read_text(encoding="utf-8")
    assert 'id="homophily-select"' in page
    assert "--image-shape" in page
    assert "[bold]" not in page
