"""DUFS: differentiable unsupervised feature selection of Lindenbaum et al. (NeurIPS 2021), parameter-free loss."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval
from torch import Tensor

from ..base import BaseSelector
from ..progress import Steps
from ..runtime import on_device, one_thread
from .autoencoder import check_finite
from .base import Baseline, best

__all__ = ["DUFS"]

SIGMA = 0.5  # standard deviation of the noise of a gate
INIT_STD = 0.01  # of the gates, cut off at twice that
MEMORY = 0.99  # of the mean square gradient
FROZEN = 0.1  # gates that move less than this far, in units in which they are 1 wide, rank little but their start


class DUFS(Baseline):
    r"""Select the columns whose stochastic gates open when the gated data is to be smooth on its own graph.

    .. math::
        \min_\mu \; -\frac{\mathrm{mean}\,[(P^2 \tilde X) \circ \tilde X]}
        {\mathrm{mean}_f\, \Phi((\mu_f + \frac12) / \frac12) + 10^{-6}}, \qquad
        \tilde X = X \circ \mathrm{clip}(\mu + \tfrac12 + \tfrac12 \varepsilon, 0, 1)

    with normal noise :math:`\varepsilon` a sample and column, :math:`P` the row-normalised heat kernel
    :math:`\exp(-\|\tilde x_i - \tilde x_j\|^2 / C s)` and :math:`s` the median squared distance to the nearest
    neighbour, held fixed in the gradient. Columns are ranked by :math:`\mu`.

    The paper descends with a rate of 1. The gradient, however, shrinks with the number of columns and the sharpness of
    the kernel (root mean square 2e-5 on Madelon), so the gates end near where they began. By default the gradient is
    divided by its running root mean square over all gates, which keeps its direction; ``scale_free=False`` is the
    original.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    kernel_scale : float
        C, the width of the kernel. The paper takes 5, on SRBCT, COIL-20 and PIX10 2.
    n_neighbors : int
        The median is taken over the squared distances to this neighbour (the original counts the sample itself as the
        first and says 2).
    scale_free : bool
        Divide the gradient by its size.
    learning_rate : float, optional
        By default 0.01, or 1 without ``scale_free``.
    max_iter : int
        Updates. The paper speaks of 10,000 epochs; with more rows than ``batch_size`` an update is less than that.
    batch_size : int
        Rows an update; all if there are fewer.
    device : str
        ``"auto"`` or a device of torch.
    verbose : bool
        Show progress.
    random_state : int, RandomState or None
        Seed of gates, noise and batches.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        :math:`1 / (1 + e^{-\mu})`: gates start about 1/2.
    history_ : dict
        ``loss`` and share of ``open`` gates after each update.

    Examples
    --------
    >>> from homophily.baselines import DUFS
    >>> from homophily.datasets import make_toy
    >>> X, y = make_toy("blobs", random_state=0)
    >>> sorted(DUFS(2, max_iter=100, random_state=0).fit(X).selected_features_.tolist())
    [0, 1]
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "kernel_scale": [Interval(Real, 0, None, closed="neither")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "scale_free": ["boolean"],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 2, None, closed="left")],
        "device": [str],
        "verbose": ["verbose"],
    }
    paper_params: ClassVar[dict[str, Any]] = {"scale_free": False, "max_iter": 10_000}
    dataset_params: ClassVar[dict[str, dict[str, Any]]] = {
        name: {"kernel_scale": 2.0} for name in ("SRBCT", "COIL-20", "PIX10")
    }
    score_meaning: ClassVar[str] = "position of the column's gate on a scale from 0 to 1; all start at about 1/2"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        kernel_scale: float = 5.0,
        n_neighbors: int = 1,
        scale_free: bool = True,
        learning_rate: float | None = None,
        max_iter: int = 500,
        batch_size: int = 256,
        device: str = "auto",
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.kernel_scale = kernel_scale
        self.n_neighbors = n_neighbors
        self.scale_free = scale_free
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        self._check_neighbors(min(len(X), self.batch_size))
        points, generator = on_device(X, self.device, self._seeds(1)[0])
        start = torch.empty(X.shape[1], device=points.device)
        torch.nn.init.trunc_normal_(start, 0, INIT_STD, -2 * INIT_STD, 2 * INIT_STD, generator=generator)
        with one_thread():
            mu = self._train(points, start, generator, steps)
        moved = float((mu - start).abs().max())
        if moved < FROZEN and not steps.stopped:
            warnings.warn(
                f"DUFS did not converge: no gate moved by more than {moved:.1g} in {self.max_iter} updates, and their "
                f"noise is {SIGMA}: the ranking is little more than the random start. Raise learning_rate or max_iter, "
                "or set scale_free=True.",
                ConvergenceWarning,
                stacklevel=4,
            )
        position = mu.double().cpu().numpy()
        return best(position, m), expit(position)

    def _train(self, X: Tensor, start: Tensor, generator: torch.Generator, steps: Steps) -> Tensor:
        """Gates (d,) after the updates."""
        n = len(X)
        rate = self.learning_rate or (0.01 if self.scale_free else 1.0)
        mu = start.clone().requires_grad_()
        mean_square = None
        for step in steps.plan(self.max_iter):
            x = X
            if n > self.batch_size:
                x = X[torch.randperm(n, generator=generator, device=X.device)[: self.batch_size]]
            noise = torch.randn(x.shape, generator=generator, device=X.device)
            loss = _loss(x, mu, noise, self.kernel_scale, self.n_neighbors)
            (gradient,) = torch.autograd.grad(loss, mu)
            if self.scale_free:
                square = gradient.square().mean()
                mean_square = square if mean_square is None else mean_square.lerp(square, 1 - MEMORY)
                gradient = gradient / mean_square.sqrt().clamp_min(torch.finfo(square.dtype).tiny)
            with torch.no_grad():
                mu -= rate * gradient
                value, share = float(loss), float(_open(mu))
            check_finite(value, rate, step)
            if steps(loss=value, open=share):
                break
        return mu.detach()


def _loss(X: Tensor, mu: Tensor, noise: Tensor, kernel_scale: float, k: int) -> Tensor:
    """The parameter-free loss of ``X (b, d)`` for gates ``mu (d,)`` and ``noise (b, d)``."""
    gated = X * (mu + 0.5 + SIGMA * noise).clamp(0, 1)
    squares = gated.square().sum(1)
    E = (squares[:, None] + squares - 2 * gated @ gated.T).clamp_min(0)  # (b, b)
    P = (-E / (kernel_scale * _median_distance(E.detach(), k))).softmax(1)  # the heat kernel, rows divided by their sum
    return -(P @ (P @ gated) * gated).mean() / (_open(mu) + 1e-6)


def _median_distance(E: Tensor, k: int) -> Tensor:
    """Median over the rows of the k-th smallest entry of ``E (b, b)`` off the diagonal; of all, where that is 0."""
    others = E.clone().fill_diagonal_(torch.inf)
    scale = others.kthvalue(k, dim=1).values.median()
    if scale > 0:
        return scale
    positive = E[E > 0]
    return positive.median() if len(positive) else torch.ones_like(scale)


def _open(mu: Tensor) -> Tensor:
    """Mean probability that a gate is open."""
    return torch.special.ndtr((mu + 0.5) / SIGMA).mean()
