"""
Learn the graph of a graph network
==================================

A graph network needs a graph. Where data has none, the usual one joins each sample to its nearest neighbours in all
columns, and is fixed before the training begins. If many columns are noise, so are most of its edges.

Here the graph is a layer. :class:`homophily.nn.UniqueFeatureSelector` chooses columns,
:class:`homophily.nn.KNNGraph` joins the neighbours in these columns, and two rounds of message passing on that graph
classify the samples. All of it is trained at once, by gradient, from few labels: semi-supervised classification of
nodes.

The data is **made up**, so that the true columns are known: 400 samples in 4 overlapping clusters that only 8 of 60
columns tell apart. Five samples of each class have a label. The classes of the other 380 are predicted; the networks
see their columns but not their labels.
"""

# %%
# The data, standardised. The benchmark, ``benchmarks/gnn.py``, also uses real measurements among columns of noise.

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
import torch
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn.functional import cross_entropy

from homophily.datasets import make_planted
from homophily.figures.graphs import draw_graph
from homophily.graph import heat_kernel_graph
from homophily.nn import KNNGraph, NeighborGraph, UniqueFeatureSelector, dirichlet_energy

M, K, WIDTH, STEPS, LEARNING_RATE, LABELS = 8, 10, 16, 400, 0.05, 5
TEMPERATURE = 3.0, 0.1


def planted_in_noise(seed):
    """400 samples in 4 clusters that overlap; 8 of 60 columns know of them."""
    X, y, planted = make_planted(400, 60, 8, spacing=1.0, random_state=seed)
    return StandardScaler().fit_transform(X), y, planted


def wine_with_noise(seed):
    """178 wines of 3 cultivars: 13 measurements and 87 columns of noise."""
    return noise_appended(*load_wine(return_X_y=True), seed)


def cancer_with_noise(seed):
    """569 tumours, benign or not: 30 measurements and 70 columns of noise."""
    return noise_appended(*load_breast_cancer(return_X_y=True), seed)


def noise_appended(X, y, seed):
    """Fill X up to 100 columns with random numbers. Returns it, the classes, and the columns that X had."""
    n, d = X.shape
    noise = np.random.RandomState(seed).standard_normal((n, 100 - d))
    return StandardScaler().fit_transform(np.hstack([X, noise])), y, np.arange(d)


def labelled(y, seed):
    """``LABELS`` random samples of each class."""
    rng = np.random.RandomState(100 + seed)
    return np.concatenate([rng.permutation(np.flatnonzero(y == c))[:LABELS] for c in np.unique(y)])


# %%
# The network. A layer sees the signal of a node beside the weighted mean of its neighbours' signals. Its graph is a
# fixed one, or that of the chosen columns, or there is none, which leaves a multilayer perceptron. The rows of all
# graphs sum to 1 and have the same k.


def fixed_graph(X, k=K):
    """Heat-kernel graph of the rows of X, rows divided by their sums."""
    S = heat_kernel_graph(X, k, sigma=None)
    neighbors = torch.from_numpy(S.indices.reshape(-1, k)).long()
    weights = torch.from_numpy(S.data.reshape(-1, k)).float()
    distances = torch.from_numpy(np.square(X[:, None] - X[neighbors]).sum(-1)).float()
    return NeighborGraph(neighbors, weights / weights.sum(1, keepdim=True), distances, len(X))


class GraphNetwork(nn.Module):
    """Columns, graph, two rounds of messages; ``graph`` is a layer, a fixed NeighborGraph or None."""

    def __init__(self, d, n_classes, graph, select):
        super().__init__()
        self.selector = UniqueFeatureSelector(d, M) if select else None
        self.graph = graph
        sides = 1 if graph is None else 2
        self.first = nn.Linear(sides * (M if select else d), WIDTH)
        self.second = nn.Linear(sides * WIDTH, n_classes)

    def forward(self, X, temperature):
        """Class logits of the nodes, the chosen columns, and their graph."""
        X_hat = X if self.selector is None else self.selector.project(X, temperature)
        S = self.graph(X_hat) if isinstance(self.graph, KNNGraph) else self.graph
        hidden = self.first(with_neighbors(S, X_hat)).relu()
        return self.second(with_neighbors(S, hidden)), X_hat, S


def with_neighbors(S, H):
    """Signals ``H (n, p)`` beside the mean of the neighbours': ``[H, S H]``."""
    if S is None:
        return H
    return torch.cat([H, (S.weights.unsqueeze(-1) * H[S.indices]).sum(-2)], -1)


