"""Accuracy and time of every method on GLIOMA, Yale and Madelon: what the table in docs/baselines.md shows.

    HOMOPHILY_DATA=folder python benchmarks/baselines.py [--datasets Madelon] [--methods ls,rsr] [--splits 3]
        [--jobs 1] [--store FILE] [--results results]

Features are selected on 80 % of the rows without labels; a random forest of 1000 trees on the selected columns is
trained on the same rows and tested on the others. Seconds are of one core, for the selection alone. Differences are
to the mean of 5 random selections on the same split, with their standard error.

Methods have their default parameters but for those that the paper sets by data set (WAST's and DUFS's); a second RSR
has the penalty of 1000 that the paper's grid holds.

With ``--results`` it writes baselines.csv and baselines.md there. Finished cells are kept in ``--store``, so that a
stopped run goes on.
"""

import argparse
from pathlib import Path

import pandas as pd

from homophily import DirichletSelector
from homophily.baselines import (
    AEFS,
    DUFS,
    FSCA,
    MCFS,
    RSR,
    UDFS,
    WAST,
    AllFeatures,
    ConcreteAutoencoder,
    FastCan,
    FeatureMedoids,
    IndirectConcreteAutoencoder,
    LaplacianScore,
    RandomSelector,
    VarianceSelector,
)
from homophily.datasets import load
from homophily.evaluation import Comparison, RunStore, summary

SIZES = {"GLIOMA": 50, "Yale": 50, "Madelon": 20}


def selectors(dataset):
    """The methods under the names that the table shows."""
    return {
        "dirichlet": DirichletSelector(objective="energy"),
        "LS": LaplacianScore(),
        "RSR": RSR(),
        "RSR, λ = 1000": RSR(reg=1000),
        "UDFS": UDFS(),
        "CAE": ConcreteAutoencoder(),
        "DUFS": DUFS.for_dataset(dataset),
        "WAST": WAST.for_dataset(dataset),
        "AEFS": AEFS(),
        "FSCA": FSCA(),
        "FastCan": FastCan(),
        "MCFS": MCFS(),
        "IP-CAE": IndirectConcreteAutoencoder(),
        "Variance": VarianceSelector(),
        "Medoids": FeatureMedoids(),
        "random": RandomSelector(),
        "AllFea": AllFeatures(),
    }


def measure(name, methods, store, arguments):
    """Rows of the table for one data set."""
    X, y = load(name)
    chosen = selectors(name)
    if methods:
        chosen = {method: selector for method, selector in chosen.items() if method.lower() in methods}
    comparison = Comparison(X, y, methods=chosen, ms=[SIZES[name]], splits=arguments.splits)
    for cell in comparison.run(store, n_jobs=arguments.jobs):
        outcome = cell.failed or f"{cell.accuracy:.3f}  {cell.seconds:.2f} s  {'; '.join(cell.warnings)}"
        print(f"{name}  {cell.method}  split {cell.split + 1}: {outcome}", flush=True)
    table = summary(comparison.finished(store))
    table.insert(0, "dataset", name)
    return table


def markdown(table):
    """The accuracy, its difference to Random and the seconds of each method, one column a data set."""
    names = list(dict.fromkeys(table["dataset"]))
    order = [method for method in selectors("Yale") if method in set(table["method"])]
    lines = [["method", *(f"{name}, m = {SIZES[name]}" for name in names), f"seconds {' / '.join(names)}"]]
    lines.append(["---"] * len(lines[0]))
    for method in order:
        rows = table[table["method"] == method].set_index("dataset")
        cells = []
        for name in names:
            row = rows.loc[name]
            gain = "" if method == "random" else f" ({row['accuracy_gain']:+.3f} ± {row['accuracy_gain_se']:.3f})"
            cells.append(f"{row['accuracy']:.3f} ± {row['accuracy_sd']:.3f}{gain}")
        lines.append([method, *cells, " / ".join(brief(rows.loc[name, "seconds"]) for name in names)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def brief(seconds):
    """Two digits, where there is something to tell."""
    return f"{seconds:.2g}" if seconds >= 0.01 else "< .01"


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join(SIZES))
    parser.add_argument("--methods", default="", help="some of the names in the table, separated by commas")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path, default=":memory:")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    methods = {method.strip().lower() for method in arguments.methods.split(",") if method.strip()}
    with RunStore(arguments.store) as store:
        table = pd.concat([measure(name, methods, store, arguments) for name in arguments.datasets.split(",")])
    text = markdown(table)
    print(f"\n{text}")
    if arguments.results:
        arguments.results.mkdir(parents=True, exist_ok=True)
        table.to_csv(arguments.results / "baselines.csv", index=False, float_format="%.6g")
        (arguments.results / "baselines.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
