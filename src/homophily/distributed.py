"""Data-parallel training: the processes of a ``torchrun`` job, what they share and how they notice a loss."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from .runtime import resolve_device
from .signals import at_once, settle, waiting

__all__ = ["ALONE", "Team", "WorkerLostError", "current_team", "joined", "launched", "leads"]


class WorkerLostError(RuntimeError):
    """Another process of the job has ended or cannot be reached."""


class Team:
    """The processes that train together. Alone, every operation is the identity.

    Work is cut into shards whose number does not depend on the number of processes as long as that divides ``SHARDS``,
    and what the shards give is added up in the same order. So 1, 2 and 4 processes find the same numbers, bit by bit.
    """

    rank, size = 0, 1

    @property
    def n_shards(self) -> int:
        """Into how many parts the rows are cut."""
        return self.size * (SHARDS // self.size if SHARDS % self.size == 0 else 1)

    @property
    def shards(self) -> range:
        """Those of this process."""
        each = self.n_shards // self.size
        return range(each * self.rank, each * (self.rank + 1))

    def sum_(self, x: Tensor) -> Tensor:
        """Sum of ``x`` over the processes, in place."""
        return x

    def first_(self, x: Tensor) -> Tensor:
        """``x`` of the first process, in place."""
        return x

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` is set in any process."""
        return flag

    def gather(self, x: Tensor) -> list[Tensor]:
        """``x`` of every process, in order."""
        return [x]

    def sum_of_shards(self, parts: list[Tensor]) -> Tensor:
        """Sum over all shards, of which ``parts`` are this process's: neighbours first, then pairs of them, ..."""
        mine = _pairwise(parts)
        return mine if self.size == 1 else _pairwise(self.gather(mine))


def _pairwise(parts: list[Tensor]) -> Tensor:
    while len(parts) > 1:
        pairs = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


SHARDS = 4
ALONE = Team()


class _Group(Team):
    """The default process group of torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # NCCL moves what lies on a GPU only.
        nccl = dist.get_backend() == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    @contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            with waiting("another process of the job"):
                yield
        except RuntimeError as error:
            settle()
            raise WorkerLostError(
                f"Process {self.rank} of 0 to {self.size - 1} lost contact with another process of the job, which has "
                "probably ended."
            ) from error

    def _exchange(self, x: Tensor, operation: str) -> Tensor:
        moved = x.to(self.device).contiguous()
        with self._watching():
            if operation == "sum":
                dist.all_reduce(moved)
            else:
                dist.broadcast(moved, 0)
        return x.copy_(moved)

    def sum_(self, x: Tensor) -> Tensor:
        return self._exchange(x, "sum")

    def first_(self, x: Tensor) -> Tensor:
        return self._exchange(x, "broadcast")

    def any(self, flag: bool) -> bool:
        return bool(self.sum_(torch.tensor([float(flag)])) > 0)

    def gather(self, x: Tensor) -> list[Tensor]:
        mine = x.to(self.device).contiguous()
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        with self._watching():
            dist.all_gather(everyone, mine)
        return [one.to(x.device) for one in everyone]


def current_team() -> Team:
    """The processes of the default group of torch.distributed, if it has been made and has more than one."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return _Group()
    return ALONE


def launched() -> bool:
    """Whether ``torchrun`` started this process along with others."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def leads() -> bool:
    """Whether this process is the one of its job that shows and writes."""
    return not launched() or int(os.environ["RANK"]) == 0


@contextmanager
def joined(device: str) -> Iterator[Team]:
    """Join the job that ``torchrun`` started, by NCCL if ``device`` is a GPU, else by gloo; alone if there is none."""
    if not launched() or dist.is_initialized():
        yield current_team()
        return
    # Its functions have the group as a default argument. Imported later, as the first optimizer does, it would keep the
    # group's threads alive, and one that still frees a tensor while Python ends aborts the process.
    import torch.distributed.nn

    on_gpu = resolve_device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    try:
        with at_once():  # some may wait here for others that were stopped already
            dist.init_process_group("nccl" if on_gpu else "gloo")
    except (RuntimeError, ValueError) as error:
        settle()
        cause = str(error).splitlines()[0]
        raise WorkerLostError(f"The processes that torchrun started could not reach each other: {cause}") from error
    try:
        yield current_team()
    finally:
        dist.destroy_process_group()
