"""How many cases property tests draw: some in ``make test``, many times as many in ``make fuzz``, which counts them."""

import functools
import json
import os
from collections import Counter
from pathlib import Path

from hypothesis import settings

FACTOR = int(os.environ.get("HOMOPHILY_FUZZ", "1"))
TRIED = Counter()  # cases that were tried to the end, by test


def cases(n):
    """Let a property test draw ``n`` cases, or ``HOMOPHILY_FUZZ`` times as many, then at random."""

    def decorate(test):
        body = test.hypothesis.inner_test

        @functools.wraps(body)
        def counted(*arguments, **named):
            body(*arguments, **named)
            TRIED[os.environ["PYTEST_CURRENT_TEST"].split()[0]] += 1

        test.hypothesis.inner_test = counted
        return settings(max_examples=n * FACTOR, derandomize=FACTOR == 1)(test)

    return decorate


def write_counts():
    """Lines that say how many cases were tried; by test they are in ``artefacts/fuzz.json``."""
    path = Path("artefacts/fuzz.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(sorted(TRIED.items())), indent=1) + "\n")
    files = Counter()
    for test, count in TRIED.items():
        files[test.split("::")[0]] += count
    yield from (f"{file}: {count:,} cases" for file, count in sorted(files.items()))
