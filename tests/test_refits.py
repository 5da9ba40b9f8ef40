"""``homophily select --stability``: what it measures, shows and writes, and what happens when it cannot."""

import os
import signal
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from command_line import run as invoke
from typer.testing import CliRunner

from homophily import DirichletSelector
from homophily.baselines import LaplacianScore, RandomSelector
from homophily.cli import app
from homophily.commands import MANY
from homophily.datasets import make_toy
from homophily.refits import FRACTION, _like, described, in_words, refit
from homophily.stability import Stability, stability

QUESTION = "Would other samples have led to the same features?"


@pytest.fixture
def csv(tmp_path):
    X, y = make_toy("moons", n_samples=60, random_state=0)
    names = ["<b>", "width", *(f"noise{i}" for i in range(18))]
    pd.DataFrame(X, columns=names).assign(kind=y).to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def select(csv, *more, code=0, method="ls"):
    """Run the command; words of its output are separated by single spaces."""
    options = ("--label-column", "kind", "--method", method, "--jobs", "1", "--out", csv.parent / "out")
    arguments = ["select", csv, "-m", 4, "--stability", 4, *options, *more]
    return " ".join(invoke(*arguments, code=code).output.split())


def selected(csv):
    return pd.read_csv(csv.parent / "out" / "selected.csv")


def report(csv):
    text = []
    page = HTMLParser()
    page.handle_data = text.append
    page.feed((csv.parent / "out" / "report.html").read_text(encoding="utf-8"))
    return " ".join(" ".join(text).split())


def found(index=0.5, frequency=(1.0, 0.5, 0.4, 0.75), interval=(0.4, 0.6)):
    return Stability(index, interval, np.array(frequency), np.zeros((20, len(frequency)), dtype=bool))


def test_what_is_written_is_what_the_library_measures(csv):
    X = pd.read_csv(csv).drop(columns="kind")
    expected = stability(LaplacianScore(4), X, n_subsamples=4, random_state=3)
    assert 0 < expected.index < 1
    output = select(csv, "--seed", 3)
    table = selected(csv)
    assert list(table.columns) == ["rank", "index", "name", "score", "frequency"]
    np.testing.assert_array_equal(table["frequency"], expected.frequency[table["index"]])
    assert f"Stability over 4 subsamples: {expected.index:.2f}".replace("0.", ".") in output
    for row in table.itertuples():
        assert f"{row.rank} {row.name} {row.index} {row.score:.3f} {row.frequency:.0%}" in output

    text = report(csv)
    assert QUESTION in text
    assert "repeated on 4 random parts of 80% of the samples" in text
    for row in table.itertuples():
        assert f"{row.name} {row.frequency:.0%}" in text
    others = np.setdiff1d(np.flatnonzero(expected.frequency >= 0.5), table["index"])
    for other in others:
        assert f"{X.columns[other]} {expected.frequency[other]:.0%}" in text
    assert ("but not chosen from all samples" in text) is bool(len(others))


@pytest.mark.parametrize("method", ["dirichlet", "rsr", "cae", "random", "all"])
def test_every_method(csv, method):
    quick = {"dirichlet": ["--max-iter", 2, "-p", "refine=false"], "cae": ["--max-iter", 2]}.get(method, [])
    output = select(csv, *quick, method=method)
    assert "Stability over 4 subsamples" in output
    assert selected(csv)["frequency"].between(0, 1).all()
    assert not (csv.parent / "out" / "checkpoint").exists()
    if method in ("random", "all"):  # the same seed, the same columns
        assert "subsamples: 1.00 (95% interval 1.00 to 1.00)" in output


def test_off_by_default(tmp_path, csv):
    result = CliRunner().invoke(app, ["select", str(csv), "-m", "2", "--method", "ls", "--out", str(tmp_path / "o")])
    assert result.exit_code == 0, result.output
    assert "tability" not in result.output
    assert "frequency" not in pd.read_csv(tmp_path / "o" / "selected.csv")
    assert QUESTION not in (tmp_path / "o" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stability", 1], "--stability 1: one selection agrees with itself"),
        (["--stability", -2], "--stability"),
        (["-k", 50], "selects again on 48 of the 60 samples, and -k 50 must be less than that: set it to 47"),
        (["-k", 60], "-k 60 must be less than the number of samples"),
    ],
)
def test_mistakes_are_found_before_any_work(csv, arguments, message, monkeypatch):
    monkeypatch.setattr(LaplacianScore, "_select", lambda self, X, m, steps: self._check_neighbors(len(X)) or 1 / 0)
    output = select(csv, *arguments, code=2)
    assert message in output.replace("│ ", "")
    assert not (csv.parent / "out").exists()


