"""
All methods on the same data, and chance
========================================

The data hold six useful columns among 40. Every method chooses six without labels; a classifier that sees only these
columns says how much of the clusters is left. Without the row of random columns such a comparison says nothing.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from homophily.baselines import RandomSelector
from homophily.datasets import make_planted
from homophily.figures.style import BLUE, GREY, VERMILION, plain
from homophily.methods import METHODS

X, y, planted = make_planted(150, 40, 6, spacing=1.0, random_state=1)


def accuracy(columns: np.ndarray) -> float:
    """Of a classifier by 15 neighbours on these columns, mean of 5 folds."""
    return cross_val_score(KNeighborsClassifier(15), X[:, columns], y, cv=5).mean()


rows = []
for name, method in METHODS.items():
    if name not in ("random", "all"):
        chosen = method(6, random_state=0).fit(X).selected_features_
        rows.append((accuracy(chosen), name, int(np.isin(chosen, planted).sum())))
rows.sort()
random = [accuracy(RandomSelector(6, random_state=seed).fit(X).selected_features_) for seed in range(50)]

figure = Figure(figsize=(6.4, 3.6), layout="constrained")
axes = figure.subplots()
bars = axes.barh([name for _, name, _ in rows], [value for value, *_ in rows], color=BLUE)
axes.bar_label(bars, [f"{hits} of 6" for _, _, hits in rows], fontsize=8, padding=3)
low, middle, high = np.percentile(random, [5, 50, 95])
axes.axvspan(low, high, color=GREY, alpha=0.4, zorder=0, label="90 % of 50 random selections")
axes.axvline(middle, color=GREY)
axes.axvline(accuracy(np.arange(40)), color=VERMILION, linestyle="--", label="all 40 columns")
axes.set(xlabel="accuracy", xlim=(0, 1.12))
axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=2)
plain(axes)
figure

# %%
# Beside each bar, how many of the six useful columns were found; the grey line is the median of random selections. This
# is one small data set, made such that neighbours tell clusters apart; ``homophily compare`` does the same, with splits
# and standard errors, on a file of yours.
