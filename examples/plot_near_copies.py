"""
Near-copies: which features could replace a chosen one?
=======================================================

Real tables hold the same quantity several times: in other units, by another instrument. Here six quantities are
measured three times each, with a little error, among twelve columns of noise. One column of each should be chosen, and
``alternatives_`` should name the other two.
"""

import numpy as np
import pandas as pd

from homophily import DirichletSelector, PredictiveSelector
from homophily.datasets import make_planted
from homophily.figures import redundancy_map

rng = np.random.default_rng(0)
quantities, _, _ = make_planted(300, 6, 6, random_state=0)  # clusters that all six tell apart
table = {
    f"q{q} by {who}": quantities[:, q] + 0.1 * rng.normal(size=300) for q in range(6) for who in ("Ann", "Bob", "Cy")
}
table |= {f"noise {i}": rng.normal(size=300) for i in range(12)}
X = pd.DataFrame(table)

selector = PredictiveSelector(6, random_state=0).fit(X)
for feature, others in zip(selector.selected_features_, selector.alternatives_, strict=True):
    print(f"{X.columns[feature]:10}  or {', '.join(X.columns[other] for other in others if other >= 0)}")

# %%
# How far the chosen columns repeat each other, first as chosen by default, then by the paper's objective, which likes
# copies: a column is smooth on the graph of its copies.


def correlations(features: np.ndarray) -> np.ndarray:
    """Between columns of the table."""
    return np.corrcoef(X.to_numpy()[:, features], rowvar=False)


figure = redundancy_map(correlations(selector.selected_features_), X.columns[selector.selected_features_])
figure

# %%
paper = DirichletSelector(6, random_state=0).fit(X).selected_features_
figure_paper = redundancy_map(correlations(paper), X.columns[paper])
figure_paper
