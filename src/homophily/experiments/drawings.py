"""Every figure that the results in a folder and the data sets of this machine allow, and what the others lack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_wine
from sklearn.manifold import TSNE
from sklearn.model_selection import train_test_split

from .. import figures
from ..datasets import DatasetNotFoundError, load, make_planted, paper_dataset
from ..evaluation import RunStore, reconstruct
from ..evaluation.running import Backend
from ..evaluation.tables import DISPLAY, TASKS
from ..figures import EmbeddedGraph
from ..graph import adaptive_knn_graph, heat_kernel_graph
from ..joint import DirichletSelector
from ..output import STORE
from ..predictive import PredictiveSelector
from ..preprocessing import standardize
from ..stability import stability
from .settings import Settings
from .toy import ToyExperiment, toy_results

__all__ = ["DRAWINGS", "Drawing", "MissingInputError", "Sources", "experiment_figures"]

IMAGES = {"Jaffe": (26, 26), "COIL-20": (32, 32), "PIX10": (100, 100)}  # height, width
M = 100  # features of the image data in figures of graphs and pixels
M_REBUILT = 300  # Fig. S1
NEIGHBORS = 5


class MissingInputError(Exception):
    """A figure needs what is not here. The message names it, ``command`` makes it."""

    def __init__(self, what: str, command: str) -> None:
        super().__init__(what)
        self.command = command


class Sources:
    """What figures are drawn from.

    Parameters
    ----------
    folder : Path
        Output folder of ``homophily reproduce``: tables of experiments are read from it.
    data_dir : Path, optional
        Folder with the data sets.
    seed : int
        Seed of all that is drawn or trained for a figure.
    """

    def __init__(self, folder: Path, data_dir: Path | None = None, seed: int = 0) -> None:
        self.folder, self.data_dir, self.seed = folder, data_dir, seed
        self._selectors: dict[tuple[str, int], PredictiveSelector] = {}

    def table(self, path: str, command: str) -> pd.DataFrame:
        """The table whose path ends so, ``*`` for any letters; of several a whole one, of the paper's protocol."""
        found = sorted(self.folder.rglob(path), key=lambda file: ("quick" in str(file), "paper" not in str(file), file))
        if not found:
            raise MissingInputError(f"there is no {path} in {self.folder}", command.format(out=self.folder))
        return pd.read_csv(found[0])

    def data(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """A data set."""
        try:
            return load(name, data_dir=self.data_dir)
        except DatasetNotFoundError as error:
            fetch = f"homophily datasets fetch {name}"
            if paper_dataset(name).sha256 is None:
                fetch = f"homophily datasets list  # says where to get {name}"
            raise MissingInputError(f"the data set {name} is not here", fetch) from error

    def selector(self, name: str, m: int) -> PredictiveSelector:
        """The default selector, fitted to a data set."""
        if (name, m) not in self._selectors:
            X, _ = self.data(name)
            self._selectors[name, m] = PredictiveSelector(m, random_state=self.seed).fit(X)
        return self._selectors[name, m]

    def store(self) -> RunStore:
        """What ``homophily reproduce`` has finished in this folder."""
        return RunStore(self.folder / STORE if (self.folder / STORE).is_file() else ":memory:")


def _energy(source: Sources) -> Figure:
    angles = np.linspace(0, 2 * np.pi, 15, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    aside = np.array([1.5, 0])
    points = np.concatenate([circle - aside, circle + aside])
    rng = np.random.RandomState(source.seed)
    graph, elsewhere = adaptive_knn_graph(points, 2), adaptive_knn_graph(rng.normal(size=points.shape), 2)
    return figures.signals_on_graphs(
        points,
        {
            "a coordinate on its 2-NN graph": (graph, points[:, 0]),
            "noise on the same graph": (graph, rng.normal(size=len(points))),
            "the coordinate on a random graph": (elsewhere, points[:, 0]),
        },
    )


def _toy(source: Sources) -> Figure:
    experiment = ToyExperiment(Settings(quick=True, splits=1, seed=source.seed))
    with source.store() as store:
        for _ in experiment.run(store, Backend()):
            pass  # seconds, if they are not in the store
        frames = experiment.results(store).frames
    return figures.toy_panels(toy_results(frames, source.seed))


def _embeddings(source: Sources) -> Figure:
    rows = {}
    for name in ("COIL-20", "Jaffe"):
        X, y = source.data(name)
        selector = source.selector(name, M)
        whole, chosen = (standardize(part).values for part in (X, X[:, selector.selected_features_]))  # noqa: PD011
        place = TSNE(init="pca", random_state=source.seed)
        everywhere, here = (place.fit_transform(points) for points in (whole, chosen))
        rows[name] = (
            [
                EmbeddedGraph("Heat", everywhere, heat_kernel_graph(whole, NEIGHBORS, None)),
                EmbeddedGraph("DGL only", everywhere, adaptive_knn_graph(whole, NEIGHBORS)),
                EmbeddedGraph(f"{M} chosen features", here, adaptive_knn_graph(chosen, NEIGHBORS)),
            ],
            np.unique(y, return_inverse=True)[1],
        )
    return figures.embedded_graphs(rows)


def _rebuilt(source: Sources) -> Figure:
    X, y = source.data("PIX10")
    train, test = train_test_split(np.arange(len(X)), test_size=0.2, random_state=source.seed, stratify=y)
    selector = PredictiveSelector(M_REBUILT, random_state=source.seed).fit(X[train])
    rebuilt = reconstruct(X[train], X[test], selector.selected_features_, source.seed)
    rows = [np.concatenate([train[:5], test[:5]]), np.concatenate([rebuilt[0][:5], rebuilt[1][:5]])]
    shape = IMAGES["PIX10"]
    upright = [_upright(images, shape) for images in (X[rows[0]], rows[1])]
    return figures.reconstructions(upright[0], upright[1], shape, [True] * 5 + [False] * 5)


def _pixels(source: Sources, name: str) -> Figure:
    X, _ = source.data(name)
    height, width = IMAGES[name]
    column, row = np.divmod(source.selector(name, M).selected_features_, height)
    return figures.selected_pixels(_upright(X, (height, width)), (height, width), list(row * width + column))


def _upright(X: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Images row by row, of the published files, which hold them column by column."""
    height, width = shape
    return X.reshape(len(X), width, height).transpose(0, 2, 1).reshape(len(X), -1)


def _stability(source: Sources) -> Figure:
    wine = load_wine()
    selector = PredictiveSelector(5, random_state=source.seed)
    frequency = stability(selector, wine.data, random_state=source.seed).frequency
    chosen = selector.fit(wine.data).selected_features_
    return figures.selection_frequencies(frequency, chosen.tolist(), wine.feature_names)


def _sensitivity(source: Sources) -> Figure:
    table = source.table("sensitivity*/sensitivity.csv", "homophily reproduce sensitivity --quick --out {out}")
    return figures.sensitivity_curves(table)


def _beside_paper(source: Sources) -> Figure:
    command = "homophily reproduce table --quick --protocol paper --out {out}"
    return figures.beside_paper(source.table("table-*/table.csv", command))


def _training(source: Sources) -> Figure:
    X, _, _ = make_planted(300, 60, 8, random_state=source.seed)
    return figures.training_curves(DirichletSelector(8, random_state=source.seed).fit(X).history_)


def _growth(source: Sources) -> Figure:
    table = source.table("growth.csv", "python benchmarks/growth.py --results {out}")
    return figures.growth(table)


class Drawing(NamedTuple):
    """A figure that can be drawn from :class:`Sources`."""

    name: str  # of the file
    title: str
    draw: Callable[[Sources], Figure]


DRAWINGS = [
    Drawing("fig1-energy", "Fig. 1: the Dirichlet energy", _energy),
    Drawing("fig3-toy", "Fig. 3: toy data", _toy),
    Drawing("figS1-reconstructions", "Fig. S1: PIX10 from 300 features", _rebuilt),
    Drawing("figS2-graphs", "Fig. S2: graphs of COIL-20 and Jaffe", _embeddings),
    Drawing("figS3-sensitivity", "Fig. S3: sensitivity", _sensitivity),
    Drawing("beside-paper", "Tables 2 and S1-S3: ours beside the paper's", _beside_paper),
    Drawing("pixels-jaffe", "Chosen pixels of Jaffe", partial(_pixels, name="Jaffe")),
    Drawing("pixels-coil20", "Chosen pixels of COIL-20", partial(_pixels, name="COIL-20")),
    Drawing("training", "A training on generated data", _training),
    Drawing("stability", "Selections on parts of the wine samples", _stability),
    Drawing("growth", "Time against the number of rows", _growth),
]


def experiment_figures(name: str, frames: Mapping[str, pd.DataFrame], seed: int) -> Iterator[tuple[str, Figure, str]]:
    """Figures of the tables that an experiment gave: heading, figure, and how to read it."""
    if name == "table":
        if not frames["beside_random"].empty:
            found = frames["beside_random"].rename(columns={"mean": "gain", "sem": "error"})
            named = {"measure": found["task"].map(TASKS), "method": found["method"].replace(DISPLAY), "group": ""}
            yield (
                "Is it better than chance?",
                figures.gains_over_random(found.assign(**named)),
                "Differences to random columns of the same number on the same splits, turned so that positive is "
                "better; bars are standard errors over the data sets.",
            )
        own = frames["table"]
        if (own["paper_mean"].notna() & (own["method"] == "dirichlet")).any():
            yield (
                "homophily beside the paper's own figures",
                figures.beside_paper(own),
                "Bars are standard deviations over the splits, each at the number of features where it is best.",
            )
    if name == "toy" and (panels := toy_results(frames, seed)):
        yield (
            "The first draw",
            figures.toy_panels(panels),
            "Data, the Heat graph of all 20 columns, the learned graph and the columns of F, with and without the "
            "Unique Feature Selector. Edges in the colour of the text join the classes.",
        )
    if name == "sensitivity" and not frames["sensitivity"].empty:
        yield (
            "One parameter at a time",
            figures.sensitivity_curves(frames["sensitivity"]),
            "Accuracy of a random forest; the best is starred, the default ringed, bars are standard deviations.",
        )
