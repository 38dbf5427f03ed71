"""`fedref check` fails if any function of any algorithm's class is wrong.

Wrong lines: `python -m tests.mutation --tests tests/proofs/test_proofs.py`.
"""

import numpy as np
import pytest

from fedref import proofs
from fedref.algorithms import ALGORITHMS
from fedref.models import tree
from fedref.proofs import whole_runs


def off(x):
    """Every floating-point number of a tree a hundredth larger."""
    return tree.map(lambda x: x * 1.01 if np.asarray(x).dtype.kind in "fc" else x, x)


#: What any algorithm must have right, and then what some have.
ALWAYS = ("initial", "download", "start", "step", "combine", "personalised_params", "finish")
WRONG = {
    **dict.fromkeys(ALWAYS, lambda right: lambda *a: off(right(*a))),
    **dict.fromkeys(
        ("client_metrics", "server_metrics"),
        lambda right: lambda *a: {name: 1.01 * x + 1 for name, x in right(*a).items()},
    ),
    "finish": lambda right: lambda *a: (x := right(*a))._replace(upload=off(x.upload)),
    "observe_loss": lambda right: lambda self, server, loss: server,
    "stop": lambda right: lambda *a: not right(*a),
    "personalised": lambda right: False,
}
#: What no round shows: the tag of its proof.
ELSEWHERE = {("fedprox", "observe_loss"): "fedprox μ", ("fedprox", "stop"): "fedprox γ"}


def functions_of(cls):
    bases = [base for base in cls.__mro__ if base.__module__.startswith("fedref.algorithms.")]
    own = {*ALWAYS, *(name for base in bases for name in vars(base))} & WRONG.keys()
    return sorted(own - ({"personalised"} if not cls.personalised else set()))


def fails(proof):
    """Whether a proof fails; nothing is compared after the first difference."""
    try:
        return not all(report.ok for report in proof.compare_all(0))
    except Exception:
        return True


ANSWERS = {}


@pytest.fixture(autouse=True)
def specification_once(monkeypatch):
    """It answers each run once: no wrong function of a class changes it."""
    real = whole_runs.World.answer

    def answer(world, losses):
        key = world.it, world.c.model, world.c.w.tobytes(), world.seed, tuple(losses)
        if key not in ANSWERS:
            ANSWERS[key] = real(world, losses)
        return ANSWERS[key]

    monkeypatch.setattr(whole_runs.World, "answer", answer)


@pytest.mark.parametrize(
    ("name", "function"), [(name, f) for name, cls in ALGORITHMS.items() for f in functions_of(cls)]
)
def test_a_wrong_function_of_a_class_is_caught(name, function, monkeypatch):
    cls, tag = ALGORITHMS[name], ELSEWHERE.get((name, function))
    monkeypatch.setattr(cls, function, WRONG[function](getattr(cls, function)))
    rounds = [p for p in proofs.PROOFS if f"rounds of {name}(" in p.claim]
    assert any(map(fails, proofs.select([tag]) if tag else rounds))
