"""What the README and the other pages show is what happens."""

import contextlib
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from sklearn.datasets import load_wine

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = CODE.findall(README)
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}


def test_first_example_prints_what_the_readme_says():
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(BLOCKS[0], names)
    assert printed.getvalue().strip() in README
    assert printed.getvalue().count("\n") == 3
    selector = names["selector"]  # make demo selects from the same data
    shown = re.findall(r"^ +(\d+)  (\S+) +(\d+)  (0\.\d+)$", README, re.MULTILINE)
    # The order follows certainties, in which processors differ by rounding that grows from step to step.
    assert [int(rank) for rank, *_ in shown] == [1, 2, 3, 4, 5]
    chosen = selector.get_support(indices=True)
    assert sorted((int(column), name) for _, name, column, _ in shown) == [(i, names["X"].columns[i]) for i in chosen]


GUIDE = "single_cell.md"
OTHERS = [block for name, page in PAGES.items() if name != GUIDE for block in CODE.findall(page)]


@pytest.fixture
def samples(tmp_path, monkeypatch):
    """A folder with ``samples.csv`` as people have it: names, labels, a gap, and a column without information."""
    wine, y = load_wine(return_X_y=True, as_frame=True)
    wine.loc[3, "ash"] = None
    wine.insert(0, "id", [f"bottle {i}" for i in range(len(wine))])
    wine.assign(same=1.0, y=y).to_csv(tmp_path / "samples.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_own_csv(samples):
    names = {}
    exec(next(block for block in BLOCKS if "samples.csv" in block), names)
    written = pd.read_csv(samples / "chosen.csv")
    assert list(written.columns) == names["chosen"]
    assert len(names["chosen"]) == 5
    assert not {"id", "y", "same"} & set(names["chosen"])
    pd.testing.assert_frame_equal(written, pd.read_csv(samples / "samples.csv")[names["chosen"]])


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize("block", BLOCKS[1:] + OTHERS)
@pytest.mark.slow
def test_other_examples_run(block):
    exec(block, {})


@pytest.mark.slow
def test_single_cell_guide_runs_from_top_to_bottom_and_prints_what_it_says(tmp_path, monkeypatch):
    pytest.importorskip("scanpy")
    monkeypatch.chdir(tmp_path)
    parts = re.split(r"```python\n(.*?)```", PAGES[GUIDE], flags=re.DOTALL)
    names = {}
    for block, text in zip(parts[1::2], parts[2::2], strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block, names)
        shown = re.match(r"\s*prints\b[^`]*```\n(.*?)```", text, re.DOTALL)
        assert printed.getvalue() == (shown[1] if shown else "")


def test_example_file_is_the_first_example():
    text = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    body = text.split('"""', 2)[2]
    assert [line for line in body.splitlines() if line] == [line for line in BLOCKS[0].splitlines() if line]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_pictures_and_links_lead_somewhere(page):
    for path in re.findall(r"\]\(((?!http|#).*?)(?:#.*?)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / path).exists()


BLOCK = re.compile(r"<!-- results/(\S+?)(?:#(.+?))? -->\n(.*?)<!-- end -->", re.DOTALL)


@pytest.mark.parametrize(
    ("name", "heading", "shown"), [block for page in (README, *PAGES.values()) for block in BLOCK.findall(page)]
)
def test_tables_are_what_the_commands_wrote(name, heading, shown):
    """All of a file, or of the section under a heading the lines that are shown."""
    text = (ROOT / "results" / name).read_text(encoding="utf-8")
    if heading:
        section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
        assert shown.strip()
        assert shown.strip() in section
    else:
        assert shown.strip() == text.strip()


def test_every_table_of_results_is_shown_on_a_page():
    shown = {name for page in PAGES.values() for name, _, _ in BLOCK.findall(page)}
    files = {path.relative_to(ROOT / "results").as_posix() for path in (ROOT / "results").rglob("*.md")}
    assert shown == files - {"figures/figures.md"}
