"""KNNGraph inside a graph network: PyTorch Geometric's layers on it, and the example that trains one."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

from homophily.graph import heat_kernel_graph
from homophily.nn import KNNGraph, UniqueFeatureSelector

ROOT = Path(__file__).parents[2]
F64 = torch.float64


def module_at(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example():
    return module_at(ROOT / "examples" / "plot_gnn_layer.py")


@pytest.fixture(scope="module")
def pyg():
    return pytest.importorskip("torch_geometric.nn")


def points(n=40, m=3, seed=0):
    return torch.randn(n, m, dtype=F64, generator=torch.Generator().manual_seed(seed))


# ------------------------------------------------------------------------------------------------- PyTorch Geometric


@pytest.mark.parametrize("exact", [True, False])
def test_summed_messages_are_the_product_with_the_graph(pyg, exact):
    S = KNNGraph(4, exact=exact)(points())
    signal = points(seed=1)
    gathered = pyg.SimpleConv(aggr="sum")(signal, *S.to_edge_index())
    torch.testing.assert_close(gathered, S.to_dense() @ signal)
    assert not torch.allclose(gathered, S.to_dense().T @ signal)  # the other direction would be another layer


def test_graph_convolution_is_the_dense_one(pyg):
    """Rows of the graph sum to 1 and a self-loop weighs 1: GCN's degrees are 2, and its graph is (S + I) / 2."""
    S = KNNGraph(4)(points())
    signal = points(seed=1)
    plain = pyg.GCNConv(3, 2, normalize=False, bias=False).double()
    torch.testing.assert_close(plain(signal, *S.to_edge_index()), S.to_dense() @ plain.lin(signal))
    usual = pyg.GCNConv(3, 2, bias=False).double()
    half = (S.to_dense() + torch.eye(40, dtype=F64)) / 2
    torch.testing.assert_close(usual(signal, *S.to_edge_index()), half @ usual.lin(signal))


def test_gradient_through_messages_is_the_dense_one(pyg):
    """With respect to the points, from which both the signal and the graph come."""
    weight = points(3, 2, seed=2)
    gradients = []
    for dense in (False, True):
        X = points().requires_grad_()
        S = KNNGraph(4)(X)
        mean = S.to_dense() @ X if dense else pyg.SimpleConv(aggr="sum")(X, *S.to_edge_index())
        (mean @ weight).tanh().square().sum().backward()
        gradients.append(X.grad)
    torch.testing.assert_close(*gradients)
    X = points().requires_grad_()
    pyg.SimpleConv(aggr="sum")(points(seed=1), *KNNGraph(4)(X).to_edge_index()).square().sum().backward()
    assert (X.grad.abs().sum(1) > 0).all()  # through the graph alone, at every point


def test_queries_hear_points(pyg):
    X, Q, signal = points(), points(7, seed=3), points(seed=1)
    S = KNNGraph(4)(X, Q)
    heard = pyg.SimpleConv(aggr="sum")((signal, torch.zeros(7, 3, dtype=F64)), *S.to_edge_index())
    assert heard.shape == (7, 3)
    torch.testing.assert_close(heard, S.to_dense() @ signal)


# ------------------------------------------------------------------------------------------------------- the example


@pytest.fixture(scope="module")
def wine(example):
    """The example's data with half of its steps."""
    data = example.wine_with_noise(0)
    results = example.compare(example.wine_with_noise, 0, steps=200)
    return data, results


def small(example, dtype=F64):
    X, y, _ = example.planted_in_noise(0)
    known = example.labelled(y, 0)
    return torch.from_numpy(X).to(dtype), torch.from_numpy(y).long(), known


def network(example, X, graph, select=True):
    torch.manual_seed(0)
    return example.GraphNetwork(X.shape[1], 4, graph, select).to(X.dtype)


def test_a_node_sees_itself_and_the_mean_of_its_neighbours(example):
    H = points(seed=1)
    S = KNNGraph(4)(points())
    torch.testing.assert_close(example.with_neighbors(S, H), torch.cat([H, S.to_dense() @ H], 1))
    assert example.with_neighbors(None, H) is H


def test_fixed_graph_is_the_heat_graph_with_rows_of_sum_1(example):
    X = points(60, 5).numpy()
    S = example.fixed_graph(X)
    expected = heat_kernel_graph(X, example.K, sigma=None).toarray()
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(S.to_dense().numpy(), expected, atol=1e-6)
    assert S.indices.shape == KNNGraph(example.K, exact=True)(points(60, 5)).indices[:, : example.K].shape