def test_one_process_only(csv, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert "--stability runs in one process" in select(csv, code=2, method="dirichlet")
    assert not (csv.parent / "out").exists()


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_rows_that_stay_on_disk(csv, monkeypatch, suffix):
    X = pd.read_csv(csv).drop(columns="kind")
    data = csv.with_suffix(suffix)
    np.save(data, X.to_numpy()) if suffix == ".npy" else X.to_parquet(data)
    tables = []
    for many in (MANY, 10):
        monkeypatch.setattr("homophily.commands.MANY", many)
        options = ["--method", "dirichlet", "--max-iter", "2", "-p", "refine=false", "--jobs", "1", "--overwrite"]
        arguments = ["select", str(data), "-m", "4", "--stability", "3", "--out", str(csv.parent / "out"), *options]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        tables.append(selected(csv))
    assert tables[0]["frequency"].min() < 1
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("method", ["ls", "dirichlet"])
@pytest.mark.slow
def test_ctrl_c_keeps_what_was_found(csv, monkeypatch, method, number):
    """The result is that of a run without refits, and says so; dirichlet goes on without training again."""
    quick = ["--max-iter", 3, "-p", "refine=false"] if method == "dirichlet" else []
    out = csv.parent / "out"
    before = signal.getsignal(number)
    calls = []

    def interrupted(selector, X, rows):
        calls.append(rows)
        if len(calls) == 2:
            os.kill(os.getpid(), number)
        return np.arange(20) < 4

    with monkeypatch.context() as patch:
        patch.setattr("homophily.stability._support", interrupted)
        output = select(csv, *quick, code=130, method=method)
    assert len(calls) == 2
    assert "How stable the selection is was not measured: that was stopped." in output
    assert "The features are complete." in output
    assert "was not measured" in report(csv)
    assert QUESTION not in report(csv)
    assert "frequency" not in selected(csv)
    assert len(selected(csv)) == 4
    assert signal.getsignal(number) is before
    assert (out / "checkpoint").exists() is (method == "dirichlet") is ("with --resume measures it" in output)
    if method == "dirichlet":
        features = list(selected(csv)["name"])
        monkeypatch.setattr("homophily.training._differentiate", None)  # of what is trained already
        monkeypatch.setattr("homophily.stability._support", lambda selector, X, rows: np.arange(20) < 4)
        select(csv, *quick, "--resume", method=method)
        assert list(selected(csv)["name"]) == features
        assert "frequency" in selected(csv)
        assert not (out / "checkpoint").exists()


def test_a_refit_that_fails_loses_nothing(csv):
    """All columns are chosen, and those that vary in one sample alone are constant in parts without it."""
    rare = {f"rare{i}": 1.0 * (np.arange(60) == i) for i in range(5)}
    pd.read_csv(csv).assign(**rare).to_csv(csv, index=False)
    output = select(csv, "-m", 25, code=1)
    assert "a selection on a part of the samples failed" in output
    assert "columns to choose from" in output
    assert "a selection on a part of the samples failed" in report(csv)
    assert len(selected(csv)) == 25
    assert "frequency" not in selected(csv)


def test_no_refits_of_training_that_was_stopped():
    X, _ = make_toy("blobs", n_samples=40, random_state=0)
    selector = DirichletSelector(2, max_iter=5, random_state=0).fit(X, callback=lambda progress: True)
    outcome = refit(selector, X, 3, n_jobs=1, seconds=0, show=False)
    assert outcome.stability is None
    assert "because the training was stopped" in outcome.note
    assert outcome.code == 130


def test_refits_do_nothing_but_select():
    X, _ = make_toy("blobs", n_samples=40, random_state=0)
    selector = DirichletSelector(max_iter=2, refine=False, verbose=1, n_jobs=2, random_state=5)
    selector.fit(X)
    copy = _like(selector)
    changed = {"n_features_to_select": 10, "verbose": False, "final_graph": "none", "n_jobs": 1}
    assert copy.get_params() == {**selector.get_params(), **changed}
    assert not hasattr(copy, "selected_features_")
    assert _like(RandomSelector(random_state=1).fit(X)).get_params() == {"n_features_to_select": 10, "random_state": 1}


def test_warnings_and_bars_of_refits_are_not_shown(csv, capfd):
    """One line for all of them; a maximum of one step makes RSR warn each time."""
    output = select(csv, "--max-iter", 1, method="rsr")
    assert "Stability over 4 subsamples" in output
    assert output.count("Note:") == 1
    assert capfd.readouterr().err == ""


def test_progress_is_shown(capfd):
    X, _ = make_toy("blobs", n_samples=40, random_state=0)
    refit(LaplacianScore(2, random_state=0).fit(X), X, 3, n_jobs=1, seconds=0, show=True)
    assert "3/3 subsamples" in capfd.readouterr().err


@pytest.mark.parametrize(("seconds", "processes"), [(1, 1), (10, 3)])
def test_processes_are_started_where_that_pays(monkeypatch, seconds, processes):
    X, _ = make_toy("blobs", n_samples=40, random_state=0)
    seen = {}
    monkeypatch.setattr("homophily.refits.stability", lambda *args, **options: seen.update(options))
    refit(LaplacianScore(2).fit(X), X, 5, n_jobs=3, seconds=seconds, show=False)
    assert seen["n_jobs"] == processes
    assert seen["fraction"] == FRACTION


@pytest.mark.parametrize(
    ("index", "interval", "words"),
    [
        (0.821, (0.744, 0.9), "20 subsamples: .82 (95% interval .74 to .90)."),
        (1.0, (1.0, 1.0), "20 subsamples: 1.00 (95% interval 1.00 to 1.00)."),
        (-0.001, (-0.104, 0.1), "20 subsamples: .00 (95% interval -.10 to .10)."),
    ],
)
def test_words_for_the_terminal(index, interval, words):
    lines = in_words(found(index, interval=interval)).splitlines()
    assert lines[0].endswith(words)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("index", "grade"), [(0.76, "excellent"), (0.75, "fair to good"), (0.4, "fair to good"), (0.39, "poor")]
)
def test_words_for_the_report(index, grade):
    assert described(found(index), np.array([0]), list("abcd"))["grade"] == grade


def test_features_that_parts_prefer():
    said = described(found(), np.array([0]), list("abcd"))
    assert [(row["name"], row["frequency"]) for row in said["others"]] == [("d", 0.75), ("b", 0.5)]
    many = described(found(frequency=np.ones(15)), np.array([2]), [f"x{i}" for i in range(15)])
    assert len(many["others"]) == 10
    assert many["more"] == 4
