"""What the autoencoders share: starting weights, batches, a stop where training diverges."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["batches", "check_finite", "glorot"]


def glorot(fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    """Normal weights ``(fan_in, fan_out)`` of variance ``2 / (fan_in + fan_out)`` on the generator's device."""
    std = math.sqrt(2 / (fan_in + fan_out))
    return std * torch.randn(fan_in, fan_out, generator=generator, device=generator.device)


def batches(X: Tensor, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """The rows of ``X`` in random order, ``size`` at a time; the last batch may be smaller."""
    for rows in torch.randperm(len(X), generator=generator, device=X.device).split(size):
        yield X[rows]


def check_finite(loss: float, learning_rate: float, epoch: int) -> None:
    """Raise if the training has diverged."""
    if not math.isfinite(loss):
        raise ValueError(
            f"The training diverged in epoch {epoch + 1}: the loss is {loss}. Lower learning_rate={learning_rate:g}, "
            "or look for extreme outliers in X."
        )
