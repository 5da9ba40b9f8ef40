"""Peak memory of a fit of sparse data, beside what dense copies of it would take.

    python benchmarks/sparse_memory.py [--rows 20000] [--columns 20000] [--density 0.01]

``DirichletSelector(20, objective="energy", refine=False, final_graph="none")`` with few steps, as each takes the same
memory. What is counted is the peak of the resident set over what the process had with the data drawn.
"""

import argparse
import resource
import time

import numpy as np
import scipy.sparse as sp

from homophily import DirichletSelector
from homophily.base import BaseSelector


def peak():
    """Of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Watched(DirichletSelector):
    """Takes note of the memory once the rows have been read."""

    def _standardize(self, *args, **others):
        data = BaseSelector._standardize(self, *args, **others)
        self.after_reading, self.held = peak(), data.values.shape
        return data


def main():
    """Draw, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=20_000)
    parser.add_argument("--density", type=float, default=0.01)
    asked = parser.parse_args()
    shape = asked.rows, asked.columns
    X = sp.random_array(shape, density=asked.density, format="csr", rng=np.random.default_rng(0))
    before, start = peak(), time.perf_counter()
    selector = Watched(20, objective="energy", max_iter=5, refine=False, final_graph="none", random_state=0).fit(X)
    cells = shape[0] * shape[1] / 1e6
    print(
        f"{shape[0]:,} x {shape[1]:,}, density {asked.density}: {cells * 4:,.0f} MB dense in single precision, ", end=""
    )
    print(f"{cells * 8:,.0f} MB in double")
    print(f"rows held, dense: {selector.held[0]:,}, {selector.held[0] * selector.held[1] * 4e-6:,.0f} MB")
    print(f"over {before:,.0f} MB: {selector.after_reading - before:,.0f} MB after the reading, ", end="")
    print(f"{peak() - before:,.0f} MB at the end, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
