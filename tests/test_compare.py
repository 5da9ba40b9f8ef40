"""``homophily compare`` as a user runs it."""

import os
import re
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from command_line import run as invoke

from homophily.baselines import RandomSelector
from homophily.datasets import make_toy
from homophily.evaluation import RunStore
from homophily.methods import METHODS

FILES = {"runs.sqlite", "comparison.csv", "cells.csv", "comparison.md", "report.html"}
OPTIONS = ("--label-column", "kind", "-m", "1,2", "--methods", "ls", "--trees", "10", "--random-draws", "1")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def csv(tmp_path):
    X, y = make_toy("blobs", n_samples=40, random_state=0)
    frame = pd.DataFrame(X[:, :5], columns=["length", "width", "a", "b", "c"])
    frame.assign(kind=np.array(["one", "two", "three"])[y], flat=1.0).to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def run(*arguments, code=0):
    return invoke("compare", *arguments, code=code)


def compare(csv, *more, out="out", splits=2, code=0):
    # Of an option that is given twice the last counts.
    return run(csv, *OPTIONS, "--splits", splits, "--jobs", 1, "--out", csv.parent / out, *more, code=code)


def table(csv, name="comparison", out="out"):
    return pd.read_csv(csv.parent / out / f"{name}.csv")


def test_compare_writes_what_it_says(csv):
    result = compare(csv, "--methods", "ls,all", "--random-draws", 2)
    folder = csv.parent / "out"
    assert {path.name for path in folder.iterdir()} == FILES
    lines = [line for line in result.output.splitlines() if not line.startswith(("Written to", "Report: "))]  # paths
    assert all(len(line) <= 80 for line in lines)
    for text in ("40 samples, 6 features", "1 feature\n", "2 features\n", "accuracy − random", "Means of 2 splits"):
        assert text in result.output

    summary = table(csv)
    assert summary.groupby("m")["method"].apply(set).tolist() == [{"all", "ls", "random"}] * 2
    assert summary.groupby("m")["accuracy"].apply(lambda scores: scores.is_monotonic_decreasing).all()
    assert (summary["splits"] == 2).all()
    assert (summary.loc[summary["method"] == "all", "n_features"] == 5).all()  # one column is constant

    cells = table(csv, "cells")
    assert len(cells) == 2 * (1 + 2 + 2 * 2)
    assert [len(features.split()) for features in cells["features"]] == cells["m"].tolist()
    best = summary.query("m == 2 and method == 'ls'").iloc[0]
    assert best["accuracy"] == pytest.approx(cells.query("m == 2 and method == 'ls'")["accuracy"].mean())

    markdown = (folder / "comparison.md").read_text(encoding="utf-8")
    assert "| method | seconds | accuracy | clustering | RMSE | accuracy − random |" in markdown
    assert f"{best['accuracy']:.3f} ±" in markdown

    assert "1 constant column cannot be selected: flat." in result.output
    report = (folder / "report.html").read_text(encoding="utf-8")
    for text in ("1 constant column", "<dt>Splits</dt><dd>2, selected on 80% of the samples</dd>", "<dt>Seed</dt>"):
        assert text in report
    assert "Which method is better than chance?" in report
    assert f"{best['accuracy']:.3f} ±" in report


def test_a_second_run_goes_on_and_repeats_nothing(csv):
    compare(csv, splits=1)
    first = table(csv, "cells").set_index(["method", "m", "split"])
    result = compare(csv)
    assert "4 of 8 cells are done already." in result.output
    second = table(csv, "cells").set_index(["method", "m", "split"])
    assert len(second) == 8
    pd.testing.assert_frame_equal(second.loc[first.index], first)  # the seconds, too: they were not measured again
    assert "8 of 8 cells are done already." in compare(csv).output


def test_changed_data_are_not_mixed_with_old_results(csv):
    compare(csv, splits=1)
    frame = pd.read_csv(csv)
    frame["a"] += 1e-6 * np.arange(40)
    frame.to_csv(csv, index=False)
    assert "done already" not in compare(csv, splits=1).output
    with RunStore(csv.parent / "out" / "runs.sqlite") as store:
        assert len({key["data"] for key, _ in store.items()}) == 2
    assert len(table(csv, "cells")) == 4


def test_results_of_other_settings_are_kept_and_mentioned(csv):
    compare(csv, "--methods", "ls", "-m", 1)
    result = compare(csv, "--methods", "ls", "-m", 2)
    assert "also keeps" in " ".join(result.output.split())
    assert "of other data or settings" in " ".join(result.output.split())
    assert set(table(csv)["m"]) == {2}
    assert "are done already" in compare(csv, "--methods", "ls", "-m", 1).output


def test_without_labels(csv):
    result = run(csv, "-m", 2, "--methods", "ls", "--drop", "kind", "--splits", 2, "-j", 1, "-o", csv.parent / "out")
    assert "accuracy and clustering need --label-column" in result.output
    assert "RMSE − random" in result.output
    assert "clustering  " not in result.output
    assert table(csv)["accuracy"].isna().all()
    assert table(csv)["reconstruction"].between(0.2, 2).all()


def test_labels_of_an_array_file_are_found(csv):
    X, y = make_toy("blobs", n_samples=40, random_state=0)
    np.savez(csv.with_name("data.npz"), X=X[:, :4], y=y)
    run(csv.with_name("data.npz"), "-m", 2, "--methods", "ls", "--trees", 10, "--splits", 1, "--jobs", 1)
    # The default folder is where one is, not where the data are.
    assert pd.read_csv("data-compared/comparison.csv")["accuracy"].between(0, 1).all()


