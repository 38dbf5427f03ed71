"""Drawn cases: a right backend passes, a wrong one is shown at its smallest."""

import re
import subprocess
import sys

import numpy as np
import pytest

from fedref.conformance import drawn, errata, serialise, suite
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.sources import SUBJECTS
from fedref.conformance.suite import InProcess
from fedref.judge import make_case
from fedref.judge.case import build_model
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


@pytest.mark.parametrize("call", SUBJECTS)
def test_fedref_passes(call):
    found = list(drawn.search(InProcess(LOOP), len(SUBJECTS[call]) * 2, call, seed=3))
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


def test_rounds_are_shown_with_the_lines_that_ran(monkeypatch):
    monkeypatch.setattr(drawn, "SHRINK", 60.0)  # however busy the machine is

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


class SlopeAtMargin1:
    """The hinge's slope at margin 1 is −1, where fedref has 0: another convention."""

    slope = 1

    def grad(self, model, w, D):
        z = D["X"] @ w
        active = D["y"] * z <= 1
        return model["l2"] * w - self.slope * (active * D["y"]) @ D["X"] / len(z)


def test_another_slope_at_a_kink_is_a_remark_from_either_side():
    for x in (1.0, -1.0):  # the hinge's margin is 1 at w, and greater on one side
        D = {"X": np.array([[x]]), "y": np.array([int(x)])}
        case = make_case("grad", LinearSVM(1, l2=0.5, bias=False), {"w": np.ones(1), "D": D})
        _, result = suite.grade_drawn(InProcess(SlopeAtMargin1()), case, "float64")
        assert result.status == suite.PASSED
        assert result.remarks == ("grad differs at a kink: here the slope at margin 1 is 0",)
        backend = SlopeAtMargin1()
        backend.slope = 30
        assert suite.grade_drawn(InProcess(backend), case, "float64").result.status == suite.FAILED
        elsewhere = case._replace(inputs=case.inputs | {"w": np.full(1, 0.5)})
        assert (
            suite.grade_drawn(InProcess(SlopeAtMargin1()), elsewhere, "float64").result.remarks
            == ()
        )


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


@pytest.mark.parametrize(
    "only", ["fedmeta-sgd evaluate", "fedprox client", "fedmeta-sgd round", "fedprox round"]
)
def test_the_server_s_state_is_not_the_first_alone(only):
    ((_, _, failure),) = drawn.search(InProcess(FirstState()), 100, only)
    assert failure is not None
    assert drawn.by_hand(failure).count("\n") < 40


class Forgets:
    """The training loss is not looked at: μ stays, and APFL renews nothing."""

    def round(self, algorithm, model, hyper, state, data, plan):
        seen = {name: x for name, x in plan.items() if name != "loss"}
        return LOOP.round(algorithm, model, hyper, state, data, seen)


@pytest.mark.parametrize("only", ["fedprox round", "apfl round"])
def test_long_rounds_are_told_in_at_most_40_lines(only):
    *_, (_, _, failure) = drawn.search(InProcess(Forgets()), 400, only)
    assert drawn.by_hand(failure).count("\n") < 40


def test_a_case_that_raises_at_a_kink_fails():
    class Raises:
        def grad(self, model, w, D):
            raise ValueError

    D = {"X": np.ones((1, 1)), "y": np.ones(1, int)}
    case = make_case("grad", LinearSVM(1, bias=False), {"w": np.ones(1), "D": D})
    assert suite.grade_drawn(InProcess(Raises()), case, "float64").result.status == suite.FAILED


def test_when_its_time_is_over_the_search_ends(capsys):
    told = []
    found = drawn.search(
        InProcess(LOOP), 50, "grad", until=0.0, note=lambda call, result: told.append(call)
    )
    assert [*found, *told] == []
    assert main(["conformance", "fedref", "--random", "50", "--limit", "1e-9"]) == 1
    assert capsys.readouterr().out == "stopped after 1e-09 s (--limit): the rest was not drawn\n"
    assert main(["conformance", "fedref", "--only", "loss-mlp", "--limit", "1e-9"]) == 1
    assert "was not asked: no time is left (--limit)" in capsys.readouterr().out


def test_what_a_backend_does_not_offer_is_not_counted():
    class Nothing:
        def loss(self, model, w, D):
            raise NotImplementedError

    assert list(drawn.search(InProcess(Nothing()), 5)) == []


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


class WithMistake:
    """The specification with a known mistake, as a backend."""

    def __init__(self, call, name):
        self.judge, self.call = errata.judge_with(name), call

    def __getattr__(self, call):
        if call != self.call:
            raise AttributeError(call)

        def answer(*about, **inputs):
            algorithm, model, hyper = about if len(about) == 3 else ("", *about, {})
            made = build_model(model)
            return self.judge(make_case(call, made, inputs, algorithm, hyper))

        return answer


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("hvp", "the squared hinge is the hinge"),
        ("meta_gradient", "the second-order term is added"),
        ("meta_gradient", "Meta-SGD adapts by |α|"),
    ],
)
def test_a_drawn_failure_has_the_name_that_fits_larger_draws(call, name):
    found = drawn.search(InProcess(WithMistake(call, name)), 200, call)
    *_, (_, _, failure) = found
    assert failure.result.mistakes == (name,)
    assert f"it is: {name}" in drawn.by_hand(failure)


def test_a_name_that_fits_the_smallest_draw_alone_is_not_given():
    class Wrong(WithMistake):
        """Another mistake as soon as there are two rows."""

        def __getattr__(self, call):
            right = super().__getattr__(call)

            def answer(variant, model, hyper, w, **inputs):
                rows = sum(len(D["y"]) for D in inputs.values())
                made = right(variant, model, hyper, w=w, **inputs)
                return made if rows <= 4 else {"meta_gradient": np.sin(w)}

            return answer

    backend = InProcess(Wrong("meta_gradient", "the second-order term is added"))
    *_, (_, _, failure) = drawn.search(backend, 200, "per-fedavg meta_gradient")
    assert failure.result.mistakes == ()
