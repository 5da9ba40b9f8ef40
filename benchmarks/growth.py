"""Time and memory of a selection from disk as the number of rows grows: 10 planted features among 100.

    python benchmarks/growth.py [--sizes 10000 100000 1000000 10000000] [--folder DIR] [--parquet] [--json FILE]
        [--results results]

Writes float32 data of n x 100 to ``--folder`` (a temporary one by default, 4 GB for 10 million rows), four clusters in
the first ten columns and noise in the others, and lets a fresh process select ten features by
``PredictiveSelector(10, final_graph="none").fit(path)``. Prints for each size the seconds until the first column is
selected (the one pass over the file for means, deviations and the sample, and what all columns predict of each), of
the search after that, and of the rest, the peak resident memory of the process, how many of the planted features were
found, and the time of the search as a ratio to that of the smallest size.
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

D, PLANTED, BLOCK = 100, 10, 50_000


def write(path, n, d=D, dtype=np.float32):
    """Write the data block by block."""
    rng = np.random.default_rng(0)
    centers = 1.5 * rng.standard_normal((4, PLANTED), dtype=dtype)

    def blocks():
        for start in range(0, n, BLOCK):
            X = rng.standard_normal((min(BLOCK, n - start), d), dtype=dtype)
            X[:, :PLANTED] = 0.7 * X[:, :PLANTED] + centers[rng.integers(4, size=len(X))]
            yield X

    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [f"f{i}" for i in range(d)]
        with pq.ParquetWriter(path, pa.schema([(name, pa.from_numpy_dtype(dtype)) for name in names])) as file:
            for X in blocks():
                file.write_table(pa.table(list(X.T), names=names))
        return
    with path.open("wb") as file:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (n, d)}
        np.lib.format.write_array_header_1_0(file, header)
        for X in blocks():
            file.write(X.data)


def select(path):
    """Select from the file; what it took, as JSON."""
    from homophily import PredictiveSelector

    marks = []
    start = time.perf_counter()
    selector = PredictiveSelector(PLANTED, random_state=0, final_graph="none")
    selector.fit(path, callback=lambda step: marks.append(time.perf_counter()))
    end = time.perf_counter()
    figures = {
        "pass": marks[0] - start,
        "search": marks[-1] - marks[0],
        "rest": end - marks[-1],
        "total": end - start,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "found": int(np.sum(selector.selected_features_ < PLANTED)),
    }
    print(json.dumps(figures))


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--results", type=Path, help="folder for growth.md and growth.csv")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        select(arguments.one)
        return
    rows = []
    print(
        f"{'rows':>11} {'pass s':>8} {'search s':>11} {'rest s':>8} {'total s':>8} {'peak MB':>8} {'found':>6}  ratio"
    )
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for n in arguments.sizes:
            path = Path(folder) / f"{n}{'.parquet' if arguments.parquet else '.npy'}"
            write(path, n)
            output = subprocess.run(
                [sys.executable, __file__, "--one", path], stdout=subprocess.PIPE, check=True
            ).stdout
            path.unlink()
            rows.append({"rows": n, **json.loads(output)})
            row = rows[-1]
            row["ratio"] = row["search"] / rows[0]["search"]
            print(
                f"{n:11,} {row['pass']:8.1f} {row['search']:11.1f} {row['rest']:8.1f} {row['total']:8.1f} "
                f"{row['peak_rss_mb']:8.0f} {row['found']:3}/{PLANTED}  {row['ratio']:.2f}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    if arguments.results:
        (arguments.results / "growth.md").write_text(markdown(rows))
        parts = {"pass": "pass over the file", "search": "search", "rest": "rest"}
        lines = [",".join(str(round(row[key], 2)) for key in ("rows", *parts)) for row in rows]
        head = ",".join(["rows", *(f'"{part}"' for part in parts.values())])
        (arguments.results / "growth.csv").write_text("\n".join([head, *lines]) + "\n")


def markdown(rows):
    """The table of the docs."""
    head = "| rows | pass over the file | search | rest | in all | peak memory | planted found |"
    lines = [
        f"| {row['rows']:,} | {row['pass']:.1f} s | {row['search']:.1f} s | {row['rest']:.1f} s "
        f"| {row['total']:.1f} s | {row['peak_rss_mb']:.0f} MB | {row['found']} of {PLANTED} |"
        for row in rows
    ]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *lines]) + "\n"


if __name__ == "__main__":
    main()
