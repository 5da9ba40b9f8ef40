"""Leave-one-out ridge regression of every column on a selection that changes by one column at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["AllColumns", "LeaveOneOut"]

BLOCK = 2**16  # entries worked on at once: they stay in the cache
EXACT_ENTRIES = 2**22  # larger data are held in single precision


class LeaveOneOut:
    r"""How well a selection A predicts every column of ``Z (n, d)`` on rows that the prediction has not seen.

    With :math:`M = (I + Z_A Z_A^\top / \lambda)^{-1}` the leave-one-row-out residual of the ridge regression of column
    f on the columns of A is :math:`e_f = \mathrm{diag}(M)^{-1} M z_f`, for all f at once. A selected column is
    predicted by the others: for :math:`f \in A`, M is that of :math:`A \setminus f`. The objective, to be minimised, is

    .. math::
        J(A) = \sum_f w_f \, \|e_f\|^2 .

    Adding a column t changes M by :math:`-c\,u u^\top` with :math:`u = M z_t,\ c = 1 / (\lambda + z_t^\top u)`;
    removing it, with :math:`c = -1 / (\lambda - z_t^\top u)`. With :math:`W = Z\,\mathrm{diag}(w) Z^\top`, what the
    value of every A + t needs (MZ, MWMZ, the diagonal of MWM and the quadratic forms below) follows by updates of
    rank one or two: O(n d) for each column that comes or goes.

    Parameters
    ----------
    Z : ndarray (n, d)
        Columns of mean 0.
    ridge : float
        :math:`\lambda`, positive.
    weights : ndarray (d,)
        :math:`w`, not negative.
    chosen : list of int, default=()
        The selection to start from.
    """

    def __init__(self, Z: np.ndarray, ridge: float, weights: np.ndarray, chosen: Sequence[int] = ()) -> None:
        n, d = Z.shape
        self.dtype: Any = np.float64 if Z.size <= EXACT_ENTRIES else np.float32
        self.ridge, self.weights = ridge, weights
        self._all: np.ndarray = np.ascontiguousarray(Z.T, self.dtype)  # (d, n): a column is read in one piece
        self._weighted = self._all * weights[:, None].astype(self.dtype)
        self._W = self._weighted.T @ self._all if n <= d else None  # (n, n)
        self.start(chosen)

    def start(self, chosen: Sequence[int]) -> None:
        """Begin again with the selection ``chosen`` and all columns as candidates."""
        self.chosen = list(chosen)
        self.columns = np.arange(len(self._all))  # the candidates, ascending
        self.Z = self._all  # (candidates, n)
        A = self.Z[self.chosen]
        K = np.linalg.solve(A @ A.T + self.ridge * np.eye(len(A), dtype=self.dtype), A)  # M = I - A' K
        self.U = self.Z - (self.Z @ K.T) @ A  # (candidates, n): M z
        V = self._times_w(self.U)
        self.V = V - (V @ K.T) @ A  # (candidates, n): M W M z
        self.h = 1 - np.einsum("mn,mn->n", A, K, dtype=np.float64)  # diag(M)
        self.q = np.einsum("dn,dn->d", self.Z, self.U, dtype=np.float64)  # z' M z
        self.R = np.einsum("dn,dn->d", self.Z, self.V, dtype=np.float64)  # z' M W M z
        self.P = sum(np.square(self.U[part]).T @ self.weights[part] for part in self._blocks())  # diag(M W M)

    def shorten(self, columns: np.ndarray) -> None:
        """Keep ``columns`` alone as candidates, the chosen ones among them."""
        place = np.searchsorted(self.columns, columns)
        self.columns, self.Z, self.U, self.V = columns, self.Z[place], self.U[place], self.V[place]
        self.q, self.R = self.q[place], self.R[place]

    def add(self, t: int) -> None:
        """Put the candidate t into the selection."""
        self._step(t, 1 / (self.ridge + self.q[self._at(t)]))
        self.chosen.append(t)

    def remove(self, t: int) -> None:
        """Take t out of the selection."""
        self._step(t, -1 / (self.ridge - self.q[self._at(t)]))
        self.chosen.remove(t)

    def value(self) -> float:
        """J of the selection."""
        return float((self.P / self.h**2).sum()) + self._owed_now()

    def values(self, n_exact: int, also: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """J of the selection with each candidate added; (candidates,), infinite for those that are in it.

        It is exact for the ``n_exact`` best candidates and for the column ``also``, whose positions are returned as
        well. For the others it leaves out how far the candidate helps to predict the selected columns.
        """
        own, now, weights = self._at(self.chosen), self._owed_now(), self.weights[self.chosen]
        J = self._values() + now
        J[own] = np.inf
        best = np.argpartition(J, n_exact)[:n_exact] if n_exact < len(J) else np.arange(len(J))
        if also is not None:
            best = np.union1d(best, self._at(also))
        best = best[np.isfinite(J[best])]
        for at in best:
            h, q, a = self._after(self.U[at], 1 / (self.ridge + self.q[at]), self.columns[at], own)
            J[at] += self._owed(a, h, q, weights) - now
        return J, best

    def without(self) -> np.ndarray:
        """J of the selection without each of its columns; (m,)."""
        own = self._at(self.chosen)
        J = np.empty(len(own))
        for place, (t, at) in enumerate(zip(self.chosen, own, strict=True)):
            others = np.delete(own, place)
            u, c = self.U[at].astype(np.float64), -1 / (self.ridge - self.q[at])
            P = self.P - 2 * c * u * self.V[at] + c * c * self.R[at] * u * u
            h, q, a = self._after(u, c, t, others)
            J[place] = (P / h**2).sum() + self._owed(a, h, q, self.weights[np.delete(self.chosen, place)])
        return J

    def _at(self, t: int | list[int]) -> np.ndarray:
        return np.searchsorted(self.columns, t)

    def _blocks(self) -> Iterator[slice]:
        size = max(1, BLOCK // len(self.h))
        return (slice(start, start + size) for start in range(0, len(self.U), size))

    def _times_w(self, U: np.ndarray) -> np.ndarray:
        """U W for rows U, or one row."""
        return U @ self._W if self._W is not None else (U @ self._all.T) @ self._weighted

    def _step(self, t: int, c: float) -> None:
        """M becomes M - c u u' with u = M z_t."""
        at = self._at(t)
        u, v, r = self.U[at].astype(np.float64), self.V[at].astype(np.float64), float(self.R[at])
        short = u.astype(self.dtype)
        g = self.Z @ short  # z' M z_t
        x = self.U @ self._times_w(short)  # z' M W M z_t
        self.P += c * u * (c * r * u - 2 * v)
        self.R += c * g * (c * r * g - 2 * x)
        self.q -= c * g * g
        self.h -= c * u * u
        change = np.stack([g, x - c * r * g], 1).astype(self.dtype) * self.dtype(c)  # (candidates, 2)
        step = np.stack([v, u]).astype(self.dtype)  # (2, n)
        for part in self._blocks():
            self.V[part] -= change[part] @ step
            self.U[part] -= change[part, :1] * short

    def _values(self) -> np.ndarray:
        dtype = self.dtype
        c = 1 / (self.ridge + self.q)
        J = np.empty(len(c))
        P, h, flat = self.P.astype(dtype), self.h.astype(dtype), (1 / self.h**2).astype(dtype)
        for part in self._blocks():
            U, cs = self.U[part], c[part]
            A = U * U
            alone = (A @ flat).astype(np.float64)  # t predicted without t
            A *= cs[:, None].astype(dtype)  # what t takes from the diagonal of M
            D = h - A
            D *= D
            np.reciprocal(D, out=D)
            along = np.einsum("cn,cn->c", A, D).astype(np.float64)
            A = U * self.V[part]
            crossed = np.einsum("cn,cn->c", A, D).astype(np.float64)
            J[part] = D @ P + cs * (self.R[part] * along - 2 * crossed)
            J[part] += self.weights[self.columns[part]] * (alone - self.ridge**2 * cs * along)
        return J

    def _owed_now(self) -> float:
        own = self._at(self.chosen)
        return self._owed(self.U[own], self.h, self.q[own], self.weights[self.chosen])

    def _after(self, u: np.ndarray, c: float, t: int, own: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """diag(M), and of the columns ``own`` z'Mz and Mz, after a step with t."""
        g = self.U[own] @ self.Z[self._at(t)]
        return self.h - c * u * u, self.q[own] - c * g * g, self.U[own] - np.outer(c * g, u).astype(self.dtype)

    def _owed(self, a: np.ndarray, h: np.ndarray, q: np.ndarray, weights: np.ndarray) -> float:
        """What selected columns f add to the sum when they are predicted by the others only; a are their M z_f."""
        h = h.astype(self.dtype)
        k = (1 / (self.ridge - q))[:, None].astype(self.dtype)
        by_all = np.square(a / h).sum(1)
        D = a * a
        D *= k
        D += h
        np.divide(a, D, out=D)
        by_others = np.einsum("mn,mn->m", D, D) * np.square(self.ridge * k[:, 0])
        return float(weights @ (by_others - by_all))


class AllColumns:
    """What all columns of ``Z (n, d)`` together predict by leave-one-out ridge regression."""

    def __init__(self, Z: np.ndarray, ridge: float) -> None:
        n, d = Z.shape
        dtype: Any = np.float64 if Z.size <= EXACT_ENTRIES else np.float32
        self.Z, self.ridge = Z.astype(dtype), dtype(ridge)
        self._M: np.ndarray | None = None
        self._K: np.ndarray | None = None
        if n <= d:
            self._M = np.linalg.inv(np.eye(n, dtype=dtype) + self.Z @ self.Z.T / self.ridge)
            self.h = np.diag(self._M)
        else:
            self._K = np.linalg.inv(self.ridge * np.eye(d, dtype=dtype) + self.Z.T @ self.Z)  # M = I - Z K Z'
            self.h = 1 - np.einsum("nd,nd->n", self.Z @ self._K, self.Z)

    def shares(self) -> np.ndarray:
        """The share of each column that all the others predict; (d,). Negative where the mean would be better."""
        E = self._residuals(self.Z)
        k = 1 / (self.ridge - np.einsum("nd,nd->d", self.Z, E))
        D = E * E * k
        D += self.h[:, None]
        E *= k * self.ridge
        E /= D
        return _shares(self.Z, E)

    def shares_of(self, others: np.ndarray) -> np.ndarray:
        """The share of each column of ``others (n, c)`` that all of these predict; (c,)."""
        return _shares(others, self._residuals(others.astype(self.Z.dtype)) / self.h[:, None])

    def _residuals(self, Y: np.ndarray) -> np.ndarray:
        """M Y."""
        return self._M @ Y if self._M is not None else Y - self.Z @ (self._K @ (self.Z.T @ Y))


def _shares(Z: np.ndarray, E: np.ndarray) -> np.ndarray:
    squares = np.einsum("nd,nd->d", Z, Z, dtype=np.float64)
    residual = np.einsum("nd,nd->d", E, E, dtype=np.float64)
    return np.where(squares > 0, 1 - residual / np.where(squares > 0, squares, 1), 0)
