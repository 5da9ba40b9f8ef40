"""``homophily select`` as a user runs it."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import run
from typer.testing import CliRunner

from homophily import DirichletSelector, __version__
from homophily.cli import Method, app
from homophily.cli import select as select_command
from homophily.datasets import make_toy
from homophily.methods import METHODS

FILES = {"selected.csv", "reduced.csv", "graph.npz", "history.csv", "model", "report.html"}
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def csv(tmp_path):
    X, y = make_toy("blobs", n_samples=60, random_state=0)
    frame = pd.DataFrame(X[:, :8], columns=["length", "width", *(f"noise{i}" for i in range(5)), SCRIPT])
    frame.assign(kind=y, flat=1.0).to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def select(csv, *more, code=0):
    return run(
        "select",
        csv,
        "-m",
        2,
        "--label-column",
        "kind",
        "--method",
        "dirichlet",
        "--max-iter",
        60,
        "--out",
        csv.parent / "out",
        *more,
        code=code,
    )


def test_select_writes_what_it_says(csv):
    result = select(csv)
    folder = csv.parent / "out"
    assert {p.name for p in folder.iterdir()} == FILES
    assert {p.name for p in csv.parent.iterdir()} == {"data.csv", "out"}  # no drafts left
    for name in ("length", "width", "report.html", "1 constant column cannot be selected: flat"):
        assert name in result.output

    selected = pd.read_csv(folder / "selected.csv")
    assert list(selected.columns) == ["rank", "index", "name", "score", "alternatives"]
    assert set(selected["name"]) == {"length", "width"}
    assert list(selected["rank"]) == [1, 2]

    reduced, original = pd.read_csv(folder / "reduced.csv"), pd.read_csv(csv)
    pd.testing.assert_frame_equal(reduced, original[["length", "width", "kind"]])

    graph = sp.load_npz(folder / "graph.npz")
    assert graph.shape == (60, 60)
    np.testing.assert_allclose(graph.sum(axis=1), 1)

    history = pd.read_csv(folder / "history.csv")
    assert list(history.columns) == ["step", "loss", "energy", "temperature", "confidence"]
    assert len(history) <= 60

    model = DirichletSelector.load(folder / "model")
    assert set(model.get_feature_names_out()) == {"length", "width"}
    assert (model.graph_ != graph).nnz == 0


def test_select_is_reproducible_and_seeded(csv):
    select(csv, "--jobs", 1, "--n-init", 20)  # three groups of restarts
    first = (csv.parent / "out" / "history.csv").read_bytes()
    select(csv, "--jobs", 2, "--n-init", 20, "--overwrite")
    assert (csv.parent / "out" / "history.csv").read_bytes() == first
    select(csv, "--seed", 1, "--overwrite")
    assert (csv.parent / "out" / "history.csv").read_bytes() != first


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.links, self.headings = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href") and not v.startswith("#")]

    def handle_data(self, data):
        self.text.append(data)
        if self.tags and self.tags[-1] == "h2":
            self.headings.append(data)


def test_report_escapes_names_and_needs_no_network(csv):
    run("select", csv, "-m", 8, "--drop", "kind", "--method", "dirichlet", "--max-iter", 3, "--out", csv.parent / "out")
    page = Page()
    page.feed((csv.parent / "out" / "report.html").read_text(encoding="utf-8"))
    assert page.tags.count("script") == 2  # our own
    assert page.links == []
    text = " ".join(page.text)
    assert SCRIPT in text
    assert "svg" in page.tags
    assert "data.csv" in text


def test_near_copies_are_named(csv):
    frame = pd.read_csv(csv)
    rng = np.random.RandomState(0)
    copies = {f"copy{i}": frame["length"] * (-1) ** i + 0.01 * i * rng.randn(60) for i in range(1, 6)}
    frame[["length", "noise0"]].assign(**copies).to_csv(csv, index=False)
    out = csv.parent / "out"
    options = ("-m", 2, "--method", "dirichlet", "--max-iter", 3, "-p", "refine=false", "--out", out)
    output = run("select", csv, *options).output
    selected = pd.read_csv(out / "selected.csv", keep_default_na=False)
    assert list(selected.columns) == ["rank", "index", "name", "score", "alternatives"]
    like = ["length", *copies]
    chosen = [name for name in selected["name"] if name in like]
    for name, alternatives in zip(selected["name"], selected["alternatives"], strict=True):
        others = set() if name == "noise0" else set(like) - set(chosen)
        assert set(alternatives.split("; ")) - {""} == others
    first, rest = next(text.split("; ")[:3] for text in selected["alternatives"] if text), 6 - len(chosen) - 3
    page = Page()
    page.feed((out / "report.html").read_text(encoding="utf-8"))
    assert "near-copies" in page.text
    assert f"{', '.join(first)} and {rest} more" in page.text
    have = "1 of the 2 has near-copies that could replace it" if len(chosen) == 1 else "2 of the 2 have near-copies"
    assert have in output


def test_no_word_of_near_copies_where_there_are_none(csv):
    assert "near-copies" not in select(csv).output
    assert "near-copies" not in (csv.parent / "out" / "report.html").read_text(encoding="utf-8")
    select(csv, "--method", "rsr", "--overwrite")
    assert "alternatives" not in pd.read_csv(csv.parent / "out" / "selected.csv")


def test_existing_results_are_not_overwritten(csv):
    folder = csv.parent / "out"
    folder.mkdir()
    (folder / "precious.txt").write_text("mine")
    result = select(csv, code=2)
    assert "is not empty" in result.output
    assert "--overwrite" in result.output
    assert [p.name for p in folder.iterdir()] == ["precious.txt"]
    select(csv, "--overwrite")
    select(csv, "--overwrite")
    assert (folder / "precious.txt").read_text() == "mine"
    assert {p.name for p in folder.iterdir()} >= FILES


def test_overwriting_leaves_no_stale_files_and_spares_the_input(csv):
    folder = csv.parent / "out"
    select(csv)
    parquet = csv.with_suffix(".parquet")
    pd.read_csv(csv).to_parquet(parquet)
    select(parquet, "--overwrite")
    assert {p.name for p in folder.iterdir()} == (FILES - {"reduced.csv"}) | {"reduced.parquet"}
    before = (folder / "reduced.parquet").read_bytes()
    result = run("select", folder / "reduced.parquet", "-m", 1, "--out", folder, "--overwrite", code=2)
    assert "would be overwritten" in " ".join(result.output.split())
    assert (folder / "reduced.parquet").read_bytes() == before


def test_overwriting_spares_an_input_deep_in_the_result(csv):
    select(csv)
    inside = csv.parent / "out" / "model" / "data.csv"
    inside.write_bytes(csv.read_bytes())
    said = run("select", inside, "-m", 1, "--method", "random", "--out", csv.parent / "out", "--overwrite", code=2)
    assert "lies in the output folder and would be overwritten" in " ".join(said.output.split())
    assert inside.read_bytes() == csv.read_bytes()


@pytest.mark.parametrize("name", ["history.csv", "report.html", "reduced.npy", "model/weights.bin", "selected.csv"])
def test_overwriting_spares_what_no_run_of_ours_wrote(csv, name):
    own = csv.parent / "out" / name
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    said = " ".join(select(csv, "--overwrite", code=2).output.split())
    assert f"{name.partition('/')[0]} in {csv.parent / 'out'} would be overwritten" in said
    assert own.read_text() == "mine"
    assert "would be overwritten" in " ".join(select(csv, "--overwrite", "--resume", code=2).output.split())


@pytest.mark.parametrize("name", ["reduced.2024.csv", "reduced.old", "model-before", "my reduced.csv"])
def test_overwriting_takes_names_as_they_are(csv, name):
    select(csv)
    own = csv.parent / "out" / name
    own.mkdir() if not own.suffix or name.endswith("old") else own.write_text("mine")
    select(csv, "--overwrite")
    assert own.exists()


def test_overwriting_a_model_with_files_of_others_is_refused(csv):
    select(csv)
    own = csv.parent / "out" / "model" / "notes.txt"
    own.write_text("mine")
    said = " ".join(select(csv, "--overwrite", code=2).output.split())
    assert "model/notes.txt in" in said
    assert "move it" in said
    assert own.read_text() == "mine"


def test_a_mistake_does_not_cost_an_unfinished_run(csv, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("homophily.commands.write_report", fail)
        select(csv, code=2)
    for wrong in (["-m", 500], ["-k", 1000], ["-p", "tol=-1"]):
        select(csv, "--overwrite", *wrong, code=2)
        assert (csv.parent / "out" / "checkpoint" / "training-0.safetensors").exists()
    assert "Going on from" in select(csv, "--resume").output


def test_a_failed_overwrite_keeps_the_old_result(csv, monkeypatch):
    select(csv)
    before = {p.name: p.read_bytes() for p in (csv.parent / "out").iterdir() if p.is_file()}

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr("homophily.commands.write_report", fail)
    select(csv, "--overwrite", code=2)
    assert {p.name: p.read_bytes() for p in (csv.parent / "out").iterdir() if p.is_file()} == before


def test_a_failure_to_write_loses_no_training(csv, monkeypatch):
    """Nothing half written is left, and the same command with --resume need not train again."""

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("homophily.commands.write_report", fail)
        result = select(csv, code=2)
    assert "Error: No space left on device" in result.output
    out = csv.parent / "out"
    assert f"The training is saved in {out / 'checkpoint'}" in " ".join(result.output.split())
    assert sorted(p.name for p in csv.parent.iterdir()) == ["data.csv", "out"]
    assert [p.name for p in out.iterdir()] == ["checkpoint"]
    assert "Add --resume to go on with it" in select(csv, code=2).output
    with monkeypatch.context() as patch:
        patch.setattr("homophily.training._differentiate", fail)
        assert "Going on from" in select(csv, "--resume").output
    assert {p.name for p in out.iterdir()} == FILES


def test_resume_without_a_checkpoint_begins(csv):
    assert "No checkpoint yet" in select(csv, "--resume").output
    assert "There is nothing to resume" in " ".join(select(csv, "--resume", code=2).output.split())


def test_overwrite_begins_anew(csv):
    out = csv.parent / "out"
    (out / "checkpoint").mkdir(parents=True)
    (out / "checkpoint" / "training-0.safetensors").write_bytes(b"of another run")
    assert "not a checkpoint of homophily" in select(csv, "--resume", code=2).output
    assert (out / "checkpoint" / "training-0.safetensors").exists()
    select(csv, "--overwrite")
    assert {p.name for p in out.iterdir()} == FILES


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_rows_that_stay_on_disk(tmp_path, monkeypatch, suffix):
    """The result is that of the file read whole, with the chosen columns written block by block."""
    monkeypatch.setattr("homophily.sources.BLOCK", 200)
    rng = np.random.RandomState(0)
    X = rng.randn(150, 6).astype(np.float32)
    data = tmp_path / f"data{suffix}"
    options = []
    if suffix == ".npy":
        np.save(data, X)
    else:
        frame = pd.DataFrame(X, columns=list("abcdef")).assign(
            kind=rng.randint(2, size=150), where="here", id=range(150)
        )
        frame.index = pd.Index([f"r{i}" for i in range(150)], name="row")
        frame.to_parquet(data)
        options = ["--label-column", "kind", "--drop", "where", "--index-column", "id"]
    for name, many in (("whole", 8192), ("on-disk", 100)):
        monkeypatch.setattr("homophily.commands.MANY", many)
        run("select", data, "-m", 2, "--method", "dirichlet", "--max-iter", 20, "--out", tmp_path / name, *options)
    for file in ("selected.csv", "history.csv"):
        assert (tmp_path / "whole" / file).read_text() == (tmp_path / "on-disk" / file).read_text()
    if suffix == ".npy":
        whole, on_disk = (np.load(tmp_path / name / "reduced.npy") for name in ("whole", "on-disk"))
        np.testing.assert_array_equal(on_disk, whole)
        assert on_disk.dtype == np.float32
    else:
        whole, on_disk = (pd.read_parquet(tmp_path / name / "reduced.parquet") for name in ("whole", "on-disk"))
        assert list(on_disk.columns[:1]) == ["id"]
        assert on_disk.columns[-1] == "kind"
        pd.testing.assert_frame_equal(on_disk, whole)


def test_a_folder_that_is_called_checkpoint_is_not_ours_to_remove(csv):
    kept = csv.parent / "out" / "checkpoint" / "model.pt"
    kept.parent.mkdir(parents=True)
    kept.write_text("weights")
    assert "is not empty" in select(csv, code=2).output
    for method in ("dirichlet", "random"):
        run("select", csv, "-m", 2, "--drop", "kind", "--method", method, "--out", csv.parent / "out", "--overwrite")
        assert kept.read_text() == "weights"


def test_only_dirichlet_resumes(csv):
    state = csv.parent / "out" / "checkpoint" / "training-0.safetensors"
    state.parent.mkdir(parents=True)
    state.write_text("state")
    message = run("select", csv, "-m", 2, "--method", "ls", "--out", csv.parent / "out", "--resume", code=2).output
    assert "--resume goes on with --method dirichlet only" in " ".join(message.split())
    assert state.exists()


def test_columns_of_a_file_on_disk_are_checked_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr("homophily.commands.MANY", 10)
    pd.DataFrame(np.random.RandomState(0).randn(40, 3), columns=list("abc")).to_parquet(tmp_path / "x.parquet")
    message = run("select", tmp_path / "x.parquet", "-m", 1, "--label-column", "kind", code=2).output
    assert "x.parquet has no column 'kind'; its columns are a, b, c." in " ".join(message.split())


def test_no_graph_on_request(csv):
    result = select(csv, "--final-graph", "none")
    assert "graph.npz" not in result.output
    assert {p.name for p in (csv.parent / "out").iterdir()} == FILES - {"graph.npz"}
    assert DirichletSelector.load(csv.parent / "out" / "model").graph_ is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-m", 0), "-m '0' is no number of features"),
        (("-m", 50), "-m 50, but X has 9 columns"),
        (("-m", 2, "--jobs", 0), "0 threads"),
        (("-m", 2, "-k", 60), "-k 60 must be less than the number of samples"),
        (("-m", 2, "--label-column", "class"), "no column 'class'; its columns are length, width"),
        (("-m", 2, "--method", "magic"), "magic"),
        (("-m", 2, "--method", "dirichlet", "--device", "tpu"), "--device 'tpu' is not available"),
        (("-m", 2, "--method", "dirichlet", "--reg", 0), "reg"),
        (("-m", 2, "--max-iter", 9), "Those of the paper's learner go with --method dirichlet."),
    ],
)
def test_mistakes_get_one_clear_line(csv, arguments, message):
    result = run("select", csv, *arguments, "--out", csv.parent / "out", code=2)
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert not (csv.parent / "out").exists()


def test_text_columns_are_named(csv):
    frame = pd.read_csv(csv).assign(colour="red")
    frame.to_csv(csv, index=False)
    result = run("select", csv, "-m", 2, "--out", csv.parent / "out", code=2)
    assert "'colour'" in result.output
    assert "--drop" in result.output


def test_missing_values_are_located(csv):
    frame = pd.read_csv(csv)
    frame.loc[[3, 4], "width"] = np.nan
    frame.to_csv(csv, index=False)
    result = run("select", csv, "-m", 2, "--out", csv.parent / "out", code=2)
    assert "2 NaN entries, in 1 of 10 columns: 'width'" in result.output


def test_flags_with_gaps_and_dates_are_told_as_in_python(csv):
    frame = pd.read_csv(csv)
    frame["flag"] = np.arange(len(frame)) % 2 == 0
    gaps = frame.astype({"flag": object})
    gaps.loc[[1, 2, 5], "flag"] = None
    gaps.to_csv(csv, index=False)
    result = run("select", csv, "-m", 2, "--out", csv.parent / "out", code=2)
    assert "3 NaN entries, in 1 of 11 columns: 'flag' (3 rows)" in result.output
    frame.assign(day="2020-01-01").to_csv(csv, index=False)
    result = run("select", csv, "-m", 2, "--out", csv.parent / "out", code=2)
    assert "1 of 12 columns are not numeric: 'day' (" in result.output


def test_debug_shows_the_traceback(csv):
    result = CliRunner().invoke(app, ["select", str(csv), "-m", "50", "--debug"])
    assert result.exit_code == 2
    assert "Traceback" in result.output
    assert result.output.splitlines()[-1].startswith("Error: ")


def test_quiet_prints_nothing(csv):
    assert select(csv, "--quiet").output == ""


@pytest.mark.parametrize("suffix", ["npz", "npy", "mat", "parquet"])
def test_other_formats(tmp_path, suffix):
    import scipy.io

    X, y = make_toy("blobs", n_samples=40, n_noise=4, random_state=0)
    path = tmp_path / f"data.{suffix}"
    if suffix == "npz":
        np.savez(path, X=X, y=y)
    elif suffix == "npy":
        np.save(path, X)
    elif suffix == "mat":
        scipy.io.savemat(path, {"X": X, "Y": y})
    else:
        pd.DataFrame(X, columns=[f"x{i}" for i in range(6)]).to_parquet(path)
    run("select", path, "-m", 2, "--method", "dirichlet", "--max-iter", 30, "--out", tmp_path / "out", "--quiet")
    assert (tmp_path / "out" / f"reduced.{suffix}").is_file()
    assert set(pd.read_csv(tmp_path / "out" / "selected.csv")["name"]) == {"x0", "x1"}


def test_the_help_shows_the_librarys_defaults():
    """The options have none of their own: what is not given is left to the selector."""
    library = DirichletSelector().get_params()
    for option, parameter in (
        ("neighbors", "n_neighbors"),
        ("graph", "graph"),
        ("reg", "reg"),
        ("objective", "objective"),
        ("max_iter", "max_iter"),
        ("n_init", "n_init"),
        ("device", "device"),
    ):
        declared = inspect.signature(select_command, eval_str=True).parameters[option]
        assert declared.default is None
        assert declared.annotation.__metadata__[0].show_default == str(library[parameter]), option


def test_methods_of_the_command_line_are_those_of_the_library():
    assert [method.value for method in Method] == list(METHODS)


def test_help_does_not_load_torch():
    code = "import sys, homophily.cli; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version_and_help():
    assert __version__ in run("--version").output
    text = run("select", "--help").output
    for option in ("--label-column", "--objective", "--neighbors", "--seed", "--device", "--overwrite"):
        assert option in text


def test_output_that_cannot_be_written_is_found_before_training(csv):
    result = run("select", csv, "-m", 2, "--out", csv / "x", code=2)
    assert "is a file, so" in result.output
    assert "Read" not in result.output


QUICK = {name: ["--max-iter", 3] for name in ("cae", "dufs", "wast", "aefs", "ipcae")}
WITH_STEPS = ("rsr", "udfs", *QUICK)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "dirichlet"])
def test_select_by_other_methods(csv, method):
    folder = csv.parent / "out"
    options = ("--label-column", "kind", "--method", method, *QUICK.get(method, ()))
    output = run("select", csv, "-m", 3, "--out", folder, *options).output
    steps = method in WITH_STEPS
    path = {"path.csv"} if method == "predictive" else set()
    assert {p.name for p in folder.iterdir()} == (FILES if steps else FILES - {"history.csv"} | path)
    assert ("history.csv" in output) is steps
    assert ("-m is not used" in output) is (method == "all")
    selected = pd.read_csv(folder / "selected.csv")
    assert len(selected) == (8 if method == "all" else 3)
    assert "flat" not in set(selected["name"])
    graph = sp.load_npz(folder / "graph.npz")
    np.testing.assert_allclose(graph.sum(axis=1), 1)
    model = METHODS[method].load(folder / "model")
    assert [model.feature_names_in_[i] for i in model.selected_features_] == list(selected["name"])
    page = Page()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.text)
    assert METHODS[method].__name__ in text
    assert METHODS[method].score_meaning in text
    package = "homophily" if method == "predictive" else "homophily.baselines"
    assert f"from {package} import {METHODS[method].__name__}" in text
    assert ("Training" in page.headings) is steps
    assert page.links == []


def test_parameters_of_a_method(csv):
    options = (
        "--method",
        "udfs",
        "-p",
        "n_clusters=2",
        "-p",
        "ridge=.5",
        "--reg",
        0.5,
        "-k",
        3,
        "--out",
        csv.parent / "out",
    )
    run("select", csv, "-m", 2, *options)
    model = METHODS["udfs"].load(csv.parent / "out" / "model")
    assert (model.n_clusters, model.reg, model.n_neighbors, model.ridge) == (2, 0.5, 3, 0.5)
    text = (csv.parent / "out" / "report.html").read_text(encoding="utf-8")
    assert "n_clusters = 2" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "ls", "--objective", "coverage"), "--method ls has no parameter 'objective'; it has n_features"),
        (("--method", "rsr", "-p", "lambda=3"), "--method rsr has no parameter 'lambda'; it has max_iter"),
        (("--method", "rsr", "-p", "reg"), "expected NAME=VALUE"),
        (("--method", "rsr", "-p", "n_features_to_select=3"), "use -m for that"),
        (("--method", "rsr", "-p", "random_state=3"), "use --seed for that"),
        (("--method", "rsr", "-p", "reg=much"), "The 'reg' parameter of RSR must be"),
        (("--method", "ls", "-k", 60), "-k 60 must be less than the number of samples"),
    ],
)
def test_parameters_that_a_method_does_not_have(csv, arguments, message):
    result = run("select", csv, "-m", 2, *arguments, "--out", csv.parent / "out", code=2)
    assert message in " ".join(result.output.split())
    assert not (csv.parent / "out").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
@pytest.mark.slow
def test_ctrl_c_keeps_a_usable_partial_result(csv):
    folder = csv.parent / "out"
    command = [sys.executable, "-m", "homophily", "select", str(csv), "-m", "2", "--label-column", "kind"]
    process = subprocess.Popen(
        [*command, "--method", "dirichlet", "--max-iter", "1000000", "--checkpoint-every", "0.1", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "80", "PYTHONUNBUFFERED": "1"},
        # Where the tests run in the background of a shell, Ctrl-C is ignored, and children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while process.poll() is None and not list(folder.glob("checkpoint/training-*.safetensors")):
            time.sleep(0.05)  # until some steps are done; the run would take hours
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, output
    assert "partial result" in output
    assert "with --resume" in " ".join(output.split())
    assert {p.name for p in folder.iterdir()} == FILES | {"checkpoint"}
    model = DirichletSelector.load(folder / "model")
    assert model.interrupted_
    assert 1 <= model.n_iter_ < 1_000_000
    assert json.loads((folder / "model" / "model.json").read_text())["class"] == "DirichletSelector"
