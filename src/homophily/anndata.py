"""Genes and a graph of the cells for AnnData objects, written where scanpy looks for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import clone

from .base import BaseSelector
from .drafts import replacing
from .final_graph import planned_graph
from .graph import adaptive_knn_graph, symmetrize
from .predictive import PredictiveSelector
from .preprocessing import standardize
from .sources import H5adRows, SomeRows
from .wording import listing

__all__ = ["select_genes"]

NEIGHBORS = 5  # in the graph, if neither the caller nor the selector says how many
BUDGET = 2**24  # entries held at once


def select_genes(
    adata: Any,
    n_genes: int | str,
    *,
    layer: str | None = None,
    batch_key: str | None = None,
    n_neighbors: int | None = None,
    random_state: Any = None,
    selector: BaseSelector | None = None,
    highly_variable: bool = False,
    key_added: str = "homophily",
    inplace: bool = True,
) -> pd.DataFrame | None:
    """Select genes, and learn the graph of the cells that they reveal.

    Genes are standardised inside. Give logarithms of normalised counts, as for
    ``scanpy.pp.highly_variable_genes``: in raw counts the depth of the sequencing is what cells differ in most.

    Parameters
    ----------
    adata : AnnData
        Cells by genes. Sparse matrices stay sparse. Of a backed object the rows of ``X`` are read in blocks; what is
        written stays in memory, so that read access to the file is enough.
    n_genes : int or "auto"
        How many; ``"auto"`` as in :class:`~homophily.PredictiveSelector`.
    layer : str, optional
        Look at this layer instead of ``adata.X``.
    batch_key : str, optional
        Column of ``adata.obs``. Genes are selected in each batch on its own, so that what tells batches apart is not
        taken for structure, and ranked by the number of batches that chose them, then by the median of their ranks
        there, then by the mean of their scores. ``"auto"`` takes the median of the numbers of the batches. The graph
        is made of all cells in the merged genes.
    n_neighbors : int, optional
        Neighbours in the graph; by default those of ``selector``, or 5.
    random_state : int or RandomState instance, optional
        Seed of everything that is drawn; by default that of ``selector``, or 0.
    selector : selector, optional
        Any selector of homophily, by default :class:`~homophily.PredictiveSelector`. It is copied, not fitted.
    highly_variable : bool
        Also set ``var["highly_variable"]``, which ``scanpy.pp.pca`` and others look at.
    key_added : str
        Begins the names of everything that is written.
    inplace : bool
        Write to ``adata``, or return the columns of ``var`` as a frame and make no graph.

    Returns
    -------
    frame : DataFrame or None
        One row a gene, if not ``inplace``. Otherwise these are written:

        ``var["homophily_selected"]``
            Whether the gene is chosen.
        ``var["homophily_score"]``
            ``scores_`` of the selector, with batches their mean.
        ``var["homophily_rank"]``
            1 for the best gene; NaN for those that are not chosen.
        ``var["homophily_nbatches"]``
            With ``batch_key``, in how many batches the gene was chosen.
        ``obsp["homophily_connectivities"]``
            ``(S + S') / 2`` of the learned graph S: symmetric, as scanpy's are, with weights between 0 and 1. It is
            the graph whose Laplacian the energy is of. Scaling it changes neither clusters nor UMAP.
        ``obsp["homophily_distances"]``
            Euclidean distances to the neighbours of each cell in the standardised genes.
        ``uns["homophily"]``
            Parameters and the names of both, so that ``sc.tl.leiden(adata, neighbors_key="homophily")`` works.
    """
    _check(adata, inplace)
    X = _matrix(adata, layer)
    batches = None if batch_key is None else _batches(adata, batch_key)
    model = _prepared(selector, n_genes, n_neighbors, random_state)
    if batches is not None:
        found = _merged(X, batches, model)
    else:
        _fit(model if inplace else _without_graph(model), X)
        found = Selection(model.selected_features_, model.scores_)
    if not inplace:
        return found.frame(adata.var_names, key_added, highly_variable)
    k = getattr(model, "n_neighbors", NEIGHBORS if n_neighbors is None else n_neighbors)
    if batches is None and hasattr(model, "graph_"):
        neighbors = None if model.graph_ is None else make_neighbors(X, found.genes, k, model.graph_)
    else:
        method = getattr(model, "final_graph", "auto")
        if hasattr(model, "final_graph"):
            method = planned_graph(method, adata.n_obs, adata.n_vars, model.n_features_to_select, model.n_neighbors)
        neighbors = None if method == "none" else make_neighbors(X, found.genes, k, method=method)
    params = described(model, layer, batch_key)
    annotate(adata, found, neighbors, params, key_added=key_added, highly_variable=highly_variable)
    return None


@dataclass
class Selection:
    """What was chosen of d genes."""

    genes: np.ndarray  # (m,) the best first
    scores: np.ndarray  # (d,)
    n_batches: np.ndarray | None = None  # (d,) in how many batches each was chosen

    def frame(self, names: pd.Index, key: str = "homophily", highly_variable: bool = False) -> pd.DataFrame:
        """The columns of ``var``."""
        rank = np.full(len(self.scores), np.nan)
        rank[self.genes] = np.arange(1, len(self.genes) + 1)
        columns = {f"{key}_selected": ~np.isnan(rank), f"{key}_score": self.scores, f"{key}_rank": rank}
        if self.n_batches is not None:
            columns[f"{key}_nbatches"] = self.n_batches
        if highly_variable:
            columns["highly_variable"] = ~np.isnan(rank)
        return pd.DataFrame(columns, index=names)


@dataclass
class Neighbors:
    """The graph of the cells as scanpy keeps it."""

    k: int
    connectivities: sp.csr_matrix  # (n, n)
    distances: sp.csr_matrix  # (n, n)


def make_neighbors(
    X: Any, genes: np.ndarray, k: int, graph: sp.csr_array | None = None, method: str = "auto"
) -> Neighbors:
    """The learned ``graph``, or that of the cells in the standardised ``genes`` of ``X``, found by ``method``."""
    Z = standardize(_columns(X, genes)).values  # noqa: PD011 - (n, m), no data frame
    if graph is None:
        graph = adaptive_knn_graph(Z, k, method=method)
    S = sp.csr_matrix(graph)
    distances = sp.csr_matrix((_lengths(Z, S), S.indices, S.indptr), shape=S.shape)
    connectivities = sp.csr_matrix(symmetrize(S), dtype=np.float32)
    connectivities.eliminate_zeros()  # a neighbour as far as the next one has no weight
    return Neighbors(k, connectivities, distances)


def annotate(
    adata: Any,
    found: Selection,
    neighbors: Neighbors | None,
    params: dict[str, Any],
    *,
    key_added: str = "homophily",
    highly_variable: bool = False,
) -> None:
    """Write to ``var``, ``obsp`` and ``uns`` of ``adata`` what :func:`select_genes` says."""
    for name, column in found.frame(adata.var_names, key_added, highly_variable).items():
        adata.var[name] = column
    if found.n_batches is None and f"{key_added}_nbatches" in adata.var:
        del adata.var[f"{key_added}_nbatches"]  # of an earlier call
    names = {f"{part}_key": f"{key_added}_{part}" for part in ("connectivities", "distances")}
    known = {name: value for name, value in params.items() if isinstance(value, int | float | str | np.integer)}
    entry: dict[str, Any] = {"params": {"n_genes": len(found.genes), **known}}
    if neighbors is None:
        for name in names.values():
            if name in adata.obsp:
                del adata.obsp[name]
    else:
        adata.obsp[names["connectivities_key"]] = neighbors.connectivities
        adata.obsp[names["distances_key"]] = neighbors.distances
        # scanpy.tl.umap complains of a method other than "umap", and without use_rep it would look for principal
        # components; it needs coordinates only to place the parts of a graph that is not connected.
        entry["params"] |= {"n_neighbors": neighbors.k, "method": "umap", "metric": "euclidean", "use_rep": "X"}
        entry |= names
    adata.uns[key_added] = entry


def write_cells(source: H5adRows, selector: Any, graph: sp.csr_array | None, path: Path) -> None:
    """Write the file of ``source`` with the genes of a fitted ``selector`` alone, and what :func:`select_genes` adds.

    ``raw`` is left out: it holds all genes. Matrices are read in blocks, so that the file may be larger than memory.
    """
    from anndata import AnnData

    genes = selector.get_support(indices=True)
    with source.open() as file:
        layers, has_X = list(file.get("layers", ())), "X" in file
    reduced = AnnData(
        H5adRows(source.path).read(genes.tolist()) if has_X else None,
        obs=source.element("obs"),
        var=source.element("var").iloc[genes],
        uns=source.element("uns"),
        obsm=source.element("obsm"),
        obsp=source.element("obsp"),
        varm={name: values[genes] for name, values in source.element("varm").items()},
        varp={name: values[genes][:, genes] for name, values in source.element("varp").items()},
        layers={name: H5adRows(source.path, name).read(genes.tolist()) for name in layers},
    )
    place = {gene: i for i, gene in enumerate(genes)}
    found = Selection(np.array([place[gene] for gene in selector.selected_features_]), selector.scores_[genes])
    k = getattr(selector, "n_neighbors", NEIGHBORS)
    chosen = reduced.X if source.layer is None else reduced.layers[source.layer]
    neighbors = None if graph is None else make_neighbors(chosen, np.arange(len(genes)), k, graph)
    annotate(reduced, found, neighbors, described(selector, source.layer))
    with replacing(path) as draft:
        reduced.write_h5ad(draft)


def described(selector: Any, layer: str | None, batch_key: str | None = None) -> dict[str, Any]:
    """What ``uns`` says of a selection."""
    name, seed = type(selector).__name__, selector.random_state
    return {"layer": layer, "batch_key": batch_key, "selector": name, "random_state": seed}


def _check(adata: Any, inplace: bool) -> None:
    """Refuse what is no AnnData, or cannot be written to."""
    try:
        from anndata import AnnData
    except ImportError as error:
        raise ImportError('select_genes needs anndata: pip install "homophily[anndata]".') from error
    if not isinstance(adata, AnnData):
        raise TypeError(
            f"adata must be an AnnData object, got {type(adata).__name__}; for arrays use a selector's fit."
        )
    if inplace and adata.isbacked and adata.is_view:
        raise ValueError(
            "adata is a view of a backed file, to which nothing can be added: use adata.to_memory(), or inplace=False."
        )


def _matrix(adata: Any, layer: str | None) -> Any:
    """What a selector's fit takes: an array, CSR, or rows on disk."""
    layers = listing(adata.layers) or "none"
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"adata has no layer {layer!r}; its layers are: {layers}.")
    if layer is None and adata.isbacked and not adata.is_view:
        return H5adRows(adata.filename)
    X = adata.X if layer is None else adata.layers[layer]
    if X is None:
        raise ValueError(f"adata has no matrix X; name a layer, its layers are: {layers}.")
    return sp.csr_matrix(X) if sp.issparse(X) else np.asarray(X)


