"""The suite: fedref passes, what is wrong is told, and no backend brings it down."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.commands import main
from fedref.conformance import report, suite, vectors
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP, STACK, WORKERS
from fedref.conformance.suite import FAILED, NOT_OFFERED, PASSED

CASES = vectors.read()
ROUNDS = [case for case in CASES if case.call == "round"]
LOSS = [case for case in CASES if case.name == "loss-mlp"]
GRAD = [case for case in CASES if case.name == "grad-mlp"]


def statuses(backend, cases=CASES, dtype=np.float64):
    return {result.status for result in suite.run(backend, cases, dtype)}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("backend", [LOOP, STACK], ids=["loop", "stack"])
def test_fedref_passes_itself(backend, dtype):
    assert statuses(backend, dtype=dtype) == {PASSED}


def test_fedref_passes_itself_with_two_workers():
    every = [case for case in ROUNDS if "-mlp" in case.name or "drawn-twice" in case.name]
    assert statuses(WORKERS, every) == {PASSED}
    WORKERS.processes.executor.shutdown()


def test_the_first_intermediate_that_differs_is_told():
    class TooFar:
        def meta_gradient(self, variant, model, hyper, **inputs):
            out = LOOP.meta_gradient(variant, model, hyper, **inputs)
            return out | {"u": out["u"] * (1 + 1e-9), "meta_gradient": out["meta_gradient"] + 1}

    case = next(case for case in CASES if case.name == "meta-per-fedavg-mlp")
    (result,) = suite.run(TooFar(), [case])
    assert result.status == FAILED
    assert result.output == "u"
    assert result.error == pytest.approx(1e-9, rel=1e-3)
    assert report.what(result).startswith("u off by 1e-09 (allowed ")
    assert report.what(result._replace(output="losses")).startswith("losses off by 1e-09 (")


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
    said = report.text(results, CASES)
    assert f"offers {len(passed)} of {len(CASES)} cases (4 %); {len(passed)} of these pass" in said
    assert "loss (2)" in said
    assert "nothing was tested" in report.summary(list(suite.run(object(), CASES)))


def grad_as(change):
    class Changed:
        def grad(self, model, w, D):
            return change(LOOP.grad(model, w, D), w, D)

    return Changed()


def mutate(g, w, D):
    w += 1
    return g


def talk(g, w, D):
    print("hello")
    return g


def leave(g, w, D):
    raise SystemExit(0)


def crash(g, w, D):
    raise ValueError("wrong\nand more")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (crash, "raised ValueError: wrong"),
        (leave, "raised SystemExit"),
        (lambda g, w, D: g[:-1], "has shape (34,), expected (35,)"),
        (lambda g, w, D: g.astype(np.float32), "is float32, expected float64"),
        (lambda g, w, D: g * np.nan, "holds NaN or infinity"),
        (lambda g, w, D: list(g), "is a list, expected a NumPy array"),
        (lambda g, w, D: g.astype(complex), "is complex128, expected float64"),
        (lambda g, w, D: g.astype(str), "expected float64"),
        (lambda g, w, D: None, "is a NoneType"),
        (lambda g, w, D: {"other": g}, "is missing"),
        (mutate, "its inputs were changed"),
    ],
)
def test_a_bad_answer_is_reported(change, reason):
    (result,) = suite.run(grad_as(change), GRAD)
    assert result.status == FAILED
    assert reason in report.what(result)


def test_printing_is_a_remark(capsys):
    (result,) = suite.run(grad_as(talk), GRAD)
    assert (result.status, result.remarks) == (PASSED, ("prints",))
    assert capsys.readouterr().out == ""
    assert "remark: prints (1 cases)" in report.text([result], GRAD)


def test_a_round_without_a_server_is_reported():
    class Nothing:
        def round(self, *arguments):
            return {"w": np.zeros(3)}

    (result,) = suite.run(Nothing(), ROUNDS[:1])
    assert "expected a dictionary with 'server'" in report.what(result)


WRONG = """
import os, sys, time
import numpy as np
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


class Prints:
    def loss(self, *a, **k):
        os.write(1, b"raw")
        return LOOP.loss(*a, **k)
"""


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    (tmp_path / "wrong_backends.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("name", "reason"), [("Hangs", "no answer after 1 s"), ("Dies", "the process died")]
)
@pytest.mark.usefixtures("wrong")
def test_a_backend_that_hangs_or_dies_costs_one_case(name, reason):
    begun = time.monotonic()
    results = list(suite.run_in_process(f"wrong_backends:{name}", LOSS + GRAD + LOSS, timeout=1))
    assert [result.status for result in results] == [PASSED, FAILED, PASSED]
    assert reason in results[1].reason
    assert time.monotonic() - begun < 60


@pytest.mark.usefixtures("wrong")
def test_json_stays_json(capfd):
    assert main(["conformance", "wrong_backends:Prints", "--json", "--only", "loss-mlp"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["passed"] == len(found["results"]) == 3
    assert found["summary"] == "offers 3 of 3 cases (100 %); 3 of these pass (100 %)"


@pytest.mark.usefixtures("wrong")
def test_the_command(capsys):
    command = ["conformance", "wrong_backends:Dies", "--only", "mlp-tanh"]
    assert main([*command, "--dtype", "float32"]) == 1
    said = capsys.readouterr().out
    assert "FAILED  grad-mlp-tanh  [per-fedavg eq.4]  the process died" in said
    assert said.splitlines()[-1].startswith("offers ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "cannot import nowhere"),
        (["fedreff"], "did you mean 'fedref'"),
        (["fedref.models.batch:Nope"], "has no 'Nope'"),
        (["fedref", "--only", "per-fedavg eq.66"], "did you mean 'per-fedavg eq.6'"),
        (["fedref", "--dtype", "float16"], "unknown dtype"),
        (["fedref", "--timeout", "0"], "expected a finite number, above 0"),
    ],
)
def test_wrong_input_is_one_line(arguments, said, capsys):
    assert main(["conformance", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_module_is_a_backend_and_a_class_is_made():
    assert load_backend("fedref.conformance.backends.reference:Reference") == LOOP
    assert load_backend("fedref.conformance.backends").NAMES
    with pytest.raises(ConfigError, match="cannot import"):
        load_backend("no_such_module")


@pytest.mark.usefixtures("wrong")
def test_pytest_runs_it(tmp_path):
    """As people have it in their own CI; installed, the plugin needs no -p."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    here = str(Path(__file__).parents[2])
    found = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "fedref.conformance.plugin", "--pyargs", "fedref.conformance",
            "--backend", "wrong_backends:Dies", "-k", "grad-mlp-tanh or loss-mlp-tanh or round-fedavg-mlp",
        ],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": here},
    )  # fmt: skip
    assert "1 failed, 1 passed, 1 skipped" in found.stdout, found.stdout + found.stderr
    assert "FAILED  grad-mlp-tanh  [per-fedavg eq.4]  the process died" in found.stdout
