"""
How many features?
==================

``DirichletSelector("auto")`` finds the number itself. Here ten columns of sixty tell four clusters apart, and the
others are noise. ``path_`` has what selections of other sizes would explain, beside what chance would.
"""

from homophily import DirichletSelector
from homophily.datasets import make_planted
from homophily.figures import size_path

X, _, planted = make_planted(400, 60, 10, random_state=0)
selector = DirichletSelector("auto", random_state=0).fit(X)
m = len(selector.selected_features_)
print(f"chosen: {m} columns, {len(set(selector.selected_features_) & set(planted))} of the 10 planted ones")
print(f"rule: {selector.size_rule_}")
figure = size_path(selector.path_, m)
figure

# %%
# Left: the share of the data that the graph of the first columns explains, and above the dashed line more than chance
# would. Right: how many columns are explained beyond chance, which is the number that was chosen (vertical line). Where
# nearly all columns are explained, as in images, that number is no answer, and the knee of the left curve is taken.
