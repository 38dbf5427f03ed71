"""The mutation tool: what it edits, that it finds what no test notices, and the score of a sample."""

import importlib.util
import os
import subprocess
import sys

import pytest
from edits import mutants_of
from mutation import (
    ROOT,
    Mutated,
    find_sources,
    match_equivalents,
    read_equivalents,
    replace_code,
)

SOURCE = '''"""A module."""
LEVEL: float = 0.5

def f(a, b: int = 1) -> float:
    """f."""
    if a < b and not a:
        raise ValueError("not that")
    x = a - 2 * b
    x += b
    return max(x, a)
'''


@pytest.fixture
def mutants(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(SOURCE)
    return mutants_of(path, tmp_path)


def test_every_kind_of_edit(mutants):
    edits = [m.key.removeprefix("some.py ") for m in mutants if m.changes()]
    assert len(edits) == len(set(edits))
    for edit in (
        "module: LEVEL: float = 0.5 → LEVEL: float = 1.5",
        "f: if a < b and (not a): → if not (a < b and (not a)):",
        "f: raise ValueError('not that') → pass",
        "f: x = a - 2 * b → x = a + 2 * b",
        "f: x = a - 2 * b → x = 2 * b",
        "f: x = a - 2 * b → x = 2 * b - a",
        "f: x = a - 2 * b → x = a - 2 / b",
        "f: x = a - 2 * b → x = a - 3 * b",
        "f: x += b → x -= b",
        "f: x += b → pass",
        "f: return max(x, a) → return -max(x, a)",
        "f: return max(x, a) → return None",
        "f: return max(x, a) → return min(x, a)",
    ):
        assert edit in edits
    assert any("a <= b" in edit for edit in edits)
    assert not any("max(a, x)" in edit for edit in edits)  # the same
    assert any("a < b or" in edit for edit in edits)
    assert not any("not that?" in edit or "A module" in edit for edit in edits)


def test_a_mutant_leaves_the_tree_as_it_was_and_is_imported_in_place_of_its_module(
    mutants, tmp_path, monkeypatch
):
    before = mutants[0].original()
    (minus,) = (m for m in mutants if m.key.endswith("→ x = a + 2 * b"))
    (level,) = (m for m in mutants if m.key.endswith("→ LEVEL: float = 1.5"))
    assert (minus.in_function, level.in_function) == (True, False)
    for mutant, expected in ((minus, (0.5, 8)), (level, (1.5, 5))):
        spec = Mutated(mutant).find_spec("some")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert (module.LEVEL, module.f(5)) == expected
        assert mutant.original() == before
    assert Mutated(minus).find_spec("another") is None


def test_functions_of_a_process_get_a_mutant_s_code(mutants, tmp_path, monkeypatch):
    monkeypatch.setattr("mutation.ROOT", tmp_path)
    (minus,) = (m for m in mutants if m.key.endswith("→ x = a + 2 * b"))
    some = {}
    exec(compile(SOURCE, str(tmp_path / "some.py"), "exec"), some)
    assert (some["f"](5), replace_code(minus), some["f"](5)) == (5, True, 8)


def test_every_equivalent_mutant_is_one_of_today():
    known = read_equivalents()
    keys = {m.key for path in find_sources() for m in mutants_of(path, ROOT)}
    found = set().union(*(match_equivalents(key, known) for key in keys))
    assert known.keys() - found == set(), "no such mutant: the code has changed"
    assert all(known.values()), "without a reason"


def run_tool(*words):
    command = [sys.executable, "-m", "tests.mutation", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_sample_of_mutants_is_killed():
    """An edit that changes nothing and is not listed counts as a survivor."""
    run = run_tool("--sample", "300", "--fail-under", "99")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "of 300 mutants killed" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "edit"),
    [
        ("fedref/sampling.py", "clients-per-round"),  # in the code of a function
        ("fedref/algorithms/apfl.py", "APFL: lr:"),  # run on import
    ],
)
def test_a_mutant_that_no_test_notices_survives(path, edit):
    """Tests of cost look at no refusal of wrong options, and at no default."""
    run = run_tool("--only", path, "--grep", edit, "--tests", "tests/rounds/test_cost.py")
    assert f"survived  {path}:" in run.stdout, run.stdout + run.stderr
