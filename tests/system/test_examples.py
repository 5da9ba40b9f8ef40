"""Every page of the gallery runs, without a warning, and shows a picture."""

import io
import runpy
from pathlib import Path

import pytest
from matplotlib.figure import Figure

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("plot_*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_draws(path):
    variables = runpy.run_path(str(path), run_name="__main__")
    figures = [value for value in variables.values() if isinstance(value, Figure)]
    assert figures
    for figure in figures:
        assert figure.axes
        figure.savefig(io.BytesIO())  # lays the text out, which may warn
