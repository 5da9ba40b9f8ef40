"""The same selection by 1, 2 and 4 processes of torchrun: features, time, and the memory of each process.

    python benchmarks/processes.py [--rows 200000] [--columns 1000] [--json FILE]

Float32 data on disk (800 MB by default) with ten planted columns; ``DirichletSelector(10, objective="energy",
final_graph="none")``. Memory is the peak of the resident set of each process over what it had after its imports, so
that the ratio to one process shows the share of the rows that each holds. On a machine with fewer cores than processes
the time does not fall.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PLANTED, BLOCK = 10, 20_000


def write(path, n, d):
    """Write the data block by block."""
    rng = np.random.default_rng(0)
    centers = 3 * rng.standard_normal((4, PLANTED), dtype=np.float32)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (n, d)})
        for start in range(0, n, BLOCK):
            X = rng.standard_normal((min(BLOCK, n - start), d), dtype=np.float32)
            X[:, :PLANTED] += centers[rng.integers(4, size=len(X))]
            file.write(X.data)


def peak():
    """Largest size of the resident set so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def select(path, folder):
    """Select as one process of the job, and leave the figures in ``folder``."""
    from homophily import DirichletSelector
    from homophily.distributed import joined

    before = peak()
    with joined("cpu") as team:
        start = time.perf_counter()
        selector = DirichletSelector(PLANTED, objective="energy", random_state=0, final_graph="none").fit(path)
        figures = {
            "seconds": time.perf_counter() - start,
            "megabytes": peak() - before,
            "features": selector.selected_features_.tolist(),
            "logits": float(np.abs(selector.logits_).sum()),
        }
        (folder / f"{team.rank}.json").write_text(json.dumps(figures))


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=Path, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        select(*arguments.one)
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npy"
        write(path, arguments.rows, arguments.columns)
        for size in (1, 2, 4):
            out = Path(folder) / str(size)
            out.mkdir()
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
            subprocess.run([*launch, __file__, "--one", path, out], check=True, stderr=subprocess.DEVNULL)
            ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]
            results[size] = ranks
            same = all(
                (r["features"], r["logits"]) == (results[1][0]["features"], results[1][0]["logits"]) for r in ranks
            )
            memory = ", ".join(f"{rank['megabytes']:.0f}" for rank in ranks)
            ratio = max(rank["megabytes"] for rank in ranks) / results[1][0]["megabytes"]
            found = sum(feature < PLANTED for feature in ranks[0]["features"])
            print(
                f"{size} processes: {ranks[0]['seconds']:.1f} s, {memory} MB each ({ratio:.2f} of one process), "
                f"{found} of {PLANTED} planted found, {'the same' if same else 'NOT THE SAME'} as one process",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
