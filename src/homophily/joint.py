"""DirichletSelector: the paper's joint learning of features and k-NN graph as a scikit-learn selector."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from joblib import Parallel, delayed
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from .base import BaseSelector, listing
from .graph import adaptive_knn_graph
from .nn import KNNGraph
from .nn.soft_topk import SOLVERS
from .objectives import OBJECTIVES, Energy, Objective
from .preprocessing import Standardized
from .progress import Report, training_progress
from .refinement import BUDGET, exchange_features
from .runtime import one_thread, resolve_device
from .training import (
    HISTORY,
    Callback,
    Schedule,
    Trained,
    check_temperature,
    judge,
    pick_features,
    selection_strength,
    train,
)

__all__ = ["DirichletSelector"]

BATCH = 256  # rows a step by default
GROUP_ROWS = 512  # rows a step over which restarts are trained side by side


class DirichletSelector(BaseSelector):
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
        Soft selection of neighbours, see :func:`~homophily.nn.soft_topk`. ``reg`` is free of units.
    n_candidates : int or "all", optional
        Nearest points among which the soft graph selects, see :class:`~homophily.nn.KNNGraph`.
    objective : {"energy", "coverage"}
        ``"energy"`` is the paper's: smooth selected features. ``"coverage"`` asks that *all* features be smooth on the
        graph of the selected ones, which suits data with many near-copies (images, spectra).
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
        After training, exchange single features while that lowers the exact objective
        (:func:`~homophily.refinement.exchange_features`).
    batch_size : int or "all", optional
        Rows that a step looks at, by default all up to 256. Each row still finds its neighbours among all samples, so
        a batch's gradient is right in expectation.
    n_anchors : int, optional
        Look for neighbours among that many samples only, drawn anew each step, so that the cost of a step does not
        depend on n.
    tol : float
        Stop early once the columns are certain: mean of the largest probability of each at least ``1 - tol``.
    literal : bool
        Use Eq. (9) and Eq. (3) to the letter. By default rows of S are normalised and the loss is in logarithms.
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
    graph_ : csr_array (n, n)
        The exact adaptive k-NN graph of the samples on the selected, standardised features. Rows sum to 1.
    energy_ : float
        Exact Dirichlet energy of the selected, standardised features on ``graph_``. A random feature adds about n.
    history_ : dict of ndarray (n_iter_,)
        ``loss``, ``energy`` (estimated on the batch), ``temperature`` and ``confidence`` of the restart that was kept.
    logits_ : ndarray (d', m)
        The learned parameter of that restart, for the columns that are not constant, with exchanged ones swapped.
    restart_objectives_ : ndarray (n_init,)
        Exact objective of each restart that was trained, after the exchange; for ``"energy"`` that is
        ``2 energy_ / m``.
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
        "n_anchors": [Interval(Integral, 2, None, closed="left"), None],
        "tol": [Interval(Real, 0, 1, closed="left")],
        "literal": ["boolean"],
        "device": [str],
        "verbose": ["verbose"],
        "n_jobs": [Integral, None],
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
        max_iter: int = 500,
        temperature: tuple[float, float] | None = None,
        epsilon: float = 1e-10,
        unique: bool = True,
        init_std: float | str = 0.01,
        n_init: int = 2,
        refine: bool = True,
        batch_size: int | str | None = None,
        n_anchors: int | None = None,
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
            "solver": "bregman",
            "scale": "none",
            "n_candidates": "all",
            "max_iter": 1000,
            "temperature": (10.0, 0.01),
            "init_std": "glorot",
            "n_init": 1,
            "refine": False,
            "batch_size": "all",
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
    def fit(self, X: Any, y: Any = None, *, callback: Callback | None = None) -> Self:
        """Learn the features and the graph of ``X (n, d)``.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n, d)
            Finite numbers, at least ``n_neighbors + 1`` rows. It is standardised inside and not changed.
        y : ignored
        callback : callable, optional
            Called after each step with a :class:`~homophily.training.Progress`; the run ends when it returns True, and
            what has been learned until then is kept.
        """
        data = self._check_and_standardize(X)
        n, d = data.values.shape
        m = self._number_to_select(data)
        self._check_neighbors(n)
        if self.n_anchors is not None and self.n_anchors <= self.n_neighbors:
            raise ValueError(f"n_anchors={self.n_anchors} must be greater than n_neighbors={self.n_neighbors}.")
        points = torch.from_numpy(data.values).to(resolve_device(self.device))
        schedule, graph = self._schedule(n, d, m), self._graph_module(n)
        objective = OBJECTIVES[self.objective](points)
        size = min(self.n_init, max(1, GROUP_ROWS // schedule.batch_size))
        groups = [(start, min(start + size, self.n_init)) for start in range(0, self.n_init, size)]
        seeds = self._seeds(len(groups))

        with one_thread(), training_progress(self.verbose, self.max_iter, self.n_init, callback) as report:
            trained = Parallel(n_jobs=self.n_jobs, backend="threading")(
                delayed(_train_group)(points, m, graph, objective, schedule, group, seed, report)
                for group, seed in zip(groups, seeds, strict=True)
            )
            self._keep_best(data, points, objective, [group for group in trained if group is not None], report)
        return self

    def _keep_best(
        self,
        data: Standardized,
        points: torch.Tensor,
        objective: Objective,
        trained: list[Trained],
        report: Report,
    ) -> None:
        """Judge all restarts by the exact objective of the features that they name, and store the best."""
        logits = [restart.double().cpu().numpy() for group in trained for restart in group.logits]
        picks = [pick_features(restart) for restart in logits]
        values = np.array([self._judge(points, features, objective) for features in picks])
        learned = picks.copy()
        if self.refine and not report.stopped:
            self._exchange(points, objective, logits, picks, values, report)
        best = int(values.argmin())
        self.exchanged_features_ = data.kept[np.setdiff1d(picks[best], learned[best])]
        self.restart_objectives_ = values
        self.logits_ = logits[best]
        self._set_selection(data, picks[best], selection_strength(self.logits_))
        chosen = data.values[:, np.searchsorted(data.kept, self.selected_features_)].astype(np.float64)
        self.graph_: sp.csr_array = adaptive_knn_graph(chosen, self.n_neighbors)
        m = len(picks[best])
        energy = values[best] if self.objective == "energy" else self._judge(points, picks[best], Energy(points))
        self.energy_ = float(energy * m / 2)
        if not energy:
            self._warn_of_copies(data)
        owner, place = [(group, place) for group in trained for place in range(len(group.logits))][best]
        self.history_ = {
            name: owner.history[name] if name == "temperature" else owner.history[name][:, place] for name in HISTORY
        }
        self.n_iter_ = owner.n_iter
        self.interrupted_ = report.stopped

    def _exchange(
        self,
        points: torch.Tensor,
        objective: Objective,
        logits: list[np.ndarray],
        picks: list[np.ndarray],
        values: np.ndarray,
        report: Report,
    ) -> None:
        """Exchange features of the restarts, the best first, until the budget is spent; updates the lists in place."""
        budget = BUDGET
        for restart in values.argsort():
            refined, budget = exchange_features(
                points, picks[restart], self.n_neighbors, objective, budget=budget, should_stop=report.exchange
            )
            value = self._judge(points, refined, objective)
            if value < values[restart]:
                _hand_on(logits[restart], picks[restart], refined)
                picks[restart], values[restart] = refined, value
            if budget <= 0 or report.stopped:
                break

    def _judge(self, points: torch.Tensor, features: np.ndarray, objective: Objective) -> float:
        return judge(points, features, self.n_neighbors, objective)

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

    def _schedule(self, n: int, d: int, m: int) -> Schedule:
        """The parameters with every default filled in."""
        unit = math.log1p(d)  # what a logit has to gain to matter among d
        default = max(0.65 * unit, 0.2), 0.1
        return Schedule(
            learning_rate=10 * unit / self.max_iter if self.learning_rate is None else self.learning_rate,
            max_iter=self.max_iter,
            temperature=check_temperature(default if self.temperature is None else self.temperature),
            epsilon=self.epsilon,
            unique=bool(self.unique),
            init_std=math.sqrt(2 / (d + m)) if self.init_std == "glorot" else float(self.init_std),
            batch_size=n if isinstance(self.batch_size, str) else min(n, self.batch_size or BATCH),
            n_anchors=self.n_anchors,
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


def _train_group(
    X: torch.Tensor,
    m: int,
    graph: KNNGraph,
    objective: Objective,
    schedule: Schedule,
    group: tuple[int, int],
    seed: int,
    report: Report,
) -> Trained | None:
    """Train one group of restarts, or none if the run has been stopped before it began."""
    if report.stopped and group[0] > 0:
        return None
    generator = torch.Generator(X.device).manual_seed(seed)
    with one_thread():
        return train(X, m, graph, objective, schedule, restarts=group, generator=generator, callback=report)


def _hand_on(logits: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
    """Give the certainty of each column about its old feature to the one that replaced it."""
    for column, (was, now) in enumerate(zip(old, new, strict=True)):
        logits[[was, now], column] = logits[[now, was], column]
