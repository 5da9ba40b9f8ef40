"""AEFS: the autoencoder feature selector of Han et al. (ICASSP 2018)."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval
from torch import Tensor
from torch.nn import functional

from ..base import BaseSelector
from ..progress import Steps
from ..runtime import on_device, one_thread
from .autoencoder import batches, check_finite, glorot
from .base import DECADES, Baseline

__all__ = ["AEFS"]


class AEFS(Baseline):
    r"""Select the columns that an autoencoder with a group lasso on its first layer keeps.

    .. math::
        \min \; \mathrm{mean}\,(X - \hat X)^2 + \alpha \sum_i \|W_1^i\|_2 + \beta \|W_2\|_F^2, \qquad
        \hat X = \sigma(X W_1 + b_1) W_2 + b_2

    with :math:`\sigma` the logistic function. Columns are ranked by :math:`\|W_1^i\|`. The group lasso is dealt with by
    proximal steps, so the rows that it removes are zero exactly; among those the one that vanished last ranks first,
    and of equals the one whose weights the loss pulls at most. The steps are Adam's with one second moment a row.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    reg : float
        The penalty α. The reconstruction error is a mean, at most 1: 0.1 already removes every column.
    n_hidden : int, optional
        Size of the hidden layer. By default 128, but no more than a quarter of the columns: a layer as wide as the data
        copies every column, and then the norms say nothing.
    decay : float
        The penalty β.
    max_iter : int
        Epochs.
    batch_size : int
        Rows an update; all if there are fewer.
    learning_rate : float
        Of Adam.
    device : str
        ``"auto"`` or a device of torch.
    verbose : bool
        Show progress.
    random_state : int, RandomState or None
        Seed of weights and batches.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        :math:`\|W_1^i\|`, 0 where the row was removed.
    history_ : dict
        ``loss`` in the mean over each epoch, and the number of ``columns`` left after it.

    Examples
    --------
    >>> import numpy as np
    >>> from homophily.baselines import AEFS
    >>> rng = np.random.RandomState(0)
    >>> X = np.hstack([rng.randn(200, 1) + 0.5 * rng.randn(200, 4), rng.randn(200, 6)])
    >>> selector = AEFS(4, n_hidden=1, reg=0.03, max_iter=300, random_state=0).fit(X)
    >>> selector.get_support(indices=True).tolist()  # the first four have something in common
    [0, 1, 2, 3]
    """

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "reg": [Interval(Real, 0, None, closed="left")],
        "n_hidden": [Interval(Integral, 1, None, closed="left"), None],
        "decay": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "device": [str],
        "verbose": ["verbose"],
    }
    param_grid: ClassVar[dict[str, list]] = {"reg": [*DECADES], "n_hidden": [128, 256, 512, 1024]}
    paper_params: ClassVar[dict[str, Any]] = {"n_hidden": 128}
    score_meaning: ClassVar[str] = "norm of the column's weights in the autoencoder, 0 if they were removed"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        reg: float = 1e-3,
        n_hidden: int | None = None,
        decay: float = 1e-3,
        max_iter: int = 1000,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        device: str = "auto",
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.reg = reg
        self.n_hidden = n_hidden
        self.decay = decay
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        points, generator = on_device(X, self.device, self._seeds(1)[0])
        with one_thread():
            scores, last_seen, pull = (x.double().cpu().numpy() for x in self._train(points, generator, steps))
        left = int((scores > 0).sum())
        if left < m:
            warnings.warn(
                f"AEFS with reg={self.reg:g} left {left} of {len(scores)} columns, fewer than the {m} to select; the "
                f"other {m - left} are those that vanished last. Lower reg to keep more.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return np.lexsort((-pull, -last_seen, -scores))[:m], scores

    def _train(self, X: Tensor, generator: torch.Generator, steps: Steps) -> tuple[Tensor, Tensor, Tensor]:
        """Norms of the rows of W1, the last update after which each was not zero, and of their mean gradients; (d,)."""
        n, d = X.shape
        hidden = self.n_hidden or min(128, max(1, d // 4))
        W1, W2 = glorot(d, hidden, generator), glorot(hidden, d, generator)
        b1, b2 = W1.new_zeros(hidden), W2.new_zeros(d)
        for parameter in (W1, b1, W2, b2):
            parameter.requires_grad_()
        optimizer = torch.optim.Adam([b1, W2, b2], lr=self.learning_rate)
        group_lasso = _ProximalAdam(W1, self.learning_rate, self.reg)
        last_seen = torch.zeros(d, device=X.device)
        for epoch in steps.plan(self.max_iter):
            total = 0.0
            for x in batches(X, self.batch_size, generator):  # (b, d)
                x_hat = torch.addmm(b2, torch.addmm(b1, x, W1).sigmoid(), W2)
                loss = functional.mse_loss(x_hat, x) + self.decay * W2.square().sum()
                optimizer.zero_grad()
                W1.grad = None
                loss.backward()
                optimizer.step()
                norms = group_lasso.step()
                last_seen[norms > 0] = group_lasso.steps
                total += float(loss.detach()) * len(x) / n
            total += self.reg * float(norms.sum())
            check_finite(total, self.learning_rate, epoch)
            if steps(loss=total, columns=float((norms > 0).sum())):
                break
        return norms, last_seen, torch.linalg.vector_norm(group_lasso.mean, dim=1)


class _ProximalAdam:
    r"""Adam for :math:`f(W) + \alpha \sum_i \|W^i\|` with one second moment a row.

    All entries of a row then share one step size :math:`\eta_i`, and the proximal step of the group lasso is exact:
    :math:`W^i \leftarrow W^i (1 - \alpha \eta_i / \|W^i\|)_+`.
    """

    def __init__(self, W: Tensor, learning_rate: float, reg: float) -> None:
        self.W, self.learning_rate, self.reg = W, learning_rate, reg
        self.mean = torch.zeros_like(W)  # (d, h)
        self.square = W.new_zeros(len(W), 1)
        self.steps = 0

    @torch.no_grad()
    def step(self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Tensor:
        """Move W, and return the norms of its rows (d,)."""
        gradient = self.W.grad
        assert gradient is not None
        self.steps += 1
        self.mean.lerp_(gradient, 1 - beta1)
        self.square.lerp_(gradient.square().mean(1, keepdim=True), 1 - beta2)
        eta = self.learning_rate / ((self.square / (1 - beta2**self.steps)).sqrt() + epsilon)  # (d, 1)
        self.W -= eta * self.mean / (1 - beta1**self.steps)
        norms = torch.linalg.vector_norm(self.W, dim=1, keepdim=True)
        shrink = (1 - self.reg * eta / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_min(0)
        self.W *= shrink
        return (norms * shrink).squeeze(1)
