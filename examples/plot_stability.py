"""
Would other samples have led to the same features?
==================================================

Five of the 13 measurements of 178 wines are chosen, and chosen again on eight random parts of 80 % of the wines. What
is chosen nearly always can be relied on; what often takes its place is worth a look.
"""

from sklearn.datasets import load_wine

from homophily import PredictiveSelector
from homophily.figures import selection_frequencies
from homophily.stability import stability

wine = load_wine()
selector = PredictiveSelector(5, random_state=0).fit(wine.data)
result = stability(selector, wine.data, n_subsamples=8, random_state=0)
low, high = result.interval
print(f"stability index {result.index:.2f}, 95 % interval {low:.2f} to {high:.2f}")
figure = selection_frequencies(result.frequency, selector.selected_features_.tolist(), wine.feature_names)
figure

# %%
# The index is 1 for the same features each time and about 0 for random ones; by convention more than .75 is excellent
# and less than .4 poor. Eight parts are few, as the interval shows; ``homophily select --stability 20`` is usual.
