"""IP-CAE: the concrete autoencoder with indirect parameters of Nilsson et al. (ICML 2024)."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from .autoencoder import glorot
from .cae import ConcreteAutoencoder

__all__ = ["IndirectConcreteAutoencoder"]

EMBEDDING = 256  # a matrix (d, d) of weights takes minutes where there are thousands of columns
FASTER = 3  # the weights behind the logits learn, so that they decide: planted columns, 1 of 3 seeds fails with 1


class IndirectConcreteAutoencoder(ConcreteAutoencoder):
    r"""Select the columns from which a small network reconstructs all others, with shared weights behind the logits.

    .. math::
        \min_{W, \Psi, \theta} \; \| X - g_\theta(X F) \|^2, \qquad
        F = \mathrm{softmax}((W \Psi + \text{Gumbel noise}) / T)

    where column j of :math:`\Psi` (p, m) is the embedding of the j-th feature to select, and :math:`W` (d, p) maps
    every embedding to logits. The rest is :class:`ConcreteAutoencoder`. The paper reports that it learns faster and
    draws fewer columns twice.

    Parameters
    ----------
    n_features_to_select : int, optional
        The number m of features. By default half of the columns that vary.
    embedding_size : int, optional
        Length p of the embeddings. By default the number of columns, but at most 256.
    max_iter : int, default=300
        Epochs of the first try.
    batch_size : int, optional
        Rows per update. By default ``max(n // 256, 16)``.
    learning_rate : float, default=1e-3
        Of Adam, for the decoder.
    selector_learning_rate : float, optional
        For W and the embeddings. By default three times ``learning_rate``, as the rate of the decoder often leaves the
        choice open after ``max_iter`` epochs.
    temperature : (float, float), default=(10.0, 0.01)
        First and last temperature.
    dropout : float, default=0.1
        Share of the hidden units that are dropped in training.
    confidence : float, default=0.95
        The training has converged when the mean over the m columns of the largest probability reaches this.
    max_tries : int, default=1
        If it has not, start again with twice the epochs, until there were so many tries.
    device : str, default="auto"
        ``"auto"`` or a device of torch.
    verbose : bool, default=False
        Show progress.
    random_state : int, RandomState or None, default=None
        Seed of weights, noise and batches.

    Attributes
    ----------
    scores_ : ndarray (n_features_in_,)
        Probability that at least one column of F draws the feature.
    confidence_ : float
        Mean largest probability that was reached.
    history_ : dict
        ``loss`` and ``confidence`` after each epoch.

    Notes
    -----
    The paper has p = d, which takes d² weights; give ``embedding_size`` to have that with more than 256 columns. As in
    :class:`ConcreteAutoencoder` an assignment over the learned probabilities gives m distinct columns.

    References
    ----------
    A. Nilsson, K. Wijk, S. bin Gutha, E. Englesson, A. Hotti, C. Saccardi, O. Kviman, J. Lagergren, R. Vinuesa and
    H. Azizpour, Indirectly parameterized concrete autoencoders, ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from homophily.baselines import IndirectConcreteAutoencoder
    >>> a, b = np.random.RandomState(0).randn(2, 100)
    >>> X = np.c_[a, b, a + b, a - b, a + 2 * b]  # any two columns tell the other three
    >>> selector = IndirectConcreteAutoencoder(2, max_iter=50, confidence=0.0, random_state=0)
    >>> len(set(selector.fit(X).selected_features_))
    2
    """

    _parameter_constraints: ClassVar[dict] = {
        **ConcreteAutoencoder._parameter_constraints,
        "embedding_size": [Interval(Integral, 1, None, closed="left"), None],
    }
    paper_params: ClassVar[dict[str, Any]] = {}
    _name: ClassVar[str] = "IP-CAE"

    def __init__(
        self,
        n_features_to_select: int | None = None,
        *,
        embedding_size: int | None = None,
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
        super().__init__(
            n_features_to_select,
            max_iter=max_iter,
            batch_size=batch_size,
            learning_rate=learning_rate,
            selector_learning_rate=selector_learning_rate,
            temperature=temperature,
            dropout=dropout,
            confidence=confidence,
            max_tries=max_tries,
            device=device,
            verbose=verbose,
            random_state=random_state,
        )
        self.embedding_size = embedding_size

    def _start(self, d: int, m: int, generator: torch.Generator) -> list[Tensor]:
        p = self.embedding_size or min(d, EMBEDDING)
        return [glorot(d, p, generator), glorot(p, m, generator)]

    def _logits(self, selector: list[Tensor]) -> Tensor:
        W, embeddings = selector
        return W @ embeddings

    def _selector_rate(self, d: int, updates: int) -> float:
        return self.selector_learning_rate or FASTER * self.learning_rate
