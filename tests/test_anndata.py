"""AnnData: the same genes as the selectors give, in whatever form the cells come, written where scanpy looks."""

import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cells import make_cells
from command_line import run as command
from sklearn.metrics.pairwise import euclidean_distances

from homophily import DirichletSelector, PredictiveSelector
from homophily.anndata import select_genes
from homophily.baselines import RSR, LaplacianScore, RandomSelector
from homophily.graph import adaptive_knn_graph
from homophily.io import InputError, read_table
from homophily.preprocessing import standardize
from homophily.sources import H5adRows, open_rows
from homophily.stability import stability

ad = pytest.importorskip("anndata")

QUICK = {"max_iter": 30, "graph": "exact", "objective": "energy"}
COLUMNS = ["homophily_selected", "homophily_score", "homophily_rank"]


@pytest.fixture
def cells():
    return make_cells()


def written(cells):
    """Everything that a call may have written, for comparison."""
    graphs = [cells.obsp[name].toarray() for name in ("homophily_connectivities", "homophily_distances")]
    return cells.var[COLUMNS], *graphs


def assert_same(one, other):
    pd.testing.assert_frame_equal(one[0], other[0])
    for left, right in zip(one[1:], other[1:], strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_genes_and_graph_are_those_of_the_selector(cells):
    X = cells.X.toarray()
    selector = PredictiveSelector(6, random_state=0).fit(X)
    before = cells.X
    assert select_genes(cells, 6) is None
    assert cells.X is before
    var = cells.var
    assert list(var.columns) == ["length", *COLUMNS]
    assert var["homophily_selected"].dtype == bool
    ranked = var.sort_values("homophily_rank").index[:6]
    assert list(ranked) == [f"gene{i}" for i in selector.selected_features_]
    assert list(var["homophily_rank"].dropna().sort_values()) == [1, 2, 3, 4, 5, 6]
    assert set(ranked) == set(var.index[var["homophily_selected"]])
    np.testing.assert_allclose(var["homophily_score"], selector.scores_, rtol=1e-5)
    S = selector.graph_.toarray()
    connectivities = cells.obsp["homophily_connectivities"]
    np.testing.assert_allclose(connectivities.toarray(), (S + S.T) / 2, atol=1e-6)
    assert (connectivities.data > 0).all()
    assert (connectivities != connectivities.T).nnz == 0
    Z = standardize(X[:, selector.selected_features_]).values
    distances = cells.obsp["homophily_distances"]
    assert (np.diff(distances.indptr) == 5).all()
    expected = np.where(S > 0, euclidean_distances(Z), 0)
    np.testing.assert_allclose(np.where(S > 0, distances.toarray(), 0), expected, atol=1e-4)
    assert cells.uns["homophily"]["params"]["n_genes"] == 6
    assert cells.uns["note"] == "kept"


@pytest.mark.parametrize("kind", [np.asarray, sp.csc_matrix, sp.csr_array, np.float64])
def test_any_form_of_the_matrix_gives_the_same(cells, kind):
    other = cells.copy()
    other.X = kind(cells.X.toarray())
    for each in (cells, other):
        select_genes(each, 6, selector=DirichletSelector(**QUICK), random_state=3)
    assert_same(written(cells), written(other))


def test_layer(cells):
    counts = cells.copy()
    counts.X = counts.layers["counts"]
    select_genes(cells, 6, layer="counts", selector=LaplacianScore())
    select_genes(counts, 6, selector=LaplacianScore())
    assert_same(written(cells), written(counts))
    assert cells.uns["homophily"]["params"]["layer"] == "counts"


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_matrix, sp.csr_matrix.toarray])
@pytest.mark.parametrize("batch_key", [None, "batch"])
def test_backed_is_as_in_memory_and_the_file_stays_as_it_was(cells, tmp_path, kind, batch_key, monkeypatch):
    cells.X = kind(cells.X)
    path = tmp_path / "cells.h5ad"
    cells.write_h5ad(path)
    content = path.read_bytes()
    monkeypatch.setattr("homophily.sources.BLOCK", 7 * cells.n_vars)  # 7 rows at once
    backed = ad.read_h5ad(path, backed="r")
    options = {"batch_key": batch_key, "selector": DirichletSelector(**QUICK), "random_state": 1}
    select_genes(backed, 5, **options)
    select_genes(cells, 5, **options)
    assert backed.isbacked
    backed.file.close()
    assert_same(written(backed), written(cells))
    assert path.read_bytes() == content


