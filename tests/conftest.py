"""Shared fixtures."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is imported: scikit-learn then skips none of its checks

import pytest
from hypothesis import HealthCheck, settings

from homophily.datasets import DatasetNotFoundError, load

# Timings belong in benchmarks: a loaded machine must not fail a test. Same draws every run.
settings.register_profile("homophily", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("homophily")


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
