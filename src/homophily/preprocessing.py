"""Zero mean, unit standard deviation, no constant columns: what every method here starts from (Sec. 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .distributed import Team
from .memory import scaled
from .sources import ArrayRows, RowSource, column_groups

__all__ = ["Moments", "Scaling", "Standardized", "sample_position", "standardize", "standardize_rows"]

BLOCK = 2**22  # entries that are worked on at once


@dataclass(frozen=True)
class Scaling:
    """How a column becomes standardised: ``(x / unit - mean) / std``, for those that are ``kept``."""

    unit: (
        np.ndarray
    )  # (d',) a power of two near the largest entry, so that neither 1e-200 nor 1e200 under- or overflows
    mean: np.ndarray  # (d',)
    std: np.ndarray  # (d',)

    def __call__(self, block: np.ndarray, columns: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Standardise ``block (b, c)``, whose columns are ``columns`` of the kept ones; float64."""
        Z = block / self.unit[columns]
        Z -= self.mean[columns]
        Z /= self.std[columns]
        return Z


@dataclass(frozen=True)
class Standardized:
    """Standardised data and the way back: ``values[:, a]`` is the column ``kept[a]`` of the input.

    Of data that is too large, or shared with other processes, ``values`` are the rows of a random sample (the
    positions ``first`` to ``first + len(values)`` of ``n_sampled``) that this process holds.
    """

    values: np.ndarray  # (rows, d'), float32, C-contiguous
    ids: np.ndarray  # (rows,) which samples they are
    kept: np.ndarray  # (d',) indices of the columns that are not constant
    dropped: np.ndarray  # (d - d',) indices of those that are
    scaling: Scaling
    source: RowSource
    first: int
    n_sampled: int

    @property
    def n_rows(self) -> int:
        """Number of samples in all."""
        return self.source.shape[0]

    def columns(self, features: np.ndarray) -> np.ndarray:
        """Columns ``features`` of the standardised data, all rows of it; float32 (n_rows, m)."""
        if len(self.values) == self.n_rows:
            return self.values[:, features]
        chosen = np.empty((self.n_rows, len(features)), dtype=np.float32)
        at = 0
        for block in self.column_blocks(features):
            chosen[at : at + len(block)] = block
            at += len(block)
        return chosen

    def column_blocks(self, features: np.ndarray, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """The same block by block, in float64, for the samples ``start`` to ``stop``."""
        for block in self.source.blocks(start, stop, columns=self.kept[features].tolist()):
            yield self.scaling(block, features)


class Moments:
    """Mean and standard deviation of each column, gathered block by block (Chan, Golub and LeVeque's update).

    Everything is kept in units of the largest entry so far, rounded up to a power of two.
    """

    def __init__(self, d: int) -> None:
        self.count = 0
        self.largest = np.zeros(d)
        self.unit = np.zeros(d)
        self.mean = np.zeros(d)  # in units
        self.square = np.zeros(d)  # sum of squared deviations from the mean, in squared units

    def update(self, block: np.ndarray) -> None:
        """Take in the rows of ``block (b, d)``."""
        largest = np.maximum(block.max(0).astype(np.float64), -block.min(0).astype(np.float64))
        unit = _power_of_two(np.maximum(largest, self.largest))
        Z = block / unit
        origin = Z[0].copy()
        Z -= origin  # a constant column is now exactly 0, however long the sum
        shift = Z.mean(0)
        Z -= shift
        self._merge(len(block), largest, unit, origin + shift, np.einsum("ij,ij->j", Z, Z))

    def merge(self, other: np.ndarray) -> None:
        """Take in what another process gathered, as :meth:`packed` gives it."""
        count, largest, unit, mean, square = other
        if count[0]:
            self._merge(int(count[0]), largest, unit, mean, square)

    def packed(self) -> np.ndarray:
        """Everything as one array (5, d), for other processes."""
        return np.stack([np.full_like(self.mean, self.count), self.largest, self.unit, self.mean, self.square])

    def _merge(self, count: int, largest: np.ndarray, unit: np.ndarray, mean: np.ndarray, square: np.ndarray) -> None:
        self.largest = np.maximum(self.largest, largest)
        common = _power_of_two(self.largest)
        old, new = self.unit / common, unit / common
        total = self.count + count
        apart = mean * new - self.mean * old
        self.mean = self.mean * old + apart * (count / total)
        self.square = self.square * old**2 + square * new**2 + apart**2 * (self.count * count / total)
        self.count, self.unit = total, common

    def scaling(self, dtype: np.dtype) -> tuple[Scaling, np.ndarray]:
        """How to standardise the columns that vary, and their mask (d,).

        A column is constant when its standard deviation is no more than the rounding of its largest entry.
        """
        eps = np.finfo(dtype if dtype.kind == "f" else np.float64).eps
        std = np.sqrt(self.square / max(1, self.count))
        varies = std > 4 * eps * self.largest / self.unit
        return Scaling(self.unit[varies], self.mean[varies], std[varies]), varies


def standardize(X: Any) -> Standardized:
    """Standardise the columns of ``X (n, d)`` and leave out the constant ones.

    The result is float32 whatever comes in: training is stochastic, and the exact energy is computed in float64 from
    the chosen columns. A standardised matrix has no zeros left, so sparse input becomes dense here, block by block: the
    result is the only matrix of that size.
    """
    return standardize_rows(ArrayRows(X))


def standardize_rows(
    source: RowSource,
    n_sampled: int | None = None,
    *,
    seed: int = 0,
    team: Team | None = None,
    check: Callable[[np.ndarray, int, slice], None] | None = None,
) -> Standardized:
    """Standardise all rows, or a random sample of ``n_sampled``, by the mean and deviation of all, in one pass.

    With a ``team`` the rows are cut into its shards, each of which gives the same number of rows to the sample, and
    every process reads and holds its own. ``check`` is called with each block, the number of its first row and its
    columns before anything is done with it. Rows on disk are kept as they are until the pass is over; those in memory,
    dense or sparse, are looked up afterwards, so that nothing but the result takes room.
    """
    n, d = source.shape
    n_sampled = n if n_sampled is None else n_sampled
    n_shards, shards = (1, range(1)) if team is None else (team.n_shards, team.shards)
    sample = [_sample(n, n_sampled, n_shards, shard, seed) for shard in shards]
    first = sample_position(shards[0] * n // n_shards, n, n_sampled)
    ids_held = np.concatenate(sample)
    in_memory = isinstance(source, ArrayRows)
    raw = np.empty((0 if in_memory else len(ids_held), d), dtype=source.dtype)
    gathered = []
    for group in column_groups(source):
        columns = slice(group[0], group[-1] + 1) if len(group) else slice(0)
        of_shards, filled = [], 0
        for shard, ids in zip(shards, sample, strict=True):
            moments = Moments(len(group))
            at = shard * n // n_shards
            for block in source.blocks(at, (shard + 1) * n // n_shards, None if len(group) == d else group):
                if check is not None:
                    check(block, at, columns)
                moments.update(block)
                if not in_memory:
                    low, high = np.searchsorted(ids, (at, at + len(block)))
                    raw[filled + low : filled + high, columns] = block[ids[low:high] - at]
                at += len(block)
            of_shards.append(moments.packed())
            filled += len(ids)
        gathered.append(np.stack(of_shards))
    everywhere = [np.concatenate(gathered, axis=2)]  # of each process (shards, 5, d)
    if team is not None:
        everywhere = [share.numpy() for share in team.gather(torch.from_numpy(everywhere[0]))]
    moments = Moments(d)
    for part in np.concatenate(everywhere):
        moments.merge(part)
    scaling, varies = moments.scaling(source.dtype)
    values = np.empty((len(ids_held), len(scaling.std)), dtype=np.float32)
    width = max(1, scaled(BLOCK) // max(1, d))
    for i in range(0, len(values), width):
        part = source.take(ids_held[i : i + width]) if isinstance(source, ArrayRows) else raw[i : i + width]
        values[i : i + width] = scaling(part if varies.all() else part[:, varies])
    return Standardized(
        values,
        ids_held,
        np.flatnonzero(varies),
        np.flatnonzero(~varies),
        scaling,
        source,
        first,
        n_sampled,
    )


def sample_position(row: int, n: int, n_sampled: int) -> int:
    """How many of the first ``row`` of ``n`` rows are in a sample that takes its share of every shard."""
    return row * n_sampled // n


def _sample(n: int, n_sampled: int, n_shards: int, shard: int, seed: int) -> np.ndarray:
    """Which rows of a shard are in the sample, in order."""
    start, stop = shard * n // n_shards, (shard + 1) * n // n_shards
    size = sample_position(stop, n, n_sampled) - sample_position(start, n, n_sampled)
    if size >= stop - start:
        return np.arange(start, stop)
    rng = np.random.default_rng((seed, shard))
    return start + np.sort(rng.choice(stop - start, size, replace=False, shuffle=False))


def _power_of_two(x: np.ndarray) -> np.ndarray:
    """The least power of two above each entry; the smallest number for 0, so that it only grows."""
    _, exponent = np.frexp(np.maximum(x, np.finfo(np.float64).tiny))
    return np.ldexp(1.0, np.minimum(exponent, 1023))