def _batches(adata: Any, key: str) -> dict[str, np.ndarray]:
    """Numbers of the cells of each batch, by its name."""
    if key not in adata.obs:
        raise ValueError(f"adata.obs has no column {key!r}; its columns are: {listing(adata.obs) or 'none'}.")
    missing = int(adata.obs[key].isna().sum())
    if missing:
        raise ValueError(
            f"{missing} of {adata.n_obs} cells have no batch in adata.obs[{key!r}]; name one, or drop them."
        )
    codes, names = pd.factorize(np.asarray(adata.obs[key]), sort=True)
    return {str(name): np.flatnonzero(codes == code) for code, name in enumerate(names)}


def _prepared(selector: BaseSelector | None, n_genes: int | str, n_neighbors: int | None, random_state: Any) -> Any:
    """A selector of our own to fit, with everything that was asked for."""
    model = PredictiveSelector(random_state=0) if selector is None else clone(selector)
    if n_genes == "auto" and not isinstance(model, PredictiveSelector):
        raise ValueError(f'n_genes="auto" works with PredictiveSelector only; give {type(model).__name__} a number.')
    model.set_params(n_features_to_select=n_genes)
    if random_state is not None:
        model.set_params(random_state=random_state)
    if n_neighbors is not None and "n_neighbors" in model.get_params():
        model.set_params(n_neighbors=n_neighbors)
    return model


