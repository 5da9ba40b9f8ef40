r"""Soft k-nearest selection by entropic optimal transport (Sec. 3.2.2, Eq. 12-14, Appendix S5), or by projection.

One row of distances :math:`e \in \mathbb R^c` is transported to the anchors :math:`b = (0, 1, \dots, k+1)`:

.. math::
    \min_{\Gamma \ge 0} \langle C, \Gamma \rangle + \gamma \sum_{ij} \Gamma_{ij} \log \Gamma_{ij}
    \quad\text{s.t.}\quad \Gamma 1 = 1,\; \Gamma^\top 1 = \nu = (1, \dots, 1, c - k - 1), \qquad
    C_{ij} = (e_i - b_j)^2 .

As :math:`\gamma \to 0`, column ``j < k`` marks the (j+1)-th nearest, column ``k`` the (k+1)-th nearest and the last
column all the rest. (The paper's masses are these divided by ``c``.)

Every row of the plan is a softmax over the anchors, :math:`\Gamma_i = \mathrm{softmax}((2 e_i b - b^2)/\gamma + g)`, so
only the ``k + 2`` column potentials ``g`` are unknown. ``"newton"`` and ``"bregman"`` differ in how they find ``g``;
their backward is the implicit derivative of the optimality conditions and is shared.

``"projection"`` (the paper's future work; Blondel et al., Fast Differentiable Sorting and Ranking, 2020) replaces the
entropy by a quadratic: the soft indicator of the r smallest entries is the point of the permutahedron of
:math:`(1, \dots, 1, 0, \dots, 0)` that is nearest to :math:`-e/\gamma`,

.. math::
    \mathrm{mask}_r = \arg\min_{0 \le y \le 1,\; 1^\top y = r} \|y + e / \gamma\|^2
                    = \mathrm{clip}(-e/\gamma - \tau_r, 0, 1),

and column ``j`` of its plan is :math:`\mathrm{mask}_{j+1} - \mathrm{mask}_j`. It is exact without iterations, and
exactly 0 or 1 away from the border; its gradient vanishes there too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["SOLVERS", "NotConvergedWarning", "soft_indicators", "soft_topk"]

NEWTON_MAX_ITER = 100
COARSE = 2**16  # entries of a plan from which it pays to begin in float32
GAP = 1e4  # times reg: a wider gap between entries is as good as this one
# Entries of a plan that are worked on at once. A processor is fastest when they stay in its cache, a GPU when they are
# many.
BLOCK_CPU, BLOCK = 2**18, 2**25


class NotConvergedWarning(UserWarning):
    """A solver stopped before its marginals were met."""


def soft_topk(
    distances: Tensor,
    k: int,
    *,
    reg: float = 0.3,
    solver: str = "newton",
    scale: str = "row",
    n_iter: int = 200,
) -> Tensor:
    r"""Differentiable plan that says which of the ``c`` entries of each row are its ``k`` smallest.

    Parameters
    ----------
    distances : Tensor (..., c)
        Finite, at least ``k + 1`` a row; larger is farther.
    k : int
        Number of nearest entries.
    reg : float
        Regularisation :math:`\gamma`. Smaller is harder.
    solver : {"newton", "bregman", "projection"}
        ``"newton"`` is a damped Newton method on the concave semi-dual; it converges in a few iterations or warns with
        the residual. ``"bregman"`` is the paper's: ``n_iter`` alternating projections, converged or not, in logarithms.
        ``"projection"`` is another regularisation, quadratic instead of entropic, solved exactly by sorting.
    scale : {"row", "none"}
        ``"row"`` divides each row by :math:`e_{(k+1)}/(k+1)`, not differentiated, so that ``reg`` means the same for
        any unit of the data; ``"none"`` takes the distances as they are.
    n_iter : int
        Iterations of ``"bregman"``.

    Returns
    -------
    plan : Tensor (..., c, k+2)
        Rows sum to 1, columns ``0..k`` to 1, the last to ``c - k - 1``. ``plan[..., :k].sum(-1)`` is the paper's
        :math:`\delta^{(k)}`, ``plan[..., k]`` its :math:`\xi^{(k+1)}`.

    Notes
    -----
    The paper ends on the column update, which leaves the rows off by what has not converged. Here a plan is always
    built by rows, so the rows are exact and the residual lies in the columns.
    """
    cuts = tuple(range(k + 3))
    return _select(distances, k, cuts, reg=reg, solver=solver, scale=scale, n_iter=n_iter).movedim(0, -1)


def soft_indicators(
    distances: Tensor,
    k: int,
    *,
    reg: float = 0.3,
    solver: str = "newton",
    scale: str = "row",
    n_iter: int = 200,
) -> tuple[Tensor, Tensor]:
    r"""Soft indicators of the k nearest and of the (k+1)-th nearest, :math:`\delta^{(k)}, \xi^{(k+1)}` (Eq. 13).

    Sums of columns of :func:`soft_topk`'s plan, each ``(..., c)``, forward and backward without ever writing the plan
    out column by column. The parameters are the same.
    """
    cuts = (0, k, k + 1)
    delta, xi = _select(distances, k, cuts, reg=reg, solver=solver, scale=scale, n_iter=n_iter).unbind(0)
    return delta, xi


def _select(
    distances: Tensor, k: int, cuts: tuple[int, ...], *, reg: float, solver: str, scale: str, n_iter: int
) -> Tensor:
    """Sums of the plan's columns between consecutive ``cuts``; (len(cuts) - 1, ..., c)."""
    if not distances.is_floating_point():
        raise TypeError(f"distances must be a floating-point tensor, got {distances.dtype}.")
    if not 1 <= k < distances.shape[-1]:
        raise ValueError(f"k must lie between 1 and c - 1 = {distances.shape[-1] - 1}, got k={k}.")
    if not torch.isfinite(distances).all():
        raise ValueError("distances must be finite; give entries that are not to be selected a large value.")
    if not reg > 0:
        raise ValueError(f"reg must be positive, got {reg}.")
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {sorted(SOLVERS)}, got {solver!r}.")
    if scale not in ("row", "none"):
        raise ValueError(f"scale must be 'row' or 'none', got {scale!r}.")
    return _SoftTopK.apply(distances, k, cuts, reg, solver, scale == "row", n_iter)


