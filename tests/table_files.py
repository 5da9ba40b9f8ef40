"""The same table as a file of any kind, for tests of memory."""

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp


def planted(n, d=20):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X[:, :4] += 4 * rng.standard_normal((3, 4))[rng.integers(3, size=n)]
    return X


def written(folder, kind, X):
    """The same numbers as a file of any kind."""
    path = folder / f"a.{kind}"
    if kind in ("csv", "tsv"):
        pd.DataFrame(X).add_prefix("f").to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    elif kind == "parquet":
        pd.DataFrame(X).add_prefix("f").to_parquet(path)
    elif kind == "npy":
        np.save(path, X)
    elif kind == "npz":
        np.savez(path, X=X)
    elif kind == "sparse.npz":
        sp.save_npz(path, sp.csr_array(X))
    else:
        scipy.io.savemat(path, {"X": X})
    return path


KINDS = ["csv", "tsv", "parquet", "npy", "npz", "sparse.npz", "mat"]
