"""What is said of wrong numbers: names where they are certain, else a variation, a combination or a place."""

from functools import partial

import numpy as np
import pytest

from fedref.conformance import naming, suite, variations, vectors
from fedref.conformance.errata import Edit, Mistake, answer
from fedref.conformance.suite import FAILED

CASES = vectors.read()


def wrong(call, algorithm, right, wrong, family=""):
    """The results of a backend that is the specification with this edit, named."""
    cases = [c for c in CASES if (c.call, c.algorithm) == (call, algorithm)]
    cases = [c for c in cases if family in c.model["family"] and c.model["family"] != "lstm"]
    edited = Mistake("planted", "", "", "", (Edit(right, wrong),))
    answers = [
        suite.Answer({n: np.asarray(x) for n, x in answer(c, edited).items()}) for c in cases
    ]
    graded = [suite.grade(*pair) for pair in zip(answers, cases)]
    return naming.name_mistakes(graded, cases, "float64")


def said(results):
    return {r.evidence for r in results if r.status == FAILED and not r.mistakes}


def test_a_variation_is_found_and_only_if_it_fits():
    step = "w_k{} - eta * f.grad(w_k, D)"
    (text,) = said(
        wrong("round", "fedavg", f"w_k = {step.format('')}", "w_k = w - eta * f.grad(w_k, D)")
    )
    assert text.startswith("as if in fedavg w_k were w, ")
    minus = "u - alpha * f.hvp", "tanh(u) - alpha * f.hvp"
    assert said(wrong("meta_gradient", "per-fedavg", *minus, "logistic")) == {""}


def test_a_combination_of_terms_is_told():
    results = wrong(
        "meta_gradient", "per-fedavg", "u - alpha * f.hvp", "u - 3 * alpha * f.hvp", "mlp"
    )
    assert said(results) == {
        "yours is u - 3·(alpha * f.hvp(w, u, D2)); the coefficient of alpha * f.hvp(w, u, D2) should be -1"
    }


def test_a_wrong_model_is_mended_before_its_algorithms(no_variation):
    cases = [c for c in CASES if c.name in ("grad-mlp", "round-fedavg-mlp")]
    waves = [
        {n: x + np.sin(np.arange(x.size)).reshape(x.shape) for n, x in c.outputs.items()}
        for c in cases
    ]
    graded = [suite.grade(suite.Answer(outputs), case) for outputs, case in zip(waves, cases)]
    first, second = naming.name_mistakes(graded, cases, "float64")
    assert "begin there" not in first.evidence
    assert second.evidence == "the model itself is wrong (loss, grad or hvp): begin there"


def test_a_passing_case_that_the_mistake_would_change_rules_a_name_out():
    name = "the Hessian is taken at the adapted point"
    cases = [c for c in CASES if (c.call, c.algorithm) == ("meta_gradient", "per-fedavg")]
    cases = [c for c in cases if c.model["family"] in ("svm", "logistic")]

    def graded(*right):
        outputs = [c.outputs if c.name in right else answer(c, name) for c in cases]
        return [
            suite.grade(suite.Answer({n: np.asarray(x) for n, x in out.items()}), c)
            for out, c in zip(outputs, cases)
        ]

    assert any(r.mistakes == (name,) for r in naming.name_mistakes(graded(), cases, "float64"))
    one_right = graded("meta-per-fedavg-logistic")
    assert not any(r.mistakes for r in naming.name_mistakes(one_right, cases, "float64"))


def test_variations_compile_and_leave_the_specification_as_it_was():
    before = dict(vars(variations.spec))
    case = next(c for c in CASES if c.name == "meta-per-fedavg-svm")
    assert len(list(variations.variations_of(list(variations.functions())[::4]))) > 500
    assert any(v.answer(case) for v in variations.variations_of(["meta_gradient"]))
    assert dict(vars(variations.spec)) == before


@pytest.fixture
def no_variation(monkeypatch):
    """None is looked for, which takes longest."""
    monkeypatch.setattr(naming, "find_variation", lambda *_: None)


CASE = next(c for c in CASES if c.name == "grad-mlp")
LAST = int(np.prod(CASE.model["shapes"][-1]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: 2 / 3 * x, "2/3 × what is right"),
        (lambda x: x * CASE.inputs["w"], "w ⊙ what is right"),
        (lambda x: x + 0.5 * CASE.inputs["w"], "off by 1/2 × w"),
        (
            lambda x: np.append(x[:-LAST], 3 * x[-LAST:]),
            f"wrong only in b{len(CASE.model['shapes']) // 2} ({LAST},); 3 × what is right",
        ),
        (lambda x: np.append(x[:-1], 7.0), "wrong only in part of b"),
        (
            lambda x: x + 1e-9 * np.cos(np.arange(x.size)),
            "right to the 7 digits of float32, no more",
        ),
        (lambda x: x + 1e300, ""),
    ],
)
def test_what_is_seen_in_one_output(change, words, no_variation):
    result = suite.grade(suite.Answer({"g": change(CASE.outputs["g"])}), CASE)
    (named,) = naming.name_mistakes([result], [CASE], "float64")
    assert (named.status, named.mistakes) == (FAILED, ())
    assert named.evidence.startswith(words)


def test_zeros_that_are_right_by_chance_are_no_block(no_variation):
    g = np.append(np.zeros(CASE.model["d"] - 1), 1.0)
    case = CASE._replace(outputs={"g": g})
    (named,) = naming.name_mistakes(
        [suite.grade(suite.Answer({"g": 7 * g}), case)], [case], "float64"
    )
    assert "only" not in named.evidence


def test_rounds_are_cut_behind_the_wrong_one():
    case = next(c for c in CASES if c.name == "round-fedavg-binary")
    short = naming.shorten(case, "0.server.w")
    assert {n.split(".")[1] for n in short.inputs if n.startswith("plans")} == {"0"}
    made = variations.try_answer(short)
    assert partial(naming.holds, dtype="float64")(made, case)
    assert "1.server.w" not in made
