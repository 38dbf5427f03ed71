"""The suite: fedref passes, every wrong answer is reported, and no backend brings the suite down."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from golden import CASES
from helpers import Changed

from fedref.boundary.errors import ConfigError
from fedref.conformance import naming, report, suite, test_backend, vectors
from fedref.conformance.backends import functions_of, load_backend
from fedref.conformance.backends.reference import LOOP, STACK
from fedref.judge import errata, verdicts
from fedref.judge.verdicts import FAILED, NOT_OFFERED, PASSED
from fedref.lab.commands import console, main

BY_NAME = {case.name: [case] for case in CASES}
LOSS, GRAD, META = (BY_NAME[f"{name}-mlp"] for name in ("loss", "grad", "meta-per-fedavg-hf"))


def statuses(backend, cases=CASES, dtype="float64"):
    return {result.status for result in suite.run(backend, cases, dtype)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", [LOOP, STACK], ids=["loop", "stack"])
def test_fedref_passes_itself(backend, dtype):
    assert statuses(backend, dtype=dtype) == {PASSED}


def test_the_first_intermediate_that_differs_is_named():
    factors = {"u": 1 + 1e-9, "meta_gradient": 2}

    def scale(out, inputs):
        return out | {name: x * out[name] for name, x in factors.items()}

    (result,) = suite.run(Changed("meta_gradient", scale), META)
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
    results = suite.run(Changed("meta_gradient", change), META, "float32")
    (result,) = naming.name_mistakes(results, META, "float32")
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

    class Evil:
        def __getattr__(self, name):
            raise RuntimeError(name)

    assert statuses(Evil(), GRAD) == {NOT_OFFERED}


def mutate(g, inputs):
    inputs["w"] += 1
    return g


class Silent(BaseException):
    def __str__(self):
        raise ValueError


def raising(error):
    def change(g, inputs):
        raise error

    return change


@pytest.mark.parametrize(
    ("cases", "change", "reason"),
    [
        (GRAD, raising(ValueError("wrong\nand more")), "raised ValueError: wrong"),
        (GRAD, raising(Silent()), "raised Silent"),
        (GRAD, raising(SystemExit(0)), "raised SystemExit"),
        (GRAD, lambda g, inputs: g[:-1], "has shape (34,), expected (35,)"),
        (GRAD, lambda g, inputs: g.astype(np.float32), "is float32, expected float64"),
        (GRAD, lambda g, inputs: g * np.nan, "holds NaN or infinity"),
        (GRAD, lambda g, inputs: list(g), "is a list, expected a NumPy array"),
        (GRAD, lambda g, inputs: g.astype(complex), "is complex128, expected float64"),
        (GRAD, lambda g, inputs: g.astype(str), "is an array of <U32, expected a NumPy array"),
        (GRAD, lambda g, inputs: g.astype(object), "is an array of object, expected a NumPy array"),
        (GRAD, lambda g, inputs: None, "is a NoneType"),
        (GRAD, lambda g, inputs: {"other": g}, "is missing"),
        (GRAD, mutate, "its inputs were changed"),
        (LOSS, lambda x, inputs: [x], "is a list, expected a number"),
        (LOSS, lambda x, inputs: 10**400, "is an int, expected a number"),
        (
            BY_NAME["round-fedavg-mlp"],
            lambda out, inputs: {"w": out},
            "expected a dictionary with 'server'",
        ),
    ],
)
def test_a_bad_answer_is_reported(cases, change, reason):
    (result,) = suite.run(Changed(cases[0].call, change), cases)
    assert result.status == FAILED
    assert reason in report.describe_failure(result)


def test_printing_is_a_remark(capsys):
    def talk(g, inputs):
        print("hello")
        sys.stdout.close()
        return g

    (result,) = suite.run(Changed("grad", talk), GRAD)
    assert (result.status, result.remarks) == (PASSED, ("prints",))
    assert capsys.readouterr().out == ""
    assert "remark: prints (1 cases)" in report.report_text([result], GRAD)


BREAKS = """
import os, time
from fedref.conformance.backends.reference import LOOP


