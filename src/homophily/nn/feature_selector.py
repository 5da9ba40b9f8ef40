"""Unique Feature Selector: Gumbel-softmax columns made nearly orthogonal (Sec. 3.1, Alg. 1, Appendix S2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["UniqueFeatureSelector", "algorithm_1", "gumbel_softmax", "orthogonalize"]


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
        shape = (d, m) if n_restarts is None else (n_restarts, d, m)
        start = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        self.logits = nn.Parameter(init_std * start)  # (d, m) or (R, d, m)
        self.epsilon = epsilon
        self.unique = unique

    def forward(self, temperature: float, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``F``, shaped as ``logits``. In evaluation mode no noise is added."""
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}.")
        noise = gumbel_like(self.logits, generator) if self.training else None
        F_hat = gumbel_softmax(self.logits, temperature, noise)
        return orthogonalize(F_hat, self.epsilon) if self.unique else F_hat

    @property
    def probabilities(self) -> Tensor:
        """``softmax(logits)`` over the features: what each column has learned, without noise or temperature."""
        return self.logits.detach().softmax(-2)

    def extra_repr(self) -> str:  # noqa: D102
        *restarts, d, m = self.logits.shape
        parts = [f"{d}, {m}", f"epsilon={self.epsilon:g}", f"unique={self.unique}"]
        return ", ".join(parts + [f"n_restarts={r}" for r in restarts])


def gumbel_like(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard Gumbel noise ``-log(-log u)`` of the shape of ``x`` (Eq. 4)."""
    # -log(u) of a uniform u is an exponential variable; drawing that directly never takes the log of 0.
    return -torch.empty_like(x).exponential_(generator=generator).log()


def gumbel_softmax(logits: Tensor, temperature: float, noise: Tensor | None = None) -> Tensor:
    """Eq. (4): relaxed one-hot columns over the features, the second last dimension."""
    return ((logits if noise is None else logits + noise) / temperature).softmax(-2)


def orthogonalize(F_hat: Tensor, epsilon: float = 1e-10) -> Tensor:
    r"""Appendix S2: :math:`F = \hat F L^{-\top}` with :math:`F^\top F = I - \epsilon L^{-1} L^{-\top}`.

    Unlike Algorithm 1 it keeps the support of :math:`\hat F`: columns that are already orthogonal stay as discrete as
    they are.

    A column that repeats others up to a residual of norm r comes out with norm of about
    :math:`r / \sqrt{r^2 + \epsilon}`. With a large ``epsilon`` it all but vanishes, and so does its energy: repeats
    would be rewarded. Hence the small default, and float64 wherever the device has it. Should rounding still make the
    matrix indefinite, the ridge grows by tens until it is not.
    """
    dtype = F_hat.dtype
    if F_hat.device.type != "mps":
        F_hat = F_hat.to(torch.float64)
    A = F_hat.mT @ F_hat  # (..., m, m)
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    ridge = epsilon
    for _ in range(12):
        L, info = torch.linalg.cholesky_ex(A + ridge * eye)
        if not info.any():
            break
        ridge = max(10 * ridge, 1e-12)
    return torch.linalg.solve_triangular(L, F_hat.mT, upper=False).mT.to(dtype)  # (L^-1 F_hat^T)^T


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