def _without_graph(model: Any) -> Any:
    """The same object, told that nobody will look at its graph."""
    return model.set_params(final_graph="none") if "final_graph" in model.get_params() else model


def _fit(model: Any, X: Any) -> None:
    try:
        model.fit(X)
    except ValueError as error:
        raise ValueError(str(error).replace("n_features_to_select", "n_genes")) from error


def _merged(X: Any, batches: dict[str, np.ndarray], model: Any) -> Selection:
    """Select in each batch, and rank what was chosen."""
    ranks, scores = [], []  # each (d,) a batch
    for name, cells in batches.items():
        own = _without_graph(clone(model))
        try:
            _fit(own, SomeRows(X, cells) if isinstance(X, H5adRows) else X[cells])
        except ValueError as error:
            raise ValueError(f"Batch {name!r} of {len(cells)} cells: {error}") from error
        rank = np.full(len(own.scores_), np.nan)
        rank[own.selected_features_] = np.arange(len(own.selected_features_))
        ranks.append(rank)
        scores.append(own.scores_)
    chosen = ~np.isnan(ranks)  # (batches, d)
    n_genes = int(np.median(chosen.sum(1)))
    candidates = np.flatnonzero(chosen.any(0))
    median = np.nanmedian(np.array(ranks)[:, candidates], axis=0)
    count, score = chosen.sum(0), np.mean(scores, axis=0)
    order = np.lexsort((-score[candidates], median, -count[candidates]))
    return Selection(candidates[order[:n_genes]], score, count)


def _columns(X: Any, columns: np.ndarray) -> Any:
    return X.read(columns.tolist()) if isinstance(X, H5adRows) else X[:, columns]


def _lengths(Z: np.ndarray, S: sp.csr_matrix) -> np.ndarray:
    """Euclidean lengths (nnz,) of the edges of ``S`` between the rows of ``Z``."""
    edges = S.tocoo()
    chunk = max(1, BUDGET // Z.shape[1])
    parts = [
        np.sqrt(np.square(Z[edges.row[i : i + chunk]] - Z[edges.col[i : i + chunk]]).sum(1))
        for i in range(0, S.nnz, chunk)
    ]
    return np.concatenate(parts).astype(np.float32)
