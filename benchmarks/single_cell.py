"""Cell types of blood: how far clusters in the chosen genes agree with them.

    OMP_NUM_THREADS=1 python benchmarks/single_cell.py [--seeds 5] [--sizes 25,50,100] [--resolution R]
        [--jobs 2] [--results results]

The 700 cells and 765 genes of ``scanpy.datasets.pbmc68k_reduced``, which scanpy ships. All methods get the same matrix:
``adata.raw``, logarithms of normalised counts, because its ``X`` is scaled and highly variable genes are found in
logarithms. Each chooses m genes without labels. What follows is the same for all, with scanpy's functions: genes are
scaled, PCA (30 components, or all but one of fewer), 15 neighbours, Leiden. "learned graph" is Leiden on our graph
instead, without scaling, PCA and neighbours. The resolution of Leiden is searched until there are as many clusters as
types, or nearly: otherwise a sparser graph would be judged by having more clusters. ``--resolution 1`` is scanpy's
default instead.

Clusters are compared with the ten ``bulk_labels``, which were assigned by likeness to sorted cells. ARI and NMI are
means over seeds ± standard deviation; a seed draws 90 % of the cells, random genes, the training, PCA and Leiden.
Seconds are of the choice, on one core.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
import scanpy as sc
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from homophily.anndata import select_genes

FLAVORS = ["seurat", "cell_ranger"]


def blood(seed):
    """Logarithms of the counts of 90 % of the cells."""
    adata = sc.datasets.pbmc68k_reduced().raw.to_adata()
    del adata.uns, adata.obsm, adata.obsp
    adata.var = adata.var[[]]
    rows = np.random.RandomState(seed).permutation(adata.n_obs)[: int(0.9 * adata.n_obs)]
    return adata[np.sort(rows)].copy()


def agreement(adata, seed, resolution, key=None):
    """ARI and NMI of Leiden with the types, in the graph ``key`` or in scanpy's neighbours of the genes at hand."""
    if key is None:
        adata.X = adata.X.toarray()  # scaling would make it dense, and warn
        sc.pp.scale(adata, max_value=10)
        sc.pp.pca(adata, n_comps=min(30, adata.n_vars - 1), random_state=seed)
        sc.pp.neighbors(adata, n_neighbors=15, random_state=seed)
    truth = adata.obs["bulk_labels"]
    found = clusters(adata, seed, key, truth.nunique(), resolution)
    return adjusted_rand_score(truth, found), normalized_mutual_info_score(truth, found)


def clusters(adata, seed, key, wanted, resolution):
    """Leiden's clusters, without a ``resolution`` at that at which their number is ``wanted``, or closest to it."""
    low, high, best = (0.0, 4.0, None) if resolution is None else (resolution, resolution, None)
    for _ in range(12 if resolution is None else 1):
        resolution = (low + high) / 2
        how = {"random_state": seed, "flavor": "igraph", "n_iterations": 2, "directed": False}
        sc.tl.leiden(adata, resolution, neighbors_key=key, **how)
        found = adata.obs["leiden"].copy()
        if best is None or abs(found.nunique() - wanted) < abs(best.nunique() - wanted):
            best = found
        if found.nunique() == wanted:
            break
        low, high = (resolution, high) if found.nunique() < wanted else (low, resolution)
    return best


def judged(m, seed, resolution):
    """Rows of one seed: method, m, ARI, NMI, seconds of the choice."""
    adata = blood(seed)
    rows = []

    def judge(name, mask, seconds):
        assert mask.sum() == m
        rows.append((name, m, *agreement(adata[:, mask].copy(), seed, resolution), seconds))

    start = time.process_time()
    select_genes(adata, m, random_state=seed)
    seconds = time.process_time() - start
    judge("homophily", adata.var["homophily_selected"].to_numpy(), seconds)
    rows.append(("homophily, learned graph", m, *agreement(adata.copy(), seed, resolution, "homophily"), seconds))
    for flavor in FLAVORS:
        start = time.process_time()
        frame = sc.pp.highly_variable_genes(adata, n_top_genes=m, flavor=flavor, inplace=False)
        # Ties in dispersion may add a gene; the first m are kept.
        best = frame["dispersions_norm"].fillna(-np.inf).to_numpy().argsort(kind="stable")[::-1][:m]
        judge(f"highly variable ({flavor})", np.isin(np.arange(adata.n_vars), best), time.process_time() - start)
    chosen = np.random.RandomState(seed).permutation(adata.n_vars)[:m]
    judge("random", np.isin(np.arange(adata.n_vars), chosen), 0.0)
    return rows


def all_genes(seed, resolution):
    """The row of all genes."""
    adata = blood(seed)
    return [("all genes", adata.n_vars, *agreement(adata, seed, resolution), 0.0)]


def table(cells, sizes):
    """Lines of the table: one method a row, one number of genes a column."""
    frame = pd.DataFrame(cells, columns=["method", "m", "ARI", "NMI", "seconds"])
    for score in ("ARI", "NMI"):
        yield [score, *(f"{m} genes" for m in sizes), "seconds"]
        for name in dict.fromkeys(frame["method"]):
            own = frame[frame["method"] == name]
            columns = [own["m"].iloc[0]] if name == "all genes" else sizes
            values = [own.loc[own["m"] == m, score] for m in columns]
            shown = [f"{value.mean():.3f} ± {value.std(ddof=1):.3f}" for value in values]
            took = own["seconds"].median()
            yield [name, *(shown * len(sizes) if name == "all genes" else shown), f"{took:.1f}" if took else ""]


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", default="25,50,100")
    parser.add_argument("--resolution", type=float)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, help="folder for single_cell.md, the tables of docs/single_cell.md")
    arguments = parser.parse_args()
    sizes = [int(m) for m in arguments.sizes.split(",")]
    tasks = [delayed(judged)(m, seed, arguments.resolution) for seed in range(arguments.seeds) for m in sizes]
    tasks += [delayed(all_genes)(seed, arguments.resolution) for seed in range(arguments.seeds)]
    cells = [row for rows in Parallel(arguments.jobs)(tasks) for row in rows]
    lines = []
    for line in table(cells, sizes):
        if line[0] in ("ARI", "NMI"):
            lines += ["", f"| {' | '.join(line)} |", f"|{' --- |' * len(line)}"]
        else:
            lines.append(f"| {' | '.join(line)} |")
    text = "\n".join(lines).strip()
    print(text)
    if arguments.results:
        arguments.results.mkdir(parents=True, exist_ok=True)
        (arguments.results / "single_cell.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
