"""The default against chance and every rival on ten data sets, nobody tuned: the table of docs/objectives.md.

    HOMOPHILY_DATA=folder python benchmarks/quality.py [--datasets Yale,Madelon] [--methods homophily,wast]
        [--splits 10] [--jobs 2] [--store FILE] [--results results]

Features are selected on 80 % of the rows without labels, m = 25 and 50 (Madelon 10 and 20), and judged on the others by
a random forest of 200 trees, k-means and a network that reconstructs. Methods have their defaults, WAST and DUFS what
their paper sets by data set. Gains are differences to the mean of 5 random selections of the same size on the same
split; larger sets (COIL-20, PCMAC, Madelon) have a third of the splits, at least 3. Finished cells are kept in
``--store``, so that a stopped run goes on.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from homophily import DirichletSelector, PredictiveSelector
from homophily.datasets import available, load
from homophily.evaluation import Comparison, RunStore, summary
from homophily.experiments.settings import selector_for

OWN = {
    "homophily": PredictiveSelector(),
    "energy": DirichletSelector(objective="energy"),
    "coverage": DirichletSelector(objective="coverage"),
}
RIVALS = (
    *("cae", "wast", "aefs", "udfs", "rsr", "ls", "dufs"),  # the paper's
    *("fsca", "fastcan", "mcfs", "ipcae", "variance", "medoids"),
)
LARGE = ("COIL-20", "PCMAC", "Madelon")
METRICS = {"accuracy": 1, "clustering": 1, "reconstruction": -1}  # and the direction that is better


def comparison(name, methods, splits):
    """All methods on one data set."""
    X, y = load(name)
    selectors = {
        method: OWN[method] if method in OWN else selector_for(method, name, literal=False) for method in methods
    }
    return Comparison(
        X,
        y,
        methods=selectors,
        ms=[10, 20] if name == "Madelon" else [25, 50],
        splits=max(3, splits // 3) if name in LARGE else splits,
        n_estimators=200,
        max_updates=1000,
        experiment="quality",
        dataset=name,
    )


def table(results, methods):
    """For each method and task, the mean gain over the data sets with its standard error and where it is positive."""
    rows = []
    for method in methods:
        own = results[results["method"] == method]
        row = {"method": method, "accuracy": own["accuracy"].mean()}
        for metric, sign in METRICS.items():
            gains = sign * own.groupby("dataset")[f"{metric}_gain"].mean()
            row |= {f"{metric}_gain": gains.mean(), f"{metric}_se": gains.sem(), f"{metric}_better": (gains > 0).sum()}
        row |= {"datasets": own["dataset"].nunique(), "seconds": own["seconds"].max()}
        rows.append(row)
    return pd.DataFrame(rows)


def markdown(results, gains):
    """Two tables: over all data sets, and the accuracy's gain on each."""
    lines = [["method", "accuracy", *(f"{metric}, gain over Random" for metric in METRICS), "longest fit"]]
    for _, row in gains.iterrows():
        cells = [
            f"{row[f'{metric}_gain']:+.3f} ± {row[f'{metric}_se']:.3f}, {row[f'{metric}_better']}/{row['datasets']}"
            for metric in METRICS
        ]
        lines.append([row["method"], f"{row['accuracy']:.3f}", *cells, f"{row['seconds']:.1f} s"])
    names = sorted(set(results["dataset"]))
    per_set = [["method", *names]]
    for method in gains["method"]:
        own = results[results["method"] == method].groupby("dataset")
        mean, error = own["accuracy_gain"].mean(), own["accuracy_gain_se"].apply(lambda e: np.sqrt((e**2).mean()))
        per_set.append([method, *(f"{mean[name]:+.3f} ± {error[name]:.3f}" if name in mean else "" for name in names)])
    return "\n\n".join(
        "\n".join(f"| {' | '.join(line)} |" for line in [part[0], ["---"] * len(part[0]), *part[1:]])
        for part in (lines, per_set)
    )


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join(available()))
    parser.add_argument("--methods", default=",".join([*OWN, *RIVALS]))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path, default=":memory:")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    methods = arguments.methods.split(",")
    tables = []
    with RunStore(arguments.store) as store:
        for name in arguments.datasets.split(","):
            each = comparison(name, methods, arguments.splits)
            for cell in each.run(store, n_jobs=arguments.jobs):
                outcome = cell.failed or f"{cell.accuracy:.3f}  {cell.seconds:.1f} s"
                print(f"{name}  {cell.method}  m = {cell.m}, split {cell.split + 1}: {outcome}", flush=True)
            here = summary(each.finished(store))
            here.insert(0, "dataset", name)
            tables.append(here)
    results = pd.concat(tables, ignore_index=True)
    text = markdown(results, table(results, methods))
    print(f"\n{text}")
    if arguments.results:
        arguments.results.mkdir(parents=True, exist_ok=True)
        results.to_csv(arguments.results / "quality.csv", index=False, float_format="%.6g")
        (arguments.results / "quality.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
