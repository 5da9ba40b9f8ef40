"""
How many features?
==================

``PredictiveSelector("auto")`` finds the number itself. Here ten columns of sixty tell four clusters apart, and the
others are noise. ``path_`` has the share of all columns that each selection on the way predicts.
"""

from homophily import PredictiveSelector
from homophily.datasets import make_planted
from homophily.figures import size_path

X, _, planted = make_planted(400, 60, 10, random_state=0)
selector = PredictiveSelector("auto", random_state=0).fit(X)
m = len(selector.selected_features_)
print(f"chosen: {m} columns, {len(set(selector.selected_features_) & set(planted))} of the 10 planted ones")
print(f"rule: {selector.size_rule_}")
figure = size_path(PredictiveSelector(30, random_state=0).fit(X).path_, m)
figure

# %%
# The share of all columns that the first selected ones predict on rows left out. The number that was chosen (vertical
# line) is that of the columns that the others predict better than any column of noise. Where nearly all columns are
# predicted, as in images, that number is no answer, and the knee of this curve is taken.
