"""Peak memory of ``homophily select --memory-limit`` on files that are larger than the limit.

    python benchmarks/memory.py [--rows 1000000] [--columns 256] [--limits 1GB 700MB] [--kinds npy parquet]
        [--folder DIR]

Writes float64 data (2 GB by default, 10 planted columns) to a temporary folder, selects ten columns with each limit in
a process of its own and prints the peak of its resident memory as a ratio to the limit, and how many of the planted
columns it found.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from growth import PLANTED, write

from homophily.memory import parse_size


def run(command):
    """Exit code, peak of the resident memory in bytes, and the last lines of the output of a process."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return process.returncode, used.ru_maxrss * 1024, output.read().splitlines()[-1:]


def main():
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--limits", nargs="+", default=["1GB", "700MB"])
    parser.add_argument("--kinds", nargs="+", choices=["npy", "parquet"], default=["npy", "parquet"])
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    print(f"{'file':>9} {'size MB':>8} {'limit':>7} {'exit':>5} {'peak MB':>8} {'of limit':>9} {'found':>6} {'s':>6}")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for kind in asked.kinds:
            path = Path(folder) / f"samples.{kind}"
            write(path, asked.rows, asked.columns, np.float64)
            for limit in asked.limits:
                out = Path(folder) / f"{kind}-{limit}"
                start = time.perf_counter()
                options = ["-m", str(PLANTED), "--final-graph", "none", "--memory-limit", limit, "--out", out]
                code, peak, last = run([sys.executable, "-m", "homophily", "select", path, *options])
                seconds = time.perf_counter() - start
                found = ""
                if code == 0:
                    with (out / "selected.csv").open(newline="") as file:
                        found = f"{sum(int(row['index']) < PLANTED for row in csv.DictReader(file))}/{PLANTED}"
                print(
                    f"{kind:>9} {path.stat().st_size / 1e6:8.0f} {limit:>7} {code:5} {peak / 1e6:8.0f} "
                    f"{peak / parse_size(limit):9.2f} {found:>6} {seconds:6.0f}  {' '.join(last) if code else ''}",
                    flush=True,
                )
            path.unlink()


if __name__ == "__main__":
    main()
