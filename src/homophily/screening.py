r"""Screened coverage: how much of the data the graph of the selected features explains, beyond chance.

The graph of a selection explains :math:`r_f = 1 - E_f / E_f^0` of feature f, with the energy
:math:`E_f = \sum_i \sum_j s_{ij} (x_{if} - x_{jf})^2` over a sample of rows and :math:`E_f^0` what it would be if the
neighbours had nothing to do with it. A selected feature is judged by the graph of the *others*: noise must not explain
itself. Chance is the same graph with neighbours relabelled at random. It spreads :math:`r_f` by :math:`\sigma_f`, more
for a feature that few samples have (a rare word). The threshold :math:`t_f`, the same multiple of all
:math:`\sigma_f`, is where the false discovery rate falls to ``RATE``. With :math:`b_f = (r_f - t_f)_+`, what is
explained beyond chance, the objective of the selection A (m of d features) is

.. math::
    - \log\Big(\frac1d \sum_f b_f + \frac{m \tau}d\Big)
    - \log\Big(\frac1m \sum_{f \in A} \min(b_f, \tau) / \tau + \nu\Big)
    + \frac\zeta m \max\big(\log(E_A / E_0), -c\big)
    + \kappa \log(1 - \ell_A).

The first term asks that the graph explain all there is to explain; the second that each selected feature belong to the
rest at least a little, and pays nothing for being a copy; the third that they be smooth on their own graph, up to a
factor, in comparison with as many unrelated ones (:math:`E_0`): a structure of few features that no one of them shows
alone, such as a circle. It matters while m is small. Features with heavy tails, alike in nearly all samples, are smooth
together whatever they are, so that a small selection with such features has as :math:`E_0`, if that is less, the energy
of its own features, each with its samples in another order. The fourth is what linear regressions on the selected
features leave, :math:`\ell_A` being the share of the data that they explain of the features with :math:`b_f > 0`
(:mod:`homophily.regression`): where samples are few, neighbours tell less than lines do. Where most features are noise
it hardly matters, for as little of the data is explained by whatever is selected. The small constants keep the
logarithms quiet where nothing is explained.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from .nn import NeighborGraph, cross_squared_distances
from .regression import Regression
from .trials import BLOCK, Rest, Trials, energies

__all__ = ["Explained", "Screen", "discovery_threshold"]

RATE = 0.1  # of false discoveries among the features that count as explained
ENOUGH = 0.15  # tau: what the others have to explain of a selected feature
QUIET = 0.05  # nu
JOINT, FACTOR = 8.0, math.log(2)  # zeta, c
LINEAR = 2.0  # kappa
LITTLE = 1e-3  # variance in a sample, of 1 in all, below which a feature hardly varies
HEAVY = 4.0  # kurtosis of heavy tails; a sample of a normal variable hardly has as much
SMALL = 16  # features of a selection small enough for the third term to matter much
NULL = 2000  # features that a graph of relabelled samples is tried on, at least
CAREFUL = 20_000  # where it matters how many are there by chance


class Explained(NamedTuple):
    """What the graph of a selection explains."""

    r: Tensor  # (d,) of each feature, of a selected one by the others
    null: Tensor  # (R, d) of each feature by graphs that have nothing to do with it, 2000 or more values
    spread: Tensor  # (d,) standard deviation of that
    energy: Tensor  # of the selected ones, a row

    def threshold(self, rate: float = RATE) -> Tensor:
        """What each feature has to exceed so that of those which do, ``rate`` are there by chance; (d,)."""
        return discovery_threshold(self.r / self.spread, (self.null / self.spread).flatten(), rate) * self.spread


class Screen:
    """Screened coverage of selections that differ in one feature, on the rows of ``trials``.

    Between two exchanges in a place, what the others explain of a selected feature is taken to stay as it was when it
    had its turn, and which features count as explained as it was when the pass began. :meth:`judge` takes all anew.
    """

    min_passes = 2  # the first looks at fewer features, see shortlist

    def __init__(self, trials: Trials) -> None:
        self.trials, self.passes = trials, 0
        self.regression = Regression(trials.Q)
        self.d, self.B, A = trials.X.shape[1], len(trials.rows), len(trials.among)
        generator = torch.Generator().manual_seed(1)
        self.relabelled = [
            torch.randperm(A, generator=generator).to(trials.among.device)
            for _ in range(max(4, math.ceil(NULL / self.d)))
        ]
        # All of them side by side, where there are few features: one large step is faster than many small ones.
        self.shuffled = None  # (A, R d)
        if self.d < NULL // 4:
            self.shuffled = torch.cat([trials.columns.T[order] for order in self.relabelled], 1)
        kurtosis, energy = [], []
        for part in trials.columns.split(max(1, BLOCK // A)):
            points = part - part.mean(1, keepdim=True)
            variance = points.square().mean(1)
            kurtosis.append(points.pow(4).mean(1) / variance.square().clamp_min(1e-30))
            energy.append(points[:, trials.own].square().sum(1) + self.B * variance)
        self.kurtosis = torch.cat(kurtosis)  # (d,)
        # What the energy (d,) of each feature would be if its neighbours had nothing to do with it. Of one that hardly
        # varies in this sample there is nothing to explain.
        unexplained = torch.cat(energy)
        self.unexplained = unexplained.clamp_min(LITTLE * self.B)
        self.whole = unexplained / self.unexplained  # 1, or the less the less it varies
        self.varies = self.whole == 1
        if not self.varies.any():
            self.varies = torch.ones_like(self.varies)
        # What hardly varies says nothing of chance, and counts for no more than the rarest that does.
        self.kurtosis = torch.where(self.varies, self.kurtosis, self.kurtosis[self.varies].max()).clamp_min_(1)

    def judge(self, chosen: list[int]) -> float:
        """Objective of a selection on these rows, with everything computed for it."""
        found = self.explained(chosen, self.trials.sums(chosen))
        beyond = (found.r - found.threshold()).clamp_min(0)
        unrelated = self.unrelated
        if self.shadow is not None and self.heavy[chosen].any():
            unrelated = min(unrelated, max(self._energy(self.shadow, self.shadow.distances(chosen)), 1e-30))
        belonging = self._belonging(beyond[chosen]).mean()
        linear = self.regression.explained(torch.tensor(chosen, device=beyond.device), (beyond > 0).to(beyond.dtype))
        return float(self._value(beyond.sum() / self.d, belonging, found.energy / unrelated, linear))

    def explained(self, chosen: list[int], sums: Tensor) -> Explained:
        """What the graph of a selection explains, with its :meth:`Trials.sums`."""
        trials = self.trials
        D = trials.apart_from_itself(sums)
        S, near = trials.graph(D)
        r, null = self._by(S, near)
        r[chosen] = 0  # one feature alone has no others
        if len(chosen) > 1:
            for place, feature in enumerate(chosen):
                S_rest, near_rest = trials.graph(trials.without(sums, chosen, place))
                apart = trials.differences(feature).gather(1, near_rest)
                r[feature] = self.whole[feature] - (S_rest * apart).sum() / self.unexplained[feature]
        return Explained(r, null, self._spread(null), (S * D.gather(1, near)).sum() / self.B)

    def discovered(self, chosen: list[int], found: Explained, rate: float) -> Tensor:
        """Which features (d,) the graph of a selection explains, with a false discovery rate that is kept.

        Here chance is the same graph with the values of each feature shuffled. To relabel the neighbours alone, which
        the objective is content with, shuffles one end of an edge: clusters have a say at both, so that this spreads
        less, by up to the root of two, and lets features pass that are alike in clusters by accident.
        """
        trials = self.trials
        S, near = trials.graph(trials.distances(chosen))
        generator = torch.Generator().manual_seed(5)
        A, device = len(trials.among), S.device
        left, parts = math.ceil(CAREFUL / self.d), []
        together = max(1, BLOCK // (A * self.d))  # shuffles at once: one large step is faster than many small ones
        for start in range(0, left, together):
            orders = [torch.randperm(A, generator=generator).to(device) for _ in range(min(together, left - start))]
            shuffled = torch.cat([trials.columns[:, order] for order in orders]).T.contiguous()  # (A, r d)
            parts.append(energies(S, near, shuffled, shuffled[trials.own]).view(-1, self.d))
        null = self.whole - torch.cat(parts) / self.unexplained
        spread = self._spread(null)
        return found.r / spread > discovery_threshold(found.r / spread, (null / spread).flatten(), rate)

    def surest(self, m: int) -> Tensor:
        """The m features that the graph of all features explains most surely, in units of what chance would."""
        trials = self.trials
        r, null = self._by(*trials.graph(trials.distances(list(range(self.d)))))
        return (r / self._spread(null)).topk(m).indices

    def begin(self, chosen: list[int], sums: Tensor) -> None:
        """Start a pass over the places, with the :meth:`Trials.sums` of the chosen features."""
        trials = self.trials
        self.passes += 1
        found = self.explained(chosen, sums)
        r, self.spread, self.threshold = found.r, found.spread, found.threshold()
        self.of_chosen = r[chosen]
        self.weight, self.offset = (r > self.threshold).to(r.dtype), self.threshold
        if self.weight.sum() < max(2, len(chosen) / 4):  # as long as next to nothing is explained, all features count
            self.weight, self.offset = torch.ones_like(r), torch.zeros_like(r)
        index = torch.tensor(chosen, device=sums.device)
        self.regression.weigh(self.weight)
        self.share = self.weight / self.unexplained
        root = self.share.sqrt()
        everything = cross_squared_distances(trials.Q * root, trials.X[trials.among] * root)  # (B, A)
        root = root[index]
        own = cross_squared_distances(trials.queries[index].T * root, trials.columns[index].T * root)  # (B, A)
        self.target = everything - own  # of the features that are not chosen

    def shortlist(self, rest: Rest, chosen: list[int], at: int, count: int) -> Tensor:
        """The features that best tell, among the nearest in the others, those that are near in the target too.

        A quarter of them are those that add most to what regressions on the others explain. After the first pass
        another quarter are those that the others explain most surely: once the graph is clear, its nearest are all near
        in the target, and nothing is left to tell. Before it is, they are near-copies.
        """
        trials, gone = self.trials, chosen[at]
        self.chosen, self.at = chosen, at
        self.left = self.target + self.share[gone] * trials.differences(gone)
        self.r = torch.zeros_like(self.weight)  # what the others explain; one feature alone has no others
        if trials.m > 1:
            self.r = self.whole - trials.smoothness_by(rest) / self.unexplained
        self.of_chosen[at] = self.r[gone]
        if self.shadow is not None:
            self.shadow_rest = self.shadow.rest(self.shadow.distances(chosen[:at] + chosen[at + 1 :]))
        others = torch.tensor(chosen[:at] + chosen[at + 1 :], dtype=torch.long, device=self.r.device)
        self.linear, self.gain = self.regression.gains(others)
        sure = torch.stack([self.gain, self.r / self.spread])
        sure[:, chosen] = -torch.inf
        best = sure[0].topk(count // 4).indices
        sure[1, best] = -torch.inf
        best = torch.cat([best, sure[1].topk(count // 4 if self.passes > 1 else 0).indices])
        told = trials.telling(rest, self.left, chosen + best.tolist(), count - len(best))
        return torch.cat([best, told])

    def values(self, graph: NeighborGraph, trial: Tensor) -> Tensor:
        """Objective (G,) with each feature of ``trial (G,)`` in the place at turn, whose graphs are given."""
        trials, w = self.trials, self.weight[trial]
        G, B, _ = graph.indices.shape
        apart = trials.columns[trial].gather(1, graph.indices.flatten(1)).view_as(graph.weights)
        apart = (apart - trials.queries[trial][:, :, None]).square_()  # in the feature on trial
        left = self.left.expand(G, *self.left.shape).gather(-1, graph.indices)
        left = left - self.share[trial][:, None, None] * apart
        others = torch.arange(trials.m, device=w.device) != self.at
        rest = torch.tensor(self.chosen, device=w.device)[others]
        # Features that are not chosen, by the new graph; those that are, by the graphs of the others.
        room = self.weight * (self.whole - self.offset)
        covered = room.sum() - room[rest].sum() - room[trial] - (graph.weights * left).sum((-2, -1))
        covered += (self.weight[rest] * (self.of_chosen[others] - self.offset[rest])).sum()
        covered += w * (self.r[trial] - self.offset[trial])
        belonging = self._belonging(self.of_chosen[others] - self.threshold[rest]).sum()
        belonging = belonging + self._belonging(self.r[trial] - self.threshold[trial])
        unrelated = torch.full_like(covered, self.unrelated)
        if self.shadow is not None:
            shadows, _ = self.shadow.graphs(self.shadow_rest, trial)
            own = ((shadows.weights * shadows.distances).sum((-2, -1)) / B).clamp(1e-30, self.unrelated)
            unrelated = torch.where(self.heavy[trial] | self.heavy[rest].any(), own, unrelated)
        energy = (graph.weights * graph.distances).sum((-2, -1)) / B
        linear = self.linear + self.gain[trial]
        return self._value(covered / self.d, belonging / trials.m, energy / unrelated, linear)

    def settle(self, feature: int) -> None:
        """Put ``feature`` in the place at turn."""
        self.of_chosen[self.at] = self.r[feature]
        self.target = self.left - self.share[feature] * self.trials.differences(feature)

    def _by(self, S: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """What a graph explains of each feature (d,), and what it does between relabelled neighbours (R, d)."""
        trials = self.trials
        if self.shuffled is None:
            null = torch.stack([trials.smoothness(S, near, order) for order in self.relabelled])
        else:
            null = energies(S, near, self.shuffled, trials.Q.repeat(1, len(self.relabelled))).view(-1, self.d)
        return self.whole - trials.smoothness(S, near) / self.unexplained, self.whole - null / self.unexplained

    def _energy(self, trials: Trials, D: Tensor) -> float:
        """Energy, a row, on their own graph of features whose distances are ``D (B, A)``."""
        S, near = trials.graph(D)
        return float((S * D.gather(1, near)).sum()) / self.B

    def _belonging(self, beyond: Tensor) -> Tensor:
        return beyond.clamp(0, ENOUGH) / ENOUGH

    def _spread(self, null: Tensor) -> Tensor:
        """Standard deviation (d,) of what is explained by chance, from ``null (R, d)``.

        On a given graph its square is a + b times the kurtosis: words that few documents have are explained, or the
        opposite, by accident more often than what all samples have. Fitted in units of the kurtosis, in which the
        squares scatter about alike.
        """
        x = self.kurtosis[self.varies].reciprocal()
        y = null[:, self.varies].square().mean(0) * x
        centred = x - x.mean()
        a = (centred * y).sum() / centred.square().sum().clamp_min(1e-30)
        a = a.clamp(torch.zeros_like(a), y.mean() / x.mean())
        return (a + (y.mean() - a * x.mean()) * self.kurtosis).clamp_min(1e-30).sqrt()

    def _value(self, covered: Tensor, belonging: Tensor, ratio: Tensor, linear: Tensor) -> Tensor:
        floor = self.trials.m * ENOUGH / self.d
        joint = ratio.clamp_min(1e-30).log()
        if self.trials.m > 1:  # a single feature has nothing else to be judged by
            joint = joint.clamp_min(-FACTOR)
        graph = JOINT / self.trials.m * joint - (covered.clamp_min(0) + floor).log() - (belonging + QUIET).log()
        return graph + LINEAR * (1 - linear).clamp_min(1e-6).log()  # rounding may explain more than there is

    @cached_property
    def heavy(self) -> Tensor:
        """Which features need an :math:`E_0` of their own (d,)."""
        return (self.kurtosis > HEAVY) & (1 < self.trials.m <= SMALL)

    @cached_property
    def shadow(self) -> Trials | None:
        """The same features, each with its samples in another order: none has to do with another."""
        if not self.heavy.any():
            return None
        trials, generator = self.trials, torch.Generator().manual_seed(4)
        d, A = trials.columns.shape
        columns = trials.columns[:, torch.randperm(A, generator=generator).to(trials.columns.device)]
        shifts = torch.randint(A, (d,), generator=generator).tolist()  # to sort each anew would take longer
        X = torch.stack([column.roll(shift) for column, shift in zip(columns, shifts, strict=True)], 1)
        return Trials(X, trials.k, trials.m, n_rows=self.B, n_among=A)

    @cached_property
    def unrelated(self) -> float:
        r""":math:`E_0` of selections without heavy tails: of m features at random, each with its samples shuffled."""
        trials, draws = self.trials, 8
        generator = torch.Generator().manual_seed(3)
        A, m = len(trials.among), trials.m
        light = torch.where(self.heavy, self.kurtosis, 0).argsort(stable=True)[: max(m, int((~self.heavy).sum()))]
        total = 0.0
        for _ in range(draws):
            features = light[torch.randperm(len(light), generator=generator)[:m].to(light.device)]
            order = torch.rand(m, A, generator=generator).argsort(1).to(trials.X.device)
            columns = trials.columns[features].gather(1, order).T  # (A, m)
            D = trials.apart_from_itself(cross_squared_distances(columns[trials.own], columns))
            total += self._energy(trials, D)
        return max(total / draws, 1e-30)


def discovery_threshold(r: Tensor, null: Tensor, rate: float = RATE) -> float:
    """The least value that so many of ``r (d,)`` exceed that at most ``rate`` of them are there by chance.

    Chance is ``null``, the values of features that have nothing to do with the graph, any number of them. Where too few
    stand out, its largest value.
    """
    null = null.sort().values
    by_chance = torch.arange(len(null), 0, -1, device=r.device)  # one more than exceed it
    above = len(r) - torch.searchsorted(r.sort().values, null, right=True)
    # Of len(null), not of len(r): whole numbers, so that no rounding decides where both sides are equal.
    passed = (by_chance * len(r) <= rate * len(null) * above).nonzero()
    return max(float(null[passed[0] if len(passed) else -1]), 0.0)
