"""Figures say what the data say, in files that come out the same."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from homophily import figures
from homophily.figures.graphs import draw_graph, sample_graph
from homophily.figures.style import BLUE, GREY, ORANGE, blank, inline_svg, literal
from homophily.graph import adaptive_knn_graph, laplacian, symmetrize


@pytest.fixture(name="graph")
def points_and_graph():
    rng = np.random.RandomState(0)
    points = rng.normal(size=(20, 2))
    return points, adaptive_knn_graph(points, 3), rng.normal(size=20)


def texts(figure):
    """Titles and labels, in order."""
    return [text for axes in figure.axes for text in (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) if text]


def test_signals_stand_with_their_energy(graph):
    points, S, v = graph
    figure = figures.signals_on_graphs(points, {"noise": (S, 3 * v + 7), "constant": (S, np.ones(20))})
    unit = (v - v.mean()) / np.linalg.norm(v - v.mean())
    energy = unit @ laplacian(symmetrize(S)).toarray() @ unit
    assert texts(figure) == [f"noise\nenergy {energy:.2f}", "constant\nenergy 0.00"]
    edges, bars = figure.axes[0].collections[:2]
    assert len(edges.get_segments()) == sp.triu(symmetrize(S), 1).nnz
    heights = [top[1] - foot[1] for foot, top in bars.get_segments()]
    np.testing.assert_allclose(np.array(heights) / max(map(abs, heights)), unit / np.abs(unit).max())


def test_edges_between_classes_are_counted_and_coloured(graph):
    points, S, _ = graph
    y = (points[:, 0] > 0).astype(int)
    i, j = S.tocoo().coords
    between = y[i] != y[j]
    axes = blank(2, 2).subplots()
    assert draw_graph(axes, points, S, y, within=BLUE, between=ORANGE) == pytest.approx(between.mean())
    within, across = axes.collections[:2]
    assert len(within.get_segments()) == (~between).sum()
    assert to_hex(across.get_color()[0]) == ORANGE.lower()
    assert len(across.get_segments()) == between.sum()
    assert draw_graph(axes, points, S) == 0
    figure = figures.embedded_graphs({"set": ([figures.EmbeddedGraph("ours", points, S)] * 2, y)})
    assert texts(figure) == [f"set, ours\n{between.mean():.1%} of edges join two classes"] * 2


def test_wider_edges_are_more_similar(graph):
    points, S, _ = graph
    axes = blank(2, 2).subplots()
    draw_graph(axes, points, S)
    widths = axes.collections[0].get_linewidths()
    assert np.array_equal(np.argsort(widths, kind="stable"), np.argsort(S.tocoo().data, kind="stable"))


def test_toy_panels(graph):
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(30, 20)), np.arange(30) % 2
    S, F = adaptive_knn_graph(X, 5), np.eye(2, 20)
    result = figures.ToyResult("moons", X, y, S, S, F, S, F[::-1])
    figure = figures.toy_panels([result, result._replace(name="blobs")])
    assert len(figure.axes) == 12
    assert [axes.get_title() for axes in figure.axes[:6]] == [
        "(a) data",
        "(b) Heat graph",
        "(c) learned graph",
        "(d) F",
        "(e) graph without UFS",
        "(f) F without UFS",
    ]
    assert [axes.get_ylabel() for axes in (figure.axes[1], figure.axes[7])] == ["Moons", "Blobs"]
    heights = [bar.get_height() for bar in figure.axes[3].patches]
    assert heights == F.flatten().tolist()


def test_selected_pixels_are_where_they_belong():
    X = np.arange(2 * 6.0).reshape(2, 6)
    figure = figures.selected_pixels(X, (2, 3), [5, 0])
    (axes,) = figure.axes
    assert axes.collections[0].get_offsets().tolist() == [[2, 1], [0, 0]]  # column, row
    assert axes.images[0].get_array().tolist() == X.mean(0).reshape(2, 3).tolist()
    with pytest.raises(ValueError, match="Images of 2 x 2 have 4 pixels, and the data have 6 features"):
        figures.selected_pixels(X, (2, 2), [0])


def test_reconstructions_are_framed_by_their_part():
    images = np.random.RandomState(0).uniform(size=(3, 6))
    figure = figures.reconstructions(images, images / 2, (2, 3), [True, False, False])
    assert len(figure.axes) == 6
    frames = [to_hex(axes.spines["left"].get_edgecolor()) for axes in figure.axes]
    assert frames == 2 * [BLUE.lower(), ORANGE.lower(), ORANGE.lower()]
    np.testing.assert_allclose(figure.axes[3].images[0].get_array(), images[0].reshape(2, 3) / 2)
    assert figure.axes[3].images[0].get_clim() == (images[0].min(), images[0].max())  # as bright as the original


def test_training_curves():
    steps = 1000
    history = {"energy": np.linspace(5, 1, steps), "temperature": np.geomspace(2, 0.1, steps), "open": np.ones(steps)}
    figure = figures.training_curves(history)
    assert [axes.get_yscale() for axes in figure.axes] == ["linear", "log", "linear"]
    assert figure.axes[2].get_ylim() == (0, 1.02)
    x, y = figure.axes[0].lines[0].get_data()
    assert (x[0], x[-1], y[0], y[-1]) == (1, steps, 5, 1)
    assert len(x) <= 400
    with pytest.raises(ValueError, match="history is empty"):
        figures.training_curves({})


def test_size_path_marks_the_size():
    figure = figures.size_path({"n_features": np.arange(1, 5), "explained": np.arange(4) / 4}, 3)
    assert [axes.lines[-1].get_xdata() for axes in figure.axes] == [[3, 3]]


def test_sensitivity_stars_the_best_and_rings_the_default():
    points = pd.DataFrame(
        {
            "dataset": "Jaffe",
            "variant": "whole",
            "parameter": ["k", "k", "k", "lr"],
            "value": ["10", "5", "1", "by size"],
            "mean": [0.9, 0.8, 0.7, 0.8],
            "std": 0.1,
            "default": [False, True, False, True],
        }
    )
    figure = figures.sensitivity_curves(points)
    k, rate = figure.axes
    assert [label.get_text() for label in k.get_xticklabels()] == ["1", "5", "10"]
    assert [dots.get_offsets().tolist() for dots in k.collections[-2:]] == [[[2, 0.9]], [[1, 0.8]]]
    assert [dots.get_offsets().tolist() for dots in rate.collections[-2:]] == [[[0, 0.8]], [[0, 0.8]]]


def test_ours_beside_the_paper():
    table = pd.DataFrame(
        {
            "task": ["classification", "classification", "reconstruction"],
            "dataset": ["Yale", "Jaffe", "Yale"],
            "method": "dirichlet",
            "mean": [0.7, 0.9, 0.5],
            "std": 0.1,
            "paper_mean": [0.8, np.nan, 0.4],
            "paper_std": 0.05,
        }
    )
    figure = figures.beside_paper(table)
    assert [axes.get_title() for axes in figure.axes] == ["accuracy", "reconstruction RMSE"]
    assert [line.get_xdata().tolist() for line in figure.axes[0].lines] == [[0.7], [0.8]]
    with pytest.raises(ValueError, match="no row of 'cae'"):
        figures.beside_paper(table, "cae")


def test_gains_are_in_order_and_beside_the_line_of_chance():
    rows = [("accuracy", "2 features", "a", 0.1, 0.02), ("accuracy", "2 features", "b", 0.3, 0.01)]
    rows += [("accuracy", "4 features", "a", -0.1, float("nan")), ("RMSE, less", "2 features", "c", 0.2, 0.1)]
    gains = pd.DataFrame(rows, columns=["measure", "group", "method", "gain", "error"])
    figure = figures.gains_over_random(gains)
    assert [axes.get_title() for axes in figure.axes] == ["accuracy", "RMSE, less"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["b", "a", "c"]
    chance, two, four = figure.axes[0].lines
    assert set(chance.get_xdata()) == {0}
    assert two.get_xdata()[:2].tolist() == [0.3, 0.1]
    assert four.get_xdata()[1] == -0.1
    with pytest.raises(ValueError, match="no gain"):
        figures.gains_over_random(gains.assign(gain=float("nan")))


def test_growth_adds_up():
    figure = figures.growth(pd.DataFrame({"rows": [10, 1000], "reading": [1.0, 2.0], "training": [3.0, 3.0]}))
    assert figure.axes[0].lines[0].get_ydata().tolist() == [4, 5]
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["in all", "reading", "training"]


def test_frequencies_are_in_order():
    figure = figures.selection_frequencies(np.array([0.2, 0, 1, 0.5]), [2, 0], list("abcd"))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["c", "d", "a"]
    assert sorted(bar.get_width() for bar in axes.patches) == [20, 50, 100]


def test_chance_shows_the_selection():
    figure = figures.beside_chance(0.5, np.linspace(1, 2, 100), "energy")
    (axes,) = figure.axes
    assert axes.lines[0].get_xdata() == [0.5, 0.5]
    assert axes.get_xlim()[0] < 0.5
    assert sum(bar.get_height() for bar in axes.patches) == 100


def test_names_are_no_formulas(tmp_path):
    names = ["$x_1$", "a" * 50, "price $", "<b>", "tab\there"]
    figure = figures.redundancy_map(np.eye(5), names)
    svg = inline_svg(figure)  # a half formula would fail here
    assert svg.startswith("<svg")
    assert "#000000" not in svg
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown == [r"\$x_1\$", "a" * 17 + "…", r"price \$", "<b>", "tab here"]
    assert literal("x" * 40) == "x" * 40
    figures.save(sample_graph(np.eye(5, 2), sp.csr_array(np.eye(5)), np.zeros(5, int), ["$"]), tmp_path / "graph")


def test_classes_are_told_apart_and_missing_labels_are_grey():
    rng = np.random.RandomState(0)
    codes = np.array([*range(12), -1, 0])
    figure = sample_graph(rng.normal(size=(14, 2)), sp.csr_array((14, 14)), codes, [f"class {i}" for i in range(12)])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*(f"class {i}" for i in range(12)), "no label"]
    points = [
        part for part in figure.axes[0].collections if isinstance(part, PathCollection) and len(part.get_offsets())
    ]
    looks = {
        tuple(offset): (color, len(part.get_paths()[0]))
        for part in points
        for offset, color in zip(part.get_offsets().tolist(), map(to_hex, part.get_facecolors()), strict=True)
    }
    assert len(looks) == 14
    assert len(set(looks.values())) == 13  # two samples are of one class
    assert GREY in {color for color, _ in looks.values()}


def test_files_come_out_the_same(tmp_path, graph):
    points, S, v = graph
    files = [
        figures.save(figures.signals_on_graphs(points, {"noise": (S, v)}), tmp_path / name) for name in ("one", "two")
    ]
    assert [file.suffix for file in files[0]] == [".svg", ".png"]
    for one, two in zip(*files, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert not any(line.endswith(" ") for line in files[0][0].read_text().splitlines())