class _Problem(NamedTuple):
    """A block of rows, as a solver gets it."""

    E: Tensor  # (B, c) distances in units of their row
    smallest: Tensor  # (B, min(k+2, c)) the smallest of them, ascending
    k: int
    cuts: tuple[int, ...]  # columns [cuts[a], cuts[a+1]) of the plan are added up
    reg: float
    tolerance: float  # of the column sums, for solvers that can promise one
    n_iter: int  # for solvers that cannot


class _Solver(NamedTuple):
    """How to get from distances to sums of columns of a plan, and back."""

    # -> outputs (len(cuts) - 1, B, c), and what the backward needs
    forward: Callable[[_Problem], tuple[Tensor, Tensor]]
    # what the forward kept, k, cuts, reg, gradient (len(cuts) - 1, B, c) -> gradient (B, c)
    backward: Callable[[Tensor, int, tuple[int, ...], float, Tensor], Tensor]


class _SoftTopK(torch.autograd.Function):
    """Any solver, block of rows by block of rows; precision and units are dealt with here."""

    @staticmethod
    def forward(
        ctx: Any,
        distances: Tensor,
        k: int,
        cuts: tuple[int, ...],
        reg: float,
        solver: str,
        scale_rows: bool,
        n_iter: int,
    ) -> Tensor:
        # Plans of small reg need more digits than float32 has for 2 e b / reg.
        work = distances.dtype if distances.device.type == "mps" else torch.float64
        c = distances.shape[-1]
        E = distances.detach().reshape(distances.shape[:-1].numel(), c).to(work)  # (B, c)
        smallest = E.topk(min(k + 2, c), largest=False).values  # ascending
        least = least_distance(distances.dtype)
        unit = _row_unit(E, smallest[:, k], k, least) if scale_rows else E.new_ones(len(E))
        # What is so far that 2 e b / reg would overflow is no farther than this: its place is not in doubt.
        far = math.sqrt(torch.finfo(work).max)
        E, smallest = ((x / unit[:, None]).clamp_(-far, far) for x in (E, smallest))
        tolerance = 1e-9 if distances.dtype == torch.float64 else 1e-6
        block = max(1, (BLOCK_CPU if E.device.type == "cpu" else BLOCK) // (c * (k + 2)))
        out = distances.new_empty(len(cuts) - 1, *E.shape)
        kept = []
        for i in range(0, len(E), block):
            problem = _Problem(E[i : i + block], smallest[i : i + block], k, cuts, reg, tolerance, n_iter)
            out[:, i : i + block], keep = SOLVERS[solver].forward(problem)
            kept.append(keep)
        ctx.save_for_backward(unit, *kept)
        ctx.settings = k, cuts, reg, solver, block, distances.shape
        return out.view(len(out), *distances.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        unit, *kept = ctx.saved_tensors
        k, cuts, reg, solver, block, shape = ctx.settings
        grad = grad.reshape(len(grad), shape[:-1].numel(), shape[-1])  # (len(cuts) - 1, B, c)
        grad_E = torch.empty(grad.shape[1:], dtype=grad.dtype, device=grad.device)
        for i, keep in zip(range(0, len(grad_E), block), kept, strict=True):
            part = slice(i, i + block)
            share = SOLVERS[solver].backward(keep, k, cuts, reg, grad[:, part].to(unit.dtype))
            grad_E[part] = share / unit[part, None]
        return grad_E.view(shape), None, None, None, None, None, None


def least_distance(dtype: torch.dtype) -> float:
    """The squared distance below which two points count as copies: gradients, its inverse and more, would overflow."""
    return math.sqrt(torch.finfo(dtype).tiny)


def _row_unit(E: Tensor, e_k1: Tensor, k: int, least: float) -> Tensor:
    """``e_(k+1) / (k+1)`` of each row; (B,).

    Where k + 1 entries are at most ``least`` (copies of the sample) the smallest entry above that stands in, and k + 1
    if there is none.
    """
    zero = e_k1 <= least
    if zero.any():
        smallest = E.masked_fill(E.le(least), torch.inf).amin(-1)
        e_k1 = torch.where(zero, torch.where(smallest.isinf(), k + 1.0, smallest), e_k1)
    return e_k1 / (k + 1)


# ---------------------------------------------------------------------------------------------- entropic selection


class _Dual(NamedTuple):
    """The entropic problem in its potentials. Rows come last: sums over anchors or entries then run along them."""

    E: Tensor  # (c, B)
    scores: Tensor  # (k+2, c, B): (2 e b - b^2) / reg, up to a constant an entry
    b: Tensor  # (k+2,) anchors
    nu: Tensor  # (k+2, 1) their masses


def _entropic(find: Callable[[_Problem, _Dual], Tensor]) -> _Solver:
    """Solver whose plan ``find`` gives; (k+2, c, B)."""

    def forward(problem: _Problem) -> tuple[Tensor, Tensor]:
        problem = _without_wide_gaps(problem)
        E, k, reg, cuts = problem.E.T.contiguous(), problem.k, problem.reg, problem.cuts
        c = len(E)
        # Without a rest (c = k + 1) the last anchor has no mass: it is left out and its column stays 0.
        b = torch.arange(min(k + 2, c), dtype=E.dtype, device=E.device)
        nu = torch.ones_like(b)
        if c > k + 1:
            nu[-1] = c - k - 1
        # Relative to the last anchor, so that far entries, whose place is not in doubt, have scores of no size.
        slope, offset = 2 * (b - b[-1]) / reg, (b[-1] ** 2 - b**2) / reg
        scores = torch.addcmul(offset[:, None, None], slope[:, None, None], E)  # (k+2, c, B)
        plan = find(problem, _Dual(E, scores, b, nu[:, None]))
        return torch.stack([plan[start:end].sum(0).T for start, end in pairwise(cuts)]), plan

    return _Solver(forward, _entropic_backward)


def _without_wide_gaps(problem: _Problem) -> _Problem:
    r"""The same problem with gaps between a row's smallest entries, and from 0 to the first, of at most ``GAP`` reg.

    What lies before a gap is not in doubt: of mass, about :math:`e^{-gap / \gamma}` crosses it, which is 0 in any
    precision, so the plan does not depend on its width. The potentials do, and their digits are lost in that of a row
    with near-copies, whose unit is tiny: the marginals could not be met any more.
    """
    E, smallest, widest = problem.E, problem.smallest, GAP * problem.reg
    gaps = smallest.diff(dim=-1, prepend=torch.zeros_like(smallest[:, :1]))
    wide = (gaps.abs() > widest).any(-1, keepdim=True)
    if not wide.any():
        return problem
    closed = gaps.clamp(-widest, widest).cumsum(-1)
    last = (torch.searchsorted(smallest, E, right=True) - 1).clamp_min_(0)  # of the smallest that is not larger
    moved = closed.gather(-1, last) + (E - smallest.gather(-1, last))
    return problem._replace(E=torch.where(wide, moved, E), smallest=torch.where(wide, closed, smallest))


def _entropic_backward(plan: Tensor, k: int, cuts: tuple[int, ...], reg: float, grad: Tensor) -> Tensor:
    r"""Differentiate the optimality conditions.

    With :math:`h` the gradient of the plan, r the row sums of :math:`h \circ \Gamma` and a prime for "last column left
    out": :math:`K q = (\Gamma' \circ (h - r))^\top 1`, :math:`p = r - \Gamma' q`,
    :math:`\partial C = \Gamma \circ (p - h + q) / \gamma` and :math:`\partial e_i = -2 \sum_j b_j \partial C_{ij}`.
    Columns of one cut share their h.
    """
    n_anchors = len(plan)
    h = grad.mT.contiguous()  # (len(cuts) - 1, c, B)
    columns = [slice(start, min(end, n_anchors)) for start, end in pairwise(cuts)]
    r = torch.zeros_like(h[0])  # (c, B)
    for a, part in enumerate(columns):
        r.addcmul_(h[a], plan[part].sum(0))
    room = torch.mul(plan, -r)
    for a, part in enumerate(columns):
        room[part].addcmul_(plan[part], h[a])
    rhs = room.sum(1)  # (k+2, B)
    q = _solve_grounded(_overlaps(plan, room), rhs).unsqueeze(1)  # (k+2, 1, B), last entry 0
    b = torch.arange(n_anchors, dtype=plan.dtype, device=plan.device)[:, None, None]
    weighted = torch.mul(plan, q, out=room)
    p = r - weighted.sum(0)  # (c, B)
    # The e_i^2 of C is constant over the anchors and drops out.
    total = weighted.mul_(b).sum(0)
    moments = torch.mul(plan, b, out=room)
    total.addcmul_(p, moments.sum(0))
    for a, part in enumerate(columns):
        total.addcmul_(h[a], moments[part].sum(0), value=-1)
    return total.mul_(-2 / reg).T


def _overlaps(plan: Tensor, room: Tensor) -> Tensor:
    r""":math:`\Gamma^\top \Gamma` off the diagonal, what two anchors share, last row left out; (k+1, k+2, B).

    The negative Hessian of the semi-dual, :math:`K = \mathrm{diag}(\Gamma^\top 1) - \Gamma^\top \Gamma`, is the
    Laplacian of these weights. Built from them, it keeps full relative accuracy when the plan is almost hard and the
    two terms would cancel. ``room``, as large as the plan, is overwritten: fresh memory costs more than the products.
    """
    n_anchors, _, n_rows = plan.shape
    W = plan.new_empty(n_anchors - 1, n_anchors, n_rows)
    for j in range(n_anchors - 1):
        torch.mul(plan[j], plan[j + 1 :], out=room[j + 1 :])
        W[j, j + 1 :] = room[j + 1 :].sum(1)
        W[j + 1 :, j] = W[j, j + 1 : -1]
    return W


def _solve_grounded(W: Tensor, rhs: Tensor) -> Tensor:
    r"""Solve ``K x = rhs`` for the Laplacian K of the weights ``W (k+1, k+2, B)``, with the last entry of x fixed at 0.

    Gaussian elimination in terms of the weights: taking out node j joins its neighbours by
    :math:`w_{ij} w_{jl} / \sum_l w_{jl}`. Nothing is ever subtracted, so nothing cancels however small the weights are,
    and every operation runs along all rows at once; a library would take the small matrices one by one.

    Anchors that share no entry (an almost hard plan) leave K singular, along directions that change neither the plan
    nor the gradient; a weak link to the last anchor, far below the overlaps that matter, picks one solution.
    """
    n = len(W)
    A = torch.cat([W, rhs[:n, None]], 1)  # (k+1, k+3, B); the diagonal is never read
    A[:, n] += 1e2 * torch.finfo(W.dtype).eps
    for j in range(n):
        ahead = A[j, j + 1 :]  # weights to the nodes that are left, and the right-hand side
        ahead /= ahead[:-1].sum(0)
        if j + 1 < n:
            A[j + 1 :, j + 1 :].addcmul_(A[j + 1 :, j, None], ahead)
    x = A[:, n + 1]
    for j in range(n - 1, 0, -1):
        x[:j].addcmul_(A[:j, j], x[j])
    return pad(x, (0, 0, 0, 1))


def _newton(problem: _Problem, dual: _Dual) -> Tensor:
    r"""Maximise :math:`\nu^\top g - \sum_i \mathrm{logsumexp}_j(\mathrm{scores}_{ij} + g_j)` by damped Newton steps.

    Starts from the hard solution: the border between anchors j-1 and j lies midway between the j-th and the (j+1)-th
    smallest entry. A row stays as it is once it has converged; the rest goes on alone when it is less than half.

    Potentials of a previous call are a worse start, even for distances that drift slowly: over 150 training steps on
    20 of 500 columns, reg .3, they took 11 to 22 evaluations of the plan, the hard borders 4 to 5.
    """
    E, scores, b, nu = dual
    reg, tolerance = problem.reg, problem.tolerance
    borders = (problem.smallest[:, :-1] + problem.smallest[:, 1:]).T / 2  # (k+1, B)
    # More entries crowd behind the last border than before it, and what leaks over it would move it most: one step of
    # it alone, between two groups, saves up to three of all borders.
    before = ((borders[-1] - E) * (2 / reg)).sigmoid_()  # (c, B)
    excess, rate = before.sum(0) - len(borders), torch.addcmul(before, before, before, value=-1).sum(0) * (2 / reg)
    borders[-1] -= (excess / rate.clamp_min(1e-3)).clamp_(-1, 1)
    rise = -(2 * borders * b.diff()[:, None] - (b**2).diff()[:, None]) / reg  # g_j - g_{j-1}
    # Counted from the last anchor, whose potential is 0.
    g = pad(-rise.flip(0).cumsum(0).flip(0), (0, 0, 0, 1))  # (k+2, B)
    if scores.dtype == torch.float64 and scores.numel() >= COARSE:
        g = _coarse(scores.float(), g.float(), nu.float()).double()

    solution, rows = None, torch.arange(0)  # of all rows, and which are still worked on; None while that is all of them
    plan = _plan(scores, g, torch.empty_like(scores))
    room = torch.empty_like(plan)  # for the overlaps, then for the next plan
    residual = nu - plan.sum(1)
    error = residual.abs().amax(0)  # (B,)
    for _ in range(NEWTON_MAX_ITER):
        open_ = ~(error <= tolerance)
        n_open = int(open_.sum())
        if not n_open:
            break
        if 2 * n_open < len(open_):
            left = open_.nonzero().squeeze(-1)
            if solution is None:
                solution, rows = plan, left
            else:
                solution.index_copy_(-1, rows, plan)
                rows = rows[left]
            scores, g, plan, residual = (x.index_select(-1, left) for x in (scores, g, plan, residual))
            error, open_, room = error[left], open_[left], torch.empty_like(plan)
        step = _solve_grounded(_overlaps(plan, room), residual)
        # Where hardly anything overlaps, Newton's step is far too long: no border need move by more than this at once.
        longest = step.diff(dim=0).abs().amax(0)
        step *= open_ * (20.0 / longest.clamp_min(20.0))
        g, residual, error = _line_search(scores, nu, g, step, plan, residual, error, open_, room)
        plan, room = room, plan
    if solution is None:
        solution = plan
    else:
        solution.index_copy_(-1, rows, plan)
    worst = float(error.max())
    if not worst <= 10 * tolerance:
        warnings.warn(
            f"Newton's method left {int((error > tolerance).sum())} rows of {E.shape[1]} with marginals wrong by "
            f"up to {worst:.1e} after {NEWTON_MAX_ITER} iterations; a larger reg than {reg:g} is easier.",
            NotConvergedWarning,
            stacklevel=7,
        )
    return solution


def _coarse(scores: Tensor, g: Tensor, nu: Tensor) -> Tensor:
    """Potentials after two Newton steps, or where a row was best on the way; in float32, where digits cost half."""
    best, least = g, torch.full_like(g[0], torch.inf)
    plan, room = torch.empty_like(scores), torch.empty_like(scores)
    for last in (False, False, True):
        _plan(scores, g, plan)
        residual = nu - plan.sum(1)
        error = residual.abs().amax(0)
        best = torch.where(error < least, g, best)
        least = torch.minimum(error, least)
        if not last:
            step = _solve_grounded(_overlaps(plan, room), residual)
            g = g + step * (20.0 / step.diff(dim=0).abs().amax(0).clamp_min(20.0))
    return best


def _line_search(
    scores: Tensor,
    nu: Tensor,
    g: Tensor,
    step: Tensor,
    plan: Tensor,
    residual: Tensor,
    error: Tensor,
    open_: Tensor,
    plan_new: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Halve the step of each row until it gains; ``(g, residual, error)`` there, with its plan in ``plan_new``."""
    slope = (residual * step).sum(0)
    t = torch.ones_like(error)
    for _ in range(30):
        g_new = torch.addcmul(g, t, step)
        _plan(scores, g_new, plan_new)
        residual_new = nu - plan_new.sum(1)
        error_new = residual_new.abs().amax(0)
        # Close to the optimum only the residual shows the gain. Elsewhere, as the function is concave, it has grown all
        # the way if it still grows; its value, which is dear, decides about the few rows that are left.
        good = (error_new <= 0.5 * error) | ((residual_new * step).sum(0) >= 0) | ~open_
        if good.all():
            break
        doubt = (~good).nonzero().squeeze(-1)
        some = [x.index_select(-1, doubt) for x in (scores, g, plan, g_new, plan_new, t * slope)]
        gain = _semi_dual(some[0], some[3], nu, some[4]) - _semi_dual(some[0], some[1], nu, some[2])
        good[doubt] = gain >= 1e-4 * some[5]
        if good.all():
            break
        t = torch.where(good, t, t / 2)
    return g_new, residual_new, error_new


def _plan(scores: Tensor, g: Tensor, out: Tensor) -> Tensor:
    """Softmax over the anchors of ``scores + g``; (k+2, c, B)."""
    z = torch.add(scores, g.unsqueeze(1), out=out)
    z -= z.amax(0)
    z.exp_()
    return z.div_(z.sum(0))


def _semi_dual(scores: Tensor, g: Tensor, nu: Tensor, plan: Tensor) -> Tensor:
    """Value (B,) of the semi-dual at ``g``, whose plan is given: ``logsumexp_j z = z_j - log plan_j`` for any j."""
    top, j = plan.max(0, keepdim=True)  # (1, c, B)
    z = scores.gather(0, j) + g.gather(0, j[0]).unsqueeze(0)
    return (g * nu).sum(0) - (z - top.log_()).sum((0, 1))


def _bregman(problem: _Problem, dual: _Dual) -> Tensor:
    """Appendix S5 in logarithms: alternate ``v = mu / (K u)`` and ``u = nu / (K' v)``, with ``g = log u``."""
    scores, nu = dual.scores, dual.nu
    g = scores.new_zeros(len(scores), 1, scores.shape[-1])  # u = 1/(k+2), up to a factor
    log_nu = nu.log().unsqueeze(-1)
    for _ in range(problem.n_iter):
        log_v = -(scores + g).logsumexp(0, keepdim=True)  # (1, c, B)
        g = log_nu - (scores + log_v).logsumexp(1, keepdim=True)
    return (scores + g).softmax(0)


# ------------------------------------------------------------------------------------------------------- projection


def _projection(problem: _Problem) -> tuple[Tensor, Tensor]:
    r"""Find :math:`\tau_r` of :math:`\sum_i \mathrm{clip}(z_i - \tau_r, 0, 1) = r` for every cut r, exactly.

    The sum is piecewise linear in :math:`\tau` and breaks at :math:`z_i` and :math:`z_i - 1`. Evaluated at all of them
    from running sums of the sorted z, it tells between which two of them the root lies, thus which entries are
    strictly inside (0, 1), and their mean is all that is left to solve for.

    With z counted from the (r+1)-th entry, the root lies between -1 and 1. What is below -1 or above 2 is 0 or 1 all
    the same, so z is cut off there: no sum loses digits, whatever the range of the distances.
    """
    E, cuts = problem.E, problem.cuts
    c = E.shape[-1]
    descending = E.sort(-1, descending=True).values
    masks, inside = [], []
    for r in cuts:
        if r == 0 or r >= min(c, problem.k + 2):
            masks.append(torch.full_like(E, float(r > 0)))
            inside.append(torch.zeros_like(E, dtype=torch.bool))
            continue
        z, ascending = (((problem.smallest[:, r, None] - x) / problem.reg).clamp_(-1, 2) for x in (E, descending))
        sums = pad(ascending.flip(-1).cumsum(-1), (1, 0))  # (B, c+1) from the nearest entry on
        breaks = torch.cat([ascending, ascending - 1], -1).sort(-1).values  # (B, 2c)
        one, some = _above(ascending, breaks + 1), _above(ascending, breaks)
        total = one + sums.gather(-1, some) - sums.gather(-1, one) - (some - one) * breaks  # (B, 2c), descending
        # The first break at which the sum is down to r, and the one before it.
        end = torch.searchsorted(-total, total.new_full((len(z), 1), -float(r))).clamp(1, 2 * c - 1)
        lower, upper = breaks.gather(-1, end - 1), breaks.gather(-1, end)
        middle = (lower + upper) / 2
        n_one, n_some = _above(ascending, middle + 1), _above(ascending, middle)
        n_inside = n_some - n_one
        tau = (sums.gather(-1, n_some) - sums.gather(-1, n_one) - (r - n_one)) / n_inside.clamp_min(1)
        mask = (z - torch.where(n_inside > 0, tau, middle)).clamp_(0, 1)
        masks.append(mask)
        inside.append((mask > 0) & (mask < 1))
    stacked = torch.stack(masks)
    return stacked.diff(dim=0), torch.stack(inside)


def _above(ascending: Tensor, t: Tensor) -> Tensor:
    """Count the entries of each row that are > t."""
    return ascending.shape[-1] - torch.searchsorted(ascending, t, right=True)


def _projection_backward(inside: Tensor, k: int, cuts: tuple[int, ...], reg: float, grad: Tensor) -> Tensor:
    r"""Pull back: the Jacobian of :math:`\mathrm{mask}_r` is :math:`I_A - 1_A 1_A' / |A|`, A its entries inside (0, 1).

    Cut r ends one output and begins the next, with the opposite sign.
    """
    h = torch.where(inside, pad(grad, (0, 0, 0, 0, 1, 0)) - pad(grad, (0, 0, 0, 0, 0, 1)), 0)  # (len(cuts), B, c)
    mean = h.sum(-1, keepdim=True) / inside.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(inside, h - mean, 0).sum(0) / -reg


SOLVERS: dict[str, _Solver] = {
    "newton": _entropic(_newton),
    "bregman": _entropic(_bregman),
    "projection": _Solver(_projection, _projection_backward),
}
