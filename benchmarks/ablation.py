"""What each part of the default is worth: accuracy without it, on the paper's data and on two bags of words.

    HOMOPHILY_DATA=folder python benchmarks/ablation.py [--datasets Yale,topics] [--splits 10] [--results results]

Features are selected on 80 % of the rows without labels, m = 25 and 50 (Madelon 20, the texts 50), and judged on the
others by a random forest of 200 trees. Gains are differences to the mean of 5 random selections on the same split;
larger sets (COIL-20, PCMAC, Madelon, the texts) have a third of the splits, at least 3. Seconds are of one core.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from texts import docstrings, topics

from homophily import PredictiveSelector
from homophily.baselines import FSCA
from homophily.datasets import available, load
from homophily.predictive.lines import AllColumns, LeaveOneOut
from homophily.predictive.search import exchange, grow
from homophily.preprocessing import standardize

TEXTS = {"docstrings": docstrings, "topics": topics}
LARGE = ("COIL-20", "PCMAC", "Madelon", *TEXTS)


def search(X, m, *, farthest=3.0, weighted=True, ridge=1.0, exchanged=True):
    """The search of ``PredictiveSelector``, each part of which can be left out."""
    data = standardize(X)
    Z = np.clip(data.values, -farthest, farthest)
    Z -= Z.mean(0)
    weights = np.clip(AllColumns(Z, len(Z) * ridge).shares(), 0, 1) if weighted else np.ones(Z.shape[1])
    model = LeaveOneOut(Z, len(Z) * ridge, weights)
    grow(model, m, lambda J: False)
    if exchanged:
        exchange(model, lambda J: False)
    return data.kept[model.chosen]


VARIANTS = {
    "default": lambda X, m: PredictiveSelector(m, final_graph="none", random_state=0).fit(X).selected_features_,
    "values not bounded": lambda X, m: search(X, m, farthest=np.inf),
    "values up to 2": lambda X, m: search(X, m, farthest=2.0),
    "values up to 4": lambda X, m: search(X, m, farthest=4.0),
    "all columns weigh the same": lambda X, m: search(X, m, weighted=False),
    "ridge 3 n": lambda X, m: search(X, m, ridge=3.0),
    "ridge n / 3": lambda X, m: search(X, m, ridge=1 / 3),
    "no exchange": lambda X, m: search(X, m, exchanged=False),
    "rows not left out (FSCA)": lambda X, m: FSCA(m).fit(X).selected_features_,
}


def judged(X, y, train, test, columns, seed):
    """Accuracy of a forest on the chosen columns."""
    forest = RandomForestClassifier(200, random_state=seed).fit(X[train][:, columns], y[train])
    return forest.score(X[test][:, columns], y[test])


def results(names, variants, splits):
    """One row for each data set, split, m and variant."""
    for name in names:
        X, y = TEXTS[name]() if name in TEXTS else load(name)
        for seed in range(max(3, splits // 3) if name in LARGE else splits):
            order = np.random.RandomState(seed).permutation(len(X))
            train, test = np.split(order, [round(0.8 * len(X))])
            usable = np.flatnonzero(X[train].std(0) > 0)
            for m in [20] if name == "Madelon" else [50] if name in TEXTS else [25, 50]:
                rng = np.random.RandomState(1000 + seed)
                draws = [usable[rng.permutation(len(usable))[:m]] for _ in range(5)]
                chance = np.mean([judged(X, y, train, test, columns, seed) for columns in draws])
                for variant in variants:
                    start = time.process_time()
                    columns = VARIANTS[variant](X[train], m)
                    seconds = time.process_time() - start
                    gain = judged(X, y, train, test, columns, seed) - chance
                    yield {"dataset": name, "split": seed, "m": m, "variant": variant, "gain": gain, "seconds": seconds}
        print(name, flush=True)


def markdown(table):
    """Mean gain of each variant on each data set, with its standard error, and the mean over the paper's data."""
    shape = {"index": "variant", "columns": "dataset", "values": "gain", "sort": False}
    mean, error = table.pivot_table(**shape), table.pivot_table(**shape, aggfunc="sem")
    own = [name for name in mean.columns if name not in TEXTS]
    seconds = table.groupby("variant")["seconds"].max()
    rows = [["variant", "mean", *mean.columns, "longest fit"]]
    for variant in mean.index:
        cells = [f"{mean.loc[variant, name]:+.3f} ± {error.loc[variant, name]:.3f}" for name in mean.columns]
        overall = f"{mean.loc[variant, own].mean():+.3f}" if own else ""
        rows.append([variant, overall, *cells, f"{seconds[variant]:.1f} s"])
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join([*available(), *TEXTS]))
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    table = pd.DataFrame(results(arguments.datasets.split(","), arguments.variants.split(","), arguments.splits))
    text = markdown(table)
    print(text)
    if arguments.results:
        arguments.results.mkdir(parents=True, exist_ok=True)
        (arguments.results / "ablation.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
