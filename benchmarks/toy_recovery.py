"""How often ``DirichletSelector(2)`` finds the two informative columns of the toy data.

    python benchmarks/toy_recovery.py [--seeds 100] [--jobs 2] [--json FILE]

Seed s draws both the data and the training. Prints the rate and the seconds of one fit for each data set, and beside
them the rate of the single runs before features are exchanged (``refine=False``) on the first ten seeds, to show what
training alone achieves.
"""

import argparse
import json
import time
from pathlib import Path

from joblib import Parallel, delayed

from homophily import DirichletSelector
from homophily.datasets import TOY_NAMES, make_toy


def recovered(name, seed, **params):
    """Whether the planted pair was found, and the seconds that it took."""
    X, _ = make_toy(name, random_state=seed)
    start = time.perf_counter()
    selector = DirichletSelector(2, random_state=seed, **params).fit(X)
    return sorted(selector.selected_features_.tolist()) == [0, 1], time.perf_counter() - start


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = {}
    for name in TOY_NAMES:
        found, seconds = zip(
            *Parallel(arguments.jobs)(delayed(recovered)(name, seed) for seed in range(arguments.seeds)), strict=True
        )
        alone, _ = zip(
            *Parallel(arguments.jobs)(
                delayed(recovered)(name, seed, refine=False, n_init=1) for seed in range(min(10, arguments.seeds))
            ),
            strict=True,
        )
        missed = [seed for seed, good in enumerate(found) if not good]
        figures[name] = {
            "found": sum(found),
            "of": len(found),
            "missed_seeds": missed,
            "median_seconds": sorted(seconds)[len(seconds) // 2],
            "one_run_without_refinement": [sum(alone), len(alone)],
        }
        print(
            f"{name:8} {sum(found):3}/{len(found)}  median {figures[name]['median_seconds']:.1f} s a fit"
            f"   one run without refinement: {sum(alone)}/{len(alone)}" + (f"   missed: {missed}" if missed else ""),
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
