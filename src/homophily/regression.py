r"""How much of the data a linear regression on the selected features explains.

Neighbours tell little where samples are few: of 40 samples in 50 features the nearest are nearly as far as the others.
Straight lines still tell much. A ridge regression on the selected columns A of the standardised data :math:`Z` (B, d)
explains :math:`z_f^\top (I - M_A) z_f` of feature f, with

.. math::
    M_A = I - Z_A (Z_A^\top Z_A + \lambda I)^{-1} Z_A^\top,

and :math:`\mathrm{tr}(K (I - M_A))` of all features that count as the weights w say,
:math:`K = Z\, \mathrm{diag}(w) Z^\top`. One more feature t adds
:math:`z_t^\top M_A K M_A z_t / (\lambda + z_t^\top M_A z_t)`, which is found for all t at once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import cholesky, eigh, solve_triangular

__all__ = ["Regression"]

NOISE = 0.3  # lambda a row: a feature's variance is 1, and as much of it is taken for noise
ROWS = 512  # enough for lines through tens of features


class Regression:
    r"""Ridge regressions of all columns on few of them.

    Parameters
    ----------
    Z : Tensor (n, d)
        Standardised data; of many rows a fixed sample of 512 is used.
    noise : float
        :math:`\lambda / B`, with B the number of these rows.
    """

    def __init__(self, Z: Tensor, noise: float = NOISE) -> None:
        if len(Z) > ROWS:
            Z = Z[torch.randperm(len(Z), generator=torch.Generator().manual_seed(6))[:ROWS].to(Z.device)]
        self.Z = Z  # (B, d)
        self.ridge = noise * len(Z)
        self.squares = Z.square().sum(0)  # (d,)
        self.total = self.squares.sum().clamp_min(torch.finfo(Z.dtype).tiny)

    def explained(self, chosen: Tensor, weights: Tensor) -> Tensor:
        """Share of the data that ``chosen (c,)`` explain of the features that count, as ``weights (d,)`` say."""
        products, L = self._solved(chosen)
        counted = (products * weights) @ products.T  # (c, c)
        return torch.cholesky_solve(counted, L).trace() / self.total

    def weigh(self, weights: Tensor) -> None:
        """Set how much each feature counts in :meth:`gains`, (d,)."""
        values, vectors = eigh((self.Z * weights) @ self.Z.T)
        self.factor = self.Z.T @ (vectors * values.clamp_min(0).sqrt())  # (d, B): Z' U, where K = U U'

    def gains(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """What :meth:`explained` says of ``chosen (c,)``, and what each feature would add to it (d,)."""
        products, L = self._solved(chosen)
        C = solve_triangular(L, products, upper=False)  # (c, d)
        A = solve_triangular(L, self.factor[chosen], upper=False)  # (c, B)
        gain = (self.factor - C.T @ A).square_().sum(1) / (self.ridge + self.squares - C.square_().sum(0))
        return A.square().sum() / self.total, gain / self.total

    def greedy(self, m: int) -> Tensor:
        """Features (m,), each the one that adds most to what those before it explain; all count alike."""
        self.weigh(torch.ones_like(self.squares))
        chosen = torch.empty(0, dtype=torch.long, device=self.Z.device)
        for _ in range(m):
            _, gain = self.gains(chosen)
            gain[chosen] = -torch.inf
            chosen = torch.cat([chosen, gain.argmax()[None]])
        return chosen

    def _solved(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Inner products (c, d) of the chosen features with all, and the Cholesky factor of the regression on them."""
        products = self.Z[:, chosen].T @ self.Z
        gram = products[:, chosen]
        gram.diagonal().add_(self.ridge)
        return products, cholesky(gram)
