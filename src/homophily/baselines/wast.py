"""WAST: where to pay attention in sparse training, of Sokar et al. (NeurIPS 2022)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor
from torch.nn import functional

from ..base import BaseSelector
from ..datasets import PAPER_DATASETS
from ..progress import Steps
from ..runtime import on_device, one_thread
from ..shapes import Of
from .autoencoder import batches, check_finite
from .base import Baseline, best

__all__ = ["WAST"]

INIT_STD = 0.01  # of the weights: with larger ones the importance is the luck of the draw
ATTENTION = {"text": 0.9, "artificial": 0.9, "image": 0.4, "biology": 0.1}  # the paper's, by kind of data


class WAST(Baseline):
    r"""Select the columns to which a sparse denoising autoencoder pays attention while it is trained.

    d inputs, one hidden layer of logistic units, d linear outputs; the share ``density`` of all weights, drawn at
    random, exists and starts with a standard deviation of .01. The input gets noise, the loss is the mean squared error
    to the clean input, the optimiser Nesterov's. After every update the importance of each input and output neuron
    grows:

    .. math::
        I_f \mathrel{+}= \lambda\, \mathrm{mean}\,|x_f - \hat x_f| + (1 - \lambda) \sum_h |w_{fh}|

    and each layer is rewired: of its positive and of its negative weights the fraction ``rewire`` with the smallest
    :math:`|w| I_f` is removed, and as many connections with weight 0 are put where the product of the importances of
    their two ends is largest. The importance of a hidden neuron, on which the formulas are silent, is the sum of its
    absolute weights. Columns are ranked by the importance of their input neuron.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    attention : float
        λ, the part of the error in the importance; the rest is the part of the weights. The paper takes .9 on Madelon
        and PCMAC, .4 on images, .1 on biological data and .01 on SMK.
    n_hidden : int
        Size of the hidden layer.
    density : float
        Share of the connections that exist.
    rewire : float
        Share of the connections that are moved after each update.
    noise : float
        Standard deviation of the noise that is added to the input.
    max_iter : int
        Epochs.
    batch_size : int, optional
        Rows an update. By default 128, or a tenth of the rows if that is less: otherwise a small data set would see no
        more than ``max_iter`` updates.
    learning_rate, momentum : float
        Of the optimiser.
    device : str
        ``"auto"`` or a device of torch.
    verbose : bool
        Show progress.
    random_state : int, RandomState or None
        Seed of weights, connections, noise and batches.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        Importance of the input neurons, a mean over the updates.
    n_connections_ : tuple of int
        Connections of the two layers, the same from the first update to the last.
    history_ : dict
        ``loss`` in the mean over each epoch.

    Examples
    --------
    >>> from homophily.baselines import WAST
    >>> from homophily.datasets import make_toy
    >>> X, y = make_toy("blobs", random_state=0)
    >>> WAST(5, random_state=0).fit(X).n_connections_
    (800, 800)
    """

    _fitted: ClassVar[dict[str, Of]] = {**Baseline._fitted, "n_connections_": Of("t")}

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "attention": [Interval(Real, 0, 1, closed="both")],
        "n_hidden": [Interval(Integral, 1, None, closed="left")],
        "density": [Interval(Real, 0, 1, closed="right")],
        "rewire": [Interval(Real, 0, 1, closed="left")],
        "noise": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "device": [str],
        "verbose": ["verbose"],
    }
    paper_params: ClassVar[dict[str, Any]] = {"batch_size": 128}
    dataset_params: ClassVar[dict[str, dict[str, Any]]] = {
        **{name: {"attention": ATTENTION[data.kind]} for name, data in PAPER_DATASETS.items()},
        "SMK": {"attention": 0.01, "learning_rate": 0.01},
    }
    score_meaning: ClassVar[str] = "importance that the column had while the autoencoder was trained"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        attention: float = 0.4,
        n_hidden: int = 200,
        density: float = 0.2,
        rewire: float = 0.3,
        noise: float = 0.2,
        max_iter: int = 10,
        batch_size: int | None = None,
        learning_rate: float = 0.1,
        momentum: float = 0.9,
        device: str = "auto",
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.attention = attention
        self.n_hidden = n_hidden
        self.density = density
        self.rewire = rewire
        self.noise = noise
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        points, generator = on_device(X, self.device, self._seeds(1)[0])
        with one_thread():
            scores = self._train(points, generator, steps).double().cpu().numpy()
        return best(scores, m), scores

    def _train(self, X: Tensor, generator: torch.Generator, steps: Steps) -> Tensor:
        """Importance of the input neurons (d,)."""
        n, d = X.shape
        # Both layers as (neurons of the data, hidden neurons).
        first, second = (_SparseLayer(d, self.n_hidden, self.density, generator) for _ in range(2))
        b1, b2 = X.new_zeros(self.n_hidden, requires_grad=True), X.new_zeros(d, requires_grad=True)
        optimizer = torch.optim.SGD(
            [first.W, b1, second.W, b2], lr=self.learning_rate, momentum=self.momentum, nesterov=self.momentum > 0
        )
        self.n_connections_ = first.n_connections, second.n_connections
        batch_size = self.batch_size or min(128, max(1, n // 10))
        updates = 0
        for epoch in steps.plan(self.max_iter):
            total = 0.0
            for x in batches(X, batch_size, generator):  # (b, d)
                noisy = x + self.noise * torch.randn(x.shape, generator=generator, device=x.device)
                x_hat = torch.addmm(b2, torch.addmm(b1, noisy, first.W).sigmoid(), second.W.T)
                loss = functional.mse_loss(x_hat, x)
                optimizer.zero_grad()
                loss.backward()
                first.mask_gradient()
                second.mask_gradient()
                optimizer.step()
                self._rewire(first, second, (x - x_hat.detach()).abs().mean(0), optimizer)
                total += float(loss.detach()) * len(x) / n
                updates += 1
            check_finite(total, self.learning_rate, epoch)
            if steps(loss=total):
                break
        return first.importance / updates

    @torch.no_grad()
    def _rewire(
        self, first: _SparseLayer, second: _SparseLayer, error: Tensor, optimizer: torch.optim.Optimizer
    ) -> None:
        """Update the importance of the neurons by the ``error (d,)``, and move the least important connections."""
        for layer in (first, second):
            layer.importance += self.attention * error + (1 - self.attention) * layer.W.abs().sum(1)
        hidden = first.W.abs().sum(0) + second.W.abs().sum(0)  # (h,)
        for layer in (first, second):
            kept = layer.rewire(self.rewire, hidden)
            momentum = optimizer.state[layer.W].get("momentum_buffer")
            if momentum is not None:
                momentum.mul_(kept)


class _SparseLayer:
    """Weights ``W (d, h)`` that are zero outside ``mask``, and the importance (d,) of their neurons in the data."""

    def __init__(self, d: int, n_hidden: int, density: float, generator: torch.Generator) -> None:
        W = INIT_STD * torch.randn(d, n_hidden, generator=generator, device=generator.device)
        self.n_connections = max(1, round(density * W.numel()))
        chosen = torch.rand(W.shape, generator=generator, device=W.device).flatten().topk(self.n_connections).indices
        self.mask = torch.zeros_like(W, dtype=torch.bool)
        self.mask.view(-1)[chosen] = True
        self.W = (W * self.mask).requires_grad_()
        self.importance = W.new_zeros(d)

    def mask_gradient(self) -> None:
        assert self.W.grad is not None
        self.W.grad.mul_(self.mask)

    def rewire(self, fraction: float, hidden: Tensor) -> Tensor:
        """Remove what matters least, put as much with weight 0 where both ends matter most; the mask of what stayed."""
        values = (self.W * self.importance[:, None]).flatten()
        for side in (values, -values):
            places = (side > 0).nonzero().squeeze(1)
            least = side[places].topk(int(fraction * len(places)), largest=False).indices
            self.mask.view(-1)[places[least]] = False
        kept = self.mask.clone()
        wanted = torch.outer(self.importance, hidden).masked_fill_(kept, -torch.inf).flatten()
        self.mask.view(-1)[wanted.topk(self.n_connections - int(kept.sum())).indices] = True
        self.W *= kept
        return kept