class Breaks:
    def loss(self, *a, **k):
        os.write(1, b"raw")
        return LOOP.loss(*a, **k)

    def grad(self, *a, **k):
        os._exit(7)

    def dissimilarity(self, *a, **k):
        while True:
            time.sleep(0.01)
"""


@pytest.fixture
def breaks(tmp_path, monkeypatch):
    (tmp_path / "breaks.py").write_text(BREAKS)
    monkeypatch.chdir(tmp_path)


IMPORTING = """
from functools import partial
from statistics import mean as loss, median as grad, mode as hvp

aggregate = partial(print)

def dissimilarity(model, w, clients):
    raise NotImplementedError
"""


def test_a_module_offers_what_it_defines_and_not_what_it_imports():
    module = ModuleType("importing")
    exec(IMPORTING, vars(module))

    def offered():
        return {case.call for case in CASES if hasattr(functions_of(module), case.call)}

    assert offered() == {"aggregate", "dissimilarity"}
    (result,) = suite.run(functions_of(module), LOSS)
    assert result.status == NOT_OFFERED
    remark = "loss is imported, not defined: list it in __all__ to have it tested"
    assert f"remark: {remark} (1 cases)" in report.report_text([result], LOSS)
    module.__all__ = ["loss", "grad"]
    assert offered() == {"loss", "grad"}


@pytest.mark.usefixtures("breaks")
def test_a_backend_that_hangs_or_dies_costs_one_case():
    results = []
    with suite.BackendProcess("breaks:Breaks", timeout=90.0) as process:
        assert process.timeout == 90.0
        for case in LOSS + BY_NAME["dissimilarity-mlp"] + LOSS + GRAD + LOSS:
            process.timeout = 0.5 if case.call == "dissimilarity" else 90.0
            results.append(suite.grade_twice(process, case))
    assert [result.status for result in results] == [PASSED, FAILED, PASSED, FAILED, PASSED]
    assert "no answer after 0.5 s" in results[1].reason
    assert "the process died" in results[3].reason


INVASIVE = """
import numpy as np
from fedref.conformance import suite
from fedref.conformance.backends.reference import LOOP
from fedref.judge import compare

class Own:
    pass

class Error(Exception):
    pass

def fail(*a):
    raise Error("mine")

def loss(*a, **k):
    return LOOP.loss(*a, **k)

def hvp(model, w, v, D):
    np.array_equal = lambda *a, **k: True
    v[:] = LOOP.hvp(model, w, v, D)
    return v.copy()

def dissimilarity(model, w, clients):
    return {"B": Own(), "variance": np.array([Own()])}

gradients = []

def grad(*a, **k):
    if not gradients:
        gradients.append(LOOP.grad(*a, **k))
    for name in ("abs", "max", "isfinite", "add", "subtract", "longdouble"):
        setattr(np, name, lambda *a, **k: 0.0)
    compare.difference = suite.difference = lambda *a: 0.0
    suite.grade = suite.grade_twice = lambda *a: suite.Result("", "", "passed")
    return gradients[0] + 1

def meta_gradient(*a, **k):
    suite.settings_and_bytes = fail
