"""The mutation tool: what it edits, that it finds what no test notices, and the score of a sample."""

import os
import re
import subprocess
import sys

import pytest
from mutation import ROOT, TESTS, find_sources, mutants_of, read_equivalents

#: Edits of each kind, as they end: branches, statements, results, names, operators, arguments.
KINDS = "if not ", "pass", "return None", ".*np.minimum", ".* <= ", ".* / ", ".*D1", ".*, 2"


def test_every_kind_of_edit_is_made_and_every_equivalent_mutant_is_one_of_today():
    keys = [m.key for path in find_sources() for m in mutants_of(path, ROOT)]
    assert [kind for kind in KINDS if not any(re.search(f"→ {kind}", key) for key in keys)] == []
    for line, reason in read_equivalents().items():
        assert reason, line.pattern
        assert any(map(line.fullmatch, keys)), f"the code has changed: {line.pattern}"


def test_the_tests_that_notice_mutants_are_where_they_were():
    assert [x for x in TESTS if not (ROOT / "tests" / x.partition("::")[0]).exists()] == []


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
