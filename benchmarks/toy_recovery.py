"""How often ``PredictiveSelector(2)`` finds the two informative columns of the toy data.

    python benchmarks/toy_recovery.py [--seeds 100] [--names circles] [--jobs 2] [--json FILE]

Seed s draws both the data and the training. Prints the rate and the seconds of one fit for each data set, and beside
them, on the first ten seeds, the rates of ``DirichletSelector(2)`` and of its two halves: training without the exchange
of features that follows it (``refine=False``, 500 steps, two starts), and the exchange after a single step of training.
"""

import argparse
import json
import time
from pathlib import Path

from joblib import Parallel, delayed

from homophily import DirichletSelector, PredictiveSelector
from homophily.datasets import TOY_NAMES, make_toy


def recovered(cls, name, seed, **params):
    """Whether the planted pair was found, and the seconds that it took."""
    X, _ = make_toy(name, random_state=seed)
    start = time.perf_counter()
    selector = cls(2, random_state=seed, **params).fit(X)
    return sorted(selector.selected_features_.tolist()) == [0, 1], time.perf_counter() - start


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--names", nargs="+", choices=TOY_NAMES, default=TOY_NAMES)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = {}

    def rate(cls, name, seeds, **params):
        jobs = (delayed(recovered)(cls, name, seed, **params) for seed in range(seeds))
        return zip(*Parallel(arguments.jobs)(jobs), strict=True)

    for name in arguments.names:
        few = min(10, arguments.seeds)
        found, seconds = rate(PredictiveSelector, name, arguments.seeds)
        paper, _ = rate(DirichletSelector, name, few)
        trained, _ = rate(DirichletSelector, name, few, refine=False, max_iter=500, n_init=2)
        exchanged, _ = rate(DirichletSelector, name, few, max_iter=1)
        missed = [seed for seed, good in enumerate(found) if not good]
        figures[name] = {
            "found": sum(found),
            "of": len(found),
            "missed_seeds": missed,
            "median_seconds": sorted(seconds)[len(seconds) // 2],
            "dirichlet": [sum(paper), few],
            "training_alone": [sum(trained), few],
            "exchange_alone": [sum(exchanged), few],
        }
        print(
            f"{name:8} {sum(found):3}/{len(found)}  median {figures[name]['median_seconds']:.1f} s a fit   "
            f"DirichletSelector {sum(paper)}/{few}, "
            f"training alone {sum(trained)}/{few}, exchange alone {sum(exchanged)}/{few}"
            + (f"   missed: {missed}" if missed else ""),
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
