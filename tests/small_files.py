"""A small valid file of every format that is read, for tests that damage them."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp

X = np.random.RandomState(0).randn(6, 3).round(3)
Y = np.arange(6) % 2
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=["u", "v"] * 3)


def write_h5ad(path, matrix, compression=None):
    import anndata

    obs = pd.DataFrame({"y": pd.Categorical(["u", "v"] * 3)}, index=[f"cell{i}" for i in range(6)])
    var = pd.DataFrame(index=["g0", "g1", "g2"])
    anndata.AnnData(matrix, obs=obs, var=var).write_h5ad(path, compression=compression)


WRITERS = {
    "table.csv": lambda path: FRAME.to_csv(path, index=False),
    "table.tsv": lambda path: FRAME.to_csv(path, index=False, sep="\t"),
    "table.parquet": lambda path: FRAME.to_parquet(path),
    "plain.parquet": lambda path: FRAME[["a", "b", "c"]].to_parquet(path, compression=None),
    "array.npy": lambda path: np.save(path, X),
    "arrays.npz": lambda path: np.savez(path, X=X, y=Y),
    "packed.npz": lambda path: np.savez_compressed(path, X=X, y=Y),
    "sparse.npz": lambda path: sp.save_npz(path, sp.csr_matrix(X)),
    "arrays.mat": lambda path: scipy.io.savemat(path, {"X": X, "Y": Y}),
    "packed.mat": lambda path: scipy.io.savemat(path, {"X": X, "Y": Y, "c": {"d": 1}}, do_compression=True),
    "sparse.mat": lambda path: scipy.io.savemat(path, {"X": sp.csc_matrix(X)}),
    "old.mat": lambda path: scipy.io.savemat(path, {"X": X, "Y": Y}, format="4"),
    "dense.h5ad": lambda path: write_h5ad(path, X),
    "sparse.h5ad": lambda path: write_h5ad(path, sp.csr_matrix(X)),
    "columns.h5ad": lambda path: write_h5ad(path, sp.csc_matrix(X), "gzip"),
}
SUFFIXES = sorted({Path(name).suffix for name in WRITERS})


@functools.cache
def content(name):
    """The bytes of one of the files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        WRITERS[name](path)
        return path.read_bytes()