"""


def test_what_a_backend_changes_in_its_process_changes_no_verdict(tmp_path, monkeypatch):
    """The parent compares, and reads nothing that would need the backend's own code."""
    (tmp_path / "invasive.py").write_text(INVASIVE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = {
        "loss-mlp": "",
        "hvp-mlp": "its inputs were changed: work on copies",
        "dissimilarity-mlp": "is an Own, expected a number",
        "grad-mlp": "",
        "meta-per-fedavg-hf-mlp": "raised Error: mine (invasive.py:",
        "loss-svm": "the suite beside it raised Error: mine",  # which ends the process
        "loss-logistic": "",
    }
    with suite.BackendProcess("invasive", timeout=90.0) as process:
        results = {name: suite.grade_twice(process, *BY_NAME[name], always=True) for name in said}
    assert "invasive" not in sys.modules
    for name, result in results.items():
        assert result.reason.startswith(said[name])
    assert [name for name, r in results.items() if r.status == PASSED] == [
        "loss-mlp",
        "loss-logistic",
    ]
    assert results["grad-mlp"].error > 0.1


@pytest.mark.usefixtures("breaks")
def test_the_command_sets_expected_failures_apart_and_its_json_can_be_cited(tmp_path, capfd):
    command = ["conformance", "breaks:Breaks", "--only", "mlp-tanh", "--dtype", "float32"]
    expected = tmp_path / "expected"
    expected.write_text("grad-mlp-t*  # dies\nloss-mlp-tanh\n")
    command += ["--xfail", "expected"]
    assert main(command) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[:2] == ["fail as expected (--xfail): 1",
                        "loss-mlp-tanh: passed, but expected to fail"]  # fmt: skip
    assert not any(line.startswith("FAILED") for line in said)
    assert said[-1] == "offers 2 of 3 cases (66 %); 1 of these pass (50 %)"
    assert main([*command, "--json"]) == 0
    said = capfd.readouterr().out
    found = json.loads(said)  # whatever the backend prints
    assert len(found["results"]) == 3
    assert found["summary"] == "offers 2 of 3 cases (66 %); 1 of these pass (50 %)"
    cited = found["cite"]
    assert json.loads(said.splitlines()[-1].partition(":")[2].removesuffix("}")) == cited
    assert cited["vectors"] == vectors.VERSION
    assert (cited["backend"], cited["dtype"]) == ("breaks:Breaks", "float32")
    assert (cited["passed"], cited["failed"]) == (1, 1)  # what is cited hides nothing
    assert cited["cases"] == f"3 of {len(CASES)}"
    assert len(cited["index_sha256"]) == 16
    expected.write_text("grad-mlp-t*\nround-*-lstm*  # not among those of --only\n")
    main([*command, "--summary", "summary.md"])
    main([*command, "--summary", "summary.md"])  # other steps write it, too
    said = Path("summary.md").read_text()
    assert said.count("### breaks:Breaks in float32\n\noffers 2 of 3 cases (66 %); 1 of these") == 2
    assert said.count("```text\nfail as expected (--xfail): 1\n") == 2
    expected.write_text("loss-ml-tanh")
    assert main(command) == 2
    assert "unknown case 'loss-ml-tanh': did you mean 'loss-mlp-tanh'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("only", "code", "said"),
    [
        ("mlp-tanh", 0, "offers 2 of 3 cases (66 %); 1 of these pass (50 %)"),
        ("grad-mlp-tanh", 1, "offers 1 of 1 cases (100 %); 0 of these pass (0 %)"),
        ("hvp-mlp-tanh", 1, "offers 0 of 1 cases (0 %): nothing was tested"),
    ],
)
@pytest.mark.usefixtures("breaks")
def test_where_nothing_passes_no_file_of_expected_failures_makes_it_right(only, code, said, capfd):
    Path("expected").write_text("*")
    command = ["conformance", "breaks:Breaks", "--only", only, "--xfail", "expected"]
    assert main(command) == code
    assert capfd.readouterr().out.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "MODULE[:BACKEND], or one of fedref"),
        (["fedreff"], "did you mean 'fedref'"),
        (["fedref", "--only", "per-fedavg eq.66"], "did you mean 'per-fedavg eq.6'"),
        (["fedref", "--dtype", "float16"], "unknown --dtype 'float16': did you mean"),
        (["fedref", "--quick", "--only", "evaluate-apfl-first"], "--quick has no case of evaluate"),
        (["fedref", "--quick", "--random", "3"], "--quick and --unit are of golden"),
        (["fedref", "--only", "loss-mlp", "--summary", "no/folder"], "no/folder: No such file"),
        (["fedref", "--unit", "tf23"], "--unit tf23: expected tf32, float16, bfloat16, 2**-N"),
        (["fedref", "--unit", "gard=tf32"], "unknown function 'gard': did you mean 'grad'"),
        (["fedref", "--only", "-apfl"], "--only: expected one argument; write --OPTION=VALUE if"),
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
    for wrong, words in (("nowhere", "cannot import nowhere"), ("fedref:Nope", "has no 'Nope'")):
        with pytest.raises(ConfigError, match=words):
            load_backend(wrong)
    (tmp_path / "of_a_file.py").write_text("def loss(model, w, D):\n    return 1.0\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_backend(f"{tmp_path / 'of_a_file.py'}:loss")({}, [], {}) == 1


def test_pytest_runs_it_and_says_what_the_command_says(tmp_path, capfd):
    """As people have it in their own CI; installed, the plugin needs no -p."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "expected").write_text("hvp-mlp-*\nloss-mlp-tanh\n")
    (tmp_path / "mistaken.py").write_text(
        "import os\nfrom helpers import Mistaken\n"
        "B = Mistaken(['loss', 'grad'], 'tanh′ is 1 − a')\nB.hvp = lambda *_, **__: os._exit(7)\n"
    )
    here = Path(__file__).parents[2]
    found = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "fedref.conformance.plugin", "--pyargs", "fedref.conformance",
            "--fedref-backend", "mistaken:B", "--fedref-only", "mlp-tanh", "--fedref-xfail", "expected",
        ],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{here}:{here / 'tests'}"},
    )  # fmt: skip
    said = found.stdout + found.stderr
    assert "1 failed, 1 skipped, 1 xfailed, 1 xpassed" in said, said
    assert "FAILED  hvp-mlp-tanh" not in said
    assert "it is: tanh′ is 1 − a" in said, said
    assert main(["conformance", str(tmp_path / "mistaken.py:B"), "--only", "grad-mlp-tanh"]) == 1
    assert "it is: tanh′ is 1 − a" in capfd.readouterr().out


def test_quick_asks_the_cases_that_the_index_marks(capfd):
    quick = [case.name for case in CASES if case.quick and case.call == "loss"]
    assert main(["conformance", "--list", "--quick", "--only", "loss-"]) == 0
    listed = [line.split()[0] for line in capfd.readouterr().out.splitlines() if line[0] != " "]
    assert listed == quick
    assert main(["conformance", "fedref", "--quick", "--only", "loss-"]) == 0
    first, *_, last = capfd.readouterr().out.splitlines()
    assert first == f"quick: {len(quick)} of {len(CASES)} cases"
    assert last.startswith(f"offers {len(quick)} of {len(quick)} cases (100 %)")
    given = SimpleNamespace(fixturenames=["case"])
    options = {
        "--fedref-quick": True,
        "--fedref-only": "",
        "--fedref-xfail": None,
        "--fedref-unit": "",
    }
    given.config = SimpleNamespace(getoption=options.get)
    given.parametrize = lambda _, cases: setattr(given, "names", [case.id for case in cases])
    test_backend.pytest_generate_tests(given)
    assert given.names == [case.name for case in CASES if case.quick]


SLOW = """
import os, signal, threading, time
from fedref.conformance.backends.reference import LOOP
asked = 0

def loss(model, w, D):
    global asked
    asked += 1
    if asked == 6:
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
    return LOOP.loss(model, w, D) + 1
"""


def test_a_stop_prints_what_was_answered(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    found = subprocess.run(
        [sys.executable, "-m", "fedref", "conformance", "slow.py", "--only", "loss-", "--summary", "S"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert found.returncode == 128 + signal.SIGTERM
    assert found.stderr == "fedref: stopped by SIGTERM\n"
    table, *lines = found.stdout.splitlines()
    assert table.split() == ["passed", "failed", "not", "offered", "not", "asked"]
    n = sum(case.name.startswith("loss-") for case in CASES)
    assert lines[0].split() == ["loss", "0", "2", "0", str(n - 2)]  # asked 3 and 2 times
    assert lines[-2] == "no known mistake was looked for (2 ×): mend the first, or use --only"
    assert (
        lines[-1] == f"offers 2 of 2 cases (100 %); 0 of these pass (0 %); {n - 2} were not asked"
    )
    assert lines[-1] in (tmp_path / "S").read_text()


def test_a_backend_that_cannot_be_imported_again_costs_the_rest_alone(monkeypatch):
    process = suite.BackendProcess("nowhere")
    process.begun = True
    first, second = suite.grade_all(process, GRAD + LOSS, "float64")
    assert (first.status, second.status) == (FAILED, verdicts.NOT_ASKED)
    assert first.reason.startswith("cannot be imported again: ")


def test_percentages_are_rounded_down_and_log_files_have_plain_lines(monkeypatch, capsys):
    assert report.percent(552, 553) == "99 %"
    bar = console.show_progress("cases", " cases", iterable=range(3), total=3)
    bar.delay, bar.mininterval = 0, 0
    assert [*bar] == [0, 1, 2]
    said = capsys.readouterr().err
    assert said.splitlines()[-1] in ("fedref: cases: 2 of 3 cases", "fedref: cases: 3 of 3 cases")
    assert "\r" not in said


# What a backend's author meets


def test_another_convention_passes_at_a_kink_and_any_number_does_not():
    met = set()
    for case in (case for case in CASES if case.convention):
        for name in case.catches:
            if name.startswith(("ReLU′", "ELU″", "ties of", "the hinge's slope")):
                made = errata.answer(case, name)
                graded = verdicts.grade(verdicts.Answer(made), case)
                assert graded.status == PASSED, (case.name, name)
                for known, share, library in verdicts.LIBRARIES:
                    if (known, case.call) in ((name, "grad"), (name, "hvp")):
                        mixed = {k: x + share * (made[k] - x) for k, x in case.outputs.items()}
                        (*_, remark) = verdicts.grade(verdicts.Answer(mixed), case).remarks
                        assert remark.endswith(f"; yours is that of {library}"), (case.name, remark)
                        met.add((known, share))
                if name == "ties of max-pooling go to the last":  # no library has it
                    assert "yours" not in " ".join(graded.remarks)
        far = {name: 50 * np.sign(x) + x for name, x in case.outputs.items()}
        assert verdicts.grade(verdicts.Answer(far), case).status == FAILED
    assert met == {row[:2] for row in verdicts.LIBRARIES}


def test_an_exception_is_shown_with_the_backends_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "raising.py").write_text(
        "import numpy\n\ndef loss(model, w, D):\n    return helper(w)\n\n"
        "def helper(w):\n    return numpy.linalg.inv(w)\n"
    )
    (result,) = suite.run(load_backend(str(tmp_path / "raising.py")), LOSS)
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


def test_an_answer_in_a_buffer_that_the_next_call_overwrites_is_said():
    buffers = {}

    def keep(name, x):
        buffer = buffers.setdefault((name, x.shape, x.dtype), np.empty_like(x))
        buffer[...] = x
        return buffer

    class Buffered:
        def round(self, *about):
            made = LOOP.round(*about)
            return made | {"server": {n: keep(n, np.asarray(x)) for n, x in made["server"].items()}}

        def grad(self, *about, **given):
            return keep("g", LOOP.grad(*about, **given))

        def client(self, *about, **given):
            made = LOOP.client(*about, **given)
            return made | {"upload": {n: keep(n, x) for n, x in made["upload"].items()}}

    cases = [BY_NAME[name][0] for name in ("round-scaffold-mlp", "grad-mlp", "client-fedavg")]
    later, *others = [result.reason for result in suite.run(Buffered(), cases)]
    assert "a later round changed 0.server.w, which was returned: return copies" in later
    for reason, name in zip(others, ("g", "upload.w")):
        assert f"another call changed {name}, which was returned: return copies" in reason


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("answers", "status", "reason"),
    [
        ((1, 1), PASSED, ""),
        ((1, 1 + 0.5j), PASSED, ""),  # sums on several threads differ in their last bits
        ((1, 1 + 3j), FAILED, verdicts.TWICE),
        ((2, 2), FAILED, ""),
        ((2, 2 + 0.5j), FAILED, ""),
        ((2, 2 + 3j), FAILED, verdicts.TWICE),
        ((2, 1), FAILED, verdicts.TWICE),
        ((1, "no"), FAILED, f"{verdicts.TWICE}: raised ValueError: no"),
    ],
)
def test_two_answers_are_one_up_to_the_tolerance_and_no_further(answers, status, reason, dtype):
    """Of each, how many times as large as what is right; the imaginary part counts tolerances."""
    left, (case,) = iter(answers), LOSS

    def change(x, inputs):
        factor = next(left)
        if isinstance(factor, str):
            raise ValueError(factor)
        return type(x)(x * (factor.real + factor.imag * case.tolerance[dtype]))

    (result,) = suite.run(Changed("loss", change), LOSS, dtype)
    assert (result.status, result.reason.partition(" (")[0]) == (status, reason)
