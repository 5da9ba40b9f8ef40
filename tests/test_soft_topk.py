"""soft_topk against references: optimality, POT, isotonic regression, unrolled autograd, gradcheck, the hard limit."""

import mpmath
import numpy as np
import ot
import pytest
import torch
from sklearn.isotonic import isotonic_regression
from torch.autograd import gradcheck

from homophily.nn import NotConvergedWarning, soft_indicators, soft_topk
from homophily.nn.soft_topk import SOLVERS

F64 = torch.float64


def masses(c, k):
    nu = torch.ones(k + 2, dtype=F64)
    nu[-1] = c - k - 1
    return nu


def scaled(E, k):
    return E / (E.sort(-1).values[..., k : k + 1] / (k + 1))


def reference_plan(e, k, reg):
    """Plan of one row, solved with 90 digits: capped Newton steps from the hard borders until the residual is 1e-20.

    The problem is strictly convex, so whatever has the Gibbs form and these marginals is the solution.
    """
    with mpmath.workdps(90):
        size = k + 1
        scores = [[-((mpmath.mpf(x) - j) ** 2) / reg for j in range(k + 2)] for x in e.tolist()]
        order = sorted(mpmath.mpf(x) for x in e.tolist())
        g = [mpmath.mpf(0)] * (k + 2)
        for j in reversed(range(size)):  # equal scores of anchors j and j + 1 midway between the entries
            border = (order[j] + order[j + 1]) / 2
            g[j] = g[j + 1] + (2 * border - 2 * j - 1) / reg
        for _ in range(400):
            plan = []
            for row in scores:
                z = [s + x for s, x in zip(row, g, strict=True)]
                top = max(z)
                z = [mpmath.exp(x - top) for x in z]
                total = mpmath.fsum(z)
                plan.append([x / total for x in z])
            residual = [mpmath.fsum(row[j] for row in plan) - 1 for j in range(size)]
            if max(map(abs, residual)) < mpmath.mpf(10) ** -20:
                return np.array(plan, dtype=float)
            K = mpmath.matrix(size, size)
            for i in range(size):
                for j in range(size):
                    K[i, j] = -mpmath.fsum(row[i] * row[j] for row in plan)
                # Anchors that share nothing leave K singular along directions that do not move the plan.
                K[i, i] = mpmath.fsum(row[i] * (1 - row[i]) for row in plan) + mpmath.mpf(10) ** -70
            step = mpmath.lu_solve(K, mpmath.matrix(residual))
            longest = max(map(abs, step))
            for j in range(size):
                g[j] -= step[j] * min(1, 3 / longest)
    raise AssertionError("the reference itself has not converged")


def generic(rng, c):
    return rng.exponential(size=c)


def tied(rng, c):
    return rng.integers(0, 4, size=c) + 1.0


