"""A wrong answer is told as a combination of the terms of the specification's lines."""

from unittest.mock import patch

import numpy as np
import pytest
from golden import GOLDEN

from fedref import spec
from fedref.judge import answer, find_combination
from fedref.judge.terms import combine

CASES = [GOLDEN[f"meta-per-fedavg-{family}"] for family in ("mlp", "svm", "binary-unbiased")]
HVP = "alpha * f.hvp(w, u, D2)"
SHOULD = f"the coefficient of {HVP} should be -1"


def tell(expression, cases=CASES):
    """What is said where meta_gradient returns this expression."""
    head = "def wrong(f, w, D, D1, D2, alpha):\n u = f.grad(w - alpha * f.grad(w, D), D1)"
    text = f"{head}\n return {expression}"
    scope = dict(vars(spec))
    exec(text, scope)
    with patch.object(spec, "meta_gradient", scope["wrong"]):
        wrong = [answer(case)["meta_gradient"] for case in cases]
    works = [lambda case=case: answer(case) for case in cases]
    right = [case.outputs["meta_gradient"] for case in cases]
    found = find_combination(works, wrong, right, [{"l2": case.model["l2"]} for case in cases])
    return found and str(found)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (f"u + {HVP}", f"yours is u + {HVP}; {SHOULD}"),
        (f"u - alpha * {HVP}", f"yours is u - alpha·({HVP}); {SHOULD}"),
        (f"u - {HVP} / 2", f"yours is u - 1/2·({HVP}); {SHOULD}"),
        ("u", f"yours is u; - {HVP} is missing"),
        (f"{HVP} - u", f"yours is - (u - {HVP})"),
        (f"u - {HVP} + f.l2 * w", f"yours is l2·w + (u - {HVP})"),
        (f"u - {HVP}", None),
        (f"u - 0.123 * {HVP}", None),
        ("u - alpha * f.hvp(w, u, D)", None),
    ],
)
def test_signs_factors_and_terms(expression, said):
    assert tell(expression) == said


def test_one_situation_is_no_evidence_and_the_same_is_demanded_in_every_one():
    assert tell("u", CASES[:1]) is None
    assert tell("u if len(w) == 4 else 2 * u") is None


def test_a_number_is_told_from_several_situations():
    case = next(c for c in GOLDEN.values() if (c.call, c.algorithm) == ("evaluate", "apfl-deng"))
    sums = [np.array([3.0, 1.0]), np.array([2.0, 5.0])]
    works = 2 * [lambda: answer(case)]
    assert find_combination(works, sums, [x / 2 for x in sums]).terms == {"what is right": "2"}
    assert find_combination(works, sums, [x * (1 + 2e-10) + 1e-9 for x in sums]) is None


def test_no_term_stands_twice():
    right, xs = [np.eye(4)[0], np.eye(4)[1]], [np.eye(4)[2] + 1, np.eye(4)[3] + 2]
    numbers = {"alpha": [0.3, 0.7]}
    for factor, said in ((lambda a: a, "alpha"), (lambda a: 1 - a, None)):
        wrong = [y + factor(a) * x for y, x, a in zip(right, xs, numbers["alpha"])]
        found = combine(wrong, right, {"w": xs}, numbers)
        assert (found and found.terms["w"]) == said


def test_the_specification_is_itself_again():
    before = dict(vars(spec))
    tell("u")
    assert vars(spec) == before
