"""Drawn cases: a right backend passes, a wrong one is shown at its smallest."""

import json
import re
import runpy
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers import Changed, Mistaken

from fedref.conformance import drawn, suite
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.suite import InProcess
from fedref.draws import serialise
from fedref.draws.sources import SUBJECTS
from fedref.judge import make_case
from fedref.judge.verdicts import FAILED, PASSED
from fedref.lab.commands import main
from fedref.models import LinearSVM

WRONG = """
from fedref.conformance.backends.reference import LOOP

def grad(model, w, D):
    return LOOP.grad(model, w, D) + model["l2"] * w  # the L2 term twice
"""


@pytest.fixture
def at_once(monkeypatch):
    """A failure is neither made smaller nor looked for in larger draws, which takes longest."""
    monkeypatch.setattr(drawn, "ATTEMPTS", 0)
    monkeypatch.setattr(drawn, "MOST_LARGER", 0)


def test_fedref_passes():
    """As many cases of each function and algorithm as are asked for."""
    found = list(drawn.search(InProcess(LOOP), 2, seed=3))
    subjects = [f"{call} {name}".strip() for call, names in SUBJECTS.items() for name in names]
    assert sorted(subject for subject, _, _ in found) == sorted(subjects)
    assert {count for _, count, _ in found} == {2}
    assert [drawn.by_hand(failure) for _, _, failure in found if failure] == []


def test_a_wrong_gradient_is_shown_small_and_saved_as_a_test(tmp_path, monkeypatch, capsys):
    """Over what it wrote before, and over nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "wrong_drawn.py").write_text(WRONG)
    (tmp_path / "case.py").write_text(drawn.MARK)
    command = ["conformance", "wrong_drawn.py", "--random", "60", "--save"]
    assert main([*command, "case"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  drawn grad" in out
    assert "g: right [" in out
    saved = np.load("case.npz")
    assert saved["in.w"].size <= 8
    assert len(saved["in.D.X"]) <= 2
    with pytest.raises(AssertionError, match=r"^g off"):
        runpy.run_path("case.py")["test_drawn"]()
    assert main([*command, "wrong_drawn.py"]) == 2
    assert "exists, and fedref did not write it" in capsys.readouterr().err
    assert (tmp_path / "wrong_drawn.py").read_text() == WRONG


def test_rounds_are_shown_with_the_lines_that_ran(monkeypatch):
    monkeypatch.setattr(drawn, "MOST_LARGER", 0)

    def twice(out, inputs):
        return out | {"server": out["server"] | {"w": 2 * out["server"]["w"]}}

    ((_, _, failure),) = drawn.search(InProcess(Changed("round", twice)), 50, "fedavg round")
    shown = drawn.by_hand(failure)
    assert re.search(r"^    \d{3}: ", shown, re.M)
    assert shown.count("\n") < 40
    assert "w_k = w_k - eta * f.grad(w_k, D)" in shown
    assert failure.case.model["d"] <= 2


class SlopeAtMargin1:
    """The hinge's slope at margin 1 is −1, or any number, where fedref has 0; None is an error."""

    def __init__(self, slope=1):
        self.slope = slope

    def grad(self, model, w, D):
        z = D["X"] @ w
        active = D["y"] * z <= 1
        return model["l2"] * w - self.slope * (active * D["y"]) @ D["X"] / len(z)


def test_another_slope_at_a_kink_is_a_remark_from_either_side():
    def verdict(case, *slope):
        return suite.grade_drawn(InProcess(SlopeAtMargin1(*slope)), case, "float64").result

    for x, w in product((1.0, -1.0), repeat=2):  # the hinge's margin is 1, and greater on one side
        D = {"X": np.array([[x]]), "y": np.array([int(x * w)])}
        case = make_case("grad", LinearSVM(1, l2=0.5, bias=False), {"w": np.full(1, w), "D": D})
        said = verdict(case)
        assert said.status == PASSED
        (remark,) = said.remarks
        assert remark.startswith("grad differs at a kink: here the slope at margin 1 is 0")
        assert "torch.clamp" in remark  # whose slope it is
        assert [verdict(case, slope).status for slope in (30, None)] == [FAILED, FAILED]
        elsewhere = case._replace(inputs=case.inputs | {"w": np.full(1, w / 2)})
        assert verdict(elsewhere).remarks == ()


class FirstState:
    """Begins with one number α for Meta-SGD, and with the hyperparameters' μ for FedProx."""

    def __getattr__(self, call):
        def answer(algorithm, model, hyper, server, *rest, **more):
            if "clients" in server:  # a later round
                return LOOP.round(algorithm, model, hyper, server, *rest, **more)
            state = server["server"] if call == "round" else server
            if "alpha" in state:
                state = state | {"alpha": np.full_like(state["alpha"], state["alpha"][0])}
            if "mu" in state:
                state = state | {"mu": np.asarray(hyper["mu"])}
            server = server | {"server": state} if call == "round" else state
            return getattr(LOOP, call)(algorithm, model, hyper, server, *rest, **more)

        return answer


class Forgets:
    """The training loss is not looked at: μ stays, and APFL renews nothing."""

    def round(self, algorithm, model, hyper, state, data, plan):
        seen = {name: x for name, x in plan.items() if name != "loss"}
        return LOOP.round(algorithm, model, hyper, state, data, seen)


