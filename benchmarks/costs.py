"""Fit how the seconds of a fit grow with rows, columns and m, for the estimates of ``homophily reproduce --plan``.

    python benchmarks/costs.py STORE [--write]

STORE is the runs.sqlite of ``homophily reproduce table --quick`` over all data sets, and of ``toy``. With ``--write``
the coefficients go into the package. Prints, for each selector, the coefficients and the largest factor by which a cell
is mispredicted.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import lsq_linear

from homophily.datasets import PAPER_DATASETS
from homophily.evaluation import RunStore
from homophily.experiments.costs import JUDGING
from homophily.experiments.toy import Toy

TARGET = Path(__file__).parents[1] / "src/homophily/experiments/data/costs.csv"


def measured(path):
    """Rows selector, n, d, m, seconds of all fits, and of the judging."""
    rows = []
    with RunStore(path) as store:
        for key, value in store.items():
            if key["experiment"] == "toy" and key["method"] == "homophily":
                rows.append(("DirichletSelector", *Toy.shape, key["m"], value["seconds"]))
            if key["experiment"] != "table" or key["tuning"]:
                continue
            data = PAPER_DATASETS[key["dataset"]]
            m = key["m"] or data.n_features
            place = (0.8 * data.n_samples, data.n_features, m)
            rows.append((key["class"].rsplit(".", 1)[-1], *place, value["seconds"]))
            rows.append((JUDGING, *place, value["judging"]))
    return pd.DataFrame(rows, columns=["selector", "n", "d", "m", "seconds"])


def main():
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    table = []
    for name, own in measured(arguments.store).groupby("selector"):
        own = own.groupby(["n", "d", "m"], as_index=False)["seconds"].mean()
        A = np.column_stack([np.ones(len(own)), np.log(own[["n", "d", "m"]])])  # (cells, 4)
        b = np.log(own["seconds"].clip(lower=1e-3))
        # A little ridge on the exponents: few data sets, and n and d are not independent among them.
        # None is negative: more rows, columns or features never make it faster.
        bounds = ([-np.inf, 0, 0, 0], np.inf)
        ridge = np.diag([0, 0.3, 0.3, 0.3])
        found = lsq_linear(np.vstack([A, ridge]), np.append(b, np.zeros(4)), bounds).x
        worst = np.exp(np.abs(A @ found - b)).max()
        print(f"{name:20s} {'  '.join(f'{value:7.3f}' for value in found)}   off by at most {worst:.1f}x")
        table.append((name, *found))
    if arguments.write:
        frame = pd.DataFrame(table, columns=["selector", "constant", "n", "d", "m"])
        frame.to_csv(TARGET, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    main()
