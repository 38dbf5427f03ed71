"""Drawn cases: a right backend passes, a wrong one is shown at its smallest."""

import re
import subprocess
import sys

import numpy as np
import pytest

from fedref.conformance import drawn
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.suite import InProcess
from fedref.judge import pose
from fedref.lab.commands import main
from fedref.models import LinearSVM

WRONG = """
import numpy as np
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.suite import InProcess

def grad(model, w, D):
    g = LOOP.grad(model, w, D)
    return g + (2 * model["l2"] - model["l2"]) * w  # the L2 term twice
"""


@pytest.mark.parametrize("call", drawn.SUBJECTS)
def test_fedref_passes(call):
    found = list(drawn.search(InProcess(LOOP), len(drawn.SUBJECTS[call]) * 2, call, seed=3))
    assert [name for name, _, _ in found if name == call]
    assert [drawn.by_hand(failure) for _, _, failure in found if failure] == []


def test_a_wrong_gradient_is_shown_small_and_saved_as_a_test(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong_drawn.py").write_text(WRONG)
    assert main(["conformance", "wrong_drawn.py", "--random", "60", "--save", "case"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  drawn grad" in out
    assert "g: right [" in out
    saved = np.load("case.npz")
    assert saved["in.w"].size <= 8
    assert len(saved["in.D.X"]) <= 2
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "case.py"], capture_output=True, text=True
    )
    assert "1 failed" in done.stdout
    assert "AssertionError: g" in done.stdout


def test_rounds_are_shown_with_the_lines_that_ran():
    class Twice:
        def round(self, algorithm, model, hyper, state, data, plan):
            out = LOOP.round(algorithm, model, hyper, state, data, plan)
            return out | {"server": out["server"] | {"w": 2 * out["server"]["w"]}}

    ((_, _, failure),) = drawn.search(InProcess(Twice()), 50, "fedavg round")
    shown = drawn.by_hand(failure)
    assert re.search(r"^    \d{3}: ", shown, re.M)
    assert shown.count("\n") < 40
    assert "w_k = w_k - eta * f.grad(w_k, D)" in shown
    assert failure.case.model["d"] <= 2


def test_a_case_on_a_kink_does_not_count_from_either_side():
    for x in (1.0, -1.0):  # the hinge's margin is 1 at w, and greater on one side
        D = {"X": np.array([[x]]), "y": np.array([int(x)])}
        case = pose("grad", LinearSVM(1, l2=0.5, bias=False), {"w": np.ones(1), "D": D})
        assert drawn.measure(drawn.settle(case)) is None


def test_what_a_backend_does_not_offer_is_not_counted():
    class Nothing:
        def loss(self, model, w, D):
            raise NotImplementedError

    assert list(drawn.search(InProcess(Nothing()), 5)) == []


def test_the_list_names_cases_and_what_they_catch(capsys):
    assert main(["conformance", "--list", "--only", "fedprox B"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("[fedprox B]")
    assert "    B weights all clients alike" in rest
    assert main(["conformance"]) == 2
    assert "MODULE[:BACKEND], or one of fedref" in capsys.readouterr().err


def test_a_second_reading_passes():
    """FedMAML that is tested with θ′ is in no golden case; only drawn ones have it."""
    pytest.importorskip("torch")
    found = list(drawn.search(InProcess(load_backend("torch")), 30, "fedmaml evaluate"))
    assert [failure for *_, failure in found] == [None]


def test_save_overwrites_only_what_it_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong_b.py").write_text("def loss(model, w, D):\n    return 0.0\n")
    command = ["conformance", "wrong_b.py", "--random", "5", "--only", "loss", "--save"]
    assert main([*command, "wrong_b.py"]) == 2
    assert "exists, and fedref did not write it" in capsys.readouterr().err
    for _ in range(2):
        assert main([*command, "found"]) == 1
    assert (tmp_path / "wrong_b.py").read_text().startswith("def loss")
