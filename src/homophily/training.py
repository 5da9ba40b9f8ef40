"""The one training loop: restarts side by side, row batches, anchors, many processes, history, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import kmeans_plusplus
from torch import Tensor

from .checkpoint import Checkpoint
from .distributed import ALONE, Team, WorkerLostError
from .memory import scaled
from .nn import KNNGraph, UniqueFeatureSelector
from .objectives import Objective
from .preprocessing import sample_position
from .shapes import Of

__all__ = [
    "HISTORY",
    "Progress",
    "Rows",
    "Schedule",
    "Trained",
    "check_temperature",
    "judge",
    "pick_features",
    "selection_strength",
    "train",
]

CHUNK = 2**22  # entries of a transport plan that are held at once
TINY = 1e-30
HISTORY = ("loss", "energy", "temperature", "confidence")
START, NOISE, BATCHES, ANCHORS = range(4)  # what is drawn, each from its own stream of random numbers


@dataclass(frozen=True)
class Schedule:
    """How to train: the estimator's parameters of the same names, with every default filled in."""

    learning_rate: float
    max_iter: int
    temperature: tuple[float, float]
    epsilon: float
    unique: bool
    init_std: float
    batch_size: int
    n_anchors: int | None  # None: all rows
    anchor_choice: str
    anchor_refresh: int | None  # steps; None: never
    tol: float
    literal: bool


