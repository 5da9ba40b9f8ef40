r"""Soft k-nearest selection by entropic optimal transport (Sec. 3.2.2, Eq. 12-14, Appendix S5).

One row of distances :math:`e \in \mathbb R^c` is transported to the anchors :math:`b = (0, 1, \dots, k+1)`:

.. math::
    \min_{\Gamma \ge 0} \langle C, \Gamma \rangle + \gamma \sum_{ij} \Gamma_{ij} \log \Gamma_{ij}
    \quad\text{s.t.}\quad \Gamma 1 = 1,\; \Gamma^\top 1 = \nu = (1, \dots, 1, c - k - 1), \qquad
    C_{ij} = (e_i - b_j)^2 .

As :math:`\gamma \to 0`, column ``j < k`` marks the (j+1)-th nearest, column ``k`` the (k+1)-th nearest and the last
column all the rest. (The paper's masses are these divided by ``c``.)

Every row of the plan is a softmax over the anchors, :math:`\Gamma_i = \mathrm{softmax}((2 e_i b - b^2)/\gamma + g)`, so
only the ``k + 2`` column potentials ``g`` are unknown. The solvers differ in how they find ``g``; the backward is the
implicit derivative of the optimality conditions and is shared.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["SOLVERS", "NotConvergedWarning", "soft_topk"]

NEWTON_MAX_ITER = 100


class _Problem(NamedTuple):
    """What a solver needs. Anchors come before entries, which keeps the long dimension last: (B, k+2, c)."""

    scores: Tensor  # (B, k+2, c): (2 e b - b^2) / reg, up to a constant an entry
    b: Tensor  # (k+2,) anchors
    nu: Tensor  # (k+2,) their masses
    smallest: Tensor  # (B, k+2) smallest entries, ascending
    reg: float
    tolerance: float  # of the column sums, for solvers that can promise one
    n_iter: int  # for solvers that cannot


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
        Entropic regularisation :math:`\gamma`. Smaller is harder.
    solver : {"newton", "bregman"}
        ``"newton"`` is a damped Newton method on the concave semi-dual; it converges in a few iterations or warns with
        the residual. ``"bregman"`` is the paper's: ``n_iter`` alternating projections, converged or not, in logarithms.
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
    return _EntropicTopK.apply(distances, k, reg, solver, scale == "row", n_iter)


class _EntropicTopK(torch.autograd.Function):
    """Forward by any solver; backward by the implicit function theorem, nothing is unrolled."""

    @staticmethod
    def forward(ctx: Any, distances: Tensor, k: int, reg: float, solver: str, scale_rows: bool, n_iter: int) -> Tensor:
        # Plans of small reg need more digits than float32 has for 2 e b / reg.
        work = distances.dtype if distances.device.type == "mps" else torch.float64
        E = distances.detach().to(work).reshape(-1, distances.shape[-1])  # (B, c)
        c = E.shape[-1]
        # Without a rest (c = k + 1) the last anchor has no mass: it is left out and its column stays 0.
        n_anchors = min(k + 2, c)
        smallest = E.topk(n_anchors, largest=False).values  # (B, k+2), ascending
        unit = _row_unit(E, smallest[:, k], k) if scale_rows else E.new_ones(len(E))
        E, smallest = E / unit[:, None], smallest / unit[:, None]
        b = torch.arange(n_anchors, dtype=work, device=E.device)
        nu = torch.ones_like(b)
        if c > k + 1:
            nu[-1] = c - k - 1
        # Relative to the last anchor, so that far entries, whose place is not in doubt, have scores of no size.
        slope, offset = 2 * (b - b[-1]) / reg, (b[-1] ** 2 - b**2) / reg
        scores = torch.addcmul(offset[:, None], slope[:, None], E[:, None, :])  # (B, k+2, c)
        tolerance = 1e-9 if distances.dtype == torch.float64 else 1e-6
        plan = SOLVERS[solver](_Problem(scores, b, nu, smallest, reg, tolerance, n_iter))
        ctx.save_for_backward(plan, b, unit)
        ctx.reg, ctx.shape, ctx.dtype = reg, distances.shape, distances.dtype
        full = torch.nn.functional.pad(plan, (0, 0, 0, k + 2 - n_anchors)).mT.to(distances.dtype)
        return full.reshape(*distances.shape, k + 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        r"""Differentiate the optimality conditions.

        With r the row sums of :math:`g \circ \Gamma` and a prime for "last column left out":
        :math:`K q = (\Gamma' \circ (g - r))^\top 1`, :math:`p = r - \Gamma' q`,
        :math:`\partial C = \Gamma \circ (p - g + q) / \gamma` and
        :math:`\partial e_i = -2 \sum_j b_j \partial C_{ij}`.
        """
        plan, b, unit = ctx.saved_tensors  # (B, k+2, c)
        g = grad.reshape(len(plan), plan.shape[-1], -1)[..., : len(b)].to(plan.dtype).mT
        r = (g * plan).sum(-2, keepdim=True)  # (B, 1, c)
        rhs = (plan * (g - r)).sum(-1)  # (B, k+2)
        q = _solve_grounded(_overlap_laplacian(plan), rhs).unsqueeze(-1)  # (B, k+2, 1), last entry 0
        p = r - (plan * q).sum(-2, keepdim=True)
        grad_C = plan * (p - g + q)
        # The e_i^2 of C is constant over the anchors and drops out.
        grad_e = (-2 / ctx.reg) * (grad_C * b[:, None]).sum(-2) / unit[:, None]
        return grad_e.reshape(ctx.shape).to(ctx.dtype), None, None, None, None, None


def _row_unit(E: Tensor, e_k1: Tensor, k: int) -> Tensor:
    """``e_(k+1) / (k+1)`` of each row; (B,).

    Where k + 1 entries are 0 (copies of the sample) the smallest positive entry stands in, and k + 1 if there is none.
    """
    zero = e_k1 <= 0
    if zero.any():
        smallest = torch.where(E > 0, E, torch.inf).amin(-1)
        e_k1 = torch.where(zero, torch.where(smallest.isinf(), k + 1.0, smallest), e_k1)
    return e_k1 / (k + 1)


def _overlap_laplacian(plan: Tensor) -> Tensor:
    r"""``K = diag(Γᵀ1) - ΓᵀΓ``, the negative Hessian of the semi-dual; (B, k+2, k+2).

    It is the Laplacian of the overlaps between anchors. Built from them, it keeps full relative accuracy when the plan
    is almost hard and the two terms above would cancel.
    """
    K = -(plan @ plan.mT)
    K.diagonal(dim1=-2, dim2=-1).zero_()
    K.diagonal(dim1=-2, dim2=-1).copy_(-K.sum(-1))
    return K


def _solve_grounded(K: Tensor, rhs: Tensor) -> Tensor:
    """Solve ``K x = rhs`` with the last entry of x fixed at 0.

    Anchors that share no entry (an almost hard plan) leave K singular, along directions that change neither the plan
    nor the gradient; a ridge far below the overlaps that matter picks one solution.
    """
    K_ = K[..., :-1, :-1]
    eps = torch.finfo(K.dtype).eps
    diagonal = K_.diagonal(dim1=-2, dim2=-1)
    L, _ = torch.linalg.cholesky_ex(K_ + torch.diag_embed(1e4 * eps * diagonal + 1e2 * eps))
    x = torch.cholesky_solve(rhs[..., :-1, None], L).squeeze(-1)
    return torch.nn.functional.pad(x, (0, 1))


def _newton(problem: _Problem) -> Tensor:
    r"""Maximise :math:`\nu^\top g - \sum_i \mathrm{logsumexp}_j(\mathrm{scores}_{ij} + g_j)` by damped Newton steps.

    Starts from the hard solution: the border between anchors j-1 and j lies midway between the j-th and the (j+1)-th
    smallest entry. Rows drop out as they converge.
    """
    scores, b, nu, smallest, reg, tolerance, _ = problem
    borders = (smallest[:, :-1] + smallest[:, 1:]) / 2
    rise = -(2 * borders * b.diff() - (b**2).diff()) / reg  # g_j - g_{j-1}
    # Counted from the last anchor, whose potential is 0.
    g = torch.nn.functional.pad(-rise.flip(-1).cumsum(-1).flip(-1), (0, 1))  # (B, k+2)

    solution = torch.empty_like(scores)
    rows = torch.arange(len(g), device=g.device)  # those that have not converged
    value, plan = _semi_dual(scores, g, nu)
    residual = nu - plan.sum(-1)
    error = residual.abs().amax(-1)
    for _ in range(NEWTON_MAX_ITER):
        open_ = ~(error <= tolerance)
        if not open_.all():
            solution[rows] = plan
            rows, scores, g, value, plan = rows[open_], scores[open_], g[open_], value[open_], plan[open_]
            residual, error = residual[open_], error[open_]
        if not len(rows):
            break
        step = _solve_grounded(_overlap_laplacian(plan), residual)
        # Where hardly anything overlaps, Newton's step is far too long: no border need move by more than this at once.
        longest = step.diff().abs().amax(-1, keepdim=True)
        step = step * (20.0 / longest.clamp_min(20.0))
        slope = (residual * step).sum(-1)
        t = torch.ones_like(slope)
        for _ in range(30):
            g_new = g + t.unsqueeze(-1) * step
            value_new, plan_new = _semi_dual(scores, g_new, nu)
            residual_new = nu - plan_new.sum(-1)
            error_new = residual_new.abs().amax(-1)
            # Close to the optimum the value no longer resolves the gain, the residual does.
            good = (value_new >= value + 1e-4 * t * slope) | (error_new <= 0.5 * error)
            if good.all():
                break
            t = torch.where(good, t, t / 2)
        g, value, plan, residual, error = g_new, value_new, plan_new, residual_new, error_new
    solution[rows] = plan
    if len(rows) and (worst := float(error.max())) > 10 * tolerance:
        warnings.warn(
            f"Newton's method left {len(rows)} rows of {len(solution)} with marginals wrong by up to {worst:.1e} "
            f"after {NEWTON_MAX_ITER} iterations; a larger reg than {reg:g} is easier.",
            NotConvergedWarning,
            stacklevel=4,
        )
    return solution


def _semi_dual(scores: Tensor, g: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """Value (B,) of the semi-dual at ``g``, and the plan (B, k+2, c) that belongs to it."""
    z = scores + g.unsqueeze(-1)
    top = z.amax(-2, keepdim=True)
    plan = z.sub_(top).exp_()
    total = plan.sum(-2, keepdim=True)
    plan /= total
    return (g * nu).sum(-1) - (top + total.log_()).sum((-2, -1)), plan


def _bregman(problem: _Problem) -> Tensor:
    """Appendix S5 in logarithms: alternate ``v = mu / (K u)`` and ``u = nu / (K' v)``, with ``g = log u``."""
    scores, nu = problem.scores, problem.nu
    g = torch.zeros(*scores.shape[:2], 1, dtype=scores.dtype, device=scores.device)  # u = 1/(k+2), up to a factor
    log_nu = nu.log()[:, None]
    for _ in range(problem.n_iter):
        log_v = -(scores + g).logsumexp(-2, keepdim=True)  # (B, 1, c)
        g = log_nu - (scores + log_v).logsumexp(-1, keepdim=True)
    return (scores + g).softmax(-2)


SOLVERS: dict[str, Callable[[_Problem], Tensor]] = {"newton": _newton, "bregman": _bregman}
