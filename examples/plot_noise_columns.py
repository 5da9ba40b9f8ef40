"""
Two useful columns among noise
==============================

Two moons in two columns, beside more and more columns of noise. Neighbours in all columns soon say nothing about the
moons; neighbours in the two columns that were chosen do. Nobody told which columns these are.
"""

from matplotlib.figure import Figure

from homophily import PredictiveSelector
from homophily.datasets import make_toy
from homophily.figures.graphs import draw_graph
from homophily.graph import adaptive_knn_graph

figure = Figure(figsize=(9, 5.6), layout="constrained")
panels = figure.subplots(2, 3)
for column, n_noise in enumerate((2, 18, 98)):
    X, y = make_toy("moons", n_noise=n_noise, random_state=0)
    selector = PredictiveSelector(2, random_state=0).fit(X)
    chosen = sorted(selector.selected_features_.tolist())
    print(f"{n_noise} columns of noise: chose columns {chosen}")
    graphs = {
        f"all {X.shape[1]} columns": adaptive_knn_graph(X, 5),
        f"columns {chosen} of {X.shape[1]}": selector.graph_,
    }
    for axes, (name, graph) in zip(panels[:, column], graphs.items(), strict=True):
        between = draw_graph(axes, X[:, :2], graph, y)
        axes.set_title(f"{name}\n{between:.0%} of edges join the moons", fontsize=10)
figure

# %%
# Points stand where the two useful columns put them; a black edge joins the moons.