# %%
# The training, the same for all. Twenty labels are too few to tell 8 columns from 52, so where columns are chosen
# the loss has a second term that needs no labels: the Dirichlet energy of the chosen columns on the graph. (Without a
# choice that is a constant.)


def loss_of(model, X, y, known, temperature):
    """Cross-entropy of the known labels, and the logarithm of the energy."""
    logits, X_hat, S = model(X, temperature)
    loss = cross_entropy(logits[known], y[known])
    if model.selector is not None and S is not None:
        loss = loss + dirichlet_energy(X_hat, S).log()
    return loss


def train(model, X, y, known, steps=STEPS):
    """Adam, while the temperature falls; the losses."""
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    losses = []
    for temperature in np.geomspace(*TEMPERATURE, steps):
        loss = loss_of(model, X, y, known, temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# %%
# Five networks that differ in nothing but the graph and the columns. *Heat graph, chosen columns* chooses columns
# like the learner and has its loss, but a fixed graph: what it lacks is the learned graph alone. *Heat graph, true
# columns* is told which columns are not noise, which nobody is in practice.

LEARNED = "learned graph, chosen columns"
HEAT = "heat graph, all columns"
TRUE = "heat graph, true columns"


def networks(X, informative):
    """Name to (columns of the input, graph, whether columns are chosen)."""
    everything = np.arange(X.shape[1])
    heat = fixed_graph(X)
    return {
        "no graph, all columns": (everything, None, False),
        HEAT: (everything, heat, False),
        "heat graph, chosen columns": (everything, heat, True),
        LEARNED: (everything, KNNGraph(K), True),
        TRUE: (informative, fixed_graph(X[:, informative]), False),
    }


def compare(data, seed, steps=STEPS):
    """Train all networks on ``data(seed)``: name to accuracy, graph, edges within a class, true columns chosen."""
    X, y, informative = data(seed)
    known = labelled(y, seed)
    hidden = np.setdiff1d(np.arange(len(y)), known)
    classes = torch.from_numpy(y).long()
    results = {}
    for name, (columns, graph, select) in networks(X, informative).items():
        torch.manual_seed(seed)
        points = torch.from_numpy(X[:, columns]).float()
        model = GraphNetwork(len(columns), len(np.unique(y)), graph, select)
        losses = train(model, points, classes, known, steps)
        model.eval()  # no more noise in the choice of columns
        with torch.no_grad():
            logits, _, S = model(points, TEMPERATURE[1])
        chosen = None if model.selector is None else model.selector.probabilities.argmax(0).numpy()
        results[name] = {
            "accuracy": float((logits.argmax(1) == classes)[hidden].float().mean()),
            "losses": losses,
            "graph": S,
            "within": None if S is None else weight_within(S, classes),
            "found": None if chosen is None else len(np.intersect1d(chosen, informative)),
        }
    return results


def weight_within(S, classes):
    """Share of the graph's weight on edges that join samples of one class."""
    same = classes[S.indices] == classes[:, None]
    return float((S.weights * same).sum() / S.weights.sum())


def picture(X, y, informative, results):
    """The fixed and the learned graph, drawn on the true columns, and the accuracies."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    places = PCA(2).fit_transform(X[:, informative])
    for axes, name in ((left, HEAT), (middle, LEARNED)):
        S = results[name]["graph"]
        target, source = np.repeat(np.arange(len(y)), S.indices.shape[1]), S.indices.numpy().ravel()
        edges = sp.csr_array((S.weights.numpy().ravel(), (target, source)), shape=(len(y), len(y)))
        edges.eliminate_zeros()
        draw_graph(axes, places, edges, y)
        axes.set_title(f"{name}\n{results[name]['within']:.0%} of the weight within classes", fontsize=10)
    names = list(results)[::-1]
    bars = right.barh(names, [results[name]["accuracy"] for name in names])
    right.bar_label(bars, fmt="%.2f", padding=3)
    right.set(xlim=(0, 1.15), title="accuracy, samples without a label")
    return figure


# %%
# One draw of the data and the labels. ``benchmarks/gnn.py`` repeats it with five seeds, and on real data.
# In the picture edges within a class are grey and those between classes black.

if __name__ == "__main__":
    results = compare(planted_in_noise, seed=0)
    for name, result in results.items():
        within = "" if result["within"] is None else f"  {result['within']:.0%} of the weight within classes"
        found = "" if result["found"] is None else f", {result['found']} of {M} true columns found"
        print(f"{name:30} accuracy {result['accuracy']:.3f}{within}{found}")
    print(f"margin of the learned graph {results[LEARNED]['accuracy'] - results[HEAT]['accuracy']:+.3f}")
    figure = picture(*planted_in_noise(0), results)
