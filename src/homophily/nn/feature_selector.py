"""Unique Feature Selector: Gumbel-softmax columns made nearly orthogonal (Sec. 3.1, Alg. 1, Appendix S2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["UniqueFeatureSelector", "algorithm_1", "gumbel_softmax", "orthogonalize", "project"]

RIDGE = 1e-12  # of the squared norm of a column: what a pivot has to be to be more than rounding


class UniqueFeatureSelector(nn.Module):
    r"""Learn ``m`` soft one-hot columns over ``d`` features.

    .. math::
        \hat f_j = \mathrm{softmax}((\log w_j + g_j) / T), \qquad
        L L^\top = \hat F^\top \hat F + \epsilon I, \qquad F = \hat F L^{-\top},

    with Gumbel noise :math:`g_j` and temperature :math:`T` (Eq. 4 and Appendix S2). The parameter is
    ``logits`` = :math:`\log W`.

    Parameters
    ----------
    d, m : int
        Number of features, and of features to select.
    n_restarts : int, optional
        Train that many independent selectors at once: ``logits`` is then ``(n_restarts, d, m)``.
    epsilon : float
        :math:`\epsilon` of Algorithm 1.
    unique : bool
        ``False`` leaves out the orthogonalisation (the paper's "without UFS").
    init_std : float
        Standard deviation of the normal start of ``logits``. The concrete autoencoder starts from Glorot's
        :math:`\sqrt{2 / (d + m)}`.
    generator : torch.Generator, optional
        Source of the start values.
    """

    def __init__(
        self,
        d: int,
        m: int,
        *,
        n_restarts: int | None = None,
        epsilon: float = 1e-10,
        unique: bool = True,
        init_std: float = 0.01,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= m <= d:
            raise ValueError(f"m must lie between 1 and d={d} to select distinct features, got m={m}.")
        # Kept column by column in memory: softmax and all that follows run along the features.
        shape = (m, d) if n_restarts is None else (n_restarts, m, d)
        start = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        self.logits = nn.Parameter((init_std * start).mT)  # (d, m) or (R, d, m)
        self.epsilon = epsilon
        self.unique = unique

    def forward(self, temperature: float, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``F``, shaped as ``logits``. In evaluation mode no noise is added."""
        F_hat = self._relaxed(temperature, generator)
        return orthogonalize(F_hat, self.epsilon) if self.unique else F_hat

    def project(self, X: Tensor, temperature: float, generator: torch.Generator | None = None) -> Tensor:
        """``X F`` for ``X (n, d)`` with the same draw as :meth:`forward`; ``(n, m)`` or ``(R, n, m)``."""
        F_hat = self._relaxed(temperature, generator)
        return project(X, F_hat, self.epsilon) if self.unique else X @ F_hat

    def _relaxed(self, temperature: float, generator: torch.Generator | None) -> Tensor:
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}.")
        noise = gumbel_like(self.logits, generator) if self.training else None
        return gumbel_softmax(self.logits, temperature, noise)

    @property
    def probabilities(self) -> Tensor:
        """``softmax(logits)`` over the features: what each column has learned, without noise or temperature."""
        return self.logits.detach().mT.softmax(-1).mT

    @property
    def confidence(self) -> Tensor:
        """Mean over the columns of the largest probability of each; () or (R,)."""
        log_p = self.logits.detach().mT  # (..., m, d)
        return (log_p.amax(-1) - log_p.logsumexp(-1)).exp().mean(-1)

    def extra_repr(self) -> str:  # noqa: D102
        *restarts, d, m = self.logits.shape
        parts = [f"{d}, {m}", f"epsilon={self.epsilon:g}", f"unique={self.unique}"]
        return ", ".join(parts + [f"n_restarts={r}" for r in restarts])


