"""The mutation tool: what it edits, that it finds what no test notices, and the score of a sample."""

import importlib.util
import os
import subprocess
import sys

import pytest
from edits import mutants_of
from mutation import ROOT, Mutated, equivalents, listed, sources

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


KINDS = """
@dataclass(frozen=True)
class Some:
    lr: float = 0.5
    bounds: ClassVar = {"lr": (7, 8)}
    adapts: ClassVar[bool] = True

    def init(self, rng):
        return rng + 3

    def check_more(self, x):
        return x + 4

    def step(self, w):
        self.check_more(w - 4)
        if w < 5:
            raise ValueError(6)
        if w < 15:
            w = w + 16
        return w - 9

class Plain(NamedTuple):
    t: int = 10
"""


def test_what_is_no_equation_is_told_apart(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(KINDS)
    computed = {m.line for m in mutants_of(path, tmp_path) if m.equation and m.changes()}
    lines = KINDS.splitlines()
    assert [lines[i - 1].strip() for i in sorted(computed)] == [
        "adapts: ClassVar[bool] = True", "if w < 15:", "w = w + 16", "return w - 9", "t: int = 10",
    ]  # fmt: skip


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


def test_every_equivalent_mutant_is_one_of_today():
    known = equivalents()
    keys = {m.key for path in sources() for m in mutants_of(path, ROOT)}
    found = set().union(*(listed(key, known) for key in keys))
    assert known.keys() - found == set(), "no such mutant: the code has changed"
    assert all(known.values()), "without a reason"


@pytest.mark.slow
def test_a_sample_of_mutants_is_killed():
    """An edit that changes nothing and is not listed counts as a survivor."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.mutation", "--sample", "300", "--fail-under", "99"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "of 300 mutants killed by the tests" in run.stdout


@pytest.mark.slow
def test_a_mutant_that_no_test_notices_survives():
    """With the proofs as killers, a refusal of wrong options is nothing that they look at."""
    words = ["--only", "fedref/sampling.py", "--grep", "clients-per-round", "--killers", "check"]
    run = subprocess.run(
        [sys.executable, "-m", "tests.mutation", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert "survived  fedref/sampling.py:" in run.stdout
