"""Soft k-nearest selection: Newton on the nearest candidates against the paper's Bregman iterations on full rows.

    python benchmarks/soft_topk.py [--json FILE]

One thread. Two tables:

(a) 1000 points, k = 5, reg .3, as the graph of all points needs it: from the full 1000 x 999 distances (float32, as
    training has them; all solvers work in float64) to delta and xi, and back to the full distances.

    *newton* finds the ``CANDIDATES`` nearest entries of each row, solves on these, and solves again on the full row
    where an entry that was left out could have taken more than ``LEAK``: at most (entries left out) x (share that the
    farthest candidate has). All of that is timed. In 500-D, where distances hardly differ at all, that is every row. It
    goes forward and back with 125 rows at a time, as training does: rows do not depend on each other.
    *bregman* does 200 iterations on the full rows, all rows at once as the paper does, with the analytic backward.
    *bregman_in_blocks* is ``soft_topk(solver="bregman")`` as it is now: a few rows at a time, which stay in the cache.
    *unrolled* is autograd through the iterations, the paper's own way. All rows at once do not fit into memory, so it
    takes 50 rows at a time: its memory is that of 50 rows, its time that of 100 rows, times 10.

    The error is the largest difference of any entry of delta or xi of any row from Newton on the full rows in float64
    with marginals met to 1e-9.

    Memory is the peak of the resident set over the call less its size before, each in a process of its own, which first
    solves 8 rows so that libraries are loaded. Linux resets the peak on request (``/proc/self/clear_refs``); elsewhere
    it is ``ru_maxrss``, which misses what stays below the peak of start-up.

(b) The three solvers on equal rows, the 12 candidates of ``KNNGraph(5)``, 2000 rows, forward and backward to delta and
    xi: time, and the share of delta that lies on the true k nearest.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from homophily.nn import nearest, soft_indicators, squared_distances

module = sys.modules[soft_indicators.__module__]

N, K, REG, N_ITER = 1000, 5, 0.3, 200
CANDIDATES, LEAK = 128, 3e-6
AT_ONCE = {"newton": 125, "unrolled": 50}  # rows; the others take all
KINDS = ("2-D", "20-D", "500-D", "clustered")


def points(kind):
    """Draw the points of one kind of data."""
    generator = torch.Generator().manual_seed(0)
    if kind == "clustered":  # 20 tight clusters in 10-D
        centers = 10 * torch.randn(20, 10, dtype=torch.float64, generator=generator)
        return centers.repeat_interleave(N // 20, 0) + torch.randn(N, 10, dtype=torch.float64, generator=generator)
    return torch.randn(N, int(kind.removesuffix("-D")), dtype=torch.float64, generator=generator)


def distances(kind):
    """Squared distances to the others; (N, N-1), the diagonal left out."""
    X = points(kind)
    D = torch.empty(N, N - 1)
    for i in range(N):  # row by row, so that nothing large is freed before memory is measured
        d = (X - X[i]).square_().sum(1)
        D[i, :i], D[i, i:] = d[:i], d[i + 1 :]
    return D


def newton(E):
    """Search, solve on the candidates, and on full rows where these do not do: ``(rows, entries, delta, xi)`` parts."""
    values, at = E.topk(CANDIDATES, largest=False)
    delta, xi = soft_indicators(values, K, reg=REG)
    leak = (delta[:, -1] + xi[:, -1]).detach() * (E.shape[1] - CANDIDATES)
    enough = leak <= LEAK
    rows, others = enough.nonzero().squeeze(-1), (~enough).nonzero().squeeze(-1)
    if not len(others):
        return [(rows, at, delta, xi)]
    return [(rows, at[rows], delta[rows], xi[rows]), (others, None, *soft_indicators(E[others], K, reg=REG))]


def bregman(E):
    """200 iterations on the full rows, all at once."""
    module.BLOCK_CPU = 2**60
    return [(None, None, *soft_indicators(E, K, reg=REG, solver="bregman", n_iter=N_ITER))]


def bregman_in_blocks(E):
    """200 iterations on the full rows."""
    return [(None, None, *soft_indicators(E, K, reg=REG, solver="bregman", n_iter=N_ITER))]


def unrolled(E):
    """The same iterations, recorded by autograd."""
    c = E.shape[-1]
    e = E / (E.detach().kthvalue(K + 1, -1, keepdim=True).values / (K + 1))
    scores = -((e[..., None] - torch.arange(K + 2.0, dtype=E.dtype)) ** 2) / REG  # (B, c, k+2)
    log_nu = torch.tensor([1.0] * (K + 1) + [c - K - 1], dtype=E.dtype).log()
    g = torch.zeros(len(E), 1, K + 2, dtype=E.dtype)
    for _ in range(N_ITER):
        log_v = -(scores + g).logsumexp(-1, keepdim=True)
        g = log_nu - (scores + log_v).logsumexp(-2, keepdim=True)
    plan = (scores + g).softmax(-1)
    return [(None, None, plan[..., :K].sum(-1), plan[..., K])]


WAYS = {"newton": newton, "bregman": bregman, "bregman_in_blocks": bregman_in_blocks, "unrolled": unrolled}


def run(way, E):
    """Forward and backward, to a gradient of the shape of ``E``."""
    E = E.detach()
    for part in E.split(AT_ONCE.get(way, N)):
        part.requires_grad_()
        sum((delta.square().sum() + xi.square().sum()) for *_, delta, xi in WAYS[way](part)).backward()


def measure(way, kind):
    """Peak extra memory and seconds of one way, in this fresh process."""
    E = distances(kind)
    run(way, E[:8].clone())
    share = 10 if way == "unrolled" else 1
    before = resident(reset=True)
    start = time.perf_counter()
    run(way, E[: N // share])
    return {"seconds": share * (time.perf_counter() - start), "megabytes": resident() - before}


def resident(reset=False):
    """Peak size of the resident set in MB; with ``reset``, forget the peak so far."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (20 if sys.platform == "darwin" else 10)
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return int(re.search(r"VmHWM:\s*(\d+)", status.read_text()).group(1)) / 1024


