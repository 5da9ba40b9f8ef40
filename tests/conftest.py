"""Shared fixtures."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is imported: scikit-learn then skips none of its checks

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Timings belong in benchmarks: a loaded machine must not fail a test. Same draws every run.
settings.register_profile("homophily", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("homophily")


@pytest.fixture(scope="session")
def real_data():
    """Load a data set from the folder HOMOPHILY_DATA by name."""
    folder = os.environ.get("HOMOPHILY_DATA")
    if not folder:
        pytest.skip("HOMOPHILY_DATA is not set: it names the folder with the real data sets")

    def load(name):
        path = Path(folder) / f"{name}.npz"
        if not path.is_file():
            pytest.skip(f"{path.name} is not in HOMOPHILY_DATA")
        with np.load(path) as file:
            return file["X"].astype(float), file["y"].ravel()

    return load