def gumbel_like(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard Gumbel noise ``-log(-log u)`` of the shape of ``x`` (Eq. 4)."""
    # u lies in [0, 1): 0 gives -inf, which is never chosen. Six times faster than drawing exponential variables.
    return torch.empty_like(x).uniform_(generator=generator).log_().neg_().log_().neg_()


def gumbel_softmax(logits: Tensor, temperature: float, noise: Tensor | None = None) -> Tensor:
    """Eq. (4): relaxed one-hot columns over the features, the second last dimension."""
    scores = (logits if noise is None else logits + noise) / temperature
    return scores.mT.softmax(-1).mT


def orthogonalize(F_hat: Tensor, epsilon: float = 1e-10) -> Tensor:
    r"""Appendix S2: :math:`F = \hat F L^{-\top}` with :math:`F^\top F = I - \epsilon L^{-1} L^{-\top}`.

    Unlike Algorithm 1 it keeps the support of :math:`\hat F`: columns that are already orthogonal stay as discrete as
    they are.

    A column that repeats others up to a residual of norm r comes out with norm of about
    :math:`r / \sqrt{r^2 + \epsilon}`. With a large ``epsilon`` it all but vanishes, and so does its energy: repeats
    would be rewarded. Hence the small default, and float64 wherever the device has it.

    Under an even smaller one, columns that repeat each other would leave a matrix that is indefinite, or positive by
    nothing but rounding. Where a pivot is negative or less than 1e-12 of the squared norm of its column, the ridge of
    all matrices of the batch is ten times ``epsilon``, at least 1e-12 of the largest squared norm of a column, and
    grows by tens until none is. Rounding is a fraction of that norm, so this ends whatever the unit.
    """
    return _Orthogonal.apply(F_hat, None, epsilon)


def project(X: Tensor, F_hat: Tensor, epsilon: float = 1e-10) -> Tensor:
    r"""``X orthogonalize(F_hat)`` for ``X (n, d)``, as :math:`(X \hat F) L^{-\top}` where n is less than d."""
    if len(X) < F_hat.shape[-2]:
        return _Orthogonal.apply(F_hat, X, epsilon)
    return X @ orthogonalize(F_hat, epsilon)


class _Orthogonal(torch.autograd.Function):
    r""":math:`Y = Z L^{-\top}` with :math:`L L^\top = \hat F^\top \hat F + \epsilon I`; Z is F_hat or ``X F_hat``."""

    @staticmethod
    def forward(ctx: Any, F_hat: Tensor, X: Tensor | None, epsilon: float) -> Tensor:
        G = F_hat.mT  # (..., m, d), contiguous if F_hat comes from a softmax above
        if G.device.type != "mps":
            G = G.to(torch.float64)
        A = G @ G.mT  # (..., m, m)
        L, singular = _factor(A, epsilon)
        if singular:
            ridge = max(10 * epsilon, RIDGE * float(A.diagonal(dim1=-2, dim2=-1).amax()))
            for _ in range(12):
                L, singular = _factor(A, ridge)
                if not singular:
                    break
                ridge *= 10
        given = X
        if X is not None:
            X = X.to(G.dtype)
        Z = G if X is None else G @ X.mT  # (..., m, n)
        Y = torch.linalg.solve_triangular(L, Z, upper=False)
        ctx.save_for_backward(F_hat, L, Y, given)
        return Y.mT.to(F_hat.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        r"""With a bar for the derivative of the loss and :math:`\Phi` the lower triangle with half of the diagonal:

        :math:`\bar Z = \bar Y L^{-1}`, :math:`\bar L = -\bar Z^\top Y`,
        :math:`\bar A = L^{-\top} \Phi(L^\top \bar L) L^{-1}`, and
        :math:`\bar F = \hat F (\bar A + \bar A^\top)` plus what comes through Z.
        """  # noqa: D400
        F_hat, L, Y, X = ctx.saved_tensors
        Z_bar = torch.linalg.solve_triangular(L.mT, grad.mT.to(L.dtype), upper=True)  # (..., m, n)
        Phi = (L.mT @ -(Z_bar @ Y.mT).tril()).tril()
        Phi.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        A_bar = torch.linalg.solve_triangular(L.mT, Phi, upper=True)
        A_bar = torch.linalg.solve_triangular(L, A_bar, upper=False, left=False)
        # What cancels has been cancelled: the two large products are in the precision of F_hat.
        G_bar = (A_bar + A_bar.mT).to(F_hat.dtype) @ F_hat.mT
        Z_bar = Z_bar.to(F_hat.dtype)
        G_bar += Z_bar if X is None else Z_bar @ X
        return G_bar.mT, None, None


def _factor(A: Tensor, ridge: float) -> tuple[Tensor, bool]:
    """Cholesky factor of ``A + ridge I (..., m, m)``, and whether any pivot is negative or may be all rounding."""
    L, info = torch.linalg.cholesky_ex(A + ridge * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device))
    pivots, squares = (x.diagonal(dim1=-2, dim2=-1) for x in (L, A))
    return L, bool((info > 0).any() | (pivots.square() < RIDGE * squares).any())


def algorithm_1(F_hat: Tensor, epsilon: float = 1e-6) -> Tensor:
    r"""Algorithm 1 to the letter: :math:`F = [\Lambda^{1/2} P^\top; 0]\, L^{-\top}`, exactly column-orthogonal.

    It proves Proposition 3.1, but which features it names depends on where the zero rows are put, so training uses
    :func:`orthogonalize`.
    """
    d, m = F_hat.shape[-2:]
    A = F_hat.mT @ F_hat + epsilon * torch.eye(m, dtype=F_hat.dtype, device=F_hat.device)
    eigenvalues, P = torch.linalg.eigh(A)  # line 2
    L = torch.linalg.cholesky(A)  # line 3
    Q = eigenvalues.clamp_min(0).sqrt().unsqueeze(-1) * P.mT  # (..., m, m)
    Q = torch.cat([Q, Q.new_zeros(*Q.shape[:-2], d - m, m)], -2)  # (..., d, m)
    return torch.linalg.solve_triangular(L, Q.mT, upper=False).mT  # line 4
