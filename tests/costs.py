"""Processor seconds of each test file, with the processes that its tests start: ``HOMOPHILY_COSTS=1 make test``.

Times on the clock depend on what else the machine does; these are what the table in CONTRIBUTING holds.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

SPENT = Counter()  # seconds by test


def spent():
    """Processor seconds of this process and of those children that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Measure a test with its fixtures."""
    item.user_properties.append(("processor", [spent(), 0.0]))
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item, call):
    """Tell the process that collects the reports."""
    times = next(value for name, value in item.user_properties if name == "processor")
    times[1] = spent()
    return (yield)


def pytest_runtest_logreport(report):
    """Count a test when it is over."""
    if report.when == "teardown":
        begin, end = dict(report.user_properties)["processor"]
        SPENT[report.nodeid] += end - begin


def pytest_terminal_summary(terminalreporter):
    """The files and the tests that take most, and all of them in ``artefacts/costs.json``."""
    files = Counter()
    for name, seconds in SPENT.items():
        files[name.partition("::")[0]] += seconds
    if not files:  # a worker of xdist
        return
    path = Path("artefacts/costs.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(SPENT.most_common()), indent=1) + "\n")
    terminalreporter.section(f"processor seconds: {sum(files.values()):.0f}")
    for name, seconds in (*files.most_common(20), *SPENT.most_common(20)):
        terminalreporter.write_line(f"{seconds:8.1f}  {name}"[:140])
