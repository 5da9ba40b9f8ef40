"""Names in input files are just names: nothing lands outside the output folder, and all of it can be read again."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
from typer.testing import CliRunner

from homophily.baselines import LaplacianScore
from homophily.cli import app
from homophily.io import InputError, read_table, write_reduced
from homophily.output import harmless
from homophily.wording import listing, printable

NAMES = [
    "../../outside",
    "/tmp/outside",
    "C:\\outside",
    "a\nb",
    "a\rb",
    "tab\tbed",
    'quo"ted, and; more',
    "\x1b[31mred\x07",
    "<script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "[bold]markup[/bold]",
    "é\u202e\u2028",
    "n" * 300,
    "n" * 10_000,
    "=1+1",
    "%s%n",
]
X = np.random.RandomState(0).randn(30, len(NAMES))
FRAME = pd.DataFrame(X, columns=NAMES)


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def select(path, *options):
    command = ["select", str(path), "--method", "ls", "-m", str(len(NAMES)), "--out", "out", *options]
    return CliRunner().invoke(app, command)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".h5ad"])
def test_names_of_features(tmp_path, monkeypatch, suffix):
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    path = Path(f"data{suffix}")
    if suffix == ".csv":
        FRAME.to_csv(path, index=False, quoting=1)
    elif suffix == ".parquet":
        FRAME.to_parquet(path)
    else:
        anndata = pytest.importorskip("anndata")
        anndata.AnnData(X, var=pd.DataFrame(index=NAMES)).write_h5ad(path)
    result = select(path)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    expected = {path.name, "out", *(f"out/{name}" for name in ("selected.csv", "graph.npz", "model", "report.html"))}
    expected |= {f"out/reduced{suffix}", "out/model/model.json", "out/model/model.safetensors"}
    assert {name.removeprefix("deep/inside/") for name in everything(tmp_path)} == expected | {"deep", "deep/inside"}
    chosen = pd.read_csv("out/selected.csv")["name"]
    assert sorted(chosen) == sorted(map(harmless, NAMES))
    assert sorted(read_table(f"out/reduced{suffix}").names) == sorted(NAMES)
    if suffix != ".h5ad":  # whose matrix has no names of its own
        assert sorted(LaplacianScore.load("out/model").feature_names_in_) == sorted(NAMES)
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "<script>alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert json.loads(Path("out/model/model.json").read_text())["class"] == "LaplacianScore"


@pytest.mark.parametrize(
    "name", ["../../outside", "a\nb", "/tmp/outside", "file", "X", "columns", "_y", "n" * 300, "größe", ""]
)
@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_names_of_labels_among_arrays(tmp_path, name, suffix):
    """They would be names of files in the archive."""
    np.savez(tmp_path / "data.npz", X=X, y=np.arange(30) % 2)
    table = read_table(tmp_path / "data.npz")
    table.suffix, table.labels.name = suffix, name
    path = write_reduced(table, np.array([1, 2]), tmp_path / "reduced")
    assert everything(tmp_path) == ["data.npz", f"reduced{suffix}"]
    again = read_table(path, label_column="größe" if name == "größe" and suffix == ".npz" else None)
    np.testing.assert_array_equal(again.X, X[:, 1:3])
    assert list(again.labels) == list(table.labels)


@pytest.mark.parametrize("name", ["../../X", "/X", "sub/X", "X.npy/../../X"])
def test_names_of_members_of_an_archive(tmp_path, monkeypatch, name):
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    np.save("array.npy", X)
    with zipfile.ZipFile("data.npz", "w") as archive:
        archive.write("array.npy", f"{name}.npy")
        archive.writestr("../../plain.txt", "text")
    os.remove("array.npy")
    result = select("data.npz")
    assert result.exit_code == 0, result.output
    assert not [name for name in everything(tmp_path) if not name.startswith("deep")]
    assert set(os.listdir()) == {"data.npz", "out"}
    assert read_table("out/reduced.npz").X.shape == X.shape


def test_names_with_nul_are_refused(tmp_path):
    """csv and HDF5 would cut them off."""
    pd.DataFrame({"a\0b": [1.0, 2], "c": [3.0, 5]}).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(InputError, match=r"data\.parquet has NUL characters in the names of columns: 'a\\x00b'"):
        read_table(tmp_path / "data.parquet")


@pytest.mark.parametrize("stem", ["..", "a b", "-rf", "a\nb", "\x1b[31m", "n" * 240, "é", "[red]"])
def test_names_of_files(tmp_path, monkeypatch, stem):
    inside = tmp_path / "deep"
    inside.mkdir()
    monkeypatch.chdir(inside)
    FRAME.to_parquet(inside / f"{stem}.parquet")
    result = CliRunner().invoke(app, ["select", f"./{stem}.parquet", "--method", "ls", "-m", "2"])
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert set(os.listdir(inside)) == {f"{stem}.parquet", f"{stem}-selected"}
    assert os.listdir(tmp_path) == ["deep"]


@pytest.mark.parametrize("stem", ["\x1b[31m", "[red]"])
def test_names_of_files_that_are_compared_and_exported(tmp_path, monkeypatch, stem):
    monkeypatch.chdir(tmp_path)
    FRAME.to_parquet(f"{stem}.parquet")
    options = ["-m", "2", "--methods", "ls", "--splits", "1", "--random-draws", "1", "-j", "1", "--out", "compared"]
    for command in (
        ["compare", f"./{stem}.parquet", *options],
        ["runs", "list", "compared"],
        ["runs", "export", "compared", "--out", f"{stem}.csv"],
        ["runs", "recover", "compared", f"{stem}.sqlite"],
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.output
    assert printable(f"{stem}.sqlite") in result.output


def test_what_a_terminal_would_obey_is_shown_as_text():
    assert printable("a\x1b[31m\n\x00\u202eé ß") == "a\\x1b[31m\\n\\x00\\u202eé ß"
    assert len(printable("x" * 10**6)) < 300
    assert listing(["a\x07"]) == "a\\x07"


def test_text_that_holds_half_a_line_break_is_read_again(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5, 3.5], "b": [3.0, 4.0, 7.0], "y": ["u\rv", "w", "u\nv"]})
    frame.to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet", label_column="y")
    table.suffix = ".csv"
    again = read_table(write_reduced(table, np.array([0, 1]), tmp_path / "reduced"), label_column="y")
    assert list(again.labels) == list(frame["y"])
    np.testing.assert_array_equal(again.X, frame[["a", "b"]])


def test_arrays_of_labels_keep_a_plain_name(tmp_path):
    scipy.io.savemat(tmp_path / "data.mat", {"X": X, "kind": np.arange(30.0)[:, None]})
    table = read_table(tmp_path / "data.mat", label_column="kind")
    again = read_table(write_reduced(table, np.array([0]), tmp_path / "reduced"), label_column="kind")
    assert len(again.labels) == 30
