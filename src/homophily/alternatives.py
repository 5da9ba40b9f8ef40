"""What could stand in for a selected feature."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["near_copies"]

ALIKE = 0.9  # correlation from which a feature passes for a copy
MOST = 10


@torch.no_grad()
def near_copies(X: Tensor, features: np.ndarray) -> np.ndarray:
    """Of each of ``features (m,)`` the columns of ``X (n, d)`` that say nearly the same; (m, <= 10).

    Those that are not selected themselves and correlate with it by at least .9 or at most -.9, the closest first; -1
    where there are no more. As many columns as the feature with the most of them needs.
    """
    index = torch.as_tensor(features, device=X.device)
    X = X - X.mean(0)  # of a sample
    X /= X.square().sum(0).sqrt().clamp_min(torch.finfo(X.dtype).tiny)
    alike = (X[:, index].T @ X).abs_()  # (m, d)
    alike[:, index] = 0
    values, columns = alike.topk(min(MOST, X.shape[1]), dim=1)
    columns[values < ALIKE] = -1
    width = int((columns >= 0).sum(1).max())
    return columns[:, :width].cpu().numpy()
