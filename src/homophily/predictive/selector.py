"""PredictiveSelector: the columns that predict all the others, on rows that the prediction has not seen."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from .. import memory
from ..alternatives import near_copies
from ..base import BaseSelector
from ..final_graph import final_graph, planned_graph
from ..preprocessing import Standardized
from ..progress import StepCallback, Steps, step_progress
from ..shapes import Of
from .joint import FEW, ROWS, joint_selection, unseen_share
from .lines import AllColumns, LeaveOneOut
from .search import SHORTLIST, exchange, grow, nested_order
from .size import knee, predictable_columns

__all__ = ["PredictiveSelector"]

FARTHEST = 3.0  # standard deviations beyond which a value counts as that far
ENTRIES = 2**26  # of the sample of rows
LEAST_ROWS = 128  # of the sample, whatever the limit to memory
ROW_BYTES = 64  # per entry of the sample: as it was read, standardised, and four times in the search


class PredictiveSelector(BaseSelector):
    r"""Select the columns that predict all the others, without labels.

    .. math::
        \min_A \; \sum_f w_f \, \|e_f\|^2, \qquad
        e_f = \text{leave-one-out residual of the ridge regression of column } f \text{ on } A \setminus f

    Columns are standardised and values beyond 3 standard deviations count as 3. Each row is predicted by a regression
    that has not seen it, so a column gains nothing by chance; a selected column is predicted by the other selected
    ones. :math:`w_f` is the share of column f that all the other columns together predict: what nothing predicts is
    noise and does not count. The selection grows column by column, then each selected column is exchanged for the best
    one in its place.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=None
        The number of features; a float between 0 and 1 is a share of the columns that vary; by default half of them.
        ``"auto"`` takes as many as the others predict better than any column of noise; where those are more than three
        quarters of the columns, or more than 256, the knee of what the first 128 predict. See ``size_rule_``.
    n_neighbors : int, default=5
        Neighbours per row in ``graph_``, and in the energy that judges selections of up to 4 features.
    ridge : float, default=1.0
        The ridge in units of the number of rows, at least 0.01.
    max_rows : int, default=2048
        The search looks at a random sample of at most that many rows and 2**26 entries. Means and deviations are those
        of all rows.
    final_graph : {"auto", "exact", "faiss", "none"}, default="auto"
        How ``graph_`` is found. ``"auto"``: exactly up to 50,000 samples, beyond that approximately with faiss if it is
        installed (``pip install "homophily[faiss]"``); else exactly up to 200,000 and not at all for more.
    verbose : bool or int, default=False
        Show a progress bar.
    random_state : int, RandomState instance or None, default=None
        Draws the sample of rows, the noise of ``"auto"``, and for up to 4 features the start of the energy's search.
        Otherwise nothing is drawn.

    Attributes
    ----------
    selected_features_ : ndarray (m,)
        Column indices, those that would be missed most first.
    scores_ : ndarray (n_features_in_,)
        For a selected column what ``explained_`` would lose without it, for another one what it would gain, at least 0.
        Of the others only the 512 best are credited with what they add about the selected columns.
    ranking_ : ndarray (n_features_in_,)
        1 for the best column. The selected columns come first, in the order in which the search adds them if there are
        no others; the others follow by what they would add.
    explained_ : float
        :math:`1 - \sum_f w_f \|e_f\|^2 / \sum_f w_f \|z_f\|^2`: the share of the columns, weighted by w, that the
        selected ones predict on rows left out.
    explained_by_all_ : float
        The same where each column is predicted by all the others: by more columns, noise among them.
    path_ : dict of ndarray
        ``n_features`` and ``explained`` of each selection while the search adds columns.
    size_rule_ : {"given", "predicted", "knee", "none"}
        Why there are so many features; ``"none"`` if ``"auto"`` found none that others predict.
    alternatives_ : ndarray (m, <= 10)
        Columns that could replace each selected feature, in the order of ``selected_features_``: those that correlate
        with it by at least .9 (or at most -.9), the closest first; -1 where there are no more.
    graph_ : csr_array (n, n) or None
        The adaptive k-NN graph of the samples on the selected, standardised features, see ``final_graph``. Rows sum
        to 1.
    energy_ : float or None
        Dirichlet energy of the selected, standardised features on ``graph_``; None where there is no graph.
    dropped_features_ : ndarray
        Indices of the constant columns.
    n_iter_ : int
        Columns added, and places visited for an exchange.
    interrupted_ : bool
        Whether a callback ended the run early.

    See Also
    --------
    DirichletSelector : The paper's learner of features and graph.
    homophily.baselines.FSCA : Without leaving rows out.

    Notes
    -----
    The residuals of all columns for every candidate follow by updates of rank one, so that a column costs O(n d); see
    ``homophily.predictive.lines``. Few features may have a structure that no regression sees, such as circles. Up to 4
    features are therefore compared with those that minimise the paper's energy, by the objective plus
    :math:`m\,E / E_0`: their energy relative to that of columns with the same values and correlations.

    Examples
    --------
    >>> from homophily import PredictiveSelector
    >>> from homophily.datasets import make_planted
    >>> X, y, planted = make_planted(200, 30, 5, random_state=0)
    >>> selector = PredictiveSelector("auto", random_state=0).fit(X)
    >>> sorted(selector.selected_features_.tolist()) == planted.tolist()
    True
    """

    score_meaning: ClassVar[str] = (
        "share of what can be predicted that is lost without the feature, or that it would add"
    )

    _fitted: ClassVar[dict[str, Of]] = {
        **BaseSelector._fitted,
        "ranking_": Of("i", ("d",), least=1, distinct=True),
        "explained_": Of("f"),
        "explained_by_all_": Of("f"),
        "path_": Of("n", ("sizes",), each=True),
        "size_rule_": Of("s"),
        "alternatives_": Of("i", ("m", None), below="d", least=-1),
        "graph_": Of("f", ("n", "n"), sparse=True, nullable=True),
        "energy_": Of("f", nullable=True),
        "n_iter_": Of("i"),
        "interrupted_": Of("b"),
    }
    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "n_features_to_select": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            StrOptions({"auto"}),
            None,
        ],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "ridge": [Interval(Real, 0.01, None, closed="left")],
        "max_rows": [Interval(Integral, 2, None, closed="left")],
        "final_graph": [StrOptions({"auto", "exact", "faiss", "none"})],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_features_to_select: int | float | str | None = None,
        *,
        n_neighbors: int = 5,
        ridge: float = 1.0,
        max_rows: int = 2048,
        final_graph: str = "auto",
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_neighbors = n_neighbors
        self.ridge = ridge
        self.max_rows = max_rows
        self.final_graph = final_graph
        self.verbose = verbose
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, *, callback: StepCallback | None = None) -> Self:
        """Select the columns of ``X (n, d)``.

        Parameters
        ----------
        X : array, data frame, sparse matrix, memory map, or path of a .npy, .parquet or .h5ad file (n, d)
            Finite numbers, at least ``n_neighbors + 1`` rows. It is standardised inside and not changed. A memory map
            or file is read block by block and may be larger than memory. Data frames are those of pandas and polars.
        y : ignored
        callback : callable, optional
            Called after each column that is added or exchanged with a :class:`~homophily.progress.Step`; the search
            ends when it returns True, and what has been found until then is kept.
        """
        source = self._open(X)
        n, d = source.shape
        self._check_neighbors(n)
        method = planned_graph(self.final_graph, n, d, self.n_features_to_select, self.n_neighbors)
        (seed,) = self._seeds(1)
        rows = min(n, self.max_rows, max(2, ENTRIES // d))
        least = min(rows, LEAST_ROWS)
        memory.require(
            ROW_BYTES * d * least, f"To search {d:,} columns on {least} rows", "Raise it, or leave out columns."
        )
        data = self._standardize(source, max(least, memory.fitting(rows, ROW_BYTES * d, 1 / 2)), seed=seed)
        Z = np.clip(data.values, -FARTHEST, FARTHEST)
        Z -= Z.mean(0)
        with step_progress(self.verbose, callback) as steps:
            self._search(data, Z, np.random.default_rng(seed), steps)
        self.n_iter_, self.interrupted_ = steps.step, steps.stopped
        chosen = np.searchsorted(data.kept, self.selected_features_)
        copies = near_copies(torch.from_numpy(data.values), chosen)
        self.alternatives_ = np.where(copies < 0, -1, data.kept[copies])
        self.graph_: sp.csr_array | None = None
        self.energy_: float | None = None
        if method != "none":
            self.graph_, self.energy_ = final_graph(data, chosen, self.n_neighbors, method)
        return self

    def _search(self, data: Standardized, Z: np.ndarray, rng: np.random.Generator, steps: Steps) -> None:
        """Select columns of ``Z (n', d')`` and set what is learned about them."""
        ridge = self.ridge * len(Z)
        shares = np.clip(AllColumns(Z, ridge).shares(), 0, 1)
        squares = shares * np.square(Z).sum(0, dtype=np.float64)
        total = max(float(squares.sum()), np.finfo(np.float64).tiny)
        self.explained_by_all_ = float(shares @ squares) / total
        if self.n_features_to_select == "auto":
            m, self.size_rule_ = predictable_columns(Z, ridge, rng)
            if self.size_rule_ == "none":
                _warn_of_noise(m)
        else:
            m, self.size_rule_ = self._number_to_select(data), "given"

        model = LeaveOneOut(Z, ridge, shares)
        steps.plan(2 * m)
        path: list[float] = []

        def tell(J: float) -> bool:
            path.append(1 - J / total)
            return steps(explained=path[-1])

        grow(model, m, tell)
        self.path_ = {"n_features": np.arange(1, len(path) + 1), "explained": np.array(path)}
        if self.size_rule_ == "knee":
            m = knee(self.path_["explained"])
            model.start(model.chosen[:m])
            steps.plan(m)
        if not steps.stopped:
            exchange(model, tell)
        some = rng.permutation(len(Z))[:ROWS]
        model.start(_joint_or_same(Z[some], model, min(self.n_neighbors, len(some) - 1), rng))
        self._describe(data, model, total)

    def _describe(self, data: Standardized, model: LeaveOneOut, total: float) -> None:
        """Set what is known of the selection and of each column."""
        chosen = np.array(model.chosen)
        J = model.value()
        self.explained_ = 1 - J / total if model.weights.any() else 0.0  # of noise there is nothing to predict
        scores = np.maximum(J - model.values(SHORTLIST)[0], 0) / total
        scores[chosen] = np.maximum(model.without() - J, 0) / total
        rest = np.setdiff1d(np.arange(len(scores)), chosen)
        rest = rest[np.argsort(-scores[rest], kind="stable")]
        self._set_selection(data, chosen, scores)
        order = np.concatenate([data.kept[nested_order(model)], data.kept[rest], data.dropped])
        self.ranking_ = np.empty(len(order), dtype=np.int64)
        self.ranking_[order] = np.arange(1, len(order) + 1)


def _joint_or_same(Z: np.ndarray, model: LeaveOneOut, k: int, rng: np.random.Generator) -> list[int]:
    """The selection, or for few features that of the lowest energy if their joint distribution tells more."""
    m, chosen = len(model.chosen), model.chosen
    if not 1 < m <= min(FEW, Z.shape[1] - 1):
        return chosen
    rival = joint_selection(Z, m, k, rng)
    values = []
    for each in (chosen, rival):
        model.start(each)
        values.append(model.value() / len(model.h) + m * unseen_share(Z, each, k, rng))
    return rival if values[1] < values[0] else chosen


def _warn_of_noise(m: int) -> None:
    warnings.warn(
        "No column of X is predicted by the others better than noise is, so the data do not say how many to select: "
        f'n_features_to_select="auto" takes {m}. Give the number, or try more samples.',
        UserWarning,
        stacklevel=5,
    )
