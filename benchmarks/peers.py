"""Seconds to the selected features beside the methods that train a network: CAE, IP-CAE, DUFS, AEFS and WAST.

    HOMOPHILY_DATA=folder python benchmarks/peers.py [--datasets GLIOMA] [--repeats 3] [--json FILE]

GLIOMA and Yale with m = 50, Madelon with m = 20, on 80 % of the rows. Seconds are of one core (process time, one thread
for torch and BLAS), for ``fit`` alone, the median of ``--repeats`` splits; methods take turns, so that a busy machine
slows them all. Parameters are the defaults, but for those that the paper sets by data set (WAST's and DUFS's). The
ratio says how many times longer a method takes than ``PredictiveSelector``.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from homophily import PredictiveSelector
from homophily.baselines import AEFS, DUFS, WAST, ConcreteAutoencoder, IndirectConcreteAutoencoder
from homophily.datasets import load

SIZES = {"GLIOMA": 50, "Yale": 50, "Madelon": 20}


def selectors(dataset, m, seed):
    """The methods by name, ours first."""
    return {
        "homophily": PredictiveSelector(m, random_state=seed),
        "CAE": ConcreteAutoencoder(m, random_state=seed),
        "IP-CAE": IndirectConcreteAutoencoder(m, random_state=seed),
        "DUFS": DUFS(m, random_state=seed, **DUFS.dataset_params.get(dataset, {})),
        "AEFS": AEFS(m, random_state=seed),
        "WAST": WAST(m, random_state=seed, **WAST.dataset_params[dataset]),
    }


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # what methods say of their results is not the subject here
    figures = {}
    for dataset in arguments.datasets:
        X, _ = load(dataset)
        seconds = {}
        with threadpool_limits(1):
            ConcreteAutoencoder(2, max_iter=2, random_state=0).fit(X[:, :20])  # torch's start-up is nobody's
            for split in range(arguments.repeats):
                train, _ = train_test_split(np.arange(len(X)), test_size=0.2, random_state=split)
                for name, selector in selectors(dataset, SIZES[dataset], split).items():
                    start = time.process_time()
                    selector.fit(X[train])
                    seconds.setdefault(name, []).append(time.process_time() - start)
        median = {name: float(np.median(values)) for name, values in seconds.items()}
        figures[dataset] = {name: {"seconds": s, "ratio": s / median["homophily"]} for name, s in median.items()}
        line = "   ".join(f"{name} {s:.1f} s ({s / median['homophily']:.1f}x)" for name, s in median.items())
        print(f"{dataset:8} {line}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
