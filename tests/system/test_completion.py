"""Completion in the shell: names where they are known, quickly."""

import os
import subprocess
import sys

import pytest

from homophily.cli_common import completing
from homophily.datasets import PAPER_DATASETS
from homophily.methods import METHODS
from homophily.objectives import OBJECTIVES

PROGRAM = """
import atexit, sys
from homophily.cli import app
atexit.register(lambda: print("HEAVY", *{"torch", "sklearn", "pandas", "matplotlib"} & set(sys.modules)))
app(prog_name="homophily")
"""


def completed(*words):
    """What bash would offer for the last of the words."""
    environment = {
        **os.environ,
        "_HOMOPHILY_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("homophily", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False)
    *offered, heavy = done.stdout.splitlines()
    assert heavy.strip() == "HEAVY"
    assert not done.stderr
    return offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("do",), ["doctor"]),
        (("select", "--method", ""), list(METHODS)),
        (("select", "--objective", ""), list(OBJECTIVES)),
        (("select", "--device", "c"), ["cpu", "cuda"]),
        (("compare", "--methods", "ls,r"), ["ls,rsr", "ls,random"]),
        (("datasets", "fetch", ""), ["all", *PAPER_DATASETS]),
        (("datasets", "path", "Ya"), ["Yale"]),
        (("reproduce", "table", "--datasets", "Yale,G"), ["Yale,GLIOMA"]),
        (("runs", "list", "--dataset", "Mad"), ["Madelon"]),
    ],
)
def test_names_are_offered_without_loading_torch(words, offered):
    assert sorted(completed(*words)) == sorted(offered)


def test_what_is_in_the_list_already_is_not_offered_again():
    complete = completing(lambda: ("Yale", "GLIOMA"))
    assert complete("") == ["Yale", "GLIOMA"]
    assert complete("Yale,") == ["Yale,GLIOMA"]
    assert complete("Yale,x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_the_shell_is_printed(shell):
    environment = {**os.environ, "_HOMOPHILY_COMPLETE": f"source_{shell}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    assert f"complete_{shell}" in done.stdout
    assert "homophily" in done.stdout
