"""``homophily reproduce`` and ``homophily runs`` as a user runs them, on small stand-ins for the paper's data."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from stand_ins import TABLES, cells_in, reproduce, run, stand_in, table
from typer.testing import CliRunner

from homophily.baselines import BASELINES
from homophily.cli import app
from homophily.datasets import TOY_NAMES
from homophily.evaluation import RunStore
from homophily.evaluation.paper import PAPER_NAMES
from homophily.evaluation.running import Backend
from homophily.experiments import EXPERIMENTS, Settings
from homophily.experiments.costs import estimate
from homophily.experiments.experiment import long_table
from homophily.experiments.table import beside_random
from homophily.joint import DirichletSelector
from homophily.methods import METHODS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a data set: 213 rows are few enough to be quick."""
    place = tmp_path_factory.mktemp("data")
    X, y = stand_in("Jaffe")
    np.savez(place / "Jaffe.npz", X=X, y=y)
    return place


@pytest.fixture(autouse=True)
def _nothing_else_is_found(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOMOPHILY_DATA", str(folder))
    monkeypatch.setenv("HOMOPHILY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


# --- table -----------------------------------------------------------------------------------------------------------


def test_table_shows_the_paper_beside_ours_and_a_second_run_does_nothing(tmp_path):
    first = table()
    assert all(len(line) <= 80 for line in first.stdout.splitlines())
    for text in ("Classification accuracy", "Clustering accuracy", "Reconstruction RMSE", "Protocol default", "paper"):
        assert text in first.stdout
    place = tmp_path / "out" / "table-quick-default"
    assert {path.name for path in place.iterdir()} == {*TABLES, "cells.csv"}

    frame = pd.read_csv(place / "table.csv")
    assert len(frame) == 3 * 3  # tasks by methods
    ours = frame.query("task == 'classification' and method == 'rsr'").iloc[0]
    assert (ours["paper_mean"], ours["paper_best_m"]) == (0.98, 300)
    assert ours["difference"] == pytest.approx(ours["mean"] - 0.98)
    assert frame.query("method == 'random'")["paper_mean"].isna().all()

    cells = pd.read_csv(place / "cells.csv")
    assert len(cells) == 2 * 2 * 3  # splits, m, methods
    by_m = cells.query("method == 'rsr'").groupby("m")["accuracy"].mean()
    assert ours["mean"] == pytest.approx(by_m.max())
    assert ours["best_m"] == by_m.idxmax()

    report = (place / "report.html").read_text(encoding="utf-8")
    for text in ("Is it better than chance?", "Classification accuracy", "Beside random columns", "Protocol default"):
        assert text in report
    assert f"{ours['mean']:.3f}" in report

    before = {path.name: path.read_bytes() for path in place.iterdir()}
    again = table()
    assert "12 of 12 cells are done already." in again.stderr
    assert again.stdout == first.stdout
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_gains_over_random_against_a_hand_computation():
    rows = [
        # At m = 2 and 4 better by 0.1 and 0.3 on A, worse by 0.1 on B: 0.2 and -0.1 by data set.
        ("A", "ls", 2, "classification", 0.1),
        ("A", "ls", 4, "classification", 0.3),
        ("B", "ls", 2, "classification", -0.1),
        ("A", "ls", 2, "reconstruction", 0.5),  # more error is worse
        ("A", "random", 2, "classification", 0.0),
    ]
    frame = pd.DataFrame(rows, columns=["dataset", "method", "m", "task", "gain"])
    shown, numbers = beside_random(frame)
    numbers = numbers.set_index(["task", "method"])
    found = numbers.loc[("classification", "ls")]
    assert found["mean"] == pytest.approx(0.05)
    assert found["sem"] == pytest.approx(0.15)  # standard deviation 0.3 / sqrt(2), by sqrt(2)
    assert (found["better"], found["datasets"]) == (1, 2)
    assert numbers.loc[("reconstruction", "ls"), "mean"] == -0.5
    assert len(numbers) == 2
    assert shown.rows == [["LS", "+0.050 ±0.150", "1/2", "", "", "-0.500", "0/1"]]


def test_all_features_have_no_random_columns_to_be_compared_with():
    settings = Settings(quick=True, datasets=["Jaffe"], methods=["ls", "all"], ms=[2], splits=2, max_updates=5)
    study = EXPERIMENTS["table"](settings)
    (comparison,) = study.comparisons
    cells = [
        replace(cell, accuracy=0.9, clustering=0.5, reconstruction=1.0, seconds=1.0, features=[0, 1])
        for cell in comparison.cells
    ]
    table = long_table(comparison, cells).set_index("method")
    assert table.loc["all", "gain"].isna().all()
    assert table.loc["ls", "gain"].notna().all()
    assert table.loc["all", "m"].isna().all()


def test_more_splits_only_add_cells():
    table("--splits", 1)
    first = {json.dumps(key) for key in cells_in()}
    table("--splits", 2)
    assert len(first) == 6
    assert first < {json.dumps(key) for key in cells_in()}


@pytest.mark.parametrize("protocol", ["paper", "nested"])
def test_tuned_protocols_try_the_grid_and_say_so(protocol):
    result = table("--protocol", protocol, "--methods", "rsr", "--splits", 2)
    assert f"Protocol {protocol}: parameters by accuracy on" in " ".join(result.stdout.split())
    tuning = [key for key in cells_in() if key["tuning"]]
    tried = {(key["params"]["reg"], key["m"], key["split"]) for key in tuning}
    splits = [-1] if protocol == "paper" else [0, 1]
    assert tried == {(reg, m, split) for reg in (1e-3, 1.0, 1e3) for m in (2, 4) for split in splits}
    cells = pd.read_csv(f"out/table-quick-{protocol}/cells.csv")
    assert set(cells.query("method == 'rsr'")["params"]) <= {"reg=0.001", "reg=1.0", "reg=1000.0"}
    assert len(cells) == 2 * 2 * 2


def test_protocols_share_the_cells_that_are_not_tuned():
    table("--methods", "ls", "--splits", 1)
    before = len(cells_in())
    table("--methods", "ls", "--splits", 1, "--protocol", "paper")
    assert len(cells_in()) == before


def test_plan_counts_and_leaves_no_trace(tmp_path):
    result = table("--plan", "--protocol", "paper")
    assert "18 cells, 0 of them done already, 18 left." in result.stdout  # 12, and 6 to tune rsr
    assert "with 1 job, give or take a factor of three" in result.stdout
    assert not (tmp_path / "out").exists()
    table()
    assert "12 cells, 12 of them done already, 0 left." in table("--plan").stdout


def test_every_method_has_an_estimate_that_grows_with_the_work():
    def seconds(**options):
        settings = Settings(quick=True, datasets=["Jaffe"], methods=list(METHODS), **options)
        comparison = EXPERIMENTS["table"](settings).comparisons[0]
        return {cell.method: estimate(job) for job in comparison.jobs(comparison.cells) for cell in job.cells[:1]}

    few, many = seconds(splits=1), seconds(splits=1, n_estimators=2000)
    assert set(few) == set(METHODS)
    assert all(0 < few[method] < many[method] for method in METHODS)
    unbounded = seconds(splits=1, max_updates=10**6)
    assert all(few[method] < unbounded[method] for method in METHODS)


def test_full_settings_are_the_papers():
    experiment = EXPERIMENTS["table"](Settings(protocol="paper", datasets=["Jaffe"]))
    (comparison,) = experiment.comparisons
    assert comparison.ms == [25, 50, 75, 100, 150, 200, 300]
    assert comparison.splits == 10
    assert comparison.judge.n_estimators == 1000
    assert set(comparison.selectors) == {*PAPER_NAMES, "predictive", "random"}
    assert len(comparison.grids["dirichlet"]) == 6 * 3 * 5
    assert len(comparison.grids["aefs"]) == 7 * 4
    assert comparison.selectors["dirichlet"].literal
    assert comparison.selectors["wast"].attention == 0.4  # on images
    assert comparison.selectors["dufs"].max_iter == 10_000
    assert EXPERIMENTS["table"](Settings(datasets=["Jaffe"])).comparisons[0].selectors["dufs"].max_iter < 10_000


# --- the other experiments -------------------------------------------------------------------------------------------


def test_toy_counts_what_is_found(tmp_path):
    result = reproduce("toy", "--splits", 2, "--datasets", "Blobs")
    assert "found: draws in which the two informative columns were selected" in " ".join(result.stdout.split())
    place = tmp_path / "out" / "toy-quick"
    toy = pd.read_csv(place / "toy.csv")
    assert set(toy["method"]) == {"homophily", "training alone", "w/o UFS", "Heat"}
    ours = toy[toy["method"] == "homophily"]
    assert ours["success"].astype(bool).all()
    assert (ours["within"] > 0.99).all()
    repeats = toy[toy["method"] == "w/o UFS"]
    assert [len(set(row.split())) for row in repeats["features"].astype(str)] == repeats["distinct"].tolist()

    graphs = pd.read_csv(place / "graphs.csv").query("method == 'homophily'")  # of the first draw
    assert len(graphs) == 200 * 5
    np.testing.assert_allclose(graphs.groupby("i")["weight"].sum(), 1, atol=1e-4)
    F = pd.read_csv(place / "F.csv").query("method == 'homophily'")
    np.testing.assert_allclose(F.groupby("column")["weight"].sum(), 1, atol=1e-4)
    assert set(F.loc[F.groupby("column")["weight"].idxmax(), "feature"]) == {0, 1}
    assert reproduce("toy", "--splits", 2, "--datasets", "Blobs").stdout == result.stdout


@pytest.fixture
def fast(monkeypatch):
    """Let our method train little: what it finds does not matter here."""
    whole = DirichletSelector.__init__

    def little(self, *arguments, **options):
        whole(self, *arguments, **options)
        self.max_iter = 2

    little.__wrapped__ = whole  # for scikit-learn, which reads the signature
    monkeypatch.setattr(DirichletSelector, "__init__", little)


def test_ablation_scores_graphs_and_features(fast, tmp_path):
    result = reproduce("ablation", "--datasets", "Jaffe", "-m", 3, "--splits", 1, "--trees", 5, "--updates", 20)
    for text in ("Spectral clustering of the graph", "DGL only", "w/o UFS", "w/o DGL", "Distinct features"):
        assert text in result.stdout
    frame = pd.read_csv(tmp_path / "out" / "ablation-quick" / "ablation.csv")
    spectral = frame.query("task == 'spectral'").set_index("method")
    assert spectral.loc["Heat", "mean_paper"] == 0.60
    assert spectral.loc["DGL only", "mean_paper"] == 0.57
    assert spectral.loc["homophily", "mean_paper"] == 0.80
    cells = pd.read_csv(tmp_path / "out" / "ablation-quick" / "cells.csv")
    widths = cells[cells["method"].str.match(r"Heat \d")]
    assert spectral.loc["Heat", "mean"] == widths["spectral"].max()
    assert (cells["distinct"].dropna() <= 3).all()


def test_sensitivity_varies_one_parameter_at_a_time(fast, tmp_path):
    result = reproduce("sensitivity", "--datasets", "Jaffe", "-m", "3,5", "--splits", 1, "--trees", 5)
    assert "Accuracy against learning_rate" in result.stdout
    points = pd.read_csv(tmp_path / "out" / "sensitivity-quick" / "sensitivity.csv")
    assert set(points["parameter"]) == {"learning_rate", "n_neighbors", "reg", "m"}
    whole = points[points["variant"] == "whole"]
    assert whole.groupby("parameter")["default"].sum().tolist() == [1] * 4
    assert set(whole[whole["parameter"] != "m"]["m"]) == {5}  # where the paper's m is not run, the largest is
    assert set(whole[whole["parameter"] == "reg"]["value"]) == {"0.01", "0.3"}
    keys = [key for key in cells_in() if key["method"] == "whole: n_neighbors=1"]
    assert [key["params"]["n_neighbors"] for key in keys] == [1]
    assert {key["params"]["reg"] for key in keys} == {0.3}


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table", "--datasets", "Nothing"), "is none of the paper's"),
        (("table", "--datasets", "Yale"), "homophily datasets fetch Yale"),
        (("table", "--datasets", "Jaffe", "--methods", "foo"), "no method 'foo'; known are predictive, dirichlet"),
        (("table", "--datasets", "Jaffe", "-m", "700"), "Jaffe: -m 700, but only 676 of 676 columns vary"),
        (("table", "--datasets", "Jaffe", "-m", "x"), "expected numbers of features"),
        (("toy", "--datasets", "stars"), "no toy data set stars; known are blobs, moons, circles"),
        (("toy", "-m", "3"), "toy selects 2 features"),
        (("toy", "--trees", "3"), "toy selects 2 features"),
        (("table", "--datasets", ","), "expected names separated by commas"),
        (("table", "--methods", ","), "expected names separated by commas"),
        (("toy", "--protocol", "paper"), "--protocol and --methods belong to table"),
        (("table", "--backend", "dask"), "--backend dask and --scheduler ADDRESS go together"),
        (("table", "--jobs", "0"), "0 processes cannot do anything"),
        (("figures", "--quick"), "figures takes --out, --data-dir, --seed, --quiet and --debug only"),
        (("figures", "--datasets", "Jaffe"), "figures takes --out"),
    ],
)
def test_mistakes_are_said_before_anything_is_written(tmp_path, arguments, message):
    result = run("reproduce", *arguments, "--out", "out", code=2)
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_folders_of_the_user_are_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    assert "holds no results (runs.sqlite) to go on with" in table(code=2).output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_a_method_that_fails_is_named_and_tried_again(monkeypatch):
    def fit(self, X, y=None):
        raise ValueError("no luck")

    monkeypatch.setattr(BASELINES["ls"], "fit", fit)
    result = table("--splits", 1, code=1)
    assert "Jaffe: ls failed in 2 cells: no luck" in result.stdout
    assert "4 of 6 cells are done; means are over what there is." in result.stdout
    assert "no luck" in table("--splits", 1, "--quiet", code=1).output


