"""The benchmark that changes the code: which changes it makes, and that they take effect."""

import ast
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from homophily.nn import dirichlet, dirichlet_energy, soft_indicators
from homophily.nn import laplacian as public_laplacian

BENCHMARK = runpy.run_path(str(Path(__file__).parent.parent / "benchmarks" / "mutation.py"))
SOURCE = '''
LIMIT = 2

class Layer:
    def forward(self, x: int = 3, *, sign: bool = True) -> int:
        """Words 1 + 1."""
        if not x > 0 or sign:
            raise ValueError(f"{x + 1} is {x:2}")
        x += -x
        self.x = max(x, key=1, device=0)
        return x[1:]
'''


def test_changes_of_a_short_source():
    mutants = BENCHMARK["mutants_of"]("a.py", SOURCE)
    assert {mutant.change for mutant in mutants if mutant.function == ""} == {"2 -> 3"}
    assert {mutant.change for mutant in mutants if mutant.function == "Layer.forward"} == {
        "3 -> 4",
        "True -> False",
        "if not x > 0 or sign -> if not (not x > 0 or sign)",
        "not x > 0 or sign -> not x > 0 and sign",
        "not x > 0 -> x > 0",
        "x > 0 -> x >= 0",
        "0 -> 1",
        "raise ValueError(f'{x + 1} is {x:2}') -> nothing",
        "x += -x -> x -= -x",
        "x += -x -> nothing",
        "-x -> x",
        "self.x = max(x, key=1, device=0) -> nothing",
        "max(x, key=1, device=0) -> max(x, device=0)",
        "max -> min",
        "1 -> 2",
        "return x[1:] -> return None",
    }


def test_every_change_of_a_file_compiles_and_is_one():
    path = Path(dirichlet.__file__)
    whole = {ast.unparse(statement) for statement in ast.parse(path.read_text()).body}
    mutants = BENCHMARK["mutants_of"]("nn/dirichlet.py", path.read_text())
    assert len(mutants) > 60
    assert len({(mutant.place, mutant.change) for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        assert ast.unparse(mutant.statement) not in whole
        compile(ast.fix_missing_locations(ast.Module([mutant.statement], [])), path, "exec")


@pytest.fixture
def restored():
    """What is changed takes other objects along, which tests that follow may have imported before."""
    ours = [module for name, module in list(sys.modules.items()) if name.startswith(("homophily", "test_"))]
    before = [(module, vars(module).copy()) for module in ours]
    yield
    for module, names in before:
        vars(module).update(names)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize(
    ("file", "function", "change", "moves"),
    [
        ("nn/dirichlet.py", "laplacian", "S + S.mT -> S - S.mT", [True, False]),
        ("nn/soft_topk.py", "_entropic", "c - k - 1 -> c - k + 1", [False, True]),
    ],
)
def test_a_change_is_felt_by_those_who_imported_the_function_before(file, function, change, moves):
    """Also by what was computed from it when its module was imported, and not by others."""

    def values():
        S = torch.ones(4, 4) - torch.eye(4)
        X = torch.arange(4.0)[:, None]
        torch.testing.assert_close(dirichlet_energy(X, S), torch.tensor(20.0))
        return public_laplacian(S), soft_indicators(torch.arange(6.0), 2, solver="bregman")[0]

    before = values()
    source = (BENCHMARK["PACKAGE"] / file).read_text()
    (mutant,) = [mutant for mutant in BENCHMARK["mutants_of"](file, source) if mutant.change == change]
    assert mutant.function == function
    (as_it_is,) = [statement for statement in ast.parse(source).body if getattr(statement, "name", "") == function]
    try:
        BENCHMARK["put_in_place"](mutant)
        after = values()
    finally:
        BENCHMARK["put_in_place"](replace(mutant, statement=as_it_is))
    assert [not torch.allclose(*pair) for pair in zip(before, after, strict=True)] == moves
    assert all(torch.equal(*pair) for pair in zip(before, values(), strict=True))
