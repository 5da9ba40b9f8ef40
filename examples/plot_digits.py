"""
Which pixels tell digits apart?
===============================

600 handwritten digits of 8 x 8 pixels. Sixteen pixels are chosen without a look at the labels; a classifier then tells
how much of the digits is left in them, in comparison with sixteen random ones.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from homophily import PredictiveSelector
from homophily.baselines import RandomSelector
from homophily.figures import selected_pixels

X, y = load_digits(return_X_y=True)
X, y = X[:600], y[:600]
selector = PredictiveSelector(16, random_state=0).fit(X)
figure = selected_pixels(X, (8, 8), selector.selected_features_)
figure

# %%
# The chosen pixels over the mean image. The left border, which is empty in nearly all digits, is left out. The numbers
# say whether the choice is worth anything:


def accuracy(columns: np.ndarray) -> float:
    """Of a classifier by 5 neighbours that sees these pixels only."""
    return cross_val_score(KNeighborsClassifier(), X[:, columns], y, cv=3).mean()


random = [accuracy(RandomSelector(16, random_state=seed).fit(X).selected_features_) for seed in range(20)]
print(f"all 64 pixels     {accuracy(np.arange(64)):.3f}")
print(f"16 chosen pixels  {accuracy(selector.selected_features_):.3f}")
print(f"16 random pixels  {np.mean(random):.3f} on average, at best {max(random):.3f} of {len(random)} draws")
