"""
What the Dirichlet energy measures
==================================

Samples are the nodes of a graph, a feature is a number on each node, and the energy adds up the squared differences
over the edges, weighted by similarity (Eq. 1 of the paper). It is low if neighbours have similar values, so it depends
on both: a feature that belongs to the graph, and a graph that belongs to the feature.
"""

import numpy as np

from homophily.figures import signals_on_graphs
from homophily.graph import adaptive_knn_graph

angles = np.linspace(0, 2 * np.pi, 15, endpoint=False)
circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
aside = np.array([1.5, 0])
points = np.concatenate([circle - aside, circle + aside])  # two rings

rng = np.random.default_rng(0)
graph = adaptive_knn_graph(points, k=2)
unrelated = adaptive_knn_graph(rng.normal(size=points.shape), k=2)

figure = signals_on_graphs(
    points,
    {
        "a coordinate on its graph": (graph, points[:, 0]),
        "noise on the same graph": (graph, rng.normal(size=len(points))),
        "the coordinate on another graph": (unrelated, points[:, 0]),
    },
)
figure

# %%
# The third picture is why features and graph are learned together: a graph of all columns is spoilt by those that are
# noise, and on a spoilt graph even the right feature looks bad.