def in_a_process(way, kind="20-D", repeats=1):
    """Shortest time and largest memory of ``measure`` over fresh processes."""
    command = [sys.executable, __file__, "--worker", way, kind]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(repeats)]
    return {"seconds": min(r["seconds"] for r in runs), "megabytes": max(r["megabytes"] for r in runs)}


def error(kind):
    """Largest deviation from the converged full rows in float64, and the share of rows that were solved in full."""
    E = distances(kind)
    reference = soft_indicators(E.double(), K, reg=REG)
    worst, n_full = 0.0, 0
    for rows, at, *found in newton(E):
        n_full += len(rows) if at is None else 0
        for x, y in zip(found, reference, strict=True):
            full = x if at is None else torch.zeros(len(rows), E.shape[1]).scatter(-1, at, x)
            if len(rows):
                worst = max(worst, float((full - y[rows]).abs().max()))
    return {"error": worst, "full_rows": n_full / N}


def equal_rows():
    """Table (b)."""
    X = points("20-D").float().repeat(2, 1)
    X[N:] += torch.randn(N, 20, generator=torch.Generator().manual_seed(1))
    E = squared_distances(X, X, nearest(X, X, 12, torch.arange(2 * N)))
    hard = torch.zeros_like(E).scatter(-1, E.topk(K, largest=False).indices, 1.0)
    table = {}
    for solver in ("newton", "projection", "bregman"):
        times = []
        for _ in range(2 if solver == "bregman" else 10):
            e = E.clone().requires_grad_()
            start = time.perf_counter()
            delta, xi = soft_indicators(e, K, reg=REG, solver=solver, n_iter=N_ITER)
            (delta * E + xi * E).sum().backward()
            times.append(time.perf_counter() - start)
        delta = delta.detach()
        on_nearest = float((delta * hard).sum() / delta.sum())
        off = float((delta.sum(-1) - K).abs().max())
        table[solver] = {"milliseconds": 1e3 * min(times), "on_the_nearest": on_nearest, "sum_off_by": off}
    return table


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.worker:
        print(json.dumps(measure(*arguments.worker)))
        return
    print(f"(a) {N} x {N - 1} distances, k = {K}, reg {REG}, forward + backward")
    ways = {way: in_a_process(way) for way in WAYS if way != "newton"}
    for way, row in ways.items():
        print(f"    {way:18s} {row['seconds']:8.3f} s {row['megabytes']:7.1f} MB")
    kinds = {}
    for kind in KINDS:
        row = kinds[kind] = in_a_process("newton", kind, repeats=3) | error(kind)
        row["ratios"] = {way: [other[x] / row[x] for x in ("seconds", "megabytes")] for way, other in ways.items()}
        print(
            f"    newton, {kind:10s} {row['seconds']:8.3f} s {row['megabytes']:7.1f} MB, error {row['error']:.1e}, "
            f"{row['full_rows']:.0%} of rows solved in full"
        )
        for way, (t, m) in row["ratios"].items():
            print(f"        {way} / newton: time {t:.0f}, memory {m:.1f}")
    b = equal_rows()
    print(f"(b) {2 * N} rows of 12, forward + backward")
    for solver, row in b.items():
        print(
            f"    {solver:10s} {row['milliseconds']:9.1f} ms, {row['on_the_nearest']:.1%} of delta on the nearest, its "
            f"sum off by up to {row['sum_off_by']:.0e}"
        )
    if arguments.json:
        result = {"other_ways": ways, "newton": kinds, "equal_rows": b, "candidates": CANDIDATES}
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
