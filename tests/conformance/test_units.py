"""Units of rounding: coarse products pass, mistakes above what is said fail."""

import numpy as np
import pytest
from golden import CASES, GOLDEN

from fedref.conformance import suite
from fedref.conformance.backends import load_backend
from fedref.conformance.units import UNITS, constant, parse_units, say_units, with_units
from fedref.judge.verdicts import FAILED, PASSED, Answer, grade
from fedref.lab.commands import main

CALLS = [*dict.fromkeys(case.call for case in CASES)]
SMALL = [case for case in CASES if case.model["d"] < 20 and case.call != "round"][::5]


@pytest.mark.parametrize("name", ["tf32", "bfloat16"])
def test_products_that_a_gpu_rounds_pass_and_without_the_option_fail(name):
    pytest.importorskip("torch")
    from reproduce.vectors.units import Rounded

    backend, units = load_backend("torch"), parse_units(name, CALLS)
    failed = []
    for case in with_units(SMALL, units):
        with Rounded(UNITS[name]):
            answer = suite.call_safely(backend, case, np.float32)
        result = grade(answer, case, "float32")
        assert result.status == PASSED, result
        failed.append(grade(answer, GOLDEN[case.name], "float32").status == FAILED)
    assert np.mean(failed) > 0.5


def test_a_mistake_above_what_is_said_fails(capsys):
    units = parse_units("tf32,grad=2**-9", CALLS)
    assert (units["loss"], units["grad"]) == (2.0**-11, 2.0**-9)
    (case,) = with_units([GOLDEN["grad-mlp"]], units)
    least = case.condition * 2.0**-9 * constant(case, 2.0**-9)
    assert case.tolerance == {"float32": least, "float64": least}
    for factor, status in ((0.99, PASSED), (1.01, FAILED)):
        outputs = {"g": (case.outputs["g"] * (1 + factor * least)).astype(np.float32)}
        assert grade(Answer(outputs), case, "float32").status == status
    (line,) = say_units([case], units, "float32")
    assert line == f"unit of grad: 0.002; a mistake of {100 * least:.2g} % is told"
    assert main(["conformance", "fedref", "--only", "grad-mlp", "--unit", "grad=2**-9"]) == 0
    assert line in capsys.readouterr().out.splitlines()
