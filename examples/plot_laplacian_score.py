"""
Where the Laplacian score loses its way
=======================================

The Laplacian score ranks columns by how little they vary between neighbours, on a graph of *all* columns. As noise
columns are added the graph fills with chance neighbours, and the useful columns sink in the ranking.
``PredictiveSelector`` counts a column only as far as the others predict it.
"""

import numpy as np
from matplotlib.figure import Figure

from homophily import PredictiveSelector
from homophily.baselines import LaplacianScore
from homophily.datasets import make_planted
from homophily.figures.style import BLUE, GREY, ORANGE, plain

n_planted, sizes = 8, (20, 60, 200, 600)
found: dict[str, list[float]] = {"Laplacian score": [], "PredictiveSelector": []}
for d in sizes:
    X, _, planted = make_planted(150, d, n_planted, spacing=0.8, random_state=0)
    selectors = (LaplacianScore(n_planted), PredictiveSelector(n_planted, random_state=0))
    for hits, selector in zip(found.values(), selectors, strict=True):
        hits.append(np.isin(selector.fit(X).selected_features_, planted).sum())
    print(d, "columns:", {name: int(hits[-1]) for name, hits in found.items()})

figure = Figure(figsize=(6, 3.4), layout="constrained")
axes = figure.subplots()
for (name, hits), color in zip(found.items(), (ORANGE, BLUE), strict=True):
    axes.plot(sizes, hits, marker="o", color=color, label=name)
axes.plot(sizes, [n_planted**2 / d for d in sizes], color=GREY, linestyle="--", label="expected by chance")
axes.set(xscale="log", xticks=sizes, xlabel="columns in all", ylabel="planted columns found, of 8", ylim=(-0.3, 8.3))
axes.set_xticklabels([str(d) for d in sizes])
axes.minorticks_off()
axes.legend(frameon=False)
plain(axes)
figure

# %%
# One draw of weak clusters (centres .8 standard deviations apart, 150 samples); other draws differ in the numbers.
