"""Everything in this folder is of the second tier: ``make test-all``."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Mark the tests of this folder; the hook is given those of the whole run."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