def duplicated(rng, c):
    e = rng.uniform(size=c)
    e[: c // 3] = e[0]
    return e


@pytest.mark.parametrize("reg", [0.03, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("k", range(1, 11))
@pytest.mark.parametrize("draw", [generic, tied, duplicated])
def test_newton_equals_reference(reg, k, draw):
    rng = np.random.default_rng(k)
    for c in (k + 2, 20):
        E = torch.tensor(draw(rng, c)[None], dtype=F64)
        plan = soft_topk(E, k, reg=reg)
        for row, e in zip(plan, scaled(E, k), strict=True):
            assert np.abs(row.numpy() - reference_plan(e.numpy(), k, reg)).max() < 1e-6


@pytest.mark.parametrize("solver", ["newton", "projection"])
@pytest.mark.parametrize("reg", [0.001, 0.03, 0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("k", range(1, 11))
def test_meets_the_marginals(solver, reg, k):
    """Marginals and order of the plan, whatever the input looks like."""
    generator = torch.Generator().manual_seed(k)
    for c in (k + 1, k + 2, 32, 150):
        uniform = torch.rand(20, c, dtype=F64, generator=generator)
        cases = [
            uniform,
            (uniform * 4).floor(),  # ties, and rows with many zeros
            torch.zeros(2, c, dtype=F64),  # all points are copies
            uniform * 10.0 ** torch.linspace(-6, 6, c, dtype=F64),  # 12 orders of magnitude in one row
            1 + 1e-9 * uniform,  # nothing but rounding between them
        ]
        for E in cases:
            plan = soft_topk(E, k, reg=reg, solver=solver)
            assert (plan >= 0).all()
            torch.testing.assert_close(plan.sum(-1), torch.ones_like(E), atol=1e-12, rtol=0)
            torch.testing.assert_close(plan.sum(-2), masses(c, k).expand(len(E), -1), atol=1e-7, rtol=0)
            if c > k + 1:
                order = E.argsort(-1)
                ranked = plan.gather(-2, order.unsqueeze(-1).expand_as(plan))
                mean_anchor = (ranked * torch.arange(k + 2.0, dtype=F64)).sum(-1)
                assert (mean_anchor.diff(dim=-1) > -1e-9).all(), "a farther entry went to a nearer anchor"


@pytest.mark.parametrize("solver", ["newton", "bregman"])
@pytest.mark.parametrize("reg", [0.3, 1.0, 3.0])
def test_equals_pot(solver, reg):
    rng = np.random.default_rng(0)
    k, c = 3, 12
    e = rng.uniform(0, 4, size=c)
    C = (e[:, None] - np.arange(k + 2.0)) ** 2
    expected = ot.bregman.sinkhorn_log(np.ones(c), masses(c, k).numpy(), C, reg, numItermax=100_000, stopThr=1e-13)
    plan = soft_topk(torch.tensor(e), k, reg=reg, solver=solver, scale="none", n_iter=20_000)
    np.testing.assert_allclose(plan.numpy(), expected, atol=1e-8)


def test_bregman_is_the_papers_iteration():
    """u, v updates of Appendix S5 as printed, in plain float64, closed by a last row update."""
    e = torch.tensor([0.1, 0.7, 1.1, 2.5, 3.0, 0.4], dtype=F64)
    k, reg, n_iter = 2, 0.5, 7
    C = (e[:, None] - torch.arange(k + 2.0, dtype=F64)) ** 2
    K, mu, nu = (-C / reg).exp(), torch.full((6,), 1 / 6, dtype=F64), masses(6, k) / 6
    u = torch.full((k + 2,), 1 / (k + 2), dtype=F64)
    for _ in range(n_iter):
        v = mu / (K @ u)
        u = nu / (K.T @ v)
    v = mu / (K @ u)
    expected = 6 * v[:, None] * K * u
    plan = soft_topk(e, k, reg=reg, solver="bregman", scale="none", n_iter=n_iter)
    torch.testing.assert_close(plan, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("select", "solver"),
    [*((soft_topk, solver) for solver in SOLVERS), (soft_indicators, "newton"), (soft_indicators, "projection")],
)
@pytest.mark.parametrize("reg", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(("k", "c"), [(1, 4), (3, 8), (3, 4), (5, 9)])
def test_gradcheck(select, solver, reg, k, c):
    generator = torch.Generator().manual_seed(c)
    E = (torch.rand(2, c, dtype=F64, generator=generator) * (k + 1)).requires_grad_()
    n_iter = round(1500 / reg)  # Bregman's backward is the converged plan's
    assert gradcheck(lambda e: select(e, k, reg=reg, solver=solver, scale="none", n_iter=n_iter), E)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("c", [5, 6, 30])
def test_indicators_are_sums_of_columns(solver, c):
    E = torch.rand(3, 7, c, dtype=F64, generator=torch.Generator().manual_seed(0))
    a, b = E.clone().requires_grad_(), E.clone().requires_grad_()
    delta, xi = soft_indicators(a, 4, solver=solver)
    plan = soft_topk(b, 4, solver=solver)
    torch.testing.assert_close(delta, plan[..., :4].sum(-1), atol=1e-12, rtol=0)
    torch.testing.assert_close(xi, plan[..., 4], atol=1e-12, rtol=0)
    (delta.square() + xi**3).sum().backward()
    (plan[..., :4].sum(-1).square() + plan[..., 4] ** 3).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_blocks_of_rows_change_nothing(solver, monkeypatch):
    import sys

    E = torch.rand(50, 12, dtype=F64, generator=torch.Generator().manual_seed(0))
    results = []
    for block in (2**18, 7 * 12 * 5):
        monkeypatch.setattr(sys.modules["homophily.nn.soft_topk"], "BLOCK_CPU", block)
        e = E.clone().requires_grad_()
        plan = soft_topk(e, 5, solver=solver)
        plan.square().sum().backward()
        results.append((plan.detach(), e.grad))
    torch.testing.assert_close(results[0], results[1], atol=1e-8, rtol=1e-6)


def projected_mask(e, r, reg):
    """Projection of -e / reg onto the permutahedron of r ones, by isotonic regression (Blondel et al., Prop. 3).

    With z sorted descending and w the vertex, also descending, it is z - v, v the descending fit of z - w.
    """
    z = -e / reg
    order = np.argsort(-z, kind="stable")
    w = np.repeat([1.0, 0.0], [r, len(e) - r])
    mask = np.empty_like(z)
    mask[order] = z[order] - isotonic_regression(z[order] - w, increasing=False)
    return mask


@pytest.mark.parametrize("reg", [0.01, 0.3, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("draw", [generic, tied, duplicated])
def test_projection_equals_isotonic_regression(reg, k, draw):
    rng = np.random.default_rng(k)
    for c in (k + 1, k + 2, 20):
        e = draw(rng, c) * (k + 1)
        plan = soft_topk(torch.tensor(e), k, reg=reg, solver="projection", scale="none").numpy()
        masks = [np.zeros(c)] + [projected_mask(e, r, reg) for r in range(1, k + 2)] + [np.ones(c)]
        np.testing.assert_allclose(plan, np.diff(masks, axis=0).T, atol=1e-12)


def test_projection_is_the_nearest_point():
    """Optimality without any solver: no feasible direction leads closer."""
    rng = np.random.default_rng(0)
    e, k, reg = rng.exponential(size=30) * 5, 4, 1.0
    delta, _ = soft_indicators(torch.tensor(e), k, reg=reg, solver="projection", scale="none")
    y = delta.numpy()
    gap = -e / reg - y  # must not point to any vertex: <gap, vertex - y> <= 0, the best vertex being the k largest
    assert np.sort(gap)[-k:].sum() - gap @ y < 1e-12


@pytest.mark.parametrize("scale", ["row", "none"])
def test_projection_is_hard_away_from_the_border(scale):
    """Entries that are clearly in or out are exactly 1 or 0, and nothing pulls at them."""
    E = torch.tensor([0.1, 0.2, 3.0, 3.1, 9.0, 20.0], dtype=F64, requires_grad=True)
    delta, _ = soft_indicators(E, 3, reg=0.5, solver="projection", scale=scale)
    assert delta[:2].tolist() == [1, 1]
    assert delta[4:].tolist() == [0, 0]
    assert ((delta[2:4] > 0) & (delta[2:4] < 1)).all()
    (grad,) = torch.autograd.grad((delta * torch.arange(6.0)).sum(), E)
    assert grad[[0, 1, 4, 5]].tolist() == [0, 0, 0, 0]
    assert grad[2] > 0 > grad[3]


@pytest.mark.parametrize("reg", [0.3, 1.0])
def test_backward_equals_unrolled_autograd(reg):
    k, c = 3, 10
    generator = torch.Generator().manual_seed(0)
    E = (4 * torch.rand(c, dtype=F64, generator=generator)).requires_grad_()
    weight = torch.rand(c, k + 2, dtype=F64, generator=generator)
    (analytic,) = torch.autograd.grad((weight * soft_topk(E, k, reg=reg, scale="none")).sum(), E)

    scores = -((E[:, None] - torch.arange(k + 2.0, dtype=F64)) ** 2) / reg
    g = torch.zeros(k + 2, dtype=F64)
    for _ in range(5000):
        v = -(scores + g).logsumexp(1, keepdim=True)
        g = masses(c, k).log() - (scores + v).logsumexp(0)
    (unrolled,) = torch.autograd.grad((weight * (scores + g + v).exp()).sum(), E)
    torch.testing.assert_close(analytic, unrolled, atol=1e-8, rtol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reg", [1e-4, 1e-2])
def test_backward_of_an_almost_hard_plan_is_finite_and_small(dtype, reg):
    """Far from every border nothing changes, so the gradient vanishes; it must not be 0/0."""
    E = torch.tensor([[0.0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 0, 0, 5, 5, 5, 5]], dtype=dtype, requires_grad=True)
    plan = soft_topk(E, 3, reg=reg)
    (plan * torch.rand(plan.shape, generator=torch.Generator().manual_seed(0)).to(dtype)).sum().backward()
    assert torch.isfinite(E.grad).all()
    assert E.grad[0].abs().max() < 1e-6


def test_backward_near_singular_matches_finite_differences():
    """Two groups that share almost no mass: K is near-singular, the gradient within a group is not small."""
    E = torch.tensor([0.1, 0.12, 3.0, 3.05, 9.0, 9.1], dtype=F64, requires_grad=True)
    assert gradcheck(lambda e: soft_topk(e, 2, reg=0.05, scale="none"), E, eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("solver", ["newton", "projection"])
def test_small_reg_is_the_hard_assignment(solver):
    E = torch.tensor([[3.0, 1.0, 2.0, 7.0, 5.0]], dtype=F64)
    plan = soft_topk(E, 2, reg=1e-3, solver=solver)
    hard = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]], dtype=F64)
    torch.testing.assert_close(plan[0], hard, atol=1e-9, rtol=0)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("factor", [1e-12, 1e-3, 1e6, 1e12])
def test_row_scaling_removes_the_unit(solver, factor):
    E = torch.rand(5, 20, dtype=F64, generator=torch.Generator().manual_seed(0))
    other, plain = soft_topk(factor * E, 4, solver=solver), soft_topk(E, 4, solver=solver)
    torch.testing.assert_close(other, plain, atol=1e-7, rtol=0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_row_scaling_is_not_differentiated(solver):
    E = torch.rand(20, dtype=F64, generator=torch.Generator().manual_seed(0))
    unit = E.sort().values[4] / 5
    a, b = E.clone().requires_grad_(), E.clone().requires_grad_()
    soft_topk(a, 4, solver=solver)[:, 4].square().sum().backward()
    soft_topk(b / unit, 4, scale="none", solver=solver)[:, 4].square().sum().backward()
    assert a.grad.abs().max() > 1e-3
    torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("solver", SOLVERS)
def test_leading_dimensions_and_dtype(solver):
    E = torch.rand(2, 3, 4, 11, generator=torch.Generator().manual_seed(0))
    plan = soft_topk(E, 3, solver=solver)
    assert plan.shape == (2, 3, 4, 11, 5)
    assert plan.dtype == torch.float32
    torch.testing.assert_close(plan[1, 2], soft_topk(E[1, 2], 3, solver=solver), atol=2e-5, rtol=0)
    torch.testing.assert_close(plan, soft_topk(E.double(), 3, solver=solver).float(), atol=1e-5, rtol=0)


def test_no_rows_give_an_empty_plan():
    assert soft_topk(torch.rand(0, 9), 3).shape == (0, 9, 5)


def test_many_anchors():
    """The elimination runs over k + 1 unknowns, however many."""
    E = torch.rand(3, 200, dtype=F64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    plan = soft_topk(E, 60, reg=0.3)
    torch.testing.assert_close(plan.sum(-2), masses(200, 60).expand(3, -1), atol=1e-7, rtol=0)
    direction = torch.rand(3, 200, dtype=F64, generator=torch.Generator().manual_seed(1))
    unit = E.detach().sort(-1).values[:, 60:61] / 61  # held, as it is not differentiated

    def value(e):
        return soft_topk(e / unit, 60, reg=0.3, scale="none")[..., 60].square().sum()

    (grad,) = torch.autograd.grad(value(E), E)
    with torch.no_grad():
        slope = (value(E + 1e-6 * direction) - value(E - 1e-6 * direction)) / 2e-6
    torch.testing.assert_close((grad * direction).sum(), slope, atol=0, rtol=1e-5)


@pytest.mark.parametrize("select", [soft_topk, soft_indicators])
def test_warns_with_the_residual_when_not_converged(select, monkeypatch):
    import sys

    E = torch.rand(4, 30, dtype=F64, generator=torch.Generator().manual_seed(0))
    E[2] = 1e3 * torch.arange(30.0)  # so far apart that the hard borders, where it starts, are the solution
    monkeypatch.setattr(sys.modules["homophily.nn.soft_topk"], "NEWTON_MAX_ITER", 1)
    message = r"left 3 rows of 4 with marginals wrong by up to \S+ after 1 iterations; a larger reg than 3 "
    with pytest.warns(NotConvergedWarning, match=message) as caught:
        select(E, 5, reg=3.0, scale="none")
    assert [warning.filename for warning in caught] == [__file__]  # where the user can do something about it


@pytest.mark.parametrize(
    ("k", "c", "n_rows", "reg", "dtype", "most"),
    [
        (5, 12, 50, 0.3, F64, 5),
        (3, 30, 100, 1.0, F64, 6),
        # Large enough to begin in float32.
        (5, 12, 2000, 0.3, F64, 4),
        (5, 12, 2000, 0.3, torch.float32, 3),
        (5, 60, 400, 0.3, F64, 4),
        (10, 22, 600, 0.3, torch.float32, 3),
        (5, 12, 2000, 0.03, F64, 3),
        (5, 12, 2000, 3.0, F64, 4),
    ],
)
def test_newton_needs_few_plans(k, c, n_rows, reg, dtype, most, monkeypatch):
    """What a step costs: evaluations of the plan in float64, on distances between normal points."""
    import sys

    module = sys.modules["homophily.nn.soft_topk"]
    counts = dict.fromkeys([F64, torch.float32], 0)

    def counted(scores, g, out, evaluate=module._plan):
        counts[scores.dtype] += 1
        return evaluate(scores, g, out)

    X = torch.randn(n_rows, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    E = torch.cdist(X, X).square().sort(-1).values[:, 1 : c + 1]
    monkeypatch.setattr(module, "_plan", counted)
    soft_topk(E, k, reg=reg)
    assert counts[F64] <= most
    assert counts[torch.float32] == (3 if n_rows * c * (k + 2) >= module.COARSE else 0)


@pytest.mark.parametrize("n_rows", [1, 10, 11, 95])
def test_blocks_of_rows_are_no_larger_than_is_said(n_rows, monkeypatch):
    import sys

    module = sys.modules["homophily.nn.soft_topk"]
    monkeypatch.setattr(module, "BLOCK_CPU", 10 * 12 * 7)
    sizes = []

    def noted(problem, forward=SOLVERS["newton"].forward):
        sizes.append(len(problem.E))
        return forward(problem)

    monkeypatch.setitem(SOLVERS, "newton", SOLVERS["newton"]._replace(forward=noted))
    E = torch.rand(n_rows, 12, generator=torch.Generator().manual_seed(0))
    soft_topk(E, 5)
    assert sizes == [10] * (n_rows // 10) + [n_rows % 10] * (n_rows % 10 > 0)
    sizes.clear()
    monkeypatch.setattr(module, "BLOCK_CPU", 1)
    soft_topk(E, 5)
    assert sizes == [1] * n_rows  # never less than a row


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_distances_are_refused(value):
    with pytest.raises(ValueError, match="finite"):
        soft_topk(torch.tensor([0.0, 1.0, value, 2.0]), 2)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="floating-point tensor, got torch"):
        soft_topk(torch.arange(9), 2)


@pytest.mark.parametrize("reg", [0.3, 1.0])
def test_plan_has_the_gibbs_form(reg):
    """log plan + C / reg = f_i + g_j: the mixed differences vanish."""
    e = scaled(torch.rand(15, dtype=F64, generator=torch.Generator().manual_seed(0)), 3)
    plan = soft_topk(e, 3, reg=reg, scale="none")
    assert plan.min() > 1e-250
    Z = plan.log() + (e[:, None] - torch.arange(5.0, dtype=F64)) ** 2 / reg
    mixed = (Z - Z[:1]) - (Z - Z[:1])[:, :1]
    assert mixed.abs().max() < 1e-9


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k": 10}, "k must lie between 1 and c - 1 = 9"),
        ({"k": 0}, "k must lie"),
        ({"k": 3, "reg": 0.0}, "reg must be positive"),
        ({"k": 3, "solver": "simplex"}, "solver must be one of"),
        ({"k": 3, "scale": "global"}, "scale must be"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        soft_topk(torch.rand(10), **kwargs)
