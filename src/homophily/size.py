"""How many features? As many as have something in common, or the knee of what they explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .nn import cross_squared_distances
from .objectives import Screened
from .refinement import exchange_features
from .screening import Screen
from .trials import Trials

__all__ = ["Size", "choose_size", "knee", "nested_ranking"]

FIRST = 16  # features to begin with
ROUNDS = 5  # selections of the size that the last one asks for, at most
CLOSE = 0.1  # change of the number, relative, that is not worth another
RATE = 0.02  # of false discoveries among the features that are counted
NOISE = 0.25  # share of the features that has to be noise for the others to be counted
MOST = 256  # that are counted; and half as many on a path whose knee is looked for
ROWS = 1024  # samples that tell what is explained
PATH_ROWS, PATH_AMONG = 256, 2048  # along the path, for one selection after the other
POINTS = 24  # of the path
BUDGET = 2**31  # entries of data and distances looked at for one selection


@dataclass(frozen=True)
class Size:
    """A number of features, and the path that it lies on.

    Attributes
    ----------
    n_features : int
        The number.
    rule : {"explained", "knee", "none"}
        Why: that many features are explained beyond chance; it is where the path bends; nothing is explained.
    path : dict of ndarray (P,)
        ``n_features``, sizes of selections that contain each other; ``explained``, the share of the data's variance
        that their graphs explain (of selected features, by the others); ``by_chance``, what 95 % of the graphs between
        relabelled samples stay below; ``discovered``, how many features are explained beyond chance.
    """

    n_features: int
    rule: str
    path: dict[str, np.ndarray]


@torch.no_grad()
def choose_size(X: Tensor, k: int, *, should_stop: Callable[[int], bool] = lambda turn: False) -> Size:
    """The number of features of the standardised ``X (n, d)`` to select, by screened coverage.

    The better half of a selection of 16 tells how many features its graph explains beyond chance (false discovery rate
    .02; the other half was selected to be explained, which is why it has no say); the next selection is that large, and
    so on until the number stays, or ``should_stop``, asked after each turn of an exchange, says so. Where there is next
    to no noise, or more than 256 features are explained, a selection cannot hold them all and need not: then it is the
    knee of what the first features of a nested ranking explain.
    """
    d = X.shape[1]
    limit = min((1 - NOISE) * d, MOST)
    m, rule = min(FIRST, d), "explained"
    starts = [np.random.RandomState(0).permutation(d)[:m], Screened(X, keep=False).surest(m, k, ROWS)]
    tried: set[int] = set()
    stopped = False

    def stop(turn: int) -> bool:
        nonlocal stopped
        stopped = stopped or bool(should_stop(turn))
        return stopped

    for _ in range(ROUNDS):
        ranking = nested_ranking(X, _select(X, starts, k, stop), k)
        tried.add(m)
        count = _discovered(X, ranking[: max(2, (m + 1) // 2)], k)
        if count > limit:
            rule = "knee"
            break
        # A structure of few features drowns among many: look with fewer before saying that there is none.
        rule = "explained" if count > 1 else "none"
        following = count if count > 1 else min(max(2, m // 2), d)
        settled = stopped or following in tried or abs(following - m) <= CLOSE * m
        m, starts = following, [ranking[:following]]
        if settled:
            break
    if rule == "knee":
        m = min(MOST // 2, max(2, d // 2))
        ranking = nested_ranking(X, _select(X, [ranking[:m]], k, stop), k)
    path = _path(X, ranking[: m if rule == "knee" else 2 * m], m, k)
    if rule == "knee":
        m = knee(path["n_features"], path["explained"])
    return Size(m, rule, path)


def knee(sizes: np.ndarray, values: np.ndarray) -> int:
    """Where the rising curve is farthest above the straight line from its first point to its highest."""
    top = int(values.argmax())
    if top == 0:
        return int(sizes[0])
    x = (sizes[: top + 1] - sizes[0]) / (sizes[top] - sizes[0])
    y = (values[: top + 1] - values[0]) / (values[top] - values[0])
    return int(sizes[int((y - x).argmax())])


@torch.no_grad()
def nested_ranking(X: Tensor, chosen: np.ndarray, k: int) -> np.ndarray:
    """All features of ``X (n, d)``: the chosen ones first, each that which adds most to those before it.

    What they add is how well the graph keeps together samples that are close in all features that are explained. The
    others follow in the order in which the graph of the chosen ones explains them.
    """
    m, device = len(chosen), X.device
    trials = _path_trials(X, k, m)
    screen = Screen(trials)
    found = screen.explained(chosen.tolist(), trials.sums(chosen.tolist()))
    r, counted = found.r, found.r > found.threshold()
    if not counted.any():
        counted = torch.ones_like(counted)
    target = cross_squared_distances(trials.queries[counted].T, trials.columns[counted].T)  # (B, A)
    D = trials.apart_from_itself(torch.zeros_like(target))
    left, order = torch.as_tensor(chosen, device=device), []
    for _ in range(m):
        graph, _ = trials.graphs(trials.rest(D), left)
        values = (graph.weights * target.expand(len(left), *target.shape).gather(-1, graph.indices)).sum((-2, -1))
        best = int(values.argmin())
        order.append(int(left[best]))
        D += trials.differences(order[-1])
        left = torch.cat([left[:best], left[best + 1 :]])
    r[order] = -torch.inf
    others = r.argsort(descending=True)[: X.shape[1] - m].tolist()
    return np.array(order + others)


def _select(X: Tensor, starts: list[np.ndarray], k: int, should_stop: Callable[[int], bool]) -> np.ndarray:
    """The best selection that exchanges lead to from ``starts``."""
    objective = Screened(X, keep=False)
    found = [exchange_features(X, start, k, objective, budget=BUDGET, should_stop=should_stop)[0] for start in starts]
    return min(found, key=lambda features: objective.judge(features, k, ROWS))


def _discovered(X: Tensor, chosen: np.ndarray, k: int) -> int:
    """How many features of X the graph of the chosen ones explains beyond chance."""
    trials = Trials(X, k, len(chosen), n_rows=ROWS)
    screen, features = Screen(trials), chosen.tolist()
    return int(screen.discovered(features, screen.explained(features, trials.sums(features)), RATE).sum())


def _path_trials(X: Tensor, k: int, m: int) -> Trials:
    """The samples along the path; at least as many as k neighbours need."""
    return Trials(X, k, m, n_rows=PATH_ROWS, n_among=max(PATH_AMONG, k + 1))


def _path(X: Tensor, ranking: np.ndarray, m: int, k: int) -> dict[str, np.ndarray]:
    """What the graphs of the first features of ``ranking`` explain; m is among the sizes."""
    sizes = np.unique(np.append(np.geomspace(1, len(ranking), POINTS).round().astype(int), m))
    trials = _path_trials(X, k, m)
    screen = Screen(trials)
    rows = []
    for size in sizes.tolist():
        features = ranking[:size].tolist()
        found = screen.explained(features, trials.sums(features))
        count = screen.discovered(features, found, RATE).sum()
        rows.append((size, float(found.r.mean()), float(found.null.mean(1).quantile(0.95)), int(count)))
    names = "n_features", "explained", "by_chance", "discovered"
    return {name: np.array(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
