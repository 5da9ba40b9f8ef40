"""Clusters planted in noise: how often all planted columns are found, and whether "auto" finds their number.

    [HOMOPHILY_DATA=folder] python benchmarks/planted.py [--seeds 20] [--auto-seeds 5] [--jobs 2] [--results results]

500 samples in 4 clusters, see ``homophily.datasets.make_planted``; seed s draws the data and the training. The first
table is of ``PredictiveSelector(m)`` with the number that was planted: seeds in which all were found, the mean number
found, and the same for both objectives of ``DirichletSelector`` (first 5 seeds). The second is of
``PredictiveSelector("auto")``, on Madelon (20 useful columns) as well where its file is there. Seconds are of one core.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed

from homophily import DirichletSelector, PredictiveSelector
from homophily.datasets import available, load, make_planted

CASES = [(8, 60), (10, 1000)]  # planted, of columns
SPACINGS = [1.0, 1.5, 2.5]
AUTO = [(5, 60), (10, 60), (40, 60), (5, 500), (10, 500), (40, 500), (10, 1000)]


def found(m, d, spacing, seed, cls=PredictiveSelector, **params):
    """How many of the m planted columns are selected, and the seconds that it took."""
    X, _, planted = make_planted(500, d, m, spacing=spacing, random_state=seed)
    start = time.process_time()
    selector = cls(m, random_state=seed, **params).fit(X)
    return len(np.intersect1d(planted, selector.selected_features_)), time.process_time() - start


def number(X, seed):
    """What "auto" says, why, and the seconds of the whole fit."""
    start = time.process_time()
    selector = PredictiveSelector("auto", random_state=seed).fit(X)
    return len(selector.selected_features_), selector.size_rule_, time.process_time() - start


def recovery(seeds, jobs):
    """Lines of the first table."""
    yield ["planted", "spacing", "all found", "mean found", "coverage", "energy", "median seconds"]
    for m, d in CASES:
        for spacing in SPACINGS:
            counts, seconds = zip(
                *Parallel(jobs)(delayed(found)(m, d, spacing, seed) for seed in range(seeds)), strict=True
            )
            others = [
                np.mean(
                    [
                        count
                        for count, _ in Parallel(jobs)(
                            delayed(found)(m, d, spacing, seed, DirichletSelector, objective=name)
                            for seed in range(min(5, seeds))
                        )
                    ]
                )
                for name in ("coverage", "energy")
            ]
            yield [
                f"{m} of {d}",
                f"{spacing}",
                f"{sum(count == m for count in counts)}/{seeds}",
                f"{np.mean(counts):.2f}",
                *(f"{mean:.1f}" for mean in others),
                f"{np.median(seconds):.1f}",
            ]


def numbers(seeds, jobs):
    """Lines of the second table."""
    yield ["data", "auto", "median seconds"]
    cases = {f"{m} of {d}": [make_planted(500, d, m, random_state=s)[0] for s in range(seeds)] for m, d in AUTO}
    if "Madelon" in available():
        X = load("Madelon")[0]
        cases["Madelon, 20 of 500"] = [X[np.random.RandomState(s).permutation(len(X))[:2080]] for s in range(seeds)]
    for name, data in cases.items():
        sizes, _, seconds = zip(*Parallel(jobs)(delayed(number)(X, s) for s, X in enumerate(data)), strict=True)
        yield [name, ", ".join(map(str, sizes)), f"{np.median(seconds):.1f}"]


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--auto-seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, help="folder for planted.md, the tables of docs/objectives.md")
    arguments = parser.parse_args()
    parts = []
    for lines in (recovery(arguments.seeds, arguments.jobs), numbers(arguments.auto_seeds, arguments.jobs)):
        part = []
        for line in lines:
            part.append(f"| {' | '.join(line)} |")
            if len(part) == 1:
                part.append(f"|{' --- |' * len(line)}")
            print(part[-1] if len(part) > 2 else "\n".join(part), flush=True)
        print()
        parts.append("\n".join(part))
    if arguments.results:
        arguments.results.mkdir(parents=True, exist_ok=True)
        (arguments.results / "planted.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
