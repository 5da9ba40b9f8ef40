"""What scanpy makes of the genes and the graph that we select."""

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp
from cells import make_cells
from scipy.sparse.csgraph import connected_components
from sklearn.metrics import adjusted_rand_score

from homophily import DirichletSelector
from homophily.anndata import select_genes
from homophily.baselines import AllFeatures


@pytest.fixture
def sc():
    return pytest.importorskip("scanpy")


def test_scanpy_clusters_and_embeds_the_learned_graph(sc):
    """Blood cells that scanpy ships; the logarithms of their counts are in ``raw``."""
    blood = sc.datasets.pbmc68k_reduced().raw.to_adata()
    del blood.obsm, blood.obsp
    select_genes(blood, 40, selector=DirichletSelector(max_iter=50, graph="exact", refine=False))
    leiden = {"flavor": "igraph", "n_iterations": 2, "directed": False}
    sc.tl.leiden(blood, neighbors_key="homophily", **leiden)
    sc.tl.leiden(blood, obsp="homophily_connectivities", key_added="by_graph", **leiden)
    assert list(blood.obs["leiden"]) == list(blood.obs["by_graph"])
    assert adjusted_rand_score(blood.obs["leiden"], blood.obs["bulk_labels"]) > 0.2
    sc.tl.umap(blood, neighbors_key="homophily", maxiter=20)
    assert blood.obsm["X_umap"].shape == (700, 2)
    assert np.isfinite(blood.obsm["X_umap"]).all()
    sc.tl.paga(blood, groups="leiden", neighbors_key="homophily")
    sc.tl.diffmap(blood, neighbors_key="homophily", n_comps=5)
    assert np.isfinite(blood.obsm["X_diffmap"]).all()


def test_scanpy_embeds_a_graph_in_many_parts(sc, tmp_path):
    """UMAP then looks at the coordinates, sparse here; also of a file."""
    cells = make_cells(n=96, d=12, n_types=8)
    types = np.eye(8)[np.arange(96) % 8]
    cells.X = sp.csr_matrix(np.hstack([types + 0.01 * np.random.RandomState(0).rand(96, 8), np.zeros((96, 4))]))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    for each in (cells, ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")):
        select_genes(each, 8, selector=AllFeatures())
        assert connected_components(each.obsp["homophily_connectivities"])[0] >= 8
        sc.tl.umap(each, neighbors_key="homophily", maxiter=5)
        assert np.isfinite(each.obsm["X_umap"]).all()
        sc.tl.leiden(each, neighbors_key="homophily", flavor="igraph", n_iterations=2, directed=False)
        assert adjusted_rand_score(each.obs["leiden"], each.obs["kind"]) > 0.9
