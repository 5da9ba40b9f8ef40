"""Screened coverage against its formula, computed by loops over dense matrices."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from samples import planted

from homophily import DirichletSelector
from homophily.objectives import Screened
from homophily.refinement import exchange_features
from homophily.screening import Explained, Screen, discovery_threshold
from homophily.trials import Trials

F64 = torch.float64
TAU, NU, ZETA, C = 0.15, 0.05, 8.0, math.log(2)
KAPPA, NOISE = 2.0, 0.3
LITTLE = 1e-3
HEAVY, SMALL = 4, 16
K = 5


def words(n, n_topical, n_rare, seed=0):
    """Counts of words: topical ones, each of one of two topics, then rare ones at random; standardised."""
    rng = np.random.default_rng(seed)
    of_document, of_word = rng.integers(2, size=(n, 1)), np.arange(n_topical) % 2
    topical = rng.poisson(np.where(of_document == of_word, 1.0, 0.1))
    rare = rng.poisson(0.02, size=(n, n_rare))
    rare[rng.integers(n, size=n_rare), np.arange(n_rare)] += 1  # each at least once
    X = np.concatenate([topical, rare], 1).astype(float)
    return torch.from_numpy((X - X.mean(0)) / X.std(0))


def of_many_shapes(n, seed=0):
    """60 columns of kurtosis 1 to about 100, none of which has to do with another; standardised."""
    rng = np.random.default_rng(seed)
    counts = [max(2, round(share * n)) for share in (0.5, 0.1, 0.03, 0.01)]
    columns = [rng.random((n, 10)).argsort(0) < count for count in counts]  # as many rows have each
    columns += [rng.standard_normal((n, 10)), rng.exponential(size=(n, 10))]
    X = np.concatenate(columns, 1).astype(float)
    return torch.from_numpy((X - X.mean(0)) / X.std(0))


def screen_of(X, m, *, n_rows=256, n_among=8192):
    return Screen(Trials(X, K, m, n_rows=n_rows, n_among=n_among))


def slow_threshold(r, null):
    """The least value of all that one more of ``null`` than exceed it are at most a tenth of what exceeds it."""
    for value in sorted({*r, *null}):
        by_chance = Fraction(int((null > value).sum()) + 1, len(null)) * len(r)
        if by_chance <= Fraction(1, 10) * int((r > value).sum()):
            return max(value, 0.0)
    return max(null.max(), 0.0)


class Formula:
    """What the module's docstring says, of the samples of a screen."""

    def __init__(self, screen):
        trials = screen.trials
        self.screen, self.own, self.d = screen, trials.own.tolist(), screen.d
        self.X = trials.X[trials.among].double().numpy()  # (A, d)
        centred = self.X - self.X.mean(0)
        variance = (centred**2).mean(0)
        unexplained = (centred[self.own] ** 2).sum(0) + len(self.own) * variance
        self.varies = unexplained >= LITTLE * len(self.own)
        self.unexplained = np.where(self.varies, unexplained, LITTLE * len(self.own))
        self.whole = unexplained / self.unexplained
        self.kurtosis = (centred**4).mean(0) / np.where(self.varies, variance, 1) ** 2
        self.kurtosis[~self.varies] = self.kurtosis[self.varies].max()

    def graph(self, P, rows=None):
        """Dense similarities of the rows and squared distances, for points ``P (A, m)``."""
        rows = rows or self.own
        D = ((P[rows][:, None] - P) ** 2).sum(-1)
        S = np.zeros_like(D)
        for i, own in enumerate(rows):
            others = [j for j in np.argsort(D[i], kind="stable") if j != own]
            gap = D[i, others[K]] - D[i, others[:K]]
            S[i, others[:K]] = gap / gap.sum()
        return S, D

    def explained(self, S, order=slice(None)):
        """Share of each feature that a graph explains, whose neighbour j is the sample at ``order[j]``; (d,)."""
        energy = [(S * (x[self.own][:, None] - x[order]) ** 2).sum() for x in self.X.T]
        return self.whole - np.array(energy) / self.unexplained

    def energy(self, P, rows=None):
        S, D = self.graph(P, rows)
        return (S * D).sum() / len(S)

    def unrelated(self, chosen):
        """Energy to compare with: of shuffled columns, the selected ones where some have heavy tails."""
        reference = self.screen.unrelated
        if 1 < len(chosen) <= SMALL and self.kurtosis[chosen].max() > HEAVY:
            shadow = self.screen.shadow
            return min(reference, self.energy(shadow.X[shadow.among][:, chosen].numpy(), shadow.own.tolist()))
        return reference

    def by_the_others(self, chosen, at):
        """What the graph of the chosen features without one explains of all features."""
        others = chosen[:at] + chosen[at + 1 :]
        return self.explained(self.graph(self.X[:, others])[0]) if others else np.zeros(self.d)

    def spread(self, null):
        """Root of a + b kurtosis, neither negative, by least squares of the squares over the kurtosis."""
        kurtosis = self.kurtosis[self.varies]
        y = (null[:, self.varies] ** 2).mean(0) / kurtosis
        a, b = np.polyfit(1 / kurtosis, y, 1)
        if a < 0:
            a, b = 0, y.mean()
        if b < 0:
            a, b = y.mean() / (1 / kurtosis).mean(), 0
        return np.sqrt(a + b * self.kurtosis)

    def begin(self, chosen):
        """What is explained of all features, those chosen by the others, and by chance, and the spread of that."""
        S, _ = self.graph(self.X[:, chosen])
        r = self.explained(S)
        null = np.stack([self.explained(S, order.numpy()) for order in self.screen.relabelled])
        for at, f in enumerate(chosen):
            r[f] = self.by_the_others(chosen, at)[f]
        return r, null, self.spread(null)

    def threshold(self, r, null, spread):
        return slow_threshold(r / spread, (null / spread).flatten()) * spread

    def regressed(self, chosen, weight):
        """Share of the data that ridge regressions on the chosen features explain, of features that have a weight."""
        Z = self.X[self.own]
        A = Z[:, chosen]
        predictions = A @ np.linalg.solve(A.T @ A + NOISE * len(Z) * np.eye(len(chosen)), A.T @ Z)
        return (weight * (Z * predictions).sum(0)).sum() / (Z**2).sum()

    def terms(self, chosen, covered, beyond, weight):
        """The four terms, with what is explained of each selected feature beyond its threshold, and what counts."""
        m, ratio = len(chosen), self.energy(self.X[:, chosen]) / self.unrelated(chosen)
        belonging = np.mean([min(max(b, 0), TAU) / TAU for b in beyond])
        return (
            -math.log(max(covered, 0) / self.d + m * TAU / self.d),
            -math.log(belonging + NU),
            ZETA / m * max(math.log(ratio), -C if m > 1 else -math.inf),
            KAPPA * math.log(1 - self.regressed(chosen, weight)),
        )

    def judge(self, chosen):
        """The four terms of the objective."""
        r, null, spread = self.begin(chosen)
        beyond = np.maximum(r - self.threshold(r, null, spread), 0)
        return self.terms(chosen, beyond.sum(), beyond[chosen], beyond > 0)


