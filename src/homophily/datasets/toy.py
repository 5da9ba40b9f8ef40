"""The paper's toy data: two informative columns hidden among noise (Sec. 4.2, Appendix S6.1.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["TOY_NAMES", "make_toy"]

TOY_NAMES = ("blobs", "moons", "circles")


def make_toy(
    name: str, n_samples: int = 200, n_noise: int = 18, *, random_state: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Generate Blobs, Moons or Circles.

    The first two columns hold the structure, made by scikit-learn with noise N(0, 0.1); the others are N(0, 1).

    Parameters
    ----------
    name : {"blobs", "moons", "circles"}
        In any case of letters. Where the paper is silent: 0.1 is a standard deviation, the two blobs lie around
        (-1, -1) and (1, 1), and the inner circle has half the radius of the outer one.
    n_samples : int
    n_noise : int
        Number of noise columns.
    random_state : int, RandomState instance or None

    Returns
    -------
    X : ndarray (n_samples, 2 + n_noise)
    y : ndarray (n_samples,)
        The class, 0 or 1.
    """
    key = str(name).lower()
    if key not in TOY_NAMES:
        raise ValueError(f"name must be one of {', '.join(TOY_NAMES)}, got {name!r}.")
    from sklearn.datasets import make_blobs, make_circles, make_moons  # takes seconds: only for those who draw
    from sklearn.utils import check_random_state

    rng = check_random_state(random_state)
    if key == "blobs":
        X, y = make_blobs(n_samples, centers=[[-1.0, -1.0], [1.0, 1.0]], cluster_std=0.1, random_state=rng)
    elif key == "moons":
        X, y = make_moons(n_samples, noise=0.1, random_state=rng)
    else:
        X, y = make_circles(n_samples, noise=0.1, factor=0.5, random_state=rng)
    return np.hstack([X, rng.standard_normal((n_samples, n_noise))]), y