@pytest.mark.parametrize(
    ("backend", "only"),
    [
        *((FirstState, f"{name} round") for name in ("fedmeta-sgd", "fedprox")),
        *((FirstState, only) for only in ("fedmeta-sgd evaluate", "fedprox client")),
        *((Forgets, f"{name} round") for name in ("fedprox", "apfl")),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_what_few_draws_show_is_found_and_told_in_at_most_40_lines(backend, only):
    *_, (_, _, failure) = drawn.search(InProcess(backend()), 240, only)
    assert drawn.by_hand(failure).count("\n") < 40


def test_when_its_time_is_over_the_search_ends(capsys):
    assert main(["conformance", "fedref", "--random", "50", "--limit", "1e-9"]) == 1
    assert capsys.readouterr().out == "stopped after 1e-09 s (--limit): the rest was not drawn\n"
    assert main(["conformance", "fedref", "--only", "loss-mlp", "--limit", "1e-9"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].split()[-4:] == ["not", "offered", "not", "asked"]
    assert said[-1] == "offers 0 of 0 cases (0 %): nothing was tested; 1 were not asked"


def test_random_draws_nothing_that_is_expected_to_fail_and_prints_json(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("expected").write_text("hvp-kink-*\n")
    Path("wrong.py").write_text(
        "from fedref.conformance.backends.reference import LOOP\nhvp = lambda *a, **k: 0.0\n"
        "loss, grad = LOOP.loss, lambda *a, **k: LOOP.grad(*a, **k) + 1\n"
        "__all__ = ['loss', 'hvp', 'grad']\n"
    )
    command = ["conformance", "wrong.py", "--random", "6", "--xfail", "expected"]
    assert main([*command, "--only", "hvp"]) == 2
    assert main([*command, "--json", "--summary", "S", "--only", "loss"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["failure"], [*found["drawn"]]) == (None, ["loss"])
    assert "not drawn, expected to fail (--xfail): hvp\n" in Path("S").read_text()
    assert main([*command, "--json", "--only", "grad"]) == 1
    failure = json.loads(capsys.readouterr().out)["failure"]
    assert (failure["call"], failure["output"]) == ("grad", "g")
    assert np.shape(failure["inputs"]["w"]) == np.shape(failure["right"]["g"])


def test_what_a_backend_does_not_offer_is_not_counted():
    asked, told = [], []

    class NoCNN:
        def loss(self, model, w, D):
            asked.append(model["family"])
            if model["family"] == "cnn":
                raise NotImplementedError
            return LOOP.loss(model, w, D)

    def note(call, result):
        told.append((call, result.status))

    found = list(drawn.search(InProcess(NoCNN()), 20, note=note))
    assert "cnn" in asked
    assert {*told} == {("loss", PASSED)}
    assert found == [("loss", len(told), None)]


class OwnState:
    """Returns what golden rounds require, and keeps everything else in a form of its own."""

    def round(self, algorithm, model, hyper, state, data, plan):
        out = LOOP.round(algorithm, model, hyper, state.get("mine", state), data, plan)
        server = out["server"]
        main = serialise.required_state(algorithm, server, hyper)
        return {"server": {name: server[name] for name in main}, "mine": out}


@pytest.mark.parametrize("name", ["fedcurv", "fedmaml", "scaffold", "fedprox"])
def test_what_golden_rounds_do_not_require_may_be_left_out(name):
    found = list(drawn.search(InProcess(OwnState()), 30, f"{name} round"))
    assert [failure for *_, failure in found] == [None]


def test_the_list_names_cases_and_what_they_catch(capsys):
    assert main(["conformance", "--list", "--only", "fedprox B"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("[fedprox B]")
    assert "    B weights all clients alike" in rest


def test_a_second_reading_passes():
    """FedMAML that is tested with θ′ is in no golden case; only drawn ones have it."""
    pytest.importorskip("torch")
    found = list(drawn.search(InProcess(load_backend("torch")), 30, "fedmaml evaluate"))
    assert [failure for *_, failure in found] == [None]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("hvp", "the squared hinge is the hinge"),
        ("meta_gradient", "the second-order term is added"),
        ("meta_gradient", "Meta-SGD adapts by |α|"),
    ],
)
def test_a_drawn_failure_has_the_name_that_fits_larger_draws(call, name):
    found = drawn.search(InProcess(Mistaken([call], name)), 200, call)
    *_, (_, _, failure) = found
    assert failure.result.mistakes == (name,)
    assert f"it is: {name}" in drawn.by_hand(failure)


def test_a_name_that_fits_the_smallest_draw_alone_is_not_given():
    class Wrong(Mistaken):
        """Another mistake as soon as there are two rows."""

        def __getattr__(self, call):
            right = super().__getattr__(call)

            def answer(variant, model, hyper, w, **inputs):
                rows = sum(len(D["y"]) for D in inputs.values())
                made = right(variant, model, hyper, w=w, **inputs)
                return made if rows <= 4 else {"meta_gradient": np.sin(w)}

            return answer

    backend = InProcess(Wrong(["meta_gradient"], "the second-order term is added"))
    *_, (_, _, failure) = drawn.search(backend, 200, "per-fedavg meta_gradient")
    assert failure.result.mistakes == ()
