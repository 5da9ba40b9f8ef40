"""What could stand in for a selected feature."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .memory import scaled

__all__ = ["near_copies"]

ALIKE = 0.9  # correlation from which a feature passes for a copy
MOST = 10
BLOCK = 2**24  # entries that are worked on at once


@torch.no_grad()
def near_copies(X: Tensor, features: np.ndarray) -> np.ndarray:
    """Of each of ``features (m,)`` the columns of ``X (n, d)`` that say nearly the same; (m, <= 10).

    Those that are not selected themselves and correlate with it by at least .9 or at most -.9, the closest first; -1
    where there are no more. As many columns as the feature with the most of them needs.
    """
    index = torch.as_tensor(features, device=X.device)
    chosen = _unit(X[:, index])
    width = max(1, scaled(BLOCK) // len(X))  # a copy of X would be the largest thing in memory
    alike = torch.cat([chosen.T @ _unit(part) for part in X.split(width, dim=1)], 1).abs_()  # (m, d)
    alike[:, index] = 0
    values, columns = alike.topk(min(MOST, X.shape[1]), dim=1)
    columns[values < ALIKE] = -1
    width = int((columns >= 0).sum(1).max())
    return columns[:, :width].cpu().numpy()


def _unit(X: Tensor) -> Tensor:
    """Columns of mean 0, as those of a sample are not, and length 1."""
    X = X - X.mean(0)
    return X.div_(X.square().sum(0).sqrt().clamp_min_(torch.finfo(X.dtype).tiny))
