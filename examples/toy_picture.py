"""Draw docs/figures/toy.png: the graph of all 20 columns beside the one that DirichletSelector learns.

python examples/toy_picture.py [FILE]
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from homophily import DirichletSelector
from homophily.datasets import TOY_NAMES, make_toy
from homophily.figures.graphs import draw_graph
from homophily.graph import heat_kernel_graph

figure = Figure(figsize=(9, 6.2), layout="constrained")
panels = figure.subplots(2, 3)
for column, name in enumerate(TOY_NAMES):
    X, y = make_toy(name, random_state=0)
    selector = DirichletSelector(2, random_state=0).fit(X)
    for row, (graph, what) in enumerate(
        ((heat_kernel_graph(X, k=5), "all 20 columns"), (selector.graph_, "the 2 chosen columns"))
    ):
        wrong = draw_graph(panels[row, column], X[:, :2], graph, y)
        panels[row, column].set_aspect("equal", adjustable="datalim")
        panels[row, column].set_title(
            f"{name.capitalize()}, {what}\n{wrong:.0%} of edges join two classes", fontsize=10
        )
    print(name, "chosen:", sorted(selector.selected_features_.tolist()))
path = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figures/toy.png")
path.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(path, dpi=110)
