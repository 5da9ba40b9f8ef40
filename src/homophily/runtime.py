"""Where torch runs: the device, and one thread an operation so that results do not depend on the number of cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["on_device", "one_thread", "resolve_device"]


def resolve_device(device: str) -> torch.device:
    """The device of that name; ``"auto"`` is CUDA where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={device!r} is not available here; use 'auto', 'cpu', or 'cuda' or 'mps' if there is one."
        ) from error


def on_device(X: np.ndarray, device: str, seed: int) -> tuple[torch.Tensor, torch.Generator]:
    """``X`` on the device of that name, and a generator of random numbers beside it."""
    points = torch.from_numpy(X).to(resolve_device(device))
    return points, torch.Generator(points.device).manual_seed(seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let each torch operation of this thread use one core, so that sums are taken in one order on any machine.

    Threads that are started inside need their own: the setting is the thread's.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
