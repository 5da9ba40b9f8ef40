"""Cells as AnnData, for the tests of genes and of what scanpy makes of them."""

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp


def make_cells(n=90, d=24, n_types=3, seed=0):
    """Cells of some types, which the first third of the genes tells apart; counts and their logarithms."""
    rng = np.random.RandomState(seed)
    kind = np.arange(n) % n_types
    rates = rng.gamma(1.0, 4.0, (n_types, d))
    rates[:, d // 3 :] = rates[0, d // 3 :]
    counts = rng.poisson(rates[kind]).astype(np.float32)
    counts[:, -1] = 0  # a gene that is never seen
    cells = ad.AnnData(
        sp.csr_matrix(np.log1p(counts)),
        obs=pd.DataFrame({"kind": pd.Categorical([f"type {i}" for i in kind])}, index=[f"cell{i}" for i in range(n)]),
        var=pd.DataFrame({"length": np.arange(d)}, index=[f"gene{i}" for i in range(d)]),
        layers={"counts": sp.csr_matrix(counts)},
        uns={"note": "kept"},
        obsm={"place": rng.randn(n, 2)},
        varm={"weights": rng.randn(d, 3)},
    )
    cells.obs["batch"] = pd.Categorical(rng.choice(["a", "b", "c"], n), categories=["c", "b", "a", "unused"])
    return cells
