"""A graph network on a learned graph, on fixed ones and on none: accuracy with five labels a class.

    python benchmarks/gnn.py [--seeds 5] [--steps 400] [--jobs 1] [--results results]

Networks, data and training are those of ``examples/plot_gnn_layer.py``; seed s draws the noise or the clusters, the
labelled samples and the start. k, learning rate, temperatures, steps and the weight of the energy were settled on seeds
from 100 on of the first two kinds of data. Means ± standard deviations over the seeds; margins are those of the
learned graph on the same seed.
"""

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

EXAMPLE = Path(__file__).parent.parent / "examples" / "plot_gnn_layer.py"
HEAD = ["data", "network", "accuracy", "margin of the learned graph", "seed by seed", "weight within classes"]
DATA = {
    "planted_in_noise": "planted, 52 noise columns",
    "wine_with_noise": "wine, 87 noise columns",
    "cancer_with_noise": "breast cancer, 70 noise columns",
}


def load_example():
    """The example as a module; what it prints and draws is left out."""
    spec = importlib.util.spec_from_file_location("plot_gnn_layer", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def one(name, seed, steps):
    """Network to (accuracy, share of the weight within classes)."""
    torch.set_num_threads(1)
    example = load_example()
    results = example.compare(getattr(example, name), seed, steps)
    return {network: (r["accuracy"], r["within"]) for network, r in results.items()}


def table(seeds, steps, jobs):
    """Lines of the table."""
    learned = load_example().LEARNED
    yield HEAD
    for name, title in DATA.items():
        runs = Parallel(jobs)(delayed(one)(name, seed, steps) for seed in range(seeds))
        reference = np.array([run[learned][0] for run in runs])
        for network in runs[0]:
            accuracy, within = zip(*(run[network] for run in runs), strict=True)
            margin = reference - accuracy
            yield [
                title,
                network,
                spread(accuracy),
                "" if network == learned else spread(margin, "+"),
                "" if network == learned else ", ".join(f"{value:+.3f}" for value in margin),
                "" if within[0] is None else f"{np.mean(within):.0%}",
            ]


def spread(values, sign=""):
    """Mean ± standard deviation."""
    return f"{np.mean(values):{sign}.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.3f}"


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, help="folder for gnn.md, the table of docs/gnn.md")
    arguments = parser.parse_args()
    lines = []
    for cells in table(arguments.seeds, arguments.steps, arguments.jobs):
        lines.append(f"| {' | '.join(cells)} |")
        if len(lines) == 1:
            lines.append(f"|{' --- |' * len(cells)}")
        print(lines[-1] if len(lines) > 2 else "\n".join(lines), flush=True)
    if arguments.results:
        arguments.results.mkdir(parents=True, exist_ok=True)
        (arguments.results / "gnn.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
