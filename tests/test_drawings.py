"""``homophily reproduce figures``: what can be drawn is drawn, and what is missing has a command that makes it."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from command_line import run as invoke

from homophily import draw
from homophily.datasets import TOY_NAMES, make_toy
from homophily.experiments import drawings
from homophily.experiments.drawings import DRAWINGS, MissingInputError, Sources

TABLE = pd.DataFrame(
    {
        "task": "classification",
        "dataset": ["Yale", "Jaffe"],
        "method": "dirichlet",
        "mean": [0.7, 0.9],
        "std": 0.1,
        "paper_mean": [0.8, 0.9],
        "paper_std": 0.05,
    }
)


@pytest.fixture(autouse=True)
def _no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("HOMOPHILY_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOMOPHILY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def by_name(name):
    return next(drawing for drawing in DRAWINGS if drawing.name == name)


def run(*arguments, code=0):
    return invoke("reproduce", "figures", *arguments, code=code)


def test_what_is_missing_is_listed_with_its_command(tmp_path, monkeypatch):
    names = ("fig1-energy", "figS2-graphs", "beside-paper", "figS3-sensitivity", "growth")
    monkeypatch.setattr(draw, "DRAWINGS", [by_name(name) for name in names])
    result = run("--out", "out")
    assert result.stdout == "out/figures/fig1-energy.png: Fig. 1: the Dirichlet energy\n"
    assert "homophily datasets fetch COIL-20" in result.stderr
    assert "homophily reproduce table --quick --protocol paper --out out" in result.stderr
    assert "homophily reproduce sensitivity --quick --out out" in result.stderr
    assert "python benchmarks/growth.py --results out" in result.stderr
    assert sorted(path.name for path in (tmp_path / "out" / "figures").iterdir()) == [
        "fig1-energy.png",
        "fig1-energy.svg",
        "figures.md",
    ]
    place = tmp_path / "out" / "table-quick-paper"
    place.mkdir()
    TABLE.to_csv(place / "table.csv", index=False)
    (tmp_path / "out" / "growth.csv").write_text("rows,training\n10,1\n100,2\n")
    again = run("--out", "out")
    assert [line.split(":")[0] for line in again.stdout.splitlines()] == [
        "out/figures/fig1-energy.png",
        "out/figures/beside-paper.png",
        "out/figures/growth.png",
    ]
    assert "(beside-paper.png)" in (tmp_path / "out" / "figures" / "figures.md").read_text()
    assert not run("--out", "out", "--quiet").output


def test_a_folder_of_the_user_is_left_alone(tmp_path):
    (tmp_path / "out" / "figures").mkdir(parents=True)
    (tmp_path / "out" / "figures" / "growth.png").write_text("years of work")
    assert "is not empty and not of an earlier run" in run("--out", "out", code=2).output
    assert [path.name for path in (tmp_path / "out" / "figures").iterdir()] == ["growth.png"]


def test_a_whole_table_comes_before_a_quick_one_and_the_papers_protocol_first(tmp_path):
    for at, name in enumerate(("table-quick-paper", "table-default", "table-paper")):
        place = tmp_path / "tables" / name
        place.mkdir(parents=True)
        (place / "table.csv").write_text(f"number\n{at}\n")
        found = Sources(tmp_path).table("table-*/table.csv", "")
        assert found["number"].tolist() == [at]
    with pytest.raises(MissingInputError, match=r"no nothing\.csv in"):
        Sources(tmp_path).table("nothing.csv", "")


@pytest.mark.slow
def test_toy_panels_show_the_first_draw(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(drawings.figures, "toy_panels", shown.extend)
    by_name("fig3-toy").draw(Sources(tmp_path))
    assert [result.name for result in shown] == list(TOY_NAMES)
    for result in shown:
        X, y = make_toy(result.name, 200, random_state=0)
        np.testing.assert_array_equal(result.X, X)
        np.testing.assert_array_equal(result.y, y)
        assert result.F.shape == result.F_repeating.shape == (2, 20)
        np.testing.assert_allclose(result.F.sum(1), 1, atol=1e-4)
        np.testing.assert_allclose(result.learned.sum(1), 1, atol=1e-3)
        across = result.learned.tocoo()
        assert (y[across.coords[0]] != y[across.coords[1]]).mean() < 0.05


def test_pixels_of_the_published_files_stand_upright(tmp_path, monkeypatch):
    image = np.zeros((26, 26))
    image[2, :] = np.arange(26)  # a bright line near the top, brighter to the right
    stored = np.tile(image.T.ravel(), (3, 1))  # column by column
    chosen = np.array([26 * 25 + 2])  # its brightest pixel
    source = Sources(tmp_path)
    monkeypatch.setattr(source, "data", lambda name: (stored, None))
    monkeypatch.setattr(source, "selector", lambda name, m: SimpleNamespace(selected_features_=chosen))
    axes = by_name("pixels-jaffe").draw(source).axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), image)
    assert axes.collections[0].get_offsets().tolist() == [[25, 2]]