@pytest.mark.parametrize("experiment", [pytest.param("table", marks=pytest.mark.slow), "ablation", "sensitivity"])
def test_whatever_is_finished_can_be_shown(experiment, fast):
    settings = Settings(quick=True, datasets=["Jaffe"], ms=[3], splits=1, n_estimators=3, max_updates=5)
    study = EXPERIMENTS[experiment](settings)
    with RunStore(":memory:") as store:
        assert study.results(store).tables == []
        for number, _ in enumerate(study.run(store, Backend()), start=1):
            shown = study.results(store).tables
            assert shown or number == 1
            assert all(table.to_text() and table.turned().to_markdown() for table in shown)


def test_quiet_prints_nothing():
    assert table("--splits", 1, "--quiet").output == ""


def test_help_and_toy_names():
    text = " ".join(run("reproduce", "--help").output.split())
    for word in ("--quick", "--plan", "--protocol", "--scheduler", "--data-dir", *EXPERIMENTS):
        assert word in text
    assert EXPERIMENTS["toy"](Settings(quick=True)).datasets == list(TOY_NAMES)


# --- runs ------------------------------------------------------------------------------------------------------------


def test_runs_list_export_and_clean(tmp_path):
    table("--splits", 1)
    listed = run("runs", "list", "out").output
    assert "6 cells." in listed
    assert sum("Jaffe" in line for line in listed.splitlines()) == 3
    assert "2 cells." in run("runs", "list", "out", "--method", "ls").output

    exported = run("runs", "export", "out/runs.sqlite", "--method", "rsr").stdout
    (tmp_path / "export.csv").write_text(exported)
    frame = pd.read_csv(tmp_path / "export.csv")
    assert frame["m"].tolist() == [2, 4]
    assert frame["accuracy"].between(0, 1).all()
    run("runs", "export", "out", "--format", "jsonl", "--out", "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    with RunStore("out/runs.sqlite") as store:
        assert [(line["key"], line["value"]) for line in lines] == list(store.items())
    assert "exists already" in run("runs", "export", "out", "--out", "all.jsonl", code=2).output

    assert "Say which cells" in run("runs", "clean", "out", code=2).output
    asked = CliRunner().invoke(app, ["runs", "clean", "out", "--method", "ls"], input="n\n")
    assert "Remove 2 finished cells for good?" in asked.output
    assert asked.exit_code == 1
    assert len(cells_in()) == 6
    assert "Removed 0 cells." in run("runs", "clean", "out", "--other-versions", "--yes").output
    assert "Removed 2 cells." in run("runs", "clean", "out", "--method", "ls", "--yes").output
    assert {key["method"] for key in cells_in()} == {"rsr", "random"}
    assert "Removed 4 cells." in run("runs", "clean", "out", "--all", "-y").output
    assert "There is no store" in run("runs", "list", "nowhere", code=2).output
    assert not (tmp_path / "nowhere").exists()
