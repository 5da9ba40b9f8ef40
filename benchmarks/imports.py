"""How long the imports take, beside ``import torch``.

    python benchmarks/imports.py [--repeats 7]

Each statement runs in a process of its own, all of them turn by turn, so that a busy machine slows them alike; the
first turn fills the caches of the disk and is not counted. Printed are medians: seconds of a processor, which other
programs prolong less than those of the clock, the ratio to ``import torch``, and which heavy packages are loaded.
``python -X importtime -c "..."`` says where the time of one of them goes.
"""

import argparse
import statistics
import subprocess
import sys

STATEMENTS = [
    "import torch",
    "import sklearn.feature_selection",
    "import homophily",
    "import homophily.cli",
    "import homophily.datasets",
    "from homophily.evaluation import RunStore",
    "from homophily.nn import KNNGraph",
    "from homophily import DirichletSelector",
    "from homophily.evaluation import Comparison",
]
HEAVY = ["numpy", "scipy", "pandas", "pyarrow", "sklearn", "torch", "matplotlib"]


def measured(statement):
    """Seconds of one import in a new process, and the heavy packages that it loaded."""
    code = (
        f"import sys, time; start = time.process_time()\n{statement}\n"
        f"print(time.process_time() - start, *(name for name in {HEAVY} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, *loaded = done.stdout.split()
    return float(seconds), loaded


def main():
    """Print one line a statement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    times = {statement: [] for statement in STATEMENTS}
    loaded = {}
    for turn in range(repeats + 1):
        for statement in STATEMENTS:
            seconds, loaded[statement] = measured(statement)
            if turn:
                times[statement].append(seconds)
    medians = {statement: statistics.median(times[statement]) for statement in STATEMENTS}
    torch = medians["import torch"]
    print("| statement | seconds | of torch | loads |\n|---|---|---|---|")
    for statement, seconds in medians.items():
        print(f"| `{statement}` | {seconds:.2f} | {seconds / torch:.2f} | {', '.join(loaded[statement]) or 'none'} |")


if __name__ == "__main__":
    main()
