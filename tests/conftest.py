"""Shared fixtures."""

import os
import sys
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is imported: scikit-learn then skips none of its checks

if "PYTEST_XDIST_WORKER_COUNT" in os.environ:  # each has its share of the processors, before torch is imported
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, share)))

import costs
import pytest
from fuzzing import FACTOR, TRIED, write_counts
from hypothesis import HealthCheck, settings

from homophily.datasets import DatasetNotFoundError, load

OFFLINE = str(Path(__file__).parent / "no_network")
sys.path.insert(0, OFFLINE)  # the module under the name that sitecustomize has for it: a worker of xdist imports both
from only_loopback import install  # noqa: E402

install()  # whoever asks for another machine fails: nothing of ours needs the network unless it is told to
# Also in the processes that tests start: Python imports sitecustomize from the first folder of its path that has one.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (OFFLINE, os.environ.get("PYTHONPATH"))))
collect_ignore = ["no_network"]

# Timings belong in benchmarks: a loaded machine must not fail a test. Same draws every run.
settings.register_profile("homophily", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("homophily")


def pytest_configure(config):
    """With ``HOMOPHILY_COSTS`` set, say what the tests cost."""
    if os.environ.get("HOMOPHILY_COSTS"):
        config.pluginmanager.register(costs)


@pytest.fixture(scope="session")
def real_data():
    """Load a data set from the folder HOMOPHILY_DATA by name."""
    folder = os.environ.get("HOMOPHILY_DATA")
    if not folder:
        pytest.skip("HOMOPHILY_DATA is not set: it names the folder with the real data sets")

    def load_or_skip(name):
        try:
            return load(name, data_dir=folder)
        except DatasetNotFoundError as error:
            pytest.skip(str(error))

    return load_or_skip


def pytest_terminal_summary(terminalreporter):
    """After more cases than usual: how many there were."""
    if FACTOR > 1 and TRIED:
        terminalreporter.section("cases tried")
        for line in write_counts():
            terminalreporter.write_line(line)
