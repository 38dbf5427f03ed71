"""The mutation tool: what it edits, that it finds what no test notices, and the score of a sample."""

import ast
import os
import re
import subprocess
import sys

import pytest
from mutation import ROOT, find_sources, mutants_of, read_equivalents, replace_code

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
EDITS = """
f: if a < b and (not a): → if not (a < b and (not a)):
f: if a < b and (not a): → if a <= b and (not a):
f: if a < b and (not a): → if a < b or not a:
f: raise ValueError('not that') → pass
f: x = a - 2 * b → x = a + 2 * b
f: x = a - 2 * b → x = 2 * b
f: x = a - 2 * b → x = 2 * b - a
f: x = a - 2 * b → x = a - 2 / b
f: x = a - 2 * b → x = a - 3 * b
f: x += b → x -= b
f: x += b → pass
f: return max(x, a) → return None
f: return max(x, a) → return min(x, a)
"""


@pytest.fixture
def mutants(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(SOURCE)
    return {m.key.removeprefix("some.py "): m for m in mutants_of(path, tmp_path) if m.compiled()}


def test_every_kind_of_edit(mutants):
    assert set(EDITS.strip().splitlines()) <= mutants.keys()
    assert all(edit.startswith("f: ") for edit in mutants)
    for wrong in ("max(a, x)", "not that?", '"f.?"'):  # the same; messages; documentation
        assert not any(wrong in edit for edit in mutants)


def test_functions_of_a_process_get_a_mutant_s_code(mutants, tmp_path, monkeypatch):
    monkeypatch.setattr("mutation.ROOT", tmp_path)
    minus = mutants["f: x = a - 2 * b → x = a + 2 * b"]
    some = {}
    exec(compile(SOURCE, str(tmp_path / "some.py"), "exec"), some)
    assert (some["f"](5), replace_code(minus), some["f"](5)) == (5, None, 8)
    assert ast.unparse(minus.tree) == ast.unparse(ast.parse(SOURCE))


def test_every_equivalent_mutant_is_one_of_today():
    keys = [m.key for path in find_sources() for m in mutants_of(path, ROOT)]
    for line, reason in read_equivalents().items():
        assert reason, line.pattern
        assert any(map(line.fullmatch, keys)), f"the code has changed: {line.pattern}"


def run_tool(*words):
    command = [sys.executable, "-m", "tests.mutation", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_sample_of_mutants_is_killed():
    """An edit that changes nothing and is not listed counts as a survivor."""
    said = run_tool("--sample", "300")
    killed = re.search(r"^(\d+) of 300 mutants killed", said, re.M)
    assert killed, said
    assert int(killed[1]) >= 297, said


@pytest.mark.slow
def test_a_mutant_that_no_test_notices_survives():
    """Tests of cost look at no refusal of wrong options."""
    words = "--only", "fedref/sampling.py cohort: raise", "--tests", "tests/rounds/test_cost.py"
    assert "survived  fedref/sampling.py:" in (said := run_tool(*words)), said
