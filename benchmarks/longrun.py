"""A thousand fits in one process, and what grows meanwhile.

    python benchmarks/longrun.py [--fits 1000] [--baselines 100] [--reports 50] [--stores 1000]

Fits ``DirichletSelector`` on small data with a new seed each time, then every other method, writes reports, and opens
and closes stores of results. Prints after every tenth of the rounds the resident memory, the open files, the threads
and the tensors that are alive. The first rounds load what is loaded late; from the third tenth on nothing may grow, but
memory by a few pages: exit code 1 says that something did.
"""

import argparse
import gc
import os
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import torch

from homophily import DirichletSelector
from homophily.baselines import BASELINES
from homophily.evaluation import RunStore
from homophily.report import look, write_report

ROWS, COLUMNS = 80, 12
GROWTH_MB = 4.0  # a heap is seldom returned to the page


def data(seed=0):
    """Two clusters in three of twelve columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, COLUMNS))
    X[:, :3] += 4 * rng.integers(2, size=(ROWS, 1))
    return X


def counts():
    """Resident megabytes, open files, threads of Python and of the system, tensors."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "tasks": int(status["Threads"]),
        "tensors": sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()),
    }


def fit(seed, X):
    """One small fit, with a callback, restarts and threads."""
    DirichletSelector(3, max_iter=6, n_init=2, n_jobs=2, batch_size="all", random_state=seed).fit(
        X, callback=lambda progress: False
    )


def report(number, X, folder):
    """One report of a selection."""
    features = np.array([0, 1])
    write_report(
        folder / f"{number}.html",
        summary={"Data": "memory", "Seed": number},
        selected=[
            {"rank": i + 1, "index": i, "name": f"x{i}", "score": 1.0, "shown": "1.000", "copies": ""} for i in features
        ],
        score_meaning="a score",
        history={"loss": np.linspace(1, 0, 20), "energy": np.linspace(2, 1, 20)},
        notes=[],
        usage="",
        insight=look(X, features, 5, None),
        n_samples=len(X),
        image_shape=None,
        path={},
        size_reason="",
        stability=None,
    )


def store(number, folder):
    """Open a store, put one cell, close it."""
    with RunStore(folder / f"{number % 10}.sqlite") as opened:
        opened.put({"number": number}, {"value": number})


def watch(what, rounds, work):
    """Do ``work(i)`` that many times and print the counts ten times; what grew."""
    found = []
    print(f"\n{what:24} {'RSS MB':>9} {'files':>6} {'threads':>8} {'tasks':>6} {'tensors':>8}")
    for i in range(rounds):
        work(i)
        if (i + 1) % max(1, rounds // 10) == 0:
            now = counts()
            print(
                f"{i + 1:24} {now['rss_mb']:9.1f} {now['files']:6} {now['threads']:8} {now['tasks']:6} "
                f"{now['tensors']:8}",
                flush=True,
            )
            found.append(now)
    first, last = found[2], found[-1]
    allowed = {"rss_mb": GROWTH_MB}
    return [f"{name} of {what}" for name in first if last[name] - first[name] > allowed.get(name, 0)]


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("fits", 1000), ("baselines", 100), ("reports", 50), ("stores", 1000)):
        parser.add_argument(f"--{name}", type=int, default=count)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    X = data()
    grown = watch("DirichletSelector", asked.fits, lambda i: fit(i, X))
    for name, cls in BASELINES.items():
        known = cls().get_params()
        quick = {"max_iter": 10} if "max_iter" in known else {}
        grown += watch(name, asked.baselines, lambda i, cls=cls, quick=quick: cls(3, random_state=i, **quick).fit(X))
    with tempfile.TemporaryDirectory() as folder:
        grown += watch("reports", asked.reports, lambda i: report(i, X, Path(folder)))
        grown += watch("stores of results", asked.stores, lambda i: store(i, Path(folder)))
    if grown:
        sys.exit(f"Grew: {', '.join(grown)}.")


if __name__ == "__main__":
    main()
