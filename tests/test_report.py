"""What the report measures, by brute force; that it stays small, and that text of the data stays text."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from markupsafe import escape
from typer.testing import CliRunner

from homophily.cli import app
from homophily.datasets import make_planted
from homophily.evaluation.tables import ResultTable
from homophily.figures import gains_over_random
from homophily.report import Section, insight, look, results_page, write_report
from homophily.report.insight import Chance
from homophily.sources import open_rows

SCRIPT = "<script>alert(1)</script>"


def slow_energies(P, Z, k):
    """Sum of s_ij (z_i - z_j)^2 for each column of Z on the adaptive k-NN graph of the points P."""
    D = ((P[:, None] - P) ** 2).sum(-1)
    total = np.zeros(Z.shape[1])
    for i in range(len(P)):
        near = [j for j in np.argsort(D[i], kind="stable") if j != i][: k + 1]
        gap = D[i, near[k]] - D[i, near[:k]]
        for weight, j in zip(gap / gap.sum(), near[:k], strict=True):
            total += weight * (Z[i] - Z[j]) ** 2
    return total


def test_energy_and_what_is_explained_are_those_of_the_definition():
    X, _, features = make_planted(60, 9, 4, random_state=0)
    Z = (X - X.mean(0)) / X.std(0)
    found = look(X, features, 5, None)
    energies = slow_energies(Z[:, features], Z, 5)
    assert found.energy.value == pytest.approx(energies[features].mean() / 120)
    r = 1 - energies / 120
    for f in features:
        others = features[features != f]
        r[f] = 1 - slow_energies(Z[:, others], Z, 5)[f] / 120
    assert found.explained.value == pytest.approx(r.mean())
    assert found.energy.lower == 0  # the planted ones are the smoothest
    assert found.explained.lower > 90
    np.testing.assert_allclose(found.correlations, np.corrcoef(X[:, features].T))
    assert found.mean is None


def test_one_feature_is_explained_by_no_other():
    X, _, _ = make_planted(60, 9, 4, random_state=0)
    Z = (X - X.mean(0)) / X.std(0)
    r = 1 - slow_energies(Z[:, [2]], Z, 5) / 120
    found = look(X, np.array([2]), 5, None)
    assert found.explained.value == pytest.approx((r.sum() - r[2]) / 9)
    assert found.correlations.shape == (1, 1)
    assert found.drawn.points[:, 0] == pytest.approx(Z[:, 2])


def test_random_selections_are_as_good_as_each_other():
    """Noise is better than random noise as often as not."""
    X = np.random.RandomState(0).normal(size=(100, 40))
    ranks = [look(X[:, np.r_[i:40, :i]], np.arange(5), 5, None).energy.lower for i in range(0, 40, 5)]
    assert 20 < np.mean(ranks) < 80


def test_any_kind_of_data_gives_the_same(tmp_path):
    X, _, features = make_planted(700, 8, 3, random_state=0)
    X[np.abs(X) < 0.3] = 0
    np.save(tmp_path / "x.npy", X)
    pd.DataFrame(X, columns=list("abcdefgh")).to_parquet(tmp_path / "x.parquet", row_group_size=90)
    dense = look(X, features, 5, None, mean=True)
    others = [pd.DataFrame(X), sp.csr_array(X), sp.csr_matrix(X), *map(open_rows, tmp_path.glob("x.*"))]
    assert len(others) == 5
    for other in others:
        found = look(other, features, 5, None, mean=True)
        np.testing.assert_allclose(found.histograms, dense.histograms)
        np.testing.assert_allclose(found.correlations, dense.correlations)
        assert found.energy.value == pytest.approx(dense.energy.value)
        np.testing.assert_allclose(found.mean, X.mean(0))
    assert len(dense.drawn.points) == 512


def test_files_are_read_once(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.RandomState(0).normal(size=(5000, 30)))
    source, reads = open_rows(tmp_path / "x.npy"), []
    blocks = source.blocks
    monkeypatch.setattr(source, "blocks", lambda *some: reads.append(some) or blocks(*some))
    look(source, np.arange(4), 5, None, mean=True)
    assert len(reads) == 1


def test_histograms():
    column = np.repeat(np.arange(14.0), np.arange(1, 15))
    X = np.stack([column, np.full_like(column, 3), 1e300 * np.sign(column - 5), -column], 1)
    found = look(X, np.arange(4), 5, None).histograms
    np.testing.assert_allclose(found[0], np.arange(1, 15) / 14)
    assert found[1].tolist() == [0] * 7 + [1] + [0] * 6
    np.testing.assert_allclose(found[3], found[0][::-1])
    assert np.isfinite(found).all()
    assert (found.max(1) == 1).all()


def test_labels_are_named_while_they_are_few():
    X, y, features = make_planted(60, 6, 3, random_state=0)
    drawn = look(X, features, 5, pd.Series(y).map({0: "b", 1: "a", 2: "d", 3: "c"})).drawn
    assert drawn.classes == ["a", "b", "c", "d"]
    assert drawn.codes.tolist() == [[1, 0, 3, 2][label] for label in y]
    assert look(X, features, 5, pd.Series(np.arange(60.0))).drawn.codes is None
    assert look(X, features, 5, pd.Series(["one"] * 60)).drawn.codes is None


@pytest.mark.parametrize(("n", "d", "m"), [(2, 3, 1), (4, 3, 2), (5, 3, 1), (6, 2, 2), (6, 40, 39), (7, 1, 1)])
def test_small_data(n, d, m, tmp_path):
    X = np.random.RandomState(0).normal(size=(n, d))
    found = look(X, np.arange(m), 5, None)
    assert (found.drawn is None) == (n < 5)
    assert (found.energy is None) == (n < 5 or m == d)
    report(tmp_path / "report.html", found, [f"f{i}" for i in range(m)], n)


def report(file, found, names, n, **more):
    selected = [
        {"rank": i + 1, "index": i, "name": name, "score": 0.5, "shown": "0.500", "copies": ""}
        for i, name in enumerate(names)
    ]
    facts = {"summary": {"Data": "x.csv"}, "score_meaning": "nothing", "history": {}, "notes": [], "usage": ""}
    return write_report(file, selected=selected, insight=found, n_samples=n, **(facts | more)).read_text()


@pytest.mark.slow
def test_a_large_selection_gives_a_small_file(tmp_path):
    """2,000 of 2,100 features of 100,000 samples."""
    rng = np.random.default_rng(0)
    X = sp.random_array((100_000, 2100), density=0.002, format="csr", rng=rng)
    found = look(X, np.arange(2000), 5, pd.Series(rng.integers(4, size=100_000)))
    text = report(
        tmp_path / "report.html", found, [f"a feature with a long name, number {i}" for i in range(2000)], 10**5
    )
    assert len(text) < 5_000_000
    assert text.count("<tr>") == 2001


def test_text_of_the_data_stays_text(tmp_path):
    X, y, features = make_planted(60, 6, 3, random_state=0)
    found = look(X, features, 5, pd.Series(y).map(lambda label: f"{SCRIPT}{label}"))
    text = report(
        tmp_path / "report.html",
        found,
        [SCRIPT, '"><img src=x onerror=alert(1)>', "a & b"],
        60,
        summary={"Data": SCRIPT, SCRIPT: "x"},
        notes=[SCRIPT],
        usage=SCRIPT,
        score_meaning=SCRIPT,
        size_reason=SCRIPT,
    )
    assert SCRIPT not in text
    assert "<img src=x" not in text
    assert text.count("<script>") == 2  # our own: sorting and filtering
    assert text.count("&lt;script&gt;") >= 7


def test_text_of_results_stays_text():
    table = ResultTable(SCRIPT, [SCRIPT, SCRIPT], [[SCRIPT, SCRIPT]], [SCRIPT], [SCRIPT, SCRIPT], frozenset({(0, 1)}))
    gains = {"measure": [SCRIPT], "group": [SCRIPT], "method": [SCRIPT], "gain": [0.1], "error": [0.1]}
    sections = [Section(SCRIPT, gains_over_random(pd.DataFrame(gains)), SCRIPT), Section(SCRIPT, table=table)]
    text = results_page(SCRIPT, SCRIPT, summary={SCRIPT: SCRIPT}, sections=sections, notes=[SCRIPT])
    assert SCRIPT not in text
    assert text.count("<script>") == 1
    assert text.count("&lt;script&gt;") >= 14
    assert "<strong>&lt;script&gt;" in text
    assert f'colspan="2" class="group">{escape(SCRIPT)}</th>' in text


def test_chance_counts_the_lower_ones():
    chance = Chance(2.0, np.array([1.0, 2.0 + 1e-15, 2.0 - 1e-15, 3.0, 0.0, -1.0]))
    assert (chance.lower, chance.higher) == (3, 1)


def test_pixels_are_shown_if_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("digits.npy", np.random.RandomState(0).normal(size=(30, 6)))
    arguments = ["select", "digits.npy", "-m", "2", "--method", "dirichlet", "--max-iter", "3", "-q"]
    run = CliRunner().invoke(app, [*arguments, "--image-shape", "2x3"])
    assert run.exit_code == 0, run.output
    assert "Chosen pixels" in (tmp_path / "digits-selected" / "report.html").read_text()
    for given, message in [
        ("3x3", "--image-shape 3x3: such images have 9 pixels, and digits.npy has 6 features."),
        ("6", "expected height and width, such as 28x28"),
        ("0x6", "expected height and width, such as 28x28"),
    ]:
        run = CliRunner().invoke(app, [*arguments, "--image-shape", given, "--out", "other"])
        assert run.exit_code == 2
        assert message in " ".join(run.output.split())
    assert not (tmp_path / "other").exists()


def test_pool_of_random_selections_is_bounded(monkeypatch):
    monkeypatch.setattr(insight, "POOL", 20)
    X, _, features = make_planted(60, 200, 3, random_state=0)
    found = look(X, features, 5, None)
    assert found.energy.lower == 0
    assert len(found.energy.random) == 100
