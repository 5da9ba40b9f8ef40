"""What the README shows is what happens."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_first_example_prints_what_the_readme_says():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(BLOCKS[0], {})
    assert printed.getvalue().strip() in README
    assert printed.getvalue().count("\n") == 3


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_other_examples_run(block):
    exec(block, {})


def test_example_file_is_the_first_example():
    text = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    body = text.split('"""', 2)[2]
    assert [line for line in body.splitlines() if line] == [line for line in BLOCKS[0].splitlines() if line]


def test_pictures_exist():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / path).is_file()
