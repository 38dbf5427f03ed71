"""The suite: fedref passes, every wrong answer is reported, and no backend brings the suite down."""

import json
import os
import re
import subprocess
import sys
import time
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.conformance import errata, naming, report, suite, vectors
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP, STACK
from fedref.conformance.suite import FAILED, NOT_OFFERED, PASSED
from fedref.judge import make_case
from fedref.judge.case import build_model
from fedref.lab.commands import main

CASES = vectors.read()
ROUNDS = [case for case in CASES if case.call == "round"]
LOSS, GRAD, META = (
    [case for case in CASES if case.name == name]
    for name in ("loss-mlp", "grad-mlp", "meta-per-fedavg-hf-mlp")
)


def run_and_name(backend, cases, dtype="float64"):
    return naming.name_mistakes(suite.run(backend, cases, dtype), cases, dtype)


def with_mistakes(case, *names):
    """A case's outputs with known mistakes, as an answer."""
    outputs = {name: np.asarray(x) for name, x in errata.answer(case, *names).items()}
    return naming.name_mistakes([suite.grade(suite.Answer(outputs), case)], [case], "float64")[0]


def statuses(backend, cases=CASES, dtype="float64"):
    return {result.status for result in suite.run(backend, cases, dtype)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", [LOOP, STACK], ids=["loop", "stack"])
def test_fedref_passes_itself(backend, dtype):
    assert statuses(backend, dtype=dtype) == {PASSED}


class Changed:
    """fedref with a call's outputs changed: (outputs, inputs) → outputs."""

    def __init__(self, call, change):
        self.call, self.change = call, change

    def __getattr__(self, name):
        if name != self.__dict__["call"]:
            raise AttributeError(name)
        right = getattr(LOOP, name)
        return lambda *args, **inputs: self.change(right(*args, **inputs), inputs)


def scale(**factors):
    return lambda out, inputs: out | {name: x * out[name] for name, x in factors.items()}


def test_the_first_intermediate_that_differs_is_named():
    changed = Changed("meta_gradient", scale(u=1 + 1e-9, meta_gradient=2))
    (result,) = suite.run(changed, META)
    assert (result.status, result.output) == (FAILED, "u")
    assert result.error == pytest.approx(1e-9, rel=1e-3)
    assert report.describe_failure(result).startswith("u off by 1e-09 (allowed ")


def wide_u(out, inputs):
    return out | {"u": out["u"].astype(float)}


def flipped(out, inputs):
    u, gradient = (out[name] for name in ("u", "meta_gradient"))
    return wide_u(out, inputs) | {"meta_gradient": 2 * u - gradient}


@pytest.mark.parametrize(
    ("change", "status", "remarks", "mistakes"),
    [
        (wide_u, PASSED, ("u is float64, expected float32",), ()),
        (flipped, FAILED, (), ("HF: the sign of d is flipped",)),
    ],
)
def test_a_wrong_dtype_of_an_optional_output_is_a_remark(change, status, remarks, mistakes):
    (result,) = run_and_name(Changed("meta_gradient", change), META, "float32")
    assert (result.status, result.remarks, result.mistakes) == (status, remarks, mistakes)


def test_what_is_not_offered_is_not_passed():
    class Little:
        def loss(self, model, w, D):
            if model["family"] == "cnn":
                raise NotImplementedError
            return LOOP.loss(model, w, D)

    results = list(suite.run(Little(), CASES))
    passed = [result for result in results if result.status == PASSED]
    assert {result.case for result in passed} == {
        c.name for c in CASES if c.call == "loss" and c.model["family"] != "cnn"
    }
    assert {r.status for r in results} == {PASSED, NOT_OFFERED}
    said = report.report_text(results, CASES)
    assert f"offers {len(passed)} of {len(CASES)} cases (2 %); {len(passed)} of these pass" in said
    assert "loss (2)" in said
    assert "nothing was tested" in report.summary(list(suite.run(object(), CASES)))


def mutate(g, inputs):
    inputs["w"] += 1
    return g


def talk(g, inputs):
    print("hello")
    return g


def leave(g, inputs):
    raise SystemExit(0)


def crash(g, inputs):
    raise ValueError("wrong\nand more")


class Silent(BaseException):
    def __str__(self):
        raise ValueError


def say_nothing(g, inputs):
    raise Silent


def test_a_backend_that_raises_from_getattr_offers_nothing():
    class Evil:
        def __getattr__(self, name):
            raise RuntimeError(name)

    assert statuses(Evil(), GRAD) == {NOT_OFFERED}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (crash, "raised ValueError: wrong"),
        (say_nothing, "raised Silent"),
        (leave, "raised SystemExit"),
        (lambda g, inputs: g[:-1], "has shape (34,), expected (35,)"),
        (lambda g, inputs: g.astype(np.float32), "is float32, expected float64"),
        (lambda g, inputs: g * np.nan, "holds NaN or infinity"),
        (lambda g, inputs: list(g), "is a list, expected a NumPy array"),
        (lambda g, inputs: g.astype(complex), "is complex128, expected float64"),
        (lambda g, inputs: g.astype(str), "expected float64"),
        (lambda g, inputs: None, "is a NoneType"),
        (lambda g, inputs: {"other": g}, "is missing"),
        (mutate, "its inputs were changed"),
    ],
)
def test_a_bad_answer_is_reported(change, reason):
    (result,) = suite.run(Changed("grad", change), GRAD)
    assert result.status == FAILED
    assert reason in report.describe_failure(result)
    nothing = Changed("round", lambda out, inputs: {"w": np.zeros(3)})
    (result,) = suite.run(nothing, ROUNDS[:1])
    assert "expected a dictionary with 'server'" in report.describe_failure(result)


