"""DirichletSelector: the paper's joint learning of features and k-NN graph as a scikit-learn selector."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from joblib import Parallel, delayed
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from . import memory
from .alternatives import near_copies
from .base import BaseSelector
from .callbacks import CallbackSupportMixin, told_as_tasks
from .checkpoint import Checkpoint, Checkpoints, forget, saved_seeds
from .distributed import ALONE, Team, current_team
from .final_graph import final_graph, planned_graph
from .nn import KNNGraph, cross_squared_distances, exact_similarities
from .nn.soft_topk import SOLVERS
from .objectives import OBJECTIVES, Objective
from .preprocessing import Standardized, sample_position
from .progress import Report, training_progress
from .refinement import ROWS, exchange_features
from .runtime import one_thread, resolve_device
from .shapes import Of
from .training import (
    HISTORY,
    Callback,
    Rows,
    Schedule,
    Trained,
    check_temperature,
    judge,
    pick_features,
    selection_strength,
    train,
)
from .wording import listing

__all__ = ["DirichletSelector"]

BATCH = 256  # rows a step by default
GROUP_ROWS = 512  # rows a step over which restarts are trained side by side
MANY = 8192  # rows up to which each sample looks for its neighbours among all others, and restarts are judged
JUDGED = 4096  # rows that judge a restart
ANCHORS = 2048  # candidates by default where there are more rows than that
SAMPLE_BYTES = 2**29  # rows of larger data that are held in memory
ESTIMATED = 256  # rows whose neighbours tell the energy where there is no graph
ESTIMATED_BLOCK = 2**24  # distances of theirs that are held at once
LEAST_JUDGED = 512  # rows below which a judgement would be worth little, whatever the limit to memory
COPIES = 4  # of all rows that training and exchange make where they hold them all
KNOWN_ROWS = 1024  # rows at a time that are looked at to know data again


class DirichletSelector(CallbackSupportMixin, BaseSelector):
    r"""Select features and learn the k-NN graph that they reveal, without labels.

    .. math::
        \min_F \; \mathrm{tr}(\hat X^\top L_S \hat X), \qquad \hat X = X F,\; S = \text{k-NN graph of } \hat X

    (Eq. 3): the m columns of :math:`F` are relaxed one-hot vectors that are kept apart
    (:class:`~homophily.nn.UniqueFeatureSelector`), the graph is differentiable (:class:`~homophily.nn.KNNGraph`), and
    both are learned together with Adam while the temperature falls.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    n_neighbors : int
        The number k of neighbours in the graph.
    graph : {"soft", "exact"}
        ``"soft"`` differentiates through the choice of neighbours, ``"exact"`` through the similarities of the hard
        neighbours only; it is about three times faster and a little worse.
    reg, solver, scale
        Soft selection of neighbours, see :func:`~homophily.nn.soft_topk`: ``solver`` is ``"newton"``, the paper's
        ``"bregman"`` (slow) or ``"projection"`` (twice as fast, and as good but where neighbourhoods are rings: it
        finds Circles in none of 8 runs of training alone). ``reg`` is free of units.
    n_candidates : int or "all", optional
        Nearest points among which the soft graph selects, see :class:`~homophily.nn.KNNGraph`.
    objective : {"energy", "coverage"}
        ``"energy"`` is the paper's: smooth selected features, on redundant data near-copies of each other.
        ``"coverage"`` asks that *all* features be smooth on the graph of the selected ones.
    learning_rate : float, optional
        Of Adam. By default ``10 log(1 + d) / max_iter``: a column has to lead by about log d to hold against d
        rivals, and this lets it go ten times that far.
    max_iter : int
        Steps of Adam.
    temperature : (float, float), optional
        First and last temperature of the exponential schedule. By default ``(0.65 log(1 + d), 0.1)``.
    epsilon : float
        Ridge of the orthogonalisation (Alg. 1); see :func:`~homophily.nn.orthogonalize` for why it is small.
    unique : bool
        ``False`` trains without orthogonalisation, as in the paper's ablation. The features that come out are distinct
        all the same.
    init_std : float or "glorot"
        Spread of the start.
    n_init : int
        Restarts. The one whose features have the lowest exact objective is kept.
    refine : bool
        After training, exchange single features while that lowers the exact objective on 256 samples and their
        neighbours; of more than 4096 samples, in the end on 1024. It begins with what was learned, and again with a
        random selection.
    batch_size : int or "all", optional
        Rows that a step looks at, by default all up to 256. Each row still finds its neighbours among all samples, so
        a batch's gradient is right in expectation. With anchors it is rounded to a multiple of four.
    n_anchors : int or "all", optional
        Look for neighbours among that many samples only (a bipartite graph), so that the cost of a step does not depend
        on n. By default all up to 8192 samples, and 2048 anchors where there are more.
    anchor_choice : {"random", "kmeans++"}
        Anchors are drawn uniformly, or spread out by k-means++ seeding (among eight times as many drawn samples).
    anchor_refresh : int, "epoch" or None
        Steps after which the anchors are drawn anew; ``"epoch"``: once all rows have been looked at; None: never.
    tol : float
        Stop early once the columns are certain: mean of the largest probability of each at least ``1 - tol``.
    literal : bool
        Use Eq. (9) and Eq. (3) to the letter. By default rows of S are normalised and the loss is in logarithms.
    final_graph : {"auto", "exact", "faiss", "none"}
        How ``graph_`` is found. ``"auto"``: exactly up to 50,000 samples, beyond that approximately with faiss if it is
        installed (``pip install "homophily[faiss]"``); else exactly up to 200,000 and not at all for more.
    device : {"auto", "cpu", "cuda", "mps"}
        ``"auto"`` takes CUDA where there is one.
    verbose : bool or int
        Show a progress bar.
    n_jobs : int, optional
        Threads that train groups of restarts at the same time. Groups do not depend on it, nor does the result.
    random_state : int, RandomState instance or None
        Seed of everything that is drawn.

    Attributes
    ----------
    selected_features_ : ndarray (m,)
        Column indices, the most certain first.
    scores_ : ndarray (n_features_in_,)
        Learned probability that at least one of the m columns is this feature; 0 for constant columns. A feature that
        the exchange put in has taken over the certainty of the one that it replaced.
    exchanged_features_ : ndarray
        Those of the selected features that training had not chosen, see ``refine``.
    alternatives_ : ndarray (m, <= 10)
        Columns that could replace each selected feature, in the order of ``selected_features_``: those that correlate
        with it by at least .9 (or at most -.9), the closest first; -1 where there are no more.
    graph_ : csr_array (n, n) or None
        The adaptive k-NN graph of the samples on the selected, standardised features, see ``final_graph``. Rows sum
        to 1.
    energy_ : float
        Dirichlet energy of the selected, standardised features on ``graph_``; without a graph, estimated from the
        neighbours of 256 samples. A random feature adds about n. In processes that train together the graph is made
        by the first one alone; the others have None and NaN.
    history_ : dict of ndarray (n_iter_,)
        ``loss``, ``energy`` (estimated on the batch), ``temperature`` and ``confidence`` of the restart that was kept.
    logits_ : ndarray (d', m)
        The learned parameter of that restart, for the columns that are not constant, with exchanged ones swapped.
    restart_objectives_ : ndarray (n_init,)
        Exact objective of each restart that was trained, after the exchange; for ``"energy"`` that is
        ``2 energy_ / m``. With more than 4096 samples a random sample stands for them.
    dropped_features_ : ndarray
        Indices of the constant columns.
    n_iter_ : int
        Steps done.
    interrupted_ : bool
        Whether a callback ended the run early.

    Examples
    --------
    >>> from homophily import DirichletSelector
    >>> from homophily.datasets import make_toy
    >>> X, y = make_toy("moons", random_state=0)
    >>> selector = DirichletSelector(2, random_state=0).fit(X)
    >>> sorted(selector.selected_features_.tolist())
    [0, 1]

    Notes
    -----
    With more than 8192 samples, one pass over the data gathers means, deviations and a random sample of rows, as many
    as the training looks at (or as fit in 512 MB): the batches. Everything after that is independent of n, until the
    final graph. The pass reads a memory map, a file or a sparse matrix block by block, and only the sampled rows are
    held dense; up to 8192 samples all are, in single precision. In a process group of torch.distributed the rows are
    shared among the processes, see :mod:`homophily.distributed`.
    """

    param_grid: ClassVar[dict[str, list]] = {
        "learning_rate": [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0],
        "reg": [1e-3, 1e-2, 1e-1],
        "n_neighbors": [1, 2, 3, 4, 5],
    }
    score_meaning: ClassVar[str] = (
        "learned probability that the feature is among the chosen ones (after an exchange, that of the feature it "
        "replaced)"
    )

    _fitted: ClassVar[dict[str, Of]] = {
        **BaseSelector._fitted,
        "exchanged_features_": Of("i", (None,), below="d", distinct=True, optional=True),
        "alternatives_": Of("i", ("m", None), below="d", least=-1, optional=True),
        "graph_": Of("f", ("n", "n"), sparse=True, nullable=True),
        "energy_": Of("f"),
        "history_": Of("f", ("steps",), each=True),
        "logits_": Of("f", (None, "m")),
        "restart_objectives_": Of("f", (None,), optional=True),
        "n_iter_": Of("i"),
        "interrupted_": Of("b"),
    }
    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "graph": [StrOptions({"soft", "exact"})],
        "reg": [Interval(Real, 0, None, closed="neither")],
        "solver": [StrOptions(set(SOLVERS))],
        "scale": [StrOptions({"row", "none"})],
        "n_candidates": [Interval(Integral, 2, None, closed="left"), StrOptions({"all"}), None],
        "objective": [StrOptions(set(OBJECTIVES))],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "temperature": [tuple, list, None],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "unique": ["boolean"],
        "init_std": [Interval(Real, 0, None, closed="left"), StrOptions({"glorot"})],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "refine": ["boolean"],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"all"}), None],
        "n_anchors": [Interval(Integral, 2, None, closed="left"), StrOptions({"all"}), None],
        "anchor_choice": [StrOptions({"random", "kmeans++"})],
        "anchor_refresh": [Interval(Integral, 1, None, closed="left"), StrOptions({"epoch"}), None],
        "final_graph": [StrOptions({"auto", "exact", "faiss", "none"})],
        "tol": [Interval(Real, 0, 1, closed="left")],
        "literal": ["boolean"],
        "device": [str],
        "verbose": ["verbose"],
        "n_jobs": [Interval(Integral, 1, None, closed="left"), Interval(Integral, None, -1, closed="right"), None],
    }

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        n_neighbors: int = 5,
        graph: str = "soft",
        reg: float = 0.3,
        solver: str = "newton",
        scale: str = "row",
        n_candidates: int | str | None = None,
        objective: str = "energy",
        learning_rate: float | None = None,
        max_iter: int = 150,
        temperature: tuple[float, float] | None = None,
        epsilon: float = 1e-10,
        unique: bool = True,
        init_std: float | str = 0.01,
        n_init: int = 1,
        refine: bool = True,
        batch_size: int | str | None = None,
        n_anchors: int | str | None = None,
        anchor_choice: str = "random",
        anchor_refresh: int | str | None = 10,
        final_graph: str = "auto",
        tol: float = 2e-3,
        literal: bool = False,
        device: str = "auto",
        verbose: bool | int = False,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_neighbors = n_neighbors
        self.graph = graph
        self.reg = reg
        self.solver = solver
        self.scale = scale
        self.n_candidates = n_candidates
        self.objective = objective
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.temperature = temperature
        self.epsilon = epsilon
        self.unique = unique
        self.init_std = init_std
        self.n_init = n_init
        self.refine = refine
        self.batch_size = batch_size
        self.n_anchors = n_anchors
        self.anchor_choice = anchor_choice
        self.anchor_refresh = anchor_refresh
        self.final_graph = final_graph
        self.tol = tol
        self.literal = literal
        self.device = device
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def from_paper(
        cls,
        n_features_to_select: int | None = None,
        *,
        n_neighbors: int = 5,
        reg: float = 0.01,
        learning_rate: float = 0.01,
        **others: Any,
    ) -> Self:
        """The paper's own choices (Appendix S6.1.2), for comparison rather than for use.

        1000 epochs of Adam over all rows from Glorot's start, one run, temperature 10 to 0.01 as in the concrete
        autoencoder, 200 Bregman iterations over all samples on unscaled distances, literal Eq. (3) and (9). The paper
        searches ``n_neighbors`` in 1..5, ``reg`` in 1e-3..1e-1 and ``learning_rate`` in 1e-4..10 and says what it
        found on no data set; the top of the first and the middle of the others stand in. ``others`` are parameters of
        the class that override these, such as ``random_state``.

        What stays ours: columns have unit standard deviation (Sec. 4.1; Sec. 2 speaks of unit norm), a sample is left
        out of its own neighbours instead of getting "a sufficiently large" distance, epsilon (no value is given), the
        loss a row and feature (Adam does not see the factor), and the assignment to distinct features at the end.
        """
        choices: dict[str, Any] = {
            "objective": "energy",
            "solver": "bregman",
            "scale": "none",
            "n_candidates": "all",
            "max_iter": 1000,
            "temperature": (10.0, 0.01),
            "init_std": "glorot",
            "n_init": 1,
            "refine": False,
            "batch_size": "all",
            "n_anchors": "all",
            "tol": 0.0,
            "literal": True,
        }
        return cls(
            n_features_to_select,
            n_neighbors=n_neighbors,
            reg=reg,
            learning_rate=learning_rate,
            **{**choices, **others},
        )

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        callback: Callback | None = None,
        checkpoint: str | Path | Checkpoints | None = None,
    ) -> Self:
        """Learn the features and the graph of ``X (n, d)``.

        Parameters
        ----------
        X : array, data frame, sparse matrix, memory map, or path of a .npy, .parquet or .h5ad file (n, d)
            Finite numbers, at least ``n_neighbors + 1`` rows. It is standardised inside and not changed. A memory map
            or file is read block by block and may be larger than memory. Data frames are those of pandas and polars.
        y : ignored
        callback : callable, optional
            Called after each step with a :class:`~homophily.training.Progress`; the run ends when it returns True, and
            what has been learned until then is kept. Callbacks of scikit-learn itself (1.9 or newer) are set with
            ``set_callbacks`` and told of each step of the training.
        checkpoint : path or Checkpoints, optional
            Folder to which the state of the training is written every half minute, or as often as
            :class:`~homophily.checkpoint.Checkpoints` says. If it holds the state of the same run on the same data
            already, the training goes on from there, to the same result.
        """
        source = self._open(X)
        n, d = source.shape
        n_anchors = self._n_anchors(n, d)
        team = ALONE if n_anchors is None else current_team()
        self._check_neighbors(n)
        batch_size = n if isinstance(self.batch_size, str) else min(n, self.batch_size or BATCH)
        size = min(self.n_init, max(1, GROUP_ROWS // batch_size))
        groups = [(start, min(start + size, self.n_init)) for start in range(0, self.n_init, size)]
        place = self._place(checkpoint)
        drawn = self._seeds(len(groups) + 1)
        if place is not None and not place.anew and not isinstance(self.random_state, Integral):
            drawn = saved_seeds(place.folder, len(drawn)) or drawn
        *seeds, sampling = team.first_(torch.tensor(drawn)).tolist()
        n_sampled = n if n_anchors is None else self._n_sampled(n, d, source.dtype, batch_size, n_anchors)
        method = planned_graph(self.final_graph, n, d, self.n_features_to_select, self.n_neighbors)
        data = self._standardize(source, n_sampled, seed=sampling, team=None if n_anchors is None else team)
        device = resolve_device(self.device)
        rows = Rows(torch.from_numpy(data.values).to(device), data.first, n_sampled, n, team)
        graph = self._graph_module(n_sampled)

        with (
            one_thread(),
            told_as_tasks(self, X, self.max_iter * len(groups), callback) as told,
            training_progress(self.verbose, self.max_iter, self.n_init, told) as report,
        ):
            m = self._number_to_select(data)
            schedule = self._schedule(n_sampled, rows.local.shape[1], m, min(batch_size, n_sampled), n_anchors)
            states = self._checkpoints(place, data, m, [*seeds, sampling], team)
            # Processes have to take turns in the same order, so threads are for a process that is alone.
            # Threads take memory of their own, also those that have nothing to do.
            n_jobs = self.n_jobs if team.size == 1 and not memory.limited() else 1
            if n_jobs is not None:
                n_jobs = min(n_jobs, len(groups))
            trained = Parallel(n_jobs=n_jobs, backend="threading")(
                delayed(_train_group)(rows, m, graph, OBJECTIVES[self.objective], schedule, group, seed, report, state)
                for group, seed, state in zip(groups, seeds, states, strict=True)
            )
            report.stopped = team.any(report.stopped)
            points = self._reference(rows, sampling)
            self._keep_best(data, rows, points, [group for group in trained if group is not None], report, method)
        return self

    def shares(self, n: int, d: int = 1) -> bool:
        """Whether processes that train together share ``n`` rows of ``d`` columns; of few, each does all the work."""
        return self._n_anchors(n, d) is not None

    def _n_sampled(self, n: int, d: int, dtype: np.dtype, batch_size: int, n_anchors: int) -> int:
        """Rows that are held in memory: those that the training will look at, as far as they fit."""
        refresh = self.anchor_refresh if isinstance(self.anchor_refresh, Integral) else self.max_iter
        needed = batch_size * self.max_iter + n_anchors * math.ceil(self.max_iter / refresh)
        each = d * (dtype.itemsize + 4)  # as they are, and standardised
        room = max(memory.fitting(SAMPLE_BYTES // (d * dtype.itemsize), each, 1 / 4), 2 * n_anchors)
        held = min(n, room, max(needed, MANY))
        memory.require(held * each, f"To hold {held:,} rows of {d:,} columns", "Raise the limit, or leave out columns.")
        return held

    def _n_anchors(self, n: int, d: int) -> int | None:
        if self.n_anchors is None:
            anchors = max(ANCHORS, 4 * (self.n_neighbors + 1))
            many = max(memory.fitting(MANY, COPIES * 4 * d, 1 / 2), min(MANY, 2 * anchors))
            return None if n <= many else anchors
        if isinstance(self.n_anchors, str) or self.n_anchors >= n:
            return None
        if self.n_anchors <= self.n_neighbors:
            raise ValueError(f"n_anchors={self.n_anchors} must be greater than n_neighbors={self.n_neighbors}.")
        return self.n_anchors

    def _place(self, checkpoint: str | Path | Checkpoints | None) -> Checkpoints | None:
        """Where checkpoints go, in the one process that reads and writes them."""
        if checkpoint is None or current_team().rank:
            return None
        return checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(Path(checkpoint))

    def _checkpoints(
        self, place: Checkpoints | None, data: Standardized, m: int, seeds: list[int], team: Team
    ) -> list[Checkpoint | None]:
        """One checkpoint a group of restarts."""
        count = len(seeds) - 1
        if place is None:
            return [None] * count
        others = ("verbose", "n_jobs", "device", "final_graph")
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in others}
        if not isinstance(self.random_state, (Integral, type(None))):
            params["random_state"] = None
        run = {"n_samples": data.n_rows, "n_features": self.n_features_in_, **params, "n_features_to_select": m}
        run |= {"seeds": seeds, "shards": team.n_shards, "n_sampled": data.n_sampled}
        known = data.values
        if self.shares(data.n_rows, self.n_features_in_):  # then what the first process has, however many there are
            known = known[: sample_position(data.n_rows // team.n_shards, data.n_rows, data.n_sampled)]
        known_by = np.stack([data.scaling.unit, data.scaling.mean, data.scaling.std, _leverage(known)])
        if place.anew:
            forget(place.folder)
        return [Checkpoint(place.group(group), run, known_by, place.every) for group in range(count)]

    def _reference(self, rows: Rows, seed: int) -> torch.Tensor:
        """The rows by which restarts are judged and features exchanged: all, or a random sample of many; (n', d)."""
        d = rows.local.shape[1]
        fit = self._n_judged(d)
        if rows.n <= min(JUDGED, fit):
            return rows.take()
        room = min(max(SAMPLE_BYTES // (4 * d), JUDGED), fit)
        order = torch.randperm(rows.n, generator=torch.Generator().manual_seed(seed))[: min(MANY, room)]
        return rows.take(order.to(rows.local.device))

    def _n_judged(self, d: int) -> int:
        """How many rows of ``d`` columns the exchange of features has memory for: what it makes of them is larger."""
        each = 4 * (11 * ROWS[1] + 5 * d)
        least = max(LEAST_JUDGED, self.n_neighbors + 2)
        # Sampled rows take a quarter; the last one is for what libraries set aside, which differs between processors.
        return max(memory.fitting(MANY, each, 1 / 2, fixed=20 * d * ROWS[1]), least)

    def _keep_best(
        self,
        data: Standardized,
        rows: Rows,
        points: torch.Tensor,
        trained: list[Trained],
        report: Report,
        graph_method: str,
    ) -> None:
        """Judge all restarts by the exact objective of the features that they name, and store the best."""
        objective = OBJECTIVES[self.objective](points)
        logits = [restart.double().cpu().numpy() for group in trained for restart in group.logits]
        picks = [pick_features(restart) for restart in logits]
        values = np.array([self._judge(points, features, objective) for features in picks])
        learned = picks.copy()
        if self.refine and not report.stopped:
            self._exchange(points, objective, logits, picks, values, report)
        best = int(values.argmin())
        self.exchanged_features_ = data.kept[np.setdiff1d(picks[best], learned[best])]
        self.restart_objectives_ = values * (data.n_rows / len(points))
        self.logits_ = logits[best]
        self._set_selection(data, picks[best], selection_strength(self.logits_))
        copies = near_copies(points, np.searchsorted(data.kept, self.selected_features_))
        self.alternatives_ = np.where(copies < 0, -1, data.kept[copies])
        self._set_graph(data, rows, graph_method)
        owner, place = [(group, place) for group in trained for place in range(len(group.logits))][best]
        self.history_ = {
            name: owner.history[name] if name == "temperature" else owner.history[name][:, place] for name in HISTORY
        }
        self.n_iter_ = owner.n_iter
        self.interrupted_ = report.stopped

    def _set_graph(self, data: Standardized, rows: Rows, method: str) -> None:
        """Set ``graph_`` and ``energy_``; a graph is made by the first process of a team alone."""
        places = np.searchsorted(data.kept, self.selected_features_)
        self.graph_: sp.csr_array | None = None
        if method == "none":
            self.energy_ = _estimated_energy(data, rows, places, self.n_neighbors)
        elif rows.team.rank:
            self.energy_ = math.nan
        else:
            self.graph_, self.energy_ = final_graph(data, places, self.n_neighbors, method)
        if self.energy_ == 0:
            self._warn_of_copies(data)

    def _exchange(
        self,
        points: torch.Tensor,
        objective: Objective,
        logits: list[np.ndarray],
        picks: list[np.ndarray],
        values: np.ndarray,
        report: Report,
    ) -> None:
        """Exchange features of the restarts, the best first; updates the lists in place.

        A random selection is improved as well, and takes the place of the best restart if it ends up better.
        """

        def improve(restart: int, start: np.ndarray, n_rows: int) -> None:
            if report.stopped:
                return
            found = exchange_features(
                points, start, self.n_neighbors, objective, should_stop=report.exchange, n_rows=n_rows
            )
            # On other rows an exchange may have done harm, so a start that has not been judged yet is judged as well.
            candidates = [found] if start is picks[restart] else [found, start]
            value, found = min(
                ((self._judge(points, features, objective), features) for features in candidates),
                key=lambda judged: judged[0],
            )
            if value < values[restart]:
                found = _aligned(picks[restart], found)
                _hand_on(logits[restart], picks[restart], found)
                picks[restart], values[restart] = found, value

        few, many = ROWS
        for restart in values.argsort():
            improve(restart, picks[restart], few)
        best = int(values.argmin())
        d, m = logits[0].shape
        improve(best, np.random.RandomState(0).permutation(d)[:m], few)
        if len(points) > JUDGED:  # what few rows have found in little time, many confirm
            improve(best, picks[best], many)

    def _judge(self, points: torch.Tensor, features: np.ndarray, objective: Objective) -> float:
        return judge(points, features, self.n_neighbors, objective, JUDGED)

    def _warn_of_copies(self, data: Standardized) -> None:
        """Say why the energy is 0: no feature is then better than another."""
        n = len(data.values)
        distinct = len(np.unique(data.values, axis=0))
        few = [(len(np.unique(data.values[:, data.kept == f])), f) for f in self.selected_features_]
        fewest = listing(f"{f} ({count} values)" for count, f in sorted(few))
        cause = (
            f"{n - distinct} of the {n} rows repeat others; remove them"
            if distinct < n
            else "they take few values; leave such columns out or select more features"
        )
        warnings.warn(
            f"The energy of the selected features is 0: every sample has {self.n_neighbors} exact copies in them, and "
            f"other selections may do as well. Probably {cause}, or raise n_neighbors. Selected: columns {fewest}.",
            UserWarning,
            stacklevel=4,
        )

    def _schedule(self, n: int, d: int, m: int, batch_size: int, n_anchors: int | None) -> Schedule:
        """The parameters with every default filled in."""
        unit = math.log1p(d)  # what a logit has to gain to matter among d
        default = max(0.65 * unit, 0.2), 0.1
        per_epoch = max(1, n // batch_size)
        return Schedule(
            learning_rate=10 * unit / self.max_iter if self.learning_rate is None else self.learning_rate,
            max_iter=self.max_iter,
            temperature=check_temperature(default if self.temperature is None else self.temperature),
            epsilon=self.epsilon,
            unique=bool(self.unique),
            init_std=math.sqrt(2 / (d + m)) if self.init_std == "glorot" else float(self.init_std),
            batch_size=batch_size,
            n_anchors=n_anchors,
            anchor_choice=self.anchor_choice,
            anchor_refresh=per_epoch if self.anchor_refresh == "epoch" else self.anchor_refresh,  # type: ignore[arg-type]
            tol=self.tol,
            literal=bool(self.literal),
        )

    def _graph_module(self, n: int) -> KNNGraph:
        least = self.n_neighbors + 1
        n_candidates = max(n - 1, least) if isinstance(self.n_candidates, str) else self.n_candidates
        if n_candidates is not None and n_candidates < least:
            raise ValueError(f"n_candidates={n_candidates} must be greater than n_neighbors={self.n_neighbors}.")
        return KNNGraph(
            self.n_neighbors,
            reg=self.reg,
            solver=self.solver,
            scale=self.scale,
            n_candidates=n_candidates,
            exact=self.graph == "exact",
            normalize=not self.literal,
        )


def _leverage(values: np.ndarray) -> np.ndarray:
    """Means of ``|values|`` (n, d) with weights that grow from row to row: rows in another order have others; (d,)."""
    n, total = len(values), np.zeros(values.shape[1])
    for start in range(0, n, KNOWN_ROWS):
        block = np.abs(values[start : start + KNOWN_ROWS])
        total += np.arange(start + 1, start + len(block) + 1) / n @ block
    return total / n


def _train_group(
    rows: Rows,
    m: int,
    graph: KNNGraph,
    objective: type[Objective],
    schedule: Schedule,
    group: tuple[int, int],
    seed: int,
    report: Report,
    checkpoint: Checkpoint | None,
) -> Trained | None:
    """Train one group of restarts, or none if the run has been stopped before it began."""
    if group[0] > 0 and rows.team.any(report.stopped):
        return None
    with one_thread():
        return train(
            rows, m, graph, objective, schedule, restarts=group, seed=seed, callback=report, checkpoint=checkpoint
        )


def _estimated_energy(data: Standardized, rows: Rows, places: np.ndarray, k: int) -> float:
    """Energy of the standardised columns ``places`` from the exact neighbours of some rows, found in one pass.

    Every process of a team looks through its own shards.
    """
    n, team = data.n_rows, rows.team
    some = torch.linspace(0, rows.n - 1, min(ESTIMATED, rows.n), dtype=torch.float64).long()
    queries = rows.take(some.to(rows.local.device))[:, torch.as_tensor(places, device=rows.local.device)].cpu().double()
    mine = (some >= rows.first) & (some < rows.first + len(data.ids))
    own = torch.zeros_like(some)  # which samples they are
    own[mine] = torch.from_numpy(data.ids)[some[mine] - rows.first]
    team.sum_(own)
    nearest = queries.new_full((len(some), k + 1), torch.inf)  # squared distances
    for shard in team.shards:
        at = shard * n // team.n_shards
        for block in data.column_blocks(places, at, (shard + 1) * n // team.n_shards):
            for part in torch.from_numpy(block).split(max(1, memory.scaled(ESTIMATED_BLOCK) // len(some))):
                D = cross_squared_distances(queries, part)  # (B, b)
                here = ((own >= at) & (own < at + len(part))).nonzero().squeeze(-1)
                D[here, own[here] - at] = torch.inf
                nearest = torch.cat([nearest, D], 1).topk(k + 1, largest=False).values
                at += len(part)
    nearest = torch.cat(team.gather(nearest), 1).topk(k + 1, largest=False).values
    E = nearest[:, : min(k + 1, n - 1)]
    return float((exact_similarities(E, k) * E).sum()) * n / len(some) / 2


def _aligned(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """``new`` in an order in which features that are also in ``old`` keep their places."""
    placed = np.where(np.isin(old, new), old, -1)
    placed[placed < 0] = new[~np.isin(new, old)]
    return placed


def _hand_on(logits: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
    """Give the certainty of each column about its old feature to the one that replaced it."""
    for column, (was, now) in enumerate(zip(old, new, strict=True)):
        logits[[was, now], column] = logits[[now, was], column]