def test_a_method_that_fails_is_shown_as_such(csv):
    pd.read_csv(csv).head(7).to_csv(csv, index=False)  # 5 training rows: too few for the neighbours of ls
    result = compare(csv, "--methods", "ls,all", splits=1, code=1)
    assert re.search("^ls +failed *$", result.output, re.MULTILINE)
    assert "ls failed on 1 split: n_neighbors=5 must be less than the number of samples" in result.output
    assert table(csv).query("method == 'all'")["accuracy"].notna().all()
    failed = table(csv).query("method == 'ls'")
    assert failed["accuracy"].isna().all()
    assert failed["failure"].str.contains("n_neighbors=5").all()
    assert "3 of 5 cells are done already." in compare(csv, "--methods", "ls,all", splits=1, code=1).output


class Loud(RandomSelector):
    def fit(self, X, y=None):
        warnings.warn(f"did not converge in {len(X)} rounds", UserWarning, stacklevel=2)
        return super().fit(X)


def test_warnings_come_once_a_method_below_the_table(csv, monkeypatch):
    monkeypatch.setitem(METHODS, "rsr", Loud)
    result = compare(csv, "--methods", "rsr")
    assert result.output.count("did not converge") == 1
    assert "rsr: did not converge in 32 rounds (2 splits)" in result.output
    cells = table(csv, "cells").query("method == 'rsr'")
    assert (cells["warnings"] == "did not converge in 32 rounds").all()


def test_folders_of_the_user_are_refused(csv):
    (csv.parent / "out").mkdir()
    (csv.parent / "out" / "thesis.tex").write_text("years of work")
    assert "holds no results (runs.sqlite) to go on with" in compare(csv, code=2).output
    (csv.parent / "out" / "runs.sqlite").write_text("a file that only has that name " * 99)
    assert "is no store of results" in compare(csv, code=2).output
    assert {path.name for path in (csv.parent / "out").iterdir()} == {"thesis.tex", "runs.sqlite"}
    assert "is a file, so" in compare(csv, out="data.csv/x", code=2).output


def test_data_in_the_output_folder_are_safe(csv):
    compare(csv, splits=1)
    data = csv.rename(csv.parent / "out" / "cells.csv")
    before = data.read_bytes()
    assert "would be overwritten" in run(data, *OPTIONS, "--out", data.parent, code=2).output
    assert data.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-m", "1,x"), "-m '1,x': expected numbers of features separated by commas, such as 25,50."),
        (("-m", "0"), "-m '0': expected numbers"),
        (("-m", ","), "-m ',': expected numbers"),
        (("-m", "7"), "-m 7, but only 5 of 6 columns vary over the 32 training rows of split 1."),
        (
            ("--methods", "ls,foo"),
            "no method 'foo'; known are predictive, dirichlet, ls, rsr, udfs, cae, dufs, wast, aefs, fsca",
        ),
        (("--label-column", "length"), "distinct values in 40 rows, so they are no classes"),
        (("--label-column", "flat"), "All labels are 1.0"),
        (("--test-size", "2"), "--test-size 2.0 must be between 0 and 1"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(csv, options, message):
    if options[0] == "--label-column":
        options += ("--drop", "kind")
    result = compare(csv, *options, code=2)
    errors = [line for line in result.output.splitlines() if line.startswith("Error:")]
    assert len(errors) == 1
    assert message in errors[0]
    assert not (csv.parent / "out").exists()


def test_quiet_prints_nothing(csv):
    assert compare(csv, "--quiet", splits=1).output == ""
    assert (csv.parent / "out" / "comparison.csv").is_file()


def test_help_names_every_method():
    text = " ".join(run("--help").output.split())
    for word in ("--methods", "--splits", "--random-draws", "--trees", "--stratify", *METHODS):
        assert word in text


def start(csv, *more):
    command = [sys.executable, "-m", "homophily", "compare", str(csv), *OPTIONS, "--splits", "4"]
    return subprocess.Popen(
        [*command, "--out", str(csv.parent / "out"), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "80", "PYTHONUNBUFFERED": "1"},
        # Where the tests run in the background of a shell, Ctrl-C is ignored, and children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_cells(csv, process, at_least):
    path = csv.parent / "out" / "runs.sqlite"
    while process.poll() is None:
        if path.is_file():
            with RunStore(path) as store:
                if len(list(store.items())) >= at_least:
                    return
        time.sleep(0.01)


def scores(csv, out):
    return table(csv, out=out).drop(columns="seconds")


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
@pytest.mark.slow
def test_a_killed_run_loses_nothing_finished(csv):
    process = start(csv, "--jobs", "1", "--splits", "12")  # enough for some to be left, however late we look
    try:
        wait_for_cells(csv, process, 3)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    with RunStore(csv.parent / "out" / "runs.sqlite") as store:
        done = len(list(store.items()))
    assert 3 <= done < 48
    assert f"{done} of 48 cells are done already." in compare(csv, splits=12).output
    compare(csv, splits=12, out="undisturbed")
    pd.testing.assert_frame_equal(scores(csv, "out"), scores(csv, "undisturbed"))


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(csv, jobs):
    process = start(csv, "--jobs", jobs, "--splits", "400")
    try:
        wait_for_cells(csv, process, 3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "of 1600 cells are done and kept; the same command goes on from there." in output
    assert {path.name for path in (csv.parent / "out").iterdir()} == FILES
    with RunStore(csv.parent / "out" / "runs.sqlite") as store:
        assert f"Stopped: {len(list(store.items()))} of 1600" in output