def test_five_labels_of_each_class(example):
    _, y, _ = example.wine_with_noise(0)
    known = example.labelled(y, 0)
    assert np.bincount(y[known]).tolist() == [5, 5, 5]
    assert len(set(known)) == 15


def test_gradient_of_the_whole_network_is_the_slope(example):
    """From the logits of the columns through graph, messages and energy, against central differences."""
    X, y, known = small(example)
    X = X[:80]
    known = known[known < 80]
    model = network(example, X, KNNGraph(5, scale="none", reg=3.0, n_candidates=79)).eval()
    logits = model.selector.logits
    example.loss_of(model, X, y, known, 1.0).backward()
    direction = points(*logits.shape, seed=4)
    slope = (logits.grad * direction).sum()
    values = []
    for step in (1e-7, -1e-7):  # small, as there are kinks where a weight becomes 0
        with torch.no_grad():
            logits += step * direction
            values.append(example.loss_of(model, X, y, known, 1.0))
            logits -= step * direction
    torch.testing.assert_close(slope, (values[0] - values[1]) / 2e-7, rtol=1e-4, atol=0)
    assert slope.abs() > 1e-4


def test_labels_reach_the_columns_through_the_graph_alone(example):
    """Where the network sees a signal of its own, only the weights of the edges depend on the columns."""
    X, y, known = small(example)
    selector = UniqueFeatureSelector(X.shape[1], 3, dtype=F64, generator=torch.Generator().manual_seed(0)).eval()
    S = KNNGraph(5)(selector.project(X, 1.0))
    signal = example.with_neighbors(S, points(len(X), 4, seed=5))
    torch.nn.functional.cross_entropy(signal[known, 4:], y[known]).backward()
    assert torch.isfinite(selector.logits.grad).all()
    assert (selector.logits.grad.abs().sum(0) > 0).all()


@pytest.mark.parametrize("graph", ["learned", "fixed", "none"])
def test_training_lowers_the_loss(example, graph):
    """Without noise: the labels are learned, to less than half of what ignorance costs, and the whole loss falls."""
    X, y, known = small(example, torch.float32)
    layer = {"learned": KNNGraph(5), "fixed": example.fixed_graph(X.numpy(), 5), "none": None}[graph]
    model = network(example, X, layer, select=layer is not None)  # as in the example
    before = example.loss_of(model.eval(), X, y, known, 0.1).item()
    example.train(model.train(), X, y, known, steps=300)
    logits = model.eval()(X, 0.1)[0]
    assert example.loss_of(model, X, y, known, 0.1).item() < before
    assert torch.nn.functional.cross_entropy(logits[known], y[known]).item() < np.log(4) / 2


def test_other_labels_are_never_used(example):
    X, y, known = small(example, torch.float32)
    other = torch.zeros_like(y)
    other[known] = y[known]
    runs = [example.train(network(example, X, KNNGraph(5)), X, labels, known, steps=5) for labels in (y, other)]
    assert runs[0] == pytest.approx(runs[1], rel=1e-4)  # threads add up in any order


def test_the_learned_graph_wins(example, wine):
    _, results = wine
    accuracy = {name: result["accuracy"] for name, result in results.items()}
    assert accuracy[example.LEARNED] > accuracy[example.HEAT] + 0.1
    assert results[example.LEARNED]["within"] > results[example.HEAT]["within"] + 0.1
    assert results[example.LEARNED]["found"] >= 5  # of 13 among 100


def test_picture_of_the_example(example, wine):
    data, results = wine
    plt.switch_backend("agg")
    figure = example.picture(*data, results)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0].startswith(example.HEAT)
    assert f"{results[example.LEARNED]['within']:.0%}" in titles[1]
    assert [bar.get_width() for bar in figure.axes[2].patches] == [r["accuracy"] for r in results.values()][::-1]
    plt.close(figure)


def test_benchmark_compares_on_the_same_seed():
    benchmark = module_at(ROOT / "benchmarks" / "gnn.py")
    head, *lines = benchmark.table(seeds=2, steps=2, jobs=1)
    assert all(len(line) == len(head) for line in lines)
    assert len(lines) == 3 * 5
    rows = {tuple(line[:2]): line[2:] for line in lines}
    learned = float(rows["wine, 87 noise columns", "learned graph, chosen columns"][0].split()[0])
    for (data, _), (accuracy, margin, by_seed, _) in rows.items():
        if margin and data.startswith("wine"):
            assert float(margin.split()[0]) == pytest.approx(learned - float(accuracy.split()[0]), abs=0.0011)
            assert np.mean([float(value) for value in by_seed.split(", ")]) == pytest.approx(
                float(margin.split()[0]), abs=0.0011
            )
