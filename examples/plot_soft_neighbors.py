"""
How ``reg`` softens the choice of neighbours
============================================

Which are the k nearest of some distances is a yes or no, without a gradient. Entropic optimal transport makes it a
share between 0 and 1 (Eq. 12 to 14 of the paper): ``soft_indicators`` returns it for each distance, and ``reg`` says
how soft. Distances are measured in units of the row, so that ``reg`` means the same for any data.
"""

import torch
from matplotlib.figure import Figure

from homophily.nn import soft_indicators, soft_similarities

k = 5
distances = torch.linspace(0.2, 3.0, 15, dtype=torch.float64)[None, :]  # one row, ascending
figure = Figure(figsize=(8.4, 3.2), layout="constrained")
left, right = figure.subplots(1, 2)
for reg in (0.03, 0.3, 1.0, 3.0):
    delta, _ = soft_indicators(distances, k, reg=reg)
    left.plot(distances[0], delta[0], marker="o", markersize=4, label=f"reg = {reg:g}")
    right.plot(distances[0], soft_similarities(distances, k, reg=reg)[0], marker="o", markersize=4)
    print(f"reg {reg:4g}: the 5 nearest have {delta[0, :k].sum() / k:.0%} of the mass")
left.axvline(float(distances[0, k - 1 : k + 1].mean()), color="grey", linestyle=":")
left.set(xlabel="distance", ylabel="share of being one of the 5 nearest")
right.set(xlabel="distance", ylabel="similarity $s_{ij}$ (the row sums to 1)")
left.legend(frameon=False)
figure

# %%
# The dotted line separates the fifth distance from the sixth. A gradient flows where shares lie between 0 and 1: with
# too small a ``reg`` nowhere, with too large a one every distance is a neighbour of a kind.

leaning = torch.linspace(0.2, 3.0, 15, dtype=torch.float64).requires_grad_()
delta, _ = soft_indicators(leaning[None, :], k, reg=0.3)
delta[0, 5].backward()  # what would make the sixth one of the five?
print("nearer itself:", f"{leaning.grad[5]:.2f};", "the fifth farther:", f"{leaning.grad[4]:.2f}")