def test_where_a_number_is_right_no_array_is_asked_for():
    loss = [case for case in CASES if case.call == "loss"][:1]
    (result,) = suite.run(Changed("loss", lambda x, inputs: [x]), loss)
    assert "is a list, expected a number" in report.describe_failure(result)


def test_printing_is_a_remark(capsys):
    (result,) = suite.run(Changed("grad", talk), GRAD)
    assert (result.status, result.remarks) == (PASSED, ("prints",))
    assert capsys.readouterr().out == ""
    assert "remark: prints (1 cases)" in report.report_text([result], GRAD)


WRONG = """
import os, sys, time
from fedref.conformance.backends.reference import LOOP


class Hangs:
    loss = LOOP.loss
    def grad(self, *a, **k):
        while True:
            time.sleep(0.01)

class Dies:
    loss = LOOP.loss
    def grad(self, *a, **k):
        os._exit(7)


class Closes:
    loss = LOOP.loss
    def grad(self, *a, **k):
        sys.stdout.close()
        return LOOP.grad(*a, **k)


class Prints:
    def loss(self, *a, **k):
        os.write(1, b"raw")
        return LOOP.loss(*a, **k)
"""
IMPORTING = """
from functools import partial

from helper import grad, hvp, loss

aggregate = partial(print)

def dissimilarity(model, w, clients):
    raise NotImplementedError
"""
HELPER = """
def grad(model, w, D): ...
hvp = loss = grad
"""


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    for name, text in (("wrong_backends", WRONG), ("importing", IMPORTING), ("helper", HELPER)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("wrong_backends", "importing", "helper"):
        sys.modules.pop(name, None)


def test_a_module_offers_what_it_defines_and_not_what_it_imports(wrong):
    def offered():
        backend = load_backend("importing")
        return {case.call for case in CASES if hasattr(backend, case.call)}

    assert offered() == {"aggregate", "dissimilarity"}
    (result,) = suite.run(load_backend("importing"), LOSS)
    assert result.status == NOT_OFFERED
    remark = "loss is imported, not defined: list it in __all__ to have it tested"
    assert f"remark: {remark} (1 cases)" in report.report_text([result], LOSS)
    sys.modules["importing"].__all__ = ["loss", "grad"]
    assert offered() == {"loss", "grad"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("Hangs", "no answer after 1 s"), ("Dies", "the process died"), ("Closes", "")],
)
@pytest.mark.usefixtures("wrong")
def test_a_backend_that_hangs_or_dies_costs_one_case(name, reason):
    begun = time.monotonic()
    with suite.BackendProcess(f"wrong_backends:{name}", timeout=1) as process:
        results = list(suite.grade_all(process, LOSS + GRAD + LOSS, "float64"))
    assert [result.status for result in results] == [PASSED, FAILED if reason else PASSED, PASSED]
    assert reason in results[1].reason
    assert time.monotonic() - begun < 60


@pytest.mark.usefixtures("wrong")
def test_json_stays_json_and_its_last_line_can_be_cited(capfd):
    assert main(["conformance", "wrong_backends:Prints", "--json", "--only", "loss-ml"]) == 0
    said = capfd.readouterr().out
    found = json.loads(said)
    assert found["passed"] == len(found["results"]) == 3
    assert found["summary"] == "offers 3 of 3 cases (100 %); 3 of these pass (100 %)"
    cited = found["cite"]
    assert json.loads(said.splitlines()[-1].partition(":")[2].removesuffix("}")) == cited
    assert cited["vectors"] == vectors.VERSION
    assert (cited["backend"], cited["passed"], cited["failed"]) == ("wrong_backends:Prints", 3, 0)
    assert len(cited["index_sha256"]) == 16


