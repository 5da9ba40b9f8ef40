"""Madelon (2600 x 500, 20 useful columns): useful columns found, accuracy and time of ``PredictiveSelector(20)``.

    HOMOPHILY_DATA=folder python benchmarks/madelon.py [--splits 3] [--json FILE]

Features are selected on 80 % of the rows without labels; a random forest of 1000 trees on the selected columns is
trained on the same rows and tested on the others. Seconds are of one core (process time, no threads). Beside the
default, the useful columns found by ``DirichletSelector(20)`` and its two halves: training without the exchange of
features that follows it (``refine=False``, 500 steps, two starts), and the exchange after a single step of training.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from homophily import DirichletSelector, PredictiveSelector
from homophily.datasets import load

USEFUL = {28, 48, 64, 105, 128, 153, 241, 281, 318, 336, 338, 378, 433, 442, 451, 453, 455, 472, 475, 493}


def useful(selector):
    """How many of the useful columns were selected."""
    return len(USEFUL & set(selector.selected_features_.tolist()))


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    X, y = load("Madelon")
    rows = []
    for split in range(arguments.splits):
        train, test = train_test_split(np.arange(len(X)), test_size=0.2, random_state=split)
        start = time.process_time()
        selector = PredictiveSelector(20, random_state=split).fit(X[train])
        seconds = time.process_time() - start
        chosen = selector.selected_features_
        halves = {
            half: DirichletSelector(20, random_state=split, **params).fit(X[train])
            for half, params in (
                ("dirichlet", {}),
                ("training_alone", {"refine": False, "max_iter": 500, "n_init": 2}),
                ("exchange_alone", {"max_iter": 1}),
            )
        }
        forest = RandomForestClassifier(1000, n_jobs=-1, random_state=split).fit(X[train][:, chosen], y[train])
        rows.append(
            {
                "useful": useful(selector),
                **{half: useful(fitted) for half, fitted in halves.items()},
                "accuracy": float(forest.score(X[test][:, chosen], y[test])),
                "seconds": seconds,
                "energy": selector.energy_,
            }
        )
        print(f"split {split}: " + "  ".join(f"{k} {v:.4g}" for k, v in rows[-1].items()), flush=True)
    accuracy = [row["accuracy"] for row in rows]
    print(
        f"useful columns at least {min(row['useful'] for row in rows)} of 20, accuracy {np.mean(accuracy):.3f} "
        f"± {np.std(accuracy):.3f}, at most {max(row['seconds'] for row in rows):.0f} s of one core"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
