"""CAE: the concrete autoencoder of Balin, Abid and Zou (ICML 2019)."""

from __future__ import annotations

import math
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
from ..nn.feature_selector import gumbel_like, gumbel_softmax
from ..progress import Steps
from ..runtime import on_device, one_thread
from ..shapes import Of
from ..training import check_temperature, pick_features, selection_strength
from .autoencoder import batches, check_finite, glorot
from .base import Baseline

__all__ = ["ConcreteAutoencoder"]

SLOPE = 0.2  # of the leaky ReLU


class ConcreteAutoencoder(Baseline):
    r"""Select the columns from which a small network reconstructs all others.

    .. math::
        \min_{A, \theta} \; \| X - g_\theta(X F) \|^2, \qquad F = \mathrm{softmax}((A + \text{Gumbel noise}) / T)

    with one column of :math:`A` (d, m) a feature to select, a fresh draw of the noise a batch, a decoder :math:`g` with
    one hidden layer of 3m/2 leaky ReLUs, Adam, and a temperature that falls exponentially over all updates.

    Some things differ from the public code. Its argmax per column names features repeatedly; here an assignment over
    the learned probabilities gives m distinct ones. And its learning rate lets the logits move by 1e-3 an update, so
    with few rows, thus few updates, they end where they began (mean largest probability .0009 on GLIOMA). By default
    their rate is raised where needed, so that they can move as far as is needed to decide among d columns. Hence one
    try and a confidence of .95 are enough by default, where the code asks for .998 in up to five; and the last
    temperature is .01 (the code: .1). :meth:`from_paper` has its choices.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    max_iter : int
        Epochs of the first try.
    batch_size : int, optional
        Rows an update. By default ``max(n // 256, 16)``.
    learning_rate : float
        Of Adam, for the decoder.
    selector_learning_rate : float, optional
        For the logits. By default ``10 log(100 + d)`` over the number of updates, but not less than ``learning_rate``.
    temperature : (float, float)
        First and last temperature.
    dropout : float
        Share of the hidden units that are dropped in training.
    confidence : float
        The training has converged when the mean over the m columns of the largest probability reaches this.
    max_tries : int
        If it has not, start again with twice the epochs, until there were so many tries.
    device : str
        ``"auto"`` or a device of torch.
    verbose : bool
        Show progress.
    random_state : int, RandomState or None
        Seed of weights, noise and batches.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        Probability that at least one column of F draws the feature.
    confidence_ : float
        Mean largest probability that was reached.
    history_ : dict
        ``loss`` and ``confidence`` after each epoch.

    Examples
    --------
    >>> import numpy as np
    >>> from homophily.baselines import ConcreteAutoencoder
    >>> a, b = np.random.RandomState(0).randn(2, 100)
    >>> X = np.c_[a, b, a + b, a - b, a + 2 * b]  # any two columns tell the other three
    >>> len(set(ConcreteAutoencoder(2, max_iter=50, random_state=0).fit(X).selected_features_))
    2
    """

    _fitted: ClassVar[dict[str, Of]] = {**Baseline._fitted, "confidence_": Of("f")}

    _parameter_constraints: ClassVar[dict] = {
        **BaseSelector._parameter_constraints,
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "selector_learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "temperature": [tuple, list],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "confidence": [Interval(Real, 0, 1, closed="both")],
        "max_tries": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "verbose": ["verbose"],
    }
    paper_params: ClassVar[dict[str, Any]] = {
        "selector_learning_rate": 1e-3,
        "temperature": (10.0, 0.1),
        "confidence": 0.998,
        "max_tries": 5,
    }
    nested: ClassVar[bool] = False
    score_meaning: ClassVar[str] = "learned probability that the column is among the chosen ones"
    _name: ClassVar[str] = "CAE"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        max_iter: int = 300,
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        selector_learning_rate: float | None = None,
        temperature: tuple[float, float] = (10.0, 0.01),
        dropout: float = 0.1,
        confidence: float = 0.95,
        max_tries: int = 1,
        device: str = "auto",
        verbose: bool | int = False,
        random_state: Any = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.selector_learning_rate = selector_learning_rate
        self.temperature = temperature
        self.dropout = dropout
        self.confidence = confidence
        self.max_tries = max_tries
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _select(self, X: np.ndarray, m: int, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
        first_last = check_temperature(self.temperature)
        epochs = self.max_iter
        with one_thread():
            for seed in self._seeds(self.max_tries):
                points, generator = on_device(X, self.device, seed)
                logits = self._train(points, m, epochs, first_last, generator, steps)
                self.confidence_ = _confidence(logits)
                if self.confidence_ >= self.confidence or steps.stopped:
                    break
                epochs *= 2
        if self.confidence_ < self.confidence and not steps.stopped:
            warnings.warn(
                f"{self._name} did not converge: the largest probability of its {m} columns is "
                f"{self.confidence_:.3g} in the mean, below confidence={self.confidence:g}, after {steps.step} epochs "
                f"in {self.max_tries} tries. Raise max_iter, max_tries or selector_learning_rate.",
                ConvergenceWarning,
                stacklevel=4,
            )
        learned = logits.double().cpu().numpy()
        return pick_features(learned), selection_strength(learned)

    def _start(self, d: int, m: int, generator: torch.Generator) -> list[Tensor]:
        """The weights that the logits are made of, as the training begins."""
        return [glorot(d, m, generator)]

    def _logits(self, selector: list[Tensor]) -> Tensor:
        """Logits (d, m) of these weights."""
        return selector[0]

    def _selector_rate(self, d: int, updates: int) -> float:
        """Learning rate of these weights."""
        return self.selector_learning_rate or max(self.learning_rate, 10 * math.log(100 + d) / updates)

    def _train(
        self,
        X: Tensor,
        m: int,
        epochs: int,
        temperature: tuple[float, float],
        generator: torch.Generator,
        steps: Steps,
    ) -> Tensor:
        """Logits (d, m) after ``epochs``, or when told to stop."""
        n, d = X.shape
        batch_size = min(n, self.batch_size or max(n // 256, 16))
        updates = epochs * math.ceil(n / batch_size)
        hidden = max(1, 3 * m // 2)
        selector = self._start(d, m, generator)
        W1, W2 = glorot(m, hidden, generator), glorot(hidden, d, generator)
        b1, b2 = W1.new_zeros(hidden), W2.new_zeros(d)
        decoder = [W1, b1, W2, b2]
        for parameter in (*selector, *decoder):
            parameter.requires_grad_()
        optimizer = torch.optim.Adam(
            [
                {"params": selector, "lr": self._selector_rate(d, updates)},
                {"params": decoder, "lr": self.learning_rate},
            ]
        )
        first, last = temperature
        update = 0
        for epoch in steps.plan(epochs):
            total = 0.0
            for x in batches(X, batch_size, generator):  # (b, d)
                T = first * (last / first) ** (update / updates)
                logits = self._logits(selector)
                F = gumbel_softmax(logits, T, gumbel_like(logits, generator))  # (d, m)
                h = functional.leaky_relu(torch.addmm(b1, x @ F, W1), SLOPE)
                kept = torch.rand(h.shape, generator=generator, device=h.device) >= self.dropout
                loss = functional.mse_loss(torch.addmm(b2, h * kept / (1 - self.dropout), W2), x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(x) / n
                update += 1
            check_finite(total, self.learning_rate, epoch)
            learned = self._logits(selector).detach()
            if steps(loss=total, confidence=_confidence(learned)):
                break
        return learned


def _confidence(logits: Tensor) -> float:
    """Mean over the columns of the largest probability."""
    return float(logits.softmax(0).amax(0).mean())