def test_float32_is_named_where_the_numbers_are_its_own():
    def narrow(g, inputs):
        return g.astype(np.float32).astype(np.float64)

    (result,) = run_and_name(Changed("grad", narrow), GRAD)
    assert result.mistakes == (naming.SINGLE,)
    assert "7 digits" in report.report_text([result], GRAD)


class Wrong:
    """The specification with known mistakes, as a backend of the derivatives and meta-gradients."""

    def __init__(self, *names):
        self.names = names

    def __getattr__(self, call):
        def answer(*args, **inputs):
            algorithm, model, hyper = args if len(args) == 3 else ("", *args, {})
            case = make_case(call, build_model(model), inputs, algorithm, hyper)
            return errata.answer(case, *self.names)

        if call not in ("loss", "grad", "hvp", "meta_gradient"):
            raise AttributeError(call)
        return answer


SMALL = [case for case in CASES if case.model["family"] in ("binary-logistic", "logistic", "mlp")]


@pytest.mark.parametrize(
    "name",
    ["first order: the inner step's graph was cut", "HF: divided by δ", "the inner step climbs",
     "the α-gradient has the wrong sign", "the L2 term counts twice", "softmax is taken twice"],
)  # fmt: skip
def test_a_mistake_is_named_and_nothing_else(name):
    results = run_and_name(Wrong(name), SMALL)
    failed = [result for result in results if result.status == FAILED]
    assert failed
    assert {found for result in failed for found in result.mistakes} == {name}


def test_a_name_fits_every_failing_case_that_it_changes():
    """Not the smallest alone, on which it is tried first."""
    cases = [c for c in CASES if c.algorithm == "fedmeta-maml" and c.call == "meta_gradient"]
    largest = max(cases, key=lambda case: case.model["d"])
    name = "first order: the inner step's graph was cut"
    results = []
    for case in cases:
        factor = 1.3 if case is largest else 1.0
        outputs = {key: factor * x for key, x in errata.answer(case, name).items()}
        results.append(suite.grade(suite.Answer(outputs), case))
    assert len(cases) > naming.TRIED
    assert not any(name in r.mistakes for r in naming.name_mistakes(results, cases, "float64"))


@pytest.mark.usefixtures("wrong")
def test_the_command(capsys):
    command = ["conformance", "wrong_backends:Dies", "--only", "mlp-tanh"]
    assert main([*command, "--dtype", "float32"]) == 1
    said = capsys.readouterr().out
    assert "FAILED  grad-mlp-tanh  [per-fedavg eq.4]  the process died" in said
    assert said.splitlines()[-1].startswith("offers ")


def test_an_output_that_is_right_refutes_a_mistake_that_moves_it():
    name = "the server's Adam starts afresh every round"
    (case,) = (c._replace(catches=(name,)) for c in ROUNDS if c.name == "round-adam-fedmeta-sgd")
    assert name in with_mistakes(case, name).mistakes
    outputs = {key: np.asarray(x) for key, x in errata.answer(case, name).items()}
    outputs["1.server.theta"] = case.outputs["1.server.theta"]
    (result,) = naming.name_mistakes([suite.grade(suite.Answer(outputs), case)], [case], "float64")
    assert (result.status, name in result.mistakes) == (FAILED, False)


