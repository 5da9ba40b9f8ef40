"""
Which objective?
================

Two kinds of data on which the two objectives of ``DirichletSelector`` differ, and ``PredictiveSelector`` beside them.
*Noise*: eight columns tell clusters apart, 52 are noise. *Copies*: eight quantities, each measured five times. A good
selection finds the eight useful columns of the first, and one column of each of the eight quantities of the second.
"""

import numpy as np
from matplotlib.figure import Figure

from homophily import DirichletSelector, PredictiveSelector
from homophily.datasets import make_planted
from homophily.figures.style import BLUE, ORANGE, plain

rng = np.random.default_rng(0)
noise, _, planted = make_planted(200, 60, 8, random_state=0)
quantities, _, _ = make_planted(200, 8, 8, random_state=0)
copies = np.repeat(quantities, 5, axis=1) + 0.2 * rng.normal(size=(200, 40))

selectors = {
    "predictive": PredictiveSelector(8, random_state=0),
    "coverage": DirichletSelector(8, objective="coverage", random_state=0),
    "energy": DirichletSelector(8, random_state=0),
}
counts = []
for name, selector in selectors.items():
    useful = np.isin(selector.fit(noise).selected_features_, planted).sum()
    distinct = len(set((selector.fit(copies).selected_features_ // 5).tolist()))
    counts.append((useful, distinct))
    print(f"{name:10} useful columns {useful} of 8, distinct quantities {distinct} of 8")

figure = Figure(figsize=(6.4, 3), layout="constrained")
axes = figure.subplots()
places = np.arange(len(selectors))
for at, (label, color) in enumerate((("noise: useful columns", BLUE), ("copies: distinct quantities", ORANGE))):
    bars = axes.bar(places + 0.38 * (at - 0.5), [count[at] for count in counts], width=0.36, color=color, label=label)
    axes.bar_label(bars, fontsize=8)
axes.set_xticks(places, list(selectors))
axes.set(ylabel="found, of 8", ylim=(0, 9))
axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.2), ncols=2)
plain(axes)
figure

# %%
# The paper's energy finds what is hidden in noise but collects copies; coverage avoids copies but counts the noise;
# ``PredictiveSelector``, the default, is right on both.
