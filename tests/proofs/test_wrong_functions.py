"""`fedref check` fails if any function of any algorithm's class is wrong.

Wrong lines: `python -m tests.mutation --tests tests/proofs/test_proofs.py`.
"""

import numpy as np
import pytest

from fedref import proofs, tree
from fedref.algorithms import ALGORITHMS
from fedref.proofs import runs


def some_proof_fails(chosen):
    """Whether a proof fails, those of rounds first; nothing is compared after the first difference."""
    try:
        for proof in sorted(chosen, key=lambda p: "rounds" not in p.claim):
            if not all(report.ok for report in proof.compare_all(0)):
                return True
    except Exception:
        return True
    return False


def proofs_of(name):
    """The rows of whole rounds that this algorithm has."""
    tags = {run.tag for run in runs.RUNS if run.name == name}
    return [p for p in proofs.PROOFS if p.tag in tags and f"rounds of {name}(" in p.claim]


# One wrong edit of each function of each class


def off(x):
    """Every floating-point number of a tree a hundredth larger."""

    def larger(x):
        return x * 1.01 if np.issubdtype(np.asarray(x).dtype, np.inexact) else x

    return tree.map(larger, x)


WRONG = {
    **dict.fromkeys(
        ("initial", "download", "start", "step", "combine", "personalised_params"),
        lambda right: lambda *a: off(right(*a)),
    ),
    "finish": lambda right: lambda *a: (x := right(*a))._replace(upload=off(x.upload)),
    **dict.fromkeys(
        ("client_metrics", "server_metrics"),
        lambda right: lambda *a: {name: 1.01 * x + 1 for name, x in right(*a).items()},
    ),
    "observe_loss": lambda right: lambda self, server, loss: server,
    "stop": lambda right: lambda *a: not right(*a),
}
ALWAYS = {"initial", "download", "start", "step", "finish", "combine", "personalised_params"}
#: Where these are proved, if not with the rounds.
ELSEWHERE = {("fedprox", "observe_loss"): "fedprox μ", ("fedprox", "stop"): "fedprox γ"}


def functions_of(cls):
    """What the algorithm writes itself, and what any algorithm must have right."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("fedref.algorithms.")]
    return sorted(ALWAYS | (WRONG.keys() & {name for base in bases for name in vars(base)}))


@pytest.mark.parametrize(
    ("name", "function"),
    [(name, f) for name, cls in ALGORITHMS.items() for f in functions_of(cls)],
)
def test_a_wrong_function_of_a_class_is_caught(name, function, monkeypatch):
    cls = ALGORITHMS[name]
    monkeypatch.setattr(cls, function, WRONG[function](getattr(cls, function)))
    elsewhere = ELSEWHERE.get((name, function))
    assert some_proof_fails(proofs.select([elsewhere]) if elsewhere else proofs_of(name))


@pytest.mark.parametrize("name", [n for n, cls in ALGORITHMS.items() if cls.personalised])
def test_an_algorithm_tested_without_adaptation_is_caught(name, monkeypatch):
    monkeypatch.setattr(ALGORITHMS[name], "personalised", False)
    assert some_proof_fails(proofs_of(name))