SELECTIONS = {1: [[0], [6]], 2: [[0, 1], [1, 6], [6, 7]], 4: [[3, 1, 0, 2], [5, 0, 7, 2], [7, 6, 5, 4]]}


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize(("n_rows", "n_among"), [(256, 8192), (20, 33)])
@pytest.mark.parametrize("heavy", [[], [6], [0, 5, 6]])
def test_judge_is_the_formula(m, n_rows, n_among, heavy):
    X = planted(40, 8, 4)
    X[:, heavy] **= 3
    screen = screen_of(X, m, n_rows=n_rows, n_among=n_among)
    for chosen in SELECTIONS[m]:
        assert screen.judge(chosen) == pytest.approx(sum(Formula(screen).judge(chosen)), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("d", [8, 510])  # relabelled side by side, or one by one
def test_explained_is_the_formula(d, m, dtype):
    screen = screen_of(planted(40, d, 4).to(dtype), m, n_rows=20, n_among=33)
    assert (screen.shuffled is None) == (d == 510)
    assert len(screen.relabelled) == {8: 250, 510: 4}[d]
    chosen = [5, 0, 7, 2][:m]
    found = screen.explained(chosen, screen.trials.sums(chosen))
    formula = Formula(screen)
    r, null, spread = formula.begin(chosen)
    threshold = formula.threshold(r, null, spread)
    tolerance = {"rtol": 1e-6, "atol": 1e-7} if dtype == F64 else {"rtol": 2e-3, "atol": 2e-3}
    for value, expected in [
        (found.r, r),
        (found.null, null),
        (found.spread, spread),
        (found.threshold(), threshold),
        (found.energy, formula.energy(formula.X[:, chosen])),
    ]:
        assert value.dtype == dtype
        np.testing.assert_allclose(value.numpy(), expected, **tolerance)
    if m == 1:
        assert found.r[5] == 0
    # Chance alone explains nothing, and where the rows are all there is, exactly so in the mean.
    assert abs(null.mean()) < 4 * null.std() / math.sqrt(len(null))


@pytest.mark.parametrize("m", [1, 4])
def test_judge_in_single_precision(m):
    X = planted(60, 8, 4)
    double, single = screen_of(X, m), screen_of(X.float(), m)
    for chosen in SELECTIONS[m]:
        assert single.judge(chosen) == pytest.approx(double.judge(chosen), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("m", [1, 3])
def test_energy_of_unrelated(m):
    """The mean over 8 draws of m columns, each in an order of its own."""
    screen = screen_of(planted(40, 8, 8), m, n_rows=20, n_among=33)
    formula, generator = Formula(screen), torch.Generator().manual_seed(3)
    energies = []
    for _ in range(8):
        features = torch.randperm(8, generator=generator)[:m]
        orders = torch.rand(m, 33, generator=generator).argsort(1)
        P = np.stack([formula.X[order, f] for f, order in zip(features, orders, strict=True)], 1)
        energies.append(formula.energy(P))
    assert screen.unrelated == pytest.approx(np.mean(energies), rel=1e-6)


@pytest.mark.parametrize(("m", "n_light", "n_drawn"), [(4, 20, 20), (4, 2, 4), (17, 20, 24)])
def test_energy_of_unrelated_is_that_of_light_tails(m, n_light, n_drawn):
    """Where too few have light tails, of the lightest; of a large selection, of any features."""
    X = planted(200, 24, 0)
    X[:, n_light:] **= 3
    screen = screen_of(X, m)
    heavy = range(n_light, 24) if m > SMALL else (n_light + screen.kurtosis[n_light:].argsort()).tolist()
    drawn = screen_of(X[:, [*range(n_light), *heavy][:n_drawn]], m)
    drawn.heavy = torch.zeros(n_drawn, dtype=bool)
    assert screen.unrelated == pytest.approx(drawn.unrelated)


def test_shadows_are_the_same_features_in_other_orders():
    X = words(300, 10, 50)
    screen = screen_of(X, 4, n_rows=100, n_among=250)
    shadow = screen.shadow.X
    np.testing.assert_allclose(shadow.sort(0).values, screen.trials.X[screen.trials.among].sort(0).values)
    related = np.corrcoef(X[:, :10].T)
    unrelated = np.corrcoef(shadow[:, :10].T)
    off = ~np.eye(10, dtype=bool)
    assert np.abs(related[off]).mean() > 0.2
    assert np.abs(unrelated[off]).max() < 4.5 / math.sqrt(250)


def test_spread_is_linear_in_the_kurtosis():
    """Given squares are met exactly; a line that would be negative somewhere ends as one term of it alone."""
    screen = screen_of(of_many_shapes(500), 4)
    kurtosis = screen.kurtosis
    assert kurtosis.min() < 1.1
    assert kurtosis.max() > 50
    sign = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=F64)[:, None]
    for a, b in [(0.02, 0.001), (0.0, 0.003), (0.05, 0.0)]:
        square = a + b * kurtosis
        torch.testing.assert_close(screen._spread(sign * square.sqrt()).square(), square)
    shares = screen._spread(sign * kurtosis) / kurtosis.sqrt()  # squares grow faster than the kurtosis
    torch.testing.assert_close(shares, shares[:1].expand(60))
    falling = screen._spread(sign / kurtosis)  # they fall with it
    torch.testing.assert_close(falling, falling[:1].expand(60))


@pytest.mark.slow
def test_spread_of_features_of_very_different_kurtosis():
    """What 34 relabellings of all features say is what 1500 say of each."""
    screen = screen_of(of_many_shapes(500), 4)
    trials, formula = screen.trials, Formula(screen)
    chosen = [40, 41, 42, 43]
    spread = screen.explained(chosen, trials.sums(chosen)).spread.numpy()
    S, _ = formula.graph(formula.X[:, chosen])
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(1500):
        x = formula.X[rng.permutation(500)]
        energy = (formula.X[formula.own] ** 2).sum(0) + S.sum(0) @ x**2 - 2 * (formula.X[formula.own] * (S @ x)).sum(0)
        draws.append(formula.whole - energy / formula.unexplained)
    draws = np.array(draws)
    truth = draws.std(0)
    assert truth.max() > 2 * truth.min()  # there is something to recover
    assert np.abs(draws.mean(0)).max() < 4.5 * truth.max() / math.sqrt(1500)
    ratios = (spread / truth).reshape(6, 10)
    np.testing.assert_allclose(ratios.mean(1), 1, atol=0.12)
    np.testing.assert_allclose(ratios, 1, atol=0.5)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_spread_of_features_of_one_kind(dtype):
    screen = screen_of(planted(1000, 40, 0).to(dtype), 4)
    spread = screen.explained([0, 1, 2, 3], screen.trials.sums([0, 1, 2, 3])).spread
    assert spread.max() < 1.2 * spread.min()
    signs = torch.tensor([[1.0], [-1.0]], dtype=dtype)
    equal = screen_of((torch.arange(100) % 2 * 2 - 1).to(dtype)[:, None].repeat(1, 5), 2)  # one kurtosis only
    torch.testing.assert_close(equal._spread(0.3 * signs.repeat(1, 5)), torch.full((5,), 0.3, dtype=dtype))
    assert (screen._spread(torch.zeros(4, 40, dtype=dtype)) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("n_constant", [1, 30])
def test_features_that_hardly_vary_in_the_sample(n_constant, dtype):
    """There is nothing to explain of them, and they change nothing of what is said of the others."""
    X = planted(60, 30, 10)
    constants = torch.full((60, n_constant), -0.01, dtype=F64)
    constants[7] = -0.011
    screen, alone = (screen_of(x.to(dtype), 4) for x in (torch.cat([X, constants], 1), X))
    for chosen in ([0, 1, 2, 3], [0, 1, 2, 30]):
        found = screen.explained(chosen, screen.trials.sums(chosen))
        assert all(value.isfinite().all() for value in (*found, found.threshold()))
        assert found.r[30:].abs().max() < 1e-4
        assert found.null[:, 30:].abs().max() < 1e-4
        assert (found.r <= found.threshold())[30:].all()
        assert math.isfinite(screen.judge(chosen))
    found = screen.explained([0, 1, 2, 3], screen.trials.sums([0, 1, 2, 3]))
    torch.testing.assert_close(found.spread[:30], alone._spread(found.null[:, :30]))
    if dtype == F64:
        assert screen.judge([0, 1, 2, 4]) == pytest.approx(sum(Formula(screen).judge([0, 1, 2, 4])), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("m", [1, 2])
def test_nothing_varies_in_the_sample(m, dtype):
    screen = screen_of(torch.zeros(30, 6, dtype=dtype), m)
    assert math.isfinite(screen.judge([3, 1][:m]))
    assert len(set(screen.surest(4).tolist())) == 4


def expected_values(formula, chosen, at, trial, begun, of_chosen):
    """Objective of each trial: weights and thresholds of the pass, of the other chosen ones what is remembered."""
    weight, offset, t = begun
    r = formula.by_the_others(chosen, at)
    others = [f for f in chosen if f != chosen[at]]
    values = []
    for g in trial:
        selection = [*chosen[:at], g, *chosen[at + 1 :]]
        by_graph = formula.explained(formula.graph(formula.X[:, selection])[0])
        explained = {**{f: of_chosen[f] for f in others}, g: r[g]}
        covered = sum(weight[f] * (explained.get(f, by_graph[f]) - offset[f]) for f in range(formula.d))
        beyond = [x - t[f] for f, x in explained.items()]
        values.append(sum(formula.terms(selection, covered, beyond, weight)))
    return values


@pytest.mark.parametrize(("m", "n_planted"), [(1, 8), (2, 8), (4, 8), (4, 0)])
def test_values_within_two_passes(m, n_planted):
    X = planted(40, 10, n_planted, seed=3)
    X[:, 9] = X[:, 9].exp()  # of another kurtosis
    X[:, 9] = (X[:, 9] - X[:, 9].mean()) / X[:, 9].std(correction=0)
    if not n_planted:  # all count then, also what hardly varies
        X[:, 8] *= 0.01
    screen = screen_of(X, m, n_rows=30, n_among=36)
    trials, formula = screen.trials, Formula(screen)
    start = [9, 1, 6, 3][:m]
    chosen = start.copy()
    screened = []
    for turn in range(2 * m):
        at = turn % m
        if at == 0:
            screen.begin(chosen, trials.sums(chosen))
            r, null, spread = formula.begin(chosen)
            t = formula.threshold(r, null, spread)
            np.testing.assert_allclose(screen.threshold, t, rtol=1e-6)
            few = (r > t).sum() < max(2, m / 4)
            weight, offset = (1 + 0 * t, 0 * t) if few else (r > t, t)
            of_chosen = {f: r[f] for f in chosen}
            screened.append(not few)
        others = chosen[:at] + chosen[at + 1 :]
        rest = trials.rest(trials.distances(others))
        trial = torch.cat([torch.tensor(chosen[at : at + 1]), screen.shortlist(rest, chosen, at, 10 - m)])
        assert sorted(trial.tolist()) == sorted(set(range(10)) - set(others))
        of_chosen[chosen[at]] = formula.by_the_others(chosen, at)[chosen[at]]
        graph, _ = trials.graphs(rest, trial)
        found = screen.values(graph, trial).numpy()
        expected = expected_values(formula, chosen, at, trial.tolist(), (weight, offset, t), of_chosen)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        if at == 0 and screened[-1]:  # nothing has changed since the pass began
            assert found[0] == pytest.approx(screen.judge(chosen), rel=1e-6)
        if turn != 1:  # leave one in its place
            best = int(trial[found.argmin()])
            if best != chosen[at]:
                chosen[at] = best
                screen.settle(best)
                of_chosen[best] = formula.by_the_others(chosen, at)[best]
    assert screened[-1] == (n_planted > 0)
    assert chosen != start


@pytest.mark.parametrize(("m", "n_explained", "screened"), [(4, 1, False), (4, 2, True), (12, 2, False), (12, 3, True)])
def test_all_features_count_as_long_as_next_to_nothing_is_explained(m, n_explained, screened, monkeypatch):
    screen = screen_of(planted(40, 16, 0), m)
    spread = torch.tensor([1.0, 0.5, 2.0, 1.0], dtype=F64).repeat(4)
    r, chosen = torch.zeros(16, dtype=F64), list(range(m))
    r[10 : 10 + n_explained] = 0.6 * spread[10 : 10 + n_explained]
    found = Explained(r, 0.5 * spread.repeat(125, 1), spread, torch.zeros((), dtype=F64))
    monkeypatch.setattr(screen, "explained", lambda chosen, sums: found)
    screen.begin(chosen, screen.trials.sums(chosen))
    assert torch.equal(screen.weight, (r > 0).to(F64) if screened else torch.ones_like(r))
    assert torch.equal(screen.threshold, 0.5 * spread)
    assert torch.equal(screen.offset, 0.5 * spread if screened else torch.zeros_like(r))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_target_is_of_weighted_features_that_are_not_chosen(dtype):
    X = planted(80, 12, 8).to(dtype)
    screen = screen_of(X, 4)
    trials, chosen = screen.trials, [0, 1, 8, 9]
    screen.begin(chosen, trials.sums(chosen))
    assert 2 < (screen.weight > 0).sum() < 12
    share = screen.weight.double().numpy() / Formula(screen).unexplained
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-14}

    def check():
        left = [f for f in range(12) if f not in chosen]
        points = X.double().numpy()
        expected = sum(share[f] * (points[trials.rows, f][:, None] - points[:, f]) ** 2 for f in left)
        np.testing.assert_allclose(screen.target, expected, **tolerance)

    check()
    for at, new in enumerate([2, 3, None, 5]):
        screen.shortlist(trials.rest(trials.distances(chosen[:at] + chosen[at + 1 :])), chosen, at, 4)
        if new is not None:  # otherwise it stays
            chosen[at] = new
            screen.settle(new)
        check()


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize("passes", [1, 2])  # in the first none are there for being sure
def test_shortlist_is_a_quarter_regressed_a_quarter_surest_and_the_rest_telling(count, m, passes):
    X = of_many_shapes(80)[:, ::3]  # 20 columns
    X[:, 10:16] = planted(80, 6, 6)
    screen = screen_of(X, m, n_rows=50)
    trials, formula, chosen, at = screen.trials, Formula(screen), [10, 17, 12, 11][:m], m - 1
    for _ in range(passes):
        screen.begin(chosen, trials.sums(chosen))
    _, _, spread = formula.begin(chosen)
    others, n_regressed, n_surest = chosen[:at], count // 4, count // 4 if passes > 1 else 0
    rest = trials.rest(trials.distances(others))
    found = screen.shortlist(rest, chosen, at, count).tolist()
    assert len(set(found)) == len(found) == count
    assert not set(found) & set(chosen)
    weight = screen.weight.numpy()
    free = [f for f in range(20) if f not in chosen]
    free.sort(key=lambda f: -formula.regressed([*others, f], weight))
    regressed = found[:n_regressed]
    assert regressed == free[:n_regressed]
    sure = formula.by_the_others(chosen, at) / spread
    sure[chosen + regressed] = -np.inf
    surest = found[n_regressed : n_regressed + n_surest]
    if m > 1:
        assert surest == np.argsort(-sure)[:n_surest].tolist()
    share = screen.weight / torch.from_numpy(formula.unexplained)
    target = sum(share[f] * trials.differences(f) for f in range(20) if f not in others)
    telling = trials.telling(rest, target, chosen + regressed + surest, count - n_regressed - n_surest)
    assert found[n_regressed + n_surest :] == telling.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_surest_on_the_graph_of_all(dtype):
    X = of_many_shapes(120)
    X[:, 45:] = planted(120, 15, 15)
    X = X.to(dtype)
    screen = screen_of(X, 60)
    formula = Formula(screen)
    S, _ = formula.graph(formula.X)
    r = formula.explained(S)
    sure = r / formula.spread(np.stack([formula.explained(S, order.numpy()) for order in screen.relabelled]))
    expected = np.argsort(-sure)[:12].tolist()
    assert screen.surest(12).tolist() == expected
    assert Screened(X).surest(12, K, 256).tolist() == expected
    assert set(expected) <= set(range(45, 60))  # what was planted
    assert expected != np.argsort(-r)[:12].tolist()  # most surely is not most


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("m", [2, 8, 12])
def test_rare_words_neither_explain_themselves_nor_the_opposite(m, dtype):
    """Most documents are copies in the other words: which of them are near must not depend on the word judged."""
    X = words(1000, 0, 30).to(dtype)
    screen = screen_of(X, m, n_rows=512)
    chosen = list(range(m))
    found = screen.explained(chosen, screen.trials.sums(chosen))
    assert (found.r / found.spread)[chosen].abs().max() < 4.5
    screen.begin(chosen, screen.trials.sums(chosen))
    assert not (screen.of_chosen > screen.threshold[chosen]).any()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("m", [4, 10])
def test_topical_words_are_better_than_rare_ones(m, dtype):
    X = words(500, 30, 120).to(dtype)
    screen = screen_of(X, m)
    rng = np.random.default_rng(0)
    topical = [screen.judge(rng.permutation(30)[:m].tolist()) for _ in range(4)]
    rare = [screen.judge((30 + rng.permutation(120)[:m]).tolist()) for _ in range(4)]
    assert max(topical) < min(rare) - 1


@pytest.mark.slow
def test_topical_words_are_selected():
    X = words(400, 20, 180)
    selector = DirichletSelector(8, max_iter=10, random_state=0).fit(X.numpy())
    assert (selector.selected_features_ < 20).sum() >= 7  # 0.8 expected by chance


@pytest.mark.parametrize("seed", range(20))
def test_threshold_of_discoveries(seed):
    rng = np.random.default_rng(seed)
    d, n_strong = int(rng.integers(2, 40)), int(rng.integers(0, 20))
    r = rng.normal(size=d)
    r[:n_strong] += 3
    null = rng.normal(size=d * int(rng.integers(2, 9)))
    if seed % 2:  # many ties, within each and between the two
        r, null = r.round(1), null.round(1)
    found = discovery_threshold(torch.from_numpy(r), torch.from_numpy(null))
    assert found == slow_threshold(r, null)


@pytest.mark.parametrize("block", [1, 10**6])  # shuffles one by one, or side by side
def test_discoveries_are_those_beyond_shuffled_features(block, monkeypatch):
    monkeypatch.setattr("homophily.screening.CAREFUL", 2000)
    monkeypatch.setattr("homophily.screening.BLOCK", block)
    screen = screen_of(planted(60, 20, 6), 3, n_rows=40, n_among=50)
    chosen = [5, 0, 2]
    formula = Formula(screen)
    S, _ = formula.graph(formula.X[:, chosen])
    r, _, _ = formula.begin(chosen)
    generator, X, shuffles = torch.Generator().manual_seed(5), formula.X, []
    for _ in range(100):
        formula.X = X[torch.randperm(50, generator=generator).numpy()]
        shuffles.append(formula.explained(S))
    formula.X, null = X, np.stack(shuffles)
    spread = formula.spread(null)
    found = screen.explained(chosen, screen.trials.sums(chosen))
    by_rate = {rate: screen.discovered(chosen, found, rate).tolist() for rate in (0.02, 0.1)}
    assert by_rate[0.1] == (r / spread > slow_threshold(r / spread, (null / spread).flatten())).tolist()
    assert 3 <= sum(by_rate[0.02]) <= sum(by_rate[0.1]) < 20


@pytest.mark.slow
def test_clusters_discover_hardly_anything_by_accident():
    """Noise that clusters happen to share: if only neighbours are relabelled, 28 columns count in these 20 draws."""
    by_accident = 0
    for seed in range(20):
        screen = screen_of(planted(300, 500, 5, seed=seed).float(), 3, n_rows=1024)
        found = screen.explained([0, 1, 2], screen.trials.sums([0, 1, 2]))
        discovered = screen.discovered([0, 1, 2], found, 0.02)
        assert discovered[:5].all()
        by_accident += int(discovered[5:].sum())
    assert by_accident <= 8  # 20 draws of 5 with a rate of .02 are 2


def test_threshold_where_a_tenth_is_reached_exactly():
    """21 of 2100 are 3 of 300, a tenth of 30; in single precision, 21 x (300 / 2100) > 0.1 x 30."""
    null = torch.linspace(0, 1, 2100)
    r = torch.cat([torch.full((30,), 2.0), torch.zeros(270)])
    assert discovery_threshold(r, null) == float(null[-21])


def test_threshold_where_all_stand_out():
    """10 of 100 by chance are a tenth of all 100, so only 9 may exceed the threshold."""
    null = torch.arange(100.0)
    r = null + 1000
    assert discovery_threshold(r, null) == 90.0
    assert discovery_threshold(r, null - 95) == 0.0  # never below what is explained of nothing


def test_threshold_on_noise():
    """At most a tenth of the time some are discovered, plus 40 / 2040 that one exceeds the largest by chance."""
    generator = torch.Generator().manual_seed(0)
    discovered = []
    for _ in range(400):
        r, null = (torch.randn(size, generator=generator) + 3 for size in (40, 2000))
        discovered.append(float((r > discovery_threshold(r, null)).any()))
    bound = 0.1 + 40 / 2040
    assert 0 < np.mean(discovered) < bound + 4 * math.sqrt(bound * (1 - bound) / 400)


def test_noise_does_not_explain_itself():
    """Two features of noise are smooth on their own graph, but neither on that of the other."""
    X = planted(300, 20, 0)
    screen = screen_of(X, 2)
    trials = screen.trials
    D = trials.distances([4, 9])
    S, near = trials.graph(D)
    own = 1 - trials.smoothness(S, near)[[4, 9]] / (2 * len(trials.rows))
    screen.begin([4, 9], trials.sums([4, 9]))
    assert own.min() > 0.9
    assert screen.of_chosen.abs().max() < 0.3


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("seed", range(3))
def test_noise_is_worse_than_what_was_planted(seed, dtype):
    X = planted(300, 60, 12, seed).to(dtype)
    screen = screen_of(X, 8)
    values = [screen.judge([*range(8 - n_noise), *range(20, 20 + n_noise)]) for n_noise in range(9)]
    assert values == sorted(values)
    assert values[0] < values[1] - 0.05


@pytest.mark.parametrize("seed", range(2))
def test_belonging_pays_nothing_for_a_copy(seed):
    """A copy is explained far better than another planted column, but the second term is at its least already."""
    X = planted(250, 12, 8, seed)
    X[:, 8] = X[:, 0] + 0.01 * X[:, 8]
    X[:, 8] = (X[:, 8] - X[:, 8].mean()) / X[:, 8].std(correction=0)
    screen = screen_of(X, 4)
    explained, rest, value = [], [], []
    for chosen in ([0, 1, 2, 3], [0, 1, 2, 8]):
        screen.begin(chosen, screen.trials.sums(chosen))
        explained.append(screen.of_chosen.mean())
        first, second, third, fourth = Formula(screen).judge(chosen)
        assert second == pytest.approx(-math.log(1 + NU))
        rest.append(first + third + fourth)
        value.append(screen.judge(chosen))
    assert explained[1] > explained[0] + 0.1
    assert value[1] - value[0] == pytest.approx(rest[1] - rest[0], rel=1e-5)


@pytest.mark.parametrize(("m", "largest_spread"), [(2, 0.2), (4, 0.06), (8, 0.03)])
def test_energy_of_noise_is_that_of_unrelated_features(m, largest_spread):
    """Within four standard errors of the means of 40 selections and of the 8 draws that make the reference."""
    screen = screen_of(planted(300, 60, 0), m)
    trials, generator = screen.trials, torch.Generator().manual_seed(0)
    ratios = []
    for _ in range(40):
        D = trials.distances(torch.randperm(60, generator=generator)[:m].tolist())
        S, near = trials.graph(D)
        ratios.append(float((S * D.gather(1, near)).sum()) / len(S) / screen.unrelated)
    spread = np.std(ratios, ddof=1)
    assert abs(np.mean(ratios) - 1) < 4 * spread * math.sqrt(1 / 40 + 1 / 8)
    assert spread < largest_spread


def test_judge_is_kept_for_selections_of_one_size():
    X = planted(60, 8, 4)
    objective = Screened(X)
    first = objective.judge(np.array([0, 1]), K, 40)
    screen = objective.screen
    assert first == screen.judge([0, 1]) == screen_of(X, 2, n_rows=40).judge([0, 1])
    objective.judge(np.array([2, 1]), K, 40)
    assert objective.screen is screen
    assert objective.judge(np.array([0, 1, 2]), K, 40) == screen_of(X, 3, n_rows=40).judge([0, 1, 2])
    assert objective.judge(np.array([0, 1]), 3, 40) == Screen(Trials(X, 3, 2, n_rows=40)).judge([0, 1])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "d", "m"), [(300, 60, 8), (500, 300, 10)])
@pytest.mark.slow
def test_exchange_finds_what_was_planted(n, d, m, seed, dtype):
    X = planted(n, d, m, seed).to(dtype)
    order, screen = np.random.default_rng(seed).permutation(d), screen_of(X, m)
    found = []
    for start in (order[:m], order[-m:]):  # one may get stuck
        features, left = exchange_features(X, start, K, Screened(X), budget=2**34)
        assert left > 0
        found.append((screen.judge(features.tolist()), set(features.tolist())))
        assert found[-1][0] < screen.judge(start.tolist())
    assert min(found, key=lambda judged: judged[0])[1] == set(range(m))
