"""The one training loop: restarts side by side, row batches, anchors, history, callbacks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from .nn import KNNGraph, UniqueFeatureSelector
from .objectives import Objective

__all__ = [
    "HISTORY",
    "Progress",
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


@dataclass(frozen=True)
class Schedule:
    """How to train: the estimator's parameters of the same names."""

    learning_rate: float
    max_iter: int
    temperature: tuple[float, float]
    epsilon: float
    unique: bool
    init_std: float
    batch_size: int
    n_anchors: int | None
    tol: float
    literal: bool


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
    X: Tensor,
    m: int,
    graph: KNNGraph,
    objective: Objective,
    schedule: Schedule,
    *,
    restarts: tuple[int, int],
    generator: torch.Generator,
    callback: Callback | None = None,
) -> Trained:
    r"""Minimise the logarithm of the objective of ``X F`` over the logits of F with Adam, T annealed exponentially.

    The logarithm makes the step the same for any number of samples and features, and for an energy that falls by
    orders of magnitude on the way. All restarts are independent; they only share the computation.
    """
    n, d = X.shape
    n_restarts = restarts[1] - restarts[0]
    selector = UniqueFeatureSelector(
        d,
        m,
        n_restarts=n_restarts,
        epsilon=schedule.epsilon,
        unique=schedule.unique,
        init_std=schedule.init_std,
        generator=generator,
        device=X.device,
        dtype=X.dtype,
    )
    optimizer = torch.optim.Adam(selector.parameters(), lr=schedule.learning_rate)
    everyone = torch.arange(n, device=X.device)
    hot, cold = schedule.temperature
    history: dict[str, list[Tensor]] = {name: [] for name in HISTORY}
    stop = False
    for step in range(schedule.max_iter):
        T = hot * (cold / hot) ** (step / max(1, schedule.max_iter - 1))
        rows, among = everyone, everyone
        if schedule.batch_size < n:
            rows = torch.randperm(n, generator=generator, device=X.device)[: schedule.batch_size]
        if schedule.n_anchors is not None and schedule.n_anchors < n:
            among = torch.randperm(n, generator=generator, device=X.device)[: schedule.n_anchors].sort().values
        optimizer.zero_grad()
        F = selector(T, generator)  # (R, d, m)
        value, energy = _backward(X, F, graph, objective, rows, among, logarithm=not schedule.literal)
        optimizer.step()

        loss = value if schedule.literal else value.log()
        confidence = selector.probabilities.amax(1).mean(1)
        for name, entry in zip(HISTORY, (loss, energy, torch.tensor(T), confidence), strict=True):
            history[name].append(entry)
        if callback is not None:
            best = int(loss.argmin())
            state = T, float(energy[best]), float(confidence[best])
            stop = bool(callback(Progress("training", step + 1, schedule.max_iter, restarts, *state)))
        if stop or bool((confidence >= 1 - schedule.tol).all()):
            break
    stacked = {name: torch.stack(entries).cpu().numpy() for name, entries in history.items()}
    return Trained(selector.logits.detach(), stacked, step + 1)


def _backward(
    X: Tensor, F: Tensor, graph: KNNGraph, objective: Objective, rows: Tensor, among: Tensor, *, logarithm: bool
) -> tuple[Tensor, Tensor]:
    """Accumulate the gradient of one step; return the objective a row and the energy of all rows, both (R,).

    The objective is a sum over rows, so it is differentiated chunk by chunk and memory stays bounded whatever the
    batch and the number of candidates: never an n x n x k tensor.
    """
    n, m = len(X), F.shape[-1]
    if len(among) == n:
        points = X @ F  # (R, n, m)
        at, own = rows, rows
    else:
        points = X[torch.cat([among, rows])] @ F  # (R, A + B, m)
        at = torch.arange(len(among), points.shape[1], device=X.device)
        place = torch.searchsorted(among, rows).clamp_max(len(among) - 1)
        own = torch.where(among[place] == rows, place, -1)
    leaf = points.detach().requires_grad_()
    value = torch.zeros(len(F), dtype=X.dtype, device=X.device)
    energy = torch.zeros_like(value)
    chunk = max(1, CHUNK // (len(F) * graph.width(len(among)) * max(graph.k + 2, m)))
    for i in range(0, len(rows), chunk):
        part = slice(i, i + chunk)
        S = graph(leaf[:, : len(among)], leaf[:, at[part]], own[part])
        share = objective(S, m, rows[part], among)
        if share.requires_grad:  # with k = n - 1 every graph is the same, and coverage is a constant
            share.sum().backward()
        value += share.detach()
        energy += (S.weights * S.distances).detach().sum((-2, -1))
    # d log v = dv / v. Where the selected columns do not differ at all there is no slope to follow.
    divisor = value.clamp_min(TINY) if logarithm else torch.full_like(value, len(rows))
    if leaf.grad is not None:
        points.backward(leaf.grad / divisor[:, None, None])
    return value.clamp_min(TINY) / len(rows), energy * (n / len(rows) / 2)


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


def judge(X: Tensor, features: np.ndarray, k: int, objective: Objective) -> float:
    """Exact value of ``objective`` for chosen ``features``: hard neighbours, all rows, float64 where there is one."""
    everyone = torch.arange(len(X), device=X.device)
    chosen = X[:, torch.as_tensor(features, device=X.device)]
    if X.device.type != "mps":
        chosen = chosen.to(torch.float64)
    graph = KNNGraph(k, exact=True)
    total = 0.0
    for rows in everyone.split(max(1, CHUNK // ((k + 1) * len(features)))):
        S = graph(chosen, chosen[rows], rows)
        total += float(objective(S, len(features), rows, everyone))
    return total