@dataclass(frozen=True)
class Rows:
    """The rows to train on. Of ``n`` in all this process holds those from position ``first`` on: its shards."""

    local: Tensor  # (rows, d)
    first: int
    n: int
    n_samples: int  # that they stand for
    team: Team = ALONE

    def shard(self, number: int) -> tuple[int, int]:
        """First position of a shard, and one past its last."""
        start, stop = (i * self.n_samples // self.team.n_shards for i in (number, number + 1))
        return sample_position(start, self.n_samples, self.n), sample_position(stop, self.n_samples, self.n)

    def take(self, positions: Tensor | None = None) -> Tensor:
        """The rows at these positions, or all, in every process; (len(positions), d)."""
        if len(self.local) == self.n:
            return self.local if positions is None else self.local[positions]
        if positions is None:
            positions = torch.arange(self.n, device=self.local.device)
        taken = self.local.new_zeros(len(positions), self.local.shape[1])
        mine = (positions >= self.first) & (positions < self.first + len(self.local))
        taken[mine] = self.local[positions[mine] - self.first]
        return self.team.sum_(taken)  # all but one of the terms are 0


@dataclass(frozen=True)
class Progress:
    """What a callback is told after each step. It stops the run by returning True."""

    stage: str  # "training", then "exchange" of features
    step: int  # steps done in this stage
    max_iter: int
    restarts: tuple[int, int]  # half-open range of the restarts that this step trained
    temperature: float
    energy: float  # of the best of them, estimated on the batch
    confidence: float  # of the same one


Callback = Callable[[Progress], bool | None]


@dataclass
class Trained:
    """Restarts after training."""

    logits: Tensor  # (R, d, m)
    history: dict[str, np.ndarray]  # (steps,) temperature, (steps, R) the others
    n_iter: int


def train(
    rows: Rows,
    m: int,
    graph: KNNGraph,
    objective: type[Objective],
    schedule: Schedule,
    *,
    restarts: tuple[int, int],
    seed: int,
    callback: Callback | None = None,
    checkpoint: Checkpoint | None = None,
) -> Trained:
    r"""Minimise the logarithm of the objective of ``X F`` over the logits of F with Adam, T annealed exponentially.

    The logarithm makes the step the same for any number of samples and features, and for an energy that falls by
    orders of magnitude on the way. All restarts are independent; they only share the computation.

    Up to a certain size every row looks for its neighbours among all. Of larger data, a step takes the same number of
    rows from each shard and looks for their neighbours among ``n_anchors`` reference rows: a bipartite graph, whose
    cost does not depend on n. Every process of a team differentiates its own shards, and the gradients are added up.

    What a step draws depends on ``seed`` and its number alone. So all processes draw the same noise and anchors, and a
    run that goes on from a checkpoint draws what it would have drawn.
    """
    device, d, team = rows.local.device, rows.local.shape[1], rows.team
    selector = UniqueFeatureSelector(
        d,
        m,
        n_restarts=restarts[1] - restarts[0],
        epsilon=schedule.epsilon,
        unique=schedule.unique,
        init_std=schedule.init_std,
        generator=_stream(device, seed, START),
        device=device,
        dtype=rows.local.dtype,
    )
    optimizer = torch.optim.Adam(selector.parameters(), lr=schedule.learning_rate, fused=device.type != "mps")
    history: dict[str, list[np.ndarray]] = {name: [] for name in HISTORY}
    first, finished = _restore(checkpoint, selector, optimizer, history, team)
    hot, cold = schedule.temperature
    draws = _Draws(rows, schedule, seed)
    on_all = objective(rows.local) if draws.n_anchors is None else None
    try:
        for step in range(first, schedule.max_iter):
            if finished:
                break
            T = hot * (cold / hot) ** (step / max(1, schedule.max_iter - 1))
            optimizer.zero_grad()
            noise = _stream(device, seed, NOISE, step)
            if on_all is not None:
                points = selector.project(rows.local, T, noise)  # (R, n, m)
                batch = draws.batch(step)
                part = _differentiate(points.detach(), rows.n, batch, batch, graph, on_all)
            else:
                points = selector(T, noise)  # F itself, (R, d, m)
                F = points.detach()
                part = team.sum_of_shards(
                    [_on_shard(draws.shard(step, shard), F, graph, objective) for shard in team.shards]
                )
            value, energy, slope = part[:, 0].clamp_min(TINY), part[:, 1], part[:, 2:].view_as(points)
            # d log v = dv / v. Where the selected columns do not differ at all there is no slope to follow.
            divisor = torch.full_like(value, draws.batch_size) if schedule.literal else value
            points.backward(slope / divisor[:, None, None])
            optimizer.step()

            value = value / draws.batch_size
            loss = value if schedule.literal else value.log()
            energy = energy * (rows.n_samples / draws.batch_size / 2)
            state = torch.stack([loss, energy, torch.full_like(loss, T), selector.confidence])
            numbers = state.cpu().numpy()  # (4, R), all that a step moves off the device
            for name, entry in zip(HISTORY, numbers, strict=True):
                history[name].append(entry)
            best = numbers[0].argmin()
            told = Progress("training", step + 1, schedule.max_iter, restarts, T, *map(float, numbers[[1, 3], best]))
            # All have to leave the loop together: anybody may stop, and the first process says whether that was all.
            sure = bool((numbers[3] >= 1 - schedule.tol).all()) or step + 1 == schedule.max_iter
            flags = [callback is not None and bool(callback(told)), sure and team.rank == 0]
            stop, finished = (flag > 0 for flag in team.sum_(torch.tensor(flags, dtype=torch.float32)).tolist())
            if checkpoint is not None and team.rank == 0 and (finished or stop or checkpoint.is_due()):
                checkpoint.save(_state(selector, optimizer, history), finished=finished)
            if stop:
                break
    except WorkerLostError:
        if checkpoint is not None and team.rank == 0 and history["loss"]:
            checkpoint.save(_state(selector, optimizer, history), finished=False)
        raise
    stacked = {name: np.stack(entries) for name, entries in history.items()}
    stacked["temperature"] = stacked["temperature"][:, 0]
    return Trained(selector.logits.detach(), stacked, len(stacked["loss"]))


class _Draws:
    """Batches and anchors of the steps."""

    def __init__(self, rows: Rows, schedule: Schedule, seed: int) -> None:
        self.rows, self.schedule, self.seed = rows, schedule, seed
        self.device = rows.local.device
        self.n_anchors = None if schedule.n_anchors is None else min(schedule.n_anchors, rows.n)
        self.batch_size = min(schedule.batch_size, rows.n)
        if self.n_anchors is not None:  # as many from each shard
            self.each = max(1, self.batch_size // rows.team.n_shards)
            self.batch_size = self.each * rows.team.n_shards
        self.among = rows.local
        self.anchors = torch.empty(0, dtype=torch.long, device=self.device)
        self.refresh = -1
        self.orders: dict[int, tuple[int, Tensor]] = {}  # epoch and permutation of a shard

    def batch(self, step: int) -> Tensor:
        """Positions of the rows of a batch, from all rows."""
        return self._turn(step, 0, 0, self.rows.n, self.batch_size)

    def shard(self, step: int, number: int) -> tuple[Tensor, int, Tensor, Tensor]:
        """Data (A + B, d) of a shard: the A anchors and its part of the batch; A; places and own anchors (B,) of that.

        ``own`` says which anchor a sample is itself, -1 if none.
        """
        assert self.n_anchors is not None
        self._choose_anchors(step, self.n_anchors)
        start, stop = self.rows.shard(number)
        batch = self._turn(step, number, start, stop, min(self.each, stop - start))
        place = torch.searchsorted(self.anchors, batch).clamp_max(len(self.anchors) - 1)
        own = torch.where(self.anchors[place] == batch, place, -1)
        X = torch.cat([self.among, self.rows.local[batch - self.rows.first]])
        return X, len(self.among), torch.arange(len(self.among), len(X), device=self.device), own

    def _turn(self, step: int, shard: int, start: int, stop: int, size: int) -> Tensor:
        """``size`` of the positions ``start`` to ``stop``: all of them once an epoch, in random order."""
        n = stop - start
        if size == n:
            return torch.arange(start, stop, device=self.device)
        epoch, turn = divmod(step, n // size)
        if self.orders.get(shard, (-1,))[0] != epoch:
            self.orders[shard] = epoch, start + self._permutation(n, BATCHES, epoch, shard)
        return self.orders[shard][1][turn * size : (turn + 1) * size]

    def _choose_anchors(self, step: int, n_anchors: int) -> None:
        refresh = 0 if self.schedule.anchor_refresh is None else step // self.schedule.anchor_refresh
        if refresh == self.refresh:
            return
        self.refresh = refresh
        chosen = self._permutation(self.rows.n, ANCHORS, refresh)
        if self.schedule.anchor_choice == "kmeans++" and n_anchors < self.rows.n:
            chosen = chosen[: 8 * n_anchors]
            seed = int(_stream(torch.device("cpu"), self.seed, ANCHORS, refresh).initial_seed() % 2**32)
            _, places = kmeans_plusplus(
                self.rows.take(chosen).cpu().numpy(), n_anchors, random_state=seed, n_local_trials=1
            )
            places = np.unique(places)  # rows that are copies of each other may have been drawn twice
            others = np.setdiff1d(np.arange(len(chosen)), places)[: n_anchors - len(places)]
            chosen = chosen[torch.from_numpy(np.concatenate([places, others])).to(self.device)]
        self.anchors = chosen[:n_anchors].sort().values
        self.among = self.rows.take(self.anchors)

    def _permutation(self, n: int, *purpose: int) -> Tensor:
        generator = _stream(torch.device("cpu"), self.seed, *purpose)
        return torch.randperm(n, generator=generator).to(self.device)


def _stream(device: torch.device, *key: int) -> torch.Generator:
    """Random numbers that depend on the key alone: the seed, what they are for, and which ones."""
    words = np.random.SeedSequence(key).generate_state(2)
    return torch.Generator(device).manual_seed(int(words[0]) << 31 ^ int(words[1]))


def _state(
    selector: UniqueFeatureSelector, optimizer: torch.optim.Adam, history: dict[str, list[np.ndarray]]
) -> dict[str, np.ndarray]:
    """All that a later run needs to go on."""
    adam = optimizer.state[selector.logits]
    tensors = {"logits": selector.logits.detach(), **{name: adam[name] for name in ADAM}}
    return {
        **{name: np.ascontiguousarray(tensor.cpu().numpy()) for name, tensor in tensors.items()},
        **{f"history/{name}": np.stack(entries) for name, entries in history.items()},
    }


def _restore(
    checkpoint: Checkpoint | None,
    selector: UniqueFeatureSelector,
    optimizer: torch.optim.Adam,
    history: dict[str, list[np.ndarray]],
    team: Team,
) -> tuple[int, bool]:
    """Put what the first process finds in its checkpoint in place everywhere; steps done, and whether that was all."""
    saved, finished = None, False
    if checkpoint is not None and not team.rank:
        R, d, m = selector.logits.shape
        lengths = {"restarts": R, "features": d, "selected": m}
        saved, finished = checkpoint.load({**STATE, **{f"history/{name}": PAST for name in history}}, lengths)
    steps = 0 if saved is None else len(saved["history/loss"])
    steps, is_finished = map(int, team.first_(torch.tensor([steps, int(finished)])))
    if not steps:
        return 0, False
    logits = selector.logits
    if not optimizer.state[logits]:  # as Adam makes it in its first step
        optimizer.state[logits] = {
            "step": torch.zeros((), device="cpu" if logits.device.type == "mps" else logits.device),
            "exp_avg": torch.zeros_like(logits),
            "exp_avg_sq": torch.zeros_like(logits),
        }
    into = {"logits": logits.data, **{name: optimizer.state[logits][name] for name in ADAM}}
    for name, tensor in into.items():
        if saved is not None:
            tensor.copy_(torch.from_numpy(saved[name]).view(tensor.shape))
        team.first_(tensor)
    for name, entries in history.items():
        length = logits.shape[0]
        past = torch.zeros(steps, length) if saved is None else torch.from_numpy(saved[f"history/{name}"])
        entries.extend(team.first_(past.clone()).numpy())
    return steps, bool(is_finished)


ADAM = ("step", "exp_avg", "exp_avg_sq")
# What the arrays of a state are.
LIKE_LOGITS = Of("f", ("restarts", "features", "selected"), finite=True)
STATE = {"step": Of("f", (1,), finite=True), **dict.fromkeys(("logits", "exp_avg", "exp_avg_sq"), LIKE_LOGITS)}
PAST = Of("f", ("steps", "restarts"))


def _on_shard(
    drawn: tuple[Tensor, int, Tensor, Tensor], F: Tensor, graph: KNNGraph, objective: type[Objective]
) -> Tensor:
    """As :func:`_differentiate` for the rows of a shard, but the gradient is that of ``F (R, d, m)``."""
    X, n_among, at, own = drawn
    part = _differentiate(X @ F, n_among, at, own, graph, objective(X, keep=False))
    slope = X.T @ part[:, 2:].view(len(F), len(X), -1)  # (R, d, m)
    return torch.cat([part[:, :2], slope.flatten(1)], 1)


def _differentiate(
    points: Tensor, n_among: int, at: Tensor, own: Tensor, graph: KNNGraph, objective: Objective
) -> Tensor:
    """Objective, sum of s e, and gradient of the objective by ``points (R, n, m)``, side by side; (R, 2 + n m).

    The rows ``at (B,)`` of the points look for neighbours among the first ``n_among``, other than ``own``. The
    objective is a sum over rows, so it is differentiated chunk by chunk and memory stays bounded whatever the batch and
    the number of candidates: never an n x n x k tensor.
    """
    R, _, m = points.shape
    leaf = points.requires_grad_()
    sums = points.new_zeros(R, 2)
    among = torch.arange(n_among, device=points.device)
    chunk = max(1, scaled(CHUNK) // (R * graph.width(n_among) * max(graph.k + 2, m)))
    for i in range(0, len(at), chunk):
        part = slice(i, i + chunk)
        # All rows are taken as they are: gathering them, and adding up their gradients, would cost a tenth of a step.
        queries = leaf if len(at[part]) == leaf.shape[1] else leaf[:, at[part]]
        S = graph(leaf[:, :n_among], queries, own[part])
        share = objective(S, m, at[part], among)
        if share.requires_grad:  # with k = n - 1 every graph is the same, and coverage is a constant
            share.sum().backward()
        sums[:, 0] += share.detach()
        sums[:, 1] += (S.weights * S.distances).detach().sum((-2, -1))
    slope = torch.zeros_like(points) if leaf.grad is None else leaf.grad
    return torch.cat([sums, slope.flatten(1)], 1)


def check_temperature(temperature: Any) -> tuple[float, float]:
    """First and last temperature, if that is what was given."""
    if len(temperature) != 2 or not all(isinstance(T, Real) and 0 < float(T) < math.inf for T in temperature):
        raise ValueError(f"temperature must be two positive numbers, (first, last), got {temperature!r}.")
    first, last = temperature
    return float(first), float(last)


def pick_features(logits: np.ndarray) -> np.ndarray:
    """Name the m distinct features that are jointly the likeliest under ``logits (d, m)``, one a column; (m,)."""
    m = logits.shape[1]
    log_p = logits - np.logaddexp.reduce(logits, axis=0)
    # No column can be driven below its m-th choice, so the others need not enter the assignment.
    in_play = np.unique(np.argpartition(-log_p, m - 1, axis=0)[:m])
    _, chosen = linear_sum_assignment(log_p[in_play].T, maximize=True)
    return in_play[chosen]


def selection_strength(logits: np.ndarray) -> np.ndarray:
    """Probability ``1 - prod_j (1 - p_fj)`` that at least one of the columns draws feature f; (d,)."""
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=0))
    with np.errstate(divide="ignore"):
        return -np.expm1(np.log1p(-np.minimum(p, 1.0)).sum(1))


def judge(X: Tensor, features: np.ndarray, k: int, objective: Objective, n_rows: int | None = None) -> float:
    """Exact value of ``objective`` for chosen ``features``: hard neighbours among all of X, float64 where there is one.

    Summed over all rows, or over the first ``n_rows``, which then stand for the others.
    """
    k = int(k)
    everyone = torch.arange(len(X), device=X.device)
    chosen = X[:, torch.as_tensor(features, device=X.device)]
    if X.device.type != "mps":
        chosen = chosen.to(torch.float64)
    graph = KNNGraph(k, exact=True)
    judged = everyone[:n_rows]
    total = 0.0
    for rows in judged.split(max(1, scaled(CHUNK) // max(len(X), (k + 1) * len(features)))):
        S = graph(chosen, chosen[rows], rows)
        total += float(objective(S, len(features), rows, everyone))
    return total * len(X) / len(judged)