def test_view_of_a_backed_file(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    view = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")[10:60]
    with pytest.raises(ValueError, match=r"view of a backed file.*to_memory"):
        select_genes(view, 3)
    frame = select_genes(view, 3, selector=LaplacianScore(), inplace=False)
    expected = LaplacianScore(3).fit(cells.X[10:60]).get_support()
    np.testing.assert_array_equal(frame["homophily_selected"], expected)


def by_hand(cells, n_genes, selector):
    """Rank genes over batches with lists and loops."""
    ranks, scores = {}, {}
    names = sorted(set(cells.obs["batch"]))
    for name in names:
        part = cells.X.toarray()[(cells.obs["batch"] == name).to_numpy()]
        fitted = selector.set_params(n_features_to_select=n_genes).fit(part)
        for rank, gene in enumerate(fitted.selected_features_):
            ranks.setdefault(int(gene), []).append(rank)
        for gene, score in enumerate(fitted.scores_):
            scores.setdefault(gene, []).append(score)
    score = {gene: sum(values) / len(names) for gene, values in scores.items()}
    order = sorted(ranks, key=lambda gene: (-len(ranks[gene]), np.median(ranks[gene]), -score[gene]))
    return order[:n_genes], [len(ranks.get(gene, ())) for gene in range(cells.n_vars)], score


@pytest.mark.parametrize("selector", [LaplacianScore(), DirichletSelector(**QUICK, random_state=0)])
def test_batches_are_merged_by_count_then_rank(cells, selector):
    genes, counts, score = by_hand(cells, 6, selector)
    assert 1 in counts  # batches differ, or there is nothing to merge
    select_genes(cells, 6, batch_key="batch", selector=selector)
    ranked = cells.var.sort_values("homophily_rank").index[:6]
    assert list(ranked) == [f"gene{gene}" for gene in genes]
    assert list(cells.var["homophily_nbatches"]) == counts
    np.testing.assert_allclose(cells.var["homophily_score"], list(score.values()), rtol=1e-5)
    Z = standardize(cells.X[:, genes]).values
    S = adaptive_knn_graph(Z, 5).toarray()
    np.testing.assert_allclose(cells.obsp["homophily_connectivities"].toarray(), (S + S.T) / 2, atol=1e-5)


def test_one_batch_is_no_batch(cells):
    cells.obs["one"] = "all"
    other = cells.copy()
    select_genes(cells, 6, batch_key="one", selector=DirichletSelector(**QUICK), random_state=0)
    assert (cells.var["homophily_nbatches"] == cells.var["homophily_selected"]).all()
    select_genes(other, 6, selector=DirichletSelector(**QUICK), random_state=0)
    assert_same(written(cells), written(other))
    select_genes(cells, 6, selector=DirichletSelector(**QUICK), random_state=0)
    assert "homophily_nbatches" not in cells.var


def test_auto_finds_the_number(cells):
    frame = select_genes(cells, "auto", inplace=False)
    expected = PredictiveSelector("auto", random_state=0).fit(cells.X.toarray())
    assert set(np.flatnonzero(frame["homophily_selected"])) == set(expected.selected_features_)
    with pytest.raises(ValueError, match=r"auto.*RSR a number"):
        select_genes(cells, "auto", selector=RSR())


def test_not_inplace_returns_the_columns_and_writes_nothing(cells):
    before = cells.copy()
    frame = select_genes(cells, 4, selector=LaplacianScore(), inplace=False, highly_variable=True, key_added="mine")
    assert list(frame.columns) == ["mine_selected", "mine_score", "mine_rank", "highly_variable"]
    assert frame.index.equals(cells.var_names)
    assert frame["mine_selected"].sum() == 4
    assert (frame["highly_variable"] == frame["mine_selected"]).all()
    pd.testing.assert_frame_equal(cells.var, before.var)
    assert not cells.obsp
    assert set(cells.uns) == {"note"}


@pytest.mark.parametrize("selector", [LaplacianScore(n_neighbors=3), RSR(), RandomSelector()])
def test_selectors_without_a_graph_get_that_of_their_genes(cells, selector):
    unfitted = selector.get_params()
    select_genes(cells, 5, selector=selector, highly_variable=True, key_added="other")
    assert selector.get_params() == unfitted
    genes = cells.var["highly_variable"].to_numpy()
    assert genes.sum() == 5
    k = unfitted.get("n_neighbors", 5)
    assert cells.uns["other"]["params"]["n_neighbors"] == k
    S = adaptive_knn_graph(standardize(cells.X[:, genes]).values, k).toarray()
    np.testing.assert_allclose(cells.obsp["other_connectivities"].toarray(), (S + S.T) / 2, atol=1e-5)


def test_neighbors_and_seed_override_the_selector(cells):
    chosen = [
        select_genes(cells, 5, selector=RandomSelector(random_state=0), random_state=seed, inplace=False)
        for seed in (None, 0, 1)
    ]
    pd.testing.assert_frame_equal(chosen[0], chosen[1])
    assert not chosen[0].equals(chosen[2])
    for selector in (RSR(), LaplacianScore(n_neighbors=3)):
        select_genes(cells, 5, selector=selector, n_neighbors=7)
        assert (np.diff(cells.obsp["homophily_distances"].indptr) == 7).all()


def test_no_graph_leaves_none_of_an_earlier_call(cells):
    select_genes(cells, 5, selector=LaplacianScore())
    select_genes(cells, 5, selector=DirichletSelector(final_graph="none", **QUICK))
    assert not cells.obsp
    assert "connectivities_key" not in cells.uns["homophily"]


@pytest.mark.parametrize("batch_key", [None, "batch"])
def test_a_graph_that_would_take_hours_is_not_made(cells, monkeypatch, batch_key):
    monkeypatch.setattr("homophily.final_graph.SLOW_GRAPH", 50)
    with pytest.warns(UserWarning, match="graph of 90 samples will not be made"):
        select_genes(cells, 5, batch_key=batch_key, selector=DirichletSelector(**QUICK))
    assert cells.var["homophily_selected"].sum() == 5
    assert not cells.obsp


def test_file_that_is_open_for_writing(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r+")
    select_genes(backed, 5, selector=LaplacianScore())
    select_genes(cells, 5, selector=LaplacianScore())
    backed.file.close()
    assert_same(written(backed), written(cells))


def test_errors_say_what_there_is(cells):
    with pytest.raises(TypeError, match="must be an AnnData object, got ndarray"):
        select_genes(np.zeros((3, 3)), 2)
    with pytest.raises(ValueError, match="no layer 'raw'; its layers are: counts"):
        select_genes(cells, 2, layer="raw")
    with pytest.raises(ValueError, match="no column 'donor'; its columns are: kind, batch"):
        select_genes(cells, 2, batch_key="donor")
    with pytest.raises(ValueError, match="n_genes=30, but X has 23 columns to choose from; 1 more are constant"):
        select_genes(cells, 30)
    cells.obs["few"] = ["x"] * 3 + ["y"] * 87
    with pytest.raises(ValueError, match="Batch 'x' of 3 cells: n_neighbors=5 must be less"):
        select_genes(cells, 2, batch_key="few")
    cells.obs.loc["cell4", "batch"] = None
    with pytest.raises(ValueError, match="1 of 90 cells have no batch"):
        select_genes(cells, 2, batch_key="batch")
    del cells.X
    with pytest.raises(ValueError, match="no matrix X; name a layer, its layers are: counts"):
        select_genes(cells, 2)


def test_without_anndata_one_line_says_what_to_install(cells, tmp_path, monkeypatch):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r'pip install "homophily\[anndata\]"'):
        select_genes(cells, 2)
    result = command("select", tmp_path / "cells.h5ad", "-m", 2, "--out", tmp_path / "out", code=2)
    assert result.output == 'Error: h5ad files need anndata: pip install "homophily[anndata]".\n'
    assert not (tmp_path / "out").exists()


# Files


def select(path, *more, code=0):
    quick = ("--method", "dirichlet", "--max-iter", 30, "--graph", "exact", "--objective", "energy")
    return command("select", path, "-m", 5, *quick, "--out", path.parent / "out", *more, code=code)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("layer", [None, "counts"])
def test_select_on_the_command_line(cells, tmp_path, monkeypatch, on_disk, layer):
    if on_disk:
        monkeypatch.setattr("homophily.commands.MANY", 50)
        monkeypatch.setattr("homophily.sources.BLOCK", 7 * cells.n_vars)
    path = tmp_path / "cells.h5ad"
    cells.raw = cells
    cells.write_h5ad(path)
    select(path, "--label-column", "kind", *(() if layer is None else ("--layer", layer)))
    selected = pd.read_csv(tmp_path / "out" / "selected.csv")
    select_genes(cells, 5, layer=layer, selector=DirichletSelector(**QUICK), random_state=0)
    expected = cells[:, cells.var["homophily_selected"]].copy()
    reduced = ad.read_h5ad(tmp_path / "out" / "reduced.h5ad")
    assert list(selected["name"]) == list(expected.var.sort_values("homophily_rank").index)
    assert reduced.raw is None
    pd.testing.assert_frame_equal(reduced.obs, cells.obs)
    pd.testing.assert_frame_equal(reduced.var, expected.var)
    assert sp.issparse(reduced.X)
    np.testing.assert_array_equal(reduced.X.toarray(), expected.X.toarray())
    np.testing.assert_array_equal(reduced.layers["counts"].toarray(), expected.layers["counts"].toarray())
    np.testing.assert_array_equal(reduced.obsm["place"], expected.obsm["place"])
    np.testing.assert_array_equal(reduced.varm["weights"], expected.varm["weights"])
    assert reduced.uns["note"] == "kept"
    assert_same(written(reduced), written(expected))
    assert reduced.uns["homophily"] == cells.uns["homophily"]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "type 1" in report


def test_another_method_on_the_command_line(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    command("select", tmp_path / "cells.h5ad", "-m", 5, "--method", "ls", "--out", tmp_path / "out")
    reduced = ad.read_h5ad(tmp_path / "out" / "reduced.h5ad")
    select_genes(cells, 5, selector=LaplacianScore(random_state=0))
    assert_same(written(reduced), written(cells[:, cells.var["homophily_selected"]].copy()))


def test_only_a_layer(cells, tmp_path):
    del cells.X
    cells.write_h5ad(tmp_path / "cells.h5ad")
    result = select(tmp_path / "cells.h5ad", code=2)
    assert "cells.h5ad has no matrix X; use one of its layers: counts." in result.output
    select(tmp_path / "cells.h5ad", "--layer", "counts")
    reduced = ad.read_h5ad(tmp_path / "out" / "reduced.h5ad")
    assert reduced.X is None
    assert reduced.layers["counts"].shape == (90, 5)


def test_read_table(cells, tmp_path):
    path = tmp_path / "cells.h5ad"
    cells.write_h5ad(path)
    table = read_table(path, label_column="kind")
    assert table.names == list(cells.var_names)
    assert list(table.labels) == list(cells.obs["kind"])
    assert sp.issparse(table.X)
    np.testing.assert_array_equal(table.X.toarray(), cells.X.toarray())
    assert isinstance(read_table(path, on_disk=lambda n, d: True).X, H5adRows)
    for options, message in (
        ({"layer": "raw"}, r"cells.h5ad has no layer 'raw'; its layers are counts\."),
        ({"label_column": "y"}, r"cells.h5ad has no column 'y' in obs; its columns are kind, batch\."),
        ({"drop": ["gene1"]}, "name columns of a table"),
    ):
        with pytest.raises(InputError, match=message):
            read_table(path, **options)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(InputError, match=r"--layer names a matrix of a h5ad file; x.csv has none\."):
        read_table(tmp_path / "x.csv", layer="counts")


def test_files_that_are_no_h5ad(tmp_path):
    import h5py

    path = tmp_path / "cells.h5ad"
    path.write_text("gene1,gene2\n")
    result = select(path, code=2)
    assert result.output.startswith("Error: cells.h5ad could not be read as h5ad: it is no HDF5 file. ")
    with h5py.File(path, "w") as file:
        file["X"] = np.eye(3)
    with pytest.raises(InputError, match="is an HDF5 file, but no h5ad of AnnData: it has no obs and var"):
        read_table(path)
    ad.AnnData(np.zeros((0, 3))).write_h5ad(path)
    with pytest.raises(InputError, match="0 rows and 3 feature columns"):
        read_table(path)


def test_fit_takes_the_path_and_names_the_genes(cells, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    fitted = LaplacianScore(4).fit(tmp_path / "cells.h5ad")
    assert fitted.selected_features_.tolist() == LaplacianScore(4).fit(cells.X).selected_features_.tolist()
    assert list(fitted.feature_names_in_) == list(cells.var_names)
    rows = open_rows(tmp_path / "cells.h5ad")
    on_disk, in_memory = (stability(LaplacianScore(4), X, n_subsamples=3, random_state=0) for X in (rows, cells.X))
    np.testing.assert_array_equal(on_disk.frequency, in_memory.frequency)
