"""How many cases property tests draw: some in ``make test``, many times as many in ``make fuzz``, which counts them."""

import functools
import json
import os
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import settings

FACTOR = int(os.environ.get("HOMOPHILY_FUZZ", "1"))
FAILURES = Path("artefacts/fuzz-failures.txt")
TRIED = Counter()  # cases that were tried to the end, by test


def cases(n):
    """Let a property test draw ``n`` cases, or ``HOMOPHILY_FUZZ`` times as many, then at random."""

    def decorate(test):
        body = test.hypothesis.inner_test

        @functools.wraps(body)
        def counted(*arguments, **named):
            try:
                body(*arguments, **named)
            except Exception as error:
                keep(error, arguments, named)
                raise
            TRIED[os.environ["PYTEST_CURRENT_TEST"].split()[0]] += 1

        test.hypothesis.inner_test = counted
        return settings(max_examples=n * FACTOR, derandomize=FACTOR == 1)(test)

    return decorate


def keep(error, arguments, named):
    """Write a failure of ``make fuzz`` down at once: to narrow it down can take longer than anybody waits."""
    if FACTOR > 1 and not type(error).__module__.startswith("hypothesis."):
        FAILURES.parent.mkdir(exist_ok=True)
        with FAILURES.open("a") as file:
            file.write(f"{os.environ['PYTEST_CURRENT_TEST']}: {arguments} {named}\n")
            traceback.print_exception(error, file=file)


def write_counts():
    """Lines that say how many cases were tried; by test they are in ``artefacts/fuzz.json``."""
    path = Path("artefacts/fuzz.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(sorted(TRIED.items())), indent=1) + "\n")
    files = Counter()
    for test, count in TRIED.items():
        files[test.split("::")[0]] += count
    yield from (f"{file}: {count:,} cases" for file, count in sorted(files.items()))