@pytest.mark.parametrize("name", ["weights count batches", "weights count steps"])
def test_every_name_that_a_report_prints_is_known(name):
    """With stragglers these two differ."""
    cases = [case for case in ROUNDS if case.name == "round-stragglers-fedprox"]
    said = report.report_text([with_mistakes(cases[0], name)], cases)
    assert re.findall(r"^FAILED  (\S+)  \[(.*?)\]", said, re.M) == [(cases[0].name, cases[0].tag)]
    assert re.search(r"^known mistake \(\d+ ×\): (.*?)\. ", said, re.M)[1] == name
    assert f"        it is: {name}\n" in said
    said = report.report_text(list(suite.run(object(), cases)), cases)
    assert said.startswith("not offered: round (1)\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "cannot import nowhere"),
        (["fedreff"], "did you mean 'fedref'"),
        (["fedref.models.batch:Nope"], "has no 'Nope'"),
        (["fedref", "--only", "per-fedavg eq.66"], "did you mean 'per-fedavg eq.6'"),
        (["fedref", "--dtype", "float16"], "unknown --dtype 'float16': did you mean"),
        (["fedref", "--timeout", "0"], "expected a finite number, above 0"),
    ],
)
def test_wrong_input_is_one_line(arguments, said, capsys):
    assert main(["conformance", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_module_or_a_file_is_a_backend_and_a_class_is_called(tmp_path, monkeypatch):
    assert load_backend("fedref.conformance.backends.reference:Reference") == LOOP
    assert load_backend("fedref.conformance.backends").load_backend is load_backend
    with pytest.raises(ConfigError, match="cannot import"):
        load_backend("no_such_module")
    (tmp_path / "of_a_file.py").write_text("def loss(model, w, D):\n    return 1.0\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_backend(f"{tmp_path / 'of_a_file.py'}:loss")({}, [], {}) == 1


@pytest.mark.usefixtures("wrong")
def test_pytest_runs_it(tmp_path):
    """As people have it in their own CI; installed, the plugin needs no -p."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    here = str(Path(__file__).parents[2])
    found = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "fedref.conformance.plugin", "--pyargs", "fedref.conformance",
            "--fedref-backend", "wrong_backends:Dies", "-k",
            "grad-mlp-tanh or loss-mlp-tanh or round-fedavg-mlp",
        ],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": here},
    )  # fmt: skip
    assert "1 failed, 1 passed, 2 skipped" in found.stdout, found.stdout + found.stderr
    assert "FAILED  grad-mlp-tanh  [per-fedavg eq.4]  the process died" in found.stdout


# What a backend's author meets


def test_another_convention_passes_at_a_kink_and_any_number_does_not():
    for case in (case for case in CASES if case.convention):
        for name in case.catches:
            if name.startswith(("ReLU′", "ELU″", "ties of", "the hinge's slope")):
                assert with_mistakes(case, name).status == PASSED, (case.name, name)
        far = {name: 50 * np.sign(x) + x for name, x in case.outputs.items()}
        assert suite.grade(suite.Answer(far), case).status == FAILED


def test_an_exception_is_shown_with_the_backends_line(wrong):
    (wrong / "raising.py").write_text(
        "import numpy\n\ndef loss(model, w, D):\n    return helper(w)\n\n"
        "def helper(w):\n    return numpy.linalg.inv(w)\n"
    )
    (result,) = suite.run(load_backend(str(wrong / "raising.py")), LOSS)
    assert result.reason.startswith("raised LinAlgError: ")
    assert result.reason.endswith(" (raising.py:7)")


def test_answers_that_depend_on_earlier_calls_are_a_finding():
    class Counts:
        calls = 0

        def loss(self, model, w, D):
            self.calls += 1
            return LOOP.loss(model, w, D) + (self.calls > 1)

    results = list(suite.run(Counts(), LOSS + LOSS))
    assert [r.reason for r in results] == ["answers differently when asked twice", ""]
    assert results[1].status == FAILED


def test_where_no_time_is_left_a_name_is_only_likely(monkeypatch):
    name, ticks = "first order: the inner step's graph was cut", chain([0, 0], repeat(np.inf))
    cases = [c for c in CASES if c.algorithm == "fedmeta-maml" and c.call == "meta_gradient"]
    cases = [c._replace(catches=(name,)) for c in cases if name in c.catches]
    answers = [suite.Answer(errata.answer(case, name)) for case in cases]
    monkeypatch.setattr(naming, "process_time", lambda: next(ticks))
    results = naming.name_mistakes(map(suite.grade, answers, cases), cases, "float64")
    assert sum(r.mistakes == (name,) for r in results) == naming.TRIED < len(cases)
    likely = f"perhaps: {name} (as in smaller cases; no time was left)"
    assert {r.evidence for r in results if not r.mistakes} == {likely}


def test_naming_takes_no_longer_than_its_limit(monkeypatch):
    monkeypatch.setattr(naming, "LIMIT", -1.0)
    (result,) = run_and_name(Wrong("the L2 term counts twice"), GRAD)
    assert not result.looked
    assert "no known mistake was looked for (1 ×)" in report.report_text([result], GRAD)


@pytest.mark.usefixtures("wrong")
def test_failures_that_are_expected_are_set_apart(tmp_path, capsys):
    (tmp_path / "expected").write_text("grad-mlp-t*  # dies\nloss-mlp-tanh\n")
    command = ["conformance", "wrong_backends:Dies", "--only", "mlp-tanh", "--xfail"]
    assert main([*command, "expected"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["fail as expected (--xfail): 1",
                        "loss-mlp-tanh: passed, but expected to fail"]  # fmt: skip
    assert not any(line.startswith("FAILED") for line in said)
    assert main([*command, "expected", "--json"]) == 0
    cited = json.loads(capsys.readouterr().out)["cite"]
    assert (cited["passed"], cited["failed"]) == (1, 1)  # what is cited hides nothing
    (tmp_path / "expected").write_text("loss-ml-tanh")
    assert main([*command, "expected"]) == 2
    assert "unknown case 'loss-ml-tanh'" in capsys.readouterr().err
    assert main([*command, "nowhere"]) == 2
