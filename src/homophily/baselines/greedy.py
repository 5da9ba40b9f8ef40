"""What FSCA and FastCan share: columns chosen one after another, each orthogonal to those before it."""

from __future__ import annotations

import numpy as np
import scipy.linalg

__all__ = ["TOLERANCE", "OrthogonalBasis", "greedy", "reduced"]

TOLERANCE = 1e-9  # a share below this is rounding of the standardised data, which is in single precision


def reduced(X: np.ndarray) -> np.ndarray:
    """``X (n, d)`` in double precision, or a matrix (d, d) with the same inner products where there are fewer columns.

    Both methods need nothing but inner products of columns, so many rows cost one QR decomposition.
    """
    X = X.astype(np.float64)
    n, d = X.shape
    return np.asarray(np.linalg.qr(X, mode="r")) if n > d else X


class OrthogonalBasis:
    r"""An orthonormal basis Q of the chosen columns; subclasses say in ``gains`` what each other column would add.

    With :math:`r_j = x_j - Q Q^\top x_j` the residual of column j, choosing it adds :math:`q = r_j / \|r_j\|` to the
    basis, and every residual changes by :math:`r_i \leftarrow r_i - \omega_i q`, :math:`\omega = X^\top q`.
    No residual is ever formed: a step costs O(n d).
    """

    def __init__(self, X: np.ndarray) -> None:
        self.X = X  # (n, d), float64
        self.chosen: list[int] = []
        self.Q = np.empty((len(X), 0))  # (n, t)
        self.R = np.empty((0, 0))  # (t, t), X[:, chosen] = Q R
        self.squares = np.einsum("if,if->f", X, X)  # (d,) squared norms of the residuals
        self.least = TOLERANCE * self.squares

    def gains(self) -> np.ndarray:
        """Share of the whole that each column would add; (d,), 0 for those that the chosen ones span."""
        raise NotImplementedError

    def gain(self, j: int) -> float:
        """The same for column ``j`` alone, free of the rounding that :meth:`gains` gathers in many steps."""
        raise NotImplementedError

    def add(self, j: int) -> None:
        """Choose column ``j``."""
        q = self.direction(j)
        t = len(self.chosen)
        R = np.zeros((t + 1, t + 1))
        R[:t, :t] = self.R
        self.Q = np.column_stack([self.Q, q])
        R[:, t] = self.Q.T @ self.X[:, j]
        self.R = R
        self.chosen.append(j)
        self._update(q, self.X.T @ q, -1)

    def remove(self, j: int) -> None:
        """Take the chosen column ``j`` back."""
        at = self.chosen.index(j)
        self.Q, self.R = scipy.linalg.qr_delete(self.Q, self.R, at, which="col")
        del self.chosen[at]
        q = self.direction(j)
        self._update(q, self.X.T @ q, 1)

    def direction(self, j: int) -> np.ndarray:
        """The residual of column ``j``, normalised; (n,)."""
        r = self.X[:, j]
        for _ in range(2):  # once leaves rounding where little is left
            r = r - self.Q @ (self.Q.T @ r)
        return r / np.linalg.norm(r)

    def _update(self, q: np.ndarray, omega: np.ndarray, sign: int) -> None:
        """Follow a change of the residuals by ``sign * outer(q, omega)``; the basis is the new one."""
        self.squares = np.maximum(self.squares + sign * omega**2, 0)

    @property
    def independent(self) -> np.ndarray:
        """Mask (d,) of the columns that the chosen ones do not span."""
        mask = self.squares > self.least
        mask[self.chosen] = False
        return mask


def greedy(basis: OrthogonalBasis, m: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Choose the column with the largest gain until there are ``m``, only ``among (d,)`` if that mask is given.

    Returns
    -------
    features : ndarray (m,)
        In the order in which they were chosen. Once no column adds anything, the first of the others follow.
    scores : ndarray (d,)
        Of each chosen column the share that those before it leave, of the others the share that they would add. These
        fall from one chosen column to the next, which the gains need not.
    """
    d = basis.X.shape[1]
    among = np.ones(d, dtype=bool) if among is None else among
    scores, left = np.zeros(d), 1.0
    while len(basis.chosen) < m:
        gains = np.where(among, basis.gains(), 0.0)
        j = int(gains.argmax())
        if gains[j] <= 0:
            break
        scores[j] = left
        left = max(0.0, left - basis.gain(j))
        basis.add(j)
    others = np.setdiff1d(np.arange(d), basis.chosen)
    scores[others] = np.minimum(basis.gains()[others], left)
    more = others[np.argsort(~among[others], kind="stable")][: m - len(basis.chosen)]
    scores[more] = left
    return np.array([*basis.chosen, *more], dtype=int), scores
