"""One training step against the least that it must do: one product with F, one Gram matrix, one search.

    python benchmarks/fit_step.py [--repeats 15] [--json FILE]

n = 2080, d = 500, m = 20, k = 5, float32, one thread. The *step* is what ``homophily.training.train`` takes for N steps
on all rows with one restart and the soft graph by Newton, divided by N: whatever the loop does is in it. The *bound* is
``X @ F``, ``P @ P.T`` and ``topk(k + 1)``, once each. Both are timed turn by turn in one run, and medians divided.
Beside it: the default batch (256 rows, two restarts) a step, and where the time of the step goes.

What the profile showed, in ms for all rows of one restart (two shared cores; fastest of 25, two restarts halved):

* candidates, 18 -> 12: search, pairs and soft graph together 10 less. As many planted columns are found by training
  alone: Madelon 18, 18, 18 of 20 against 19, 17, 19; Blobs, Moons and Circles 16, 14, 9 of 16 against 16, 16, 10.
* search for 18 candidates, 30 -> 17: the distance matrix in chunks that stay in the cache, in one buffer; |x_j|^2 as
  one more column of the product; minima of blocks before any topk. What is left is half topk, twice over some 190
  entries; the bound's own topk(6) over 2080 takes 10.
* soft graph forward, 20 -> 13: rows last; elimination along all rows instead of LAPACK matrix by matrix; two buffers
  for all plans (fresh memory took most of the time of an addition); values of the semi-dual for doubtful rows only; a
  better start (5.0 -> 4.5 evaluations of the plan). What is left: the plans 4.5 (half of it exp in float64), overlaps
  3, elimination 2, the rest some 400 small operations.
* the first two Newton steps in float32, from 780 rows on: 1.5 less; candidates that need not be in order: 1 less; all
  rows as queries without gathering them: 2 less.
* soft graph backward, 7 -> 4: delta and xi alone, not k + 2 columns.
* pair distances, both ways, 4.6 -> 3: differences recomputed in the backward, and in place.

What did not help: the potentials of the last step as a start (in 150 steps on 20 of 500 columns, evaluations of the
plan a row: 18 with fresh Gumbel noise and 11 to 22 without, against 5.0 and 4.3 from the hard borders; 4.2 and 4.0 if
only their offset from the hard start is carried over, about what the better start saves without a memory); bmm for
the overlaps (0.86 against 0.52, for the change of layout); blocks of fewer than 2^18 entries (Python's own time).

Not done: keeping candidates for several steps. A batch of 256 rows sees other rows each time, and with fresh noise F
changes from step to step until the columns are nearly certain, so there is nothing to keep but in full batches at the
very end. Nor a sparse F_hat at low temperatures: the products with F are 2 of the 35 ms here, and 3 of 11 with 4434
columns and 40 rows, where it could save them in the last third of the steps only.

The bound is 14 to 18 where the allocator keeps the memory of the Gram matrix, as it does in this run, and about 25 in
a process that fetches it anew each time.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from homophily.nn import KNNGraph, UniqueFeatureSelector, nearest, soft_similarities, squared_distances
from homophily.objectives import Energy
from homophily.training import Rows, Schedule, train

N, D, M, K = 2080, 500, 20, 5
STEPS = 3  # of one call of train


def seconds(function):
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def step(X, batch_size, n_restarts, n_steps):
    """Train for ``n_steps``."""
    schedule = Schedule(
        learning_rate=0.03,
        max_iter=n_steps,
        temperature=(2.0, 0.1),
        epsilon=1e-10,
        unique=True,
        init_std=0.01,
        batch_size=batch_size,
        n_anchors=None,
        anchor_choice="random",
        anchor_refresh=None,
        tol=0.0,
        literal=False,
    )
    train(Rows(X, 0, len(X), len(X)), M, KNNGraph(K), Energy, schedule, restarts=(0, n_restarts), seed=0)


def bound(X, F):
    """Do the least."""
    P = X @ F
    (P @ P.T).topk(K + 1, largest=False)


def breakdown(X, rows, n_restarts):
    """Time of the parts, each alone: forward, and backward where there is one."""
    generator = torch.Generator().manual_seed(0)
    selector = UniqueFeatureSelector(D, M, n_restarts=n_restarts, generator=generator)
    optimizer = torch.optim.Adam(selector.parameters(), lr=0.0)
    points = (X @ selector(1.0, generator)).detach()
    indices = nearest(points[:, rows], points, KNNGraph(K).width(N - 1), rows)
    leaf = points.clone().requires_grad_()
    E = squared_distances(points[:, rows], points, indices).requires_grad_()
    G = torch.ones_like(points)

    parts = {
        "selector": lambda: selector(1.0, generator).sum().backward(),
        "X @ F": lambda: X @ selector.logits.detach(),
        "X.T @ gradient": lambda: X.T @ G,
        "search": lambda: nearest(points[:, rows], points, indices.shape[-1], rows),
        "pair distances": lambda: squared_distances(leaf[:, rows], leaf, indices).sum().backward(),
        "soft graph, forward": lambda: soft_similarities(E.detach(), K),
        "soft graph, both": lambda: soft_similarities(E, K).square().sum().backward(),
        "Adam": optimizer.step,
        "confidence": lambda: selector.confidence,
    }
    return {name: 1e3 * statistics.median(seconds(part) for _ in range(9)) for name, part in parts.items()}


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, D, generator=generator)
    F = torch.randn(D, M, generator=generator)
    runs = {
        "bound": lambda: bound(X, F),
        "step": lambda: step(X, N, 1, STEPS),
        "default_batch": lambda: step(X, 256, 2, 4 * STEPS),
    }
    divisor = {"bound": 1, "step": STEPS, "default_batch": 4 * STEPS}
    times = {name: [] for name in runs}
    for name in runs:
        seconds(runs[name])  # warm up
    for _ in range(max(15, arguments.repeats)):
        for name in runs:
            times[name].append(1e3 * seconds(runs[name]) / divisor[name])
    median = {name: statistics.median(values) for name, values in times.items()}
    fastest = {name: min(values) for name, values in times.items()}
    ratio = median["step"] / median["bound"]
    print(f"bound {median['bound']:.1f} ms, step on all {N} rows {median['step']:.1f} ms: {ratio:.2f} x (<= 2.5)")
    print(
        f"fastest of each: {fastest['bound']:.1f} and {fastest['step']:.1f} ms: "
        f"{fastest['step'] / fastest['bound']:.2f} x"
    )
    print(f"step on 256 rows, 2 restarts {median['default_batch']:.1f} ms")
    parts = {
        "all rows, 1 restart": breakdown(X, torch.arange(N), 1),
        "256 rows, 2 restarts": breakdown(X, torch.arange(256), 2),
    }
    for setting, table in parts.items():
        print(setting + ": " + ", ".join(f"{name} {value:.2f}" for name, value in table.items()) + " ms")
    if arguments.json:
        result = {"median_ms": median, "fastest_ms": fastest, "ratio": ratio, "parts_ms": parts}
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
