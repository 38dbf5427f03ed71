"""A formula that is shown is the formula that runs; what is shown of it."""

import re

import numpy as np
import pytest
from teach.lines import compute_both

from fedref.models import MODELS
from fedref.teach import pages, source
from fedref.teach.formula import mathml, parse

OF_MODELS = {name: source.equations_of(cls) for name, cls in MODELS.items()}
#: The papers' formulae are evaluated; those of models are only read.
EVALUATED = [equation for equation in source.equations() if equation.formula]


@pytest.mark.parametrize(
    "equation",
    EVALUATED,
    ids=lambda e: f"{e.tag}:{e.function.__module__[7:]}.{e.function.__qualname__}",
)
def test_a_formula_gives_what_its_line_computes_and_with_a_wrong_sign_does_not(equation):
    got, expected = compute_both(equation)
    assert np.shape(got) == np.shape(expected)
    assert np.max(np.abs(expected)) > 1e-4  # the smallest: Adam's v, a hundredth of a square
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    turned = equation.formula.translate(str.maketrans("+−", "−+"))
    if turned != equation.formula and not re.search(r"(^|\(|/ ?)\+", turned):
        with np.errstate(all="ignore"):
            wrong = compute_both(equation._replace(formula=turned))[1]
        assert not np.allclose(got, wrong, rtol=1e-3, atol=0)


def test_every_equation_can_be_read_and_has_its_words():
    counts = {"logistic": 3, "binary-logistic": 3, "svm": 5, "mlp": 16, "cnn": 21, "lstm": 15}
    assert {name: len(equations) for name, equations in OF_MODELS.items()} == counts
    for equation in (*source.equations(), *(e for of in OF_MODELS.values() for e in of)):
        assert equation.text == "" or mathml(equation.text)
    assert all(
        pages.words(e.function)
        for e in source.equations()
        if e.formula and not re.search("[≤≥]", e.formula)
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("w", "<mi>w</mi>"),
        ("D″", '<mi>D</mi><mo lspace="0" rspace="0">″</mo>'),
        ("wᵗ_S", "<msubsup><mi>w</mi><mrow><mi>S</mi></mrow><mi>t</mi></msubsup>"),
        ("∇F", '<mrow><mo rspace="0">∇</mo><mi>F</mi></mrow>'),
        ("φ″ ⊙ z ⊙ δWᵀ", "φ″⊙z⊙δWT"),
        ("sqrt(u / (v + w))", "u/(v+w)"),  # on one line
        ("(μ/2)‖w‖²", "μ2‖w‖2"),  # a fraction that is a factor needs no brackets
        ("(μ/2)²w", "(μ2)2w"),
        ("(μ + 2)w", "(μ+2)w"),
    ],
)
def test_a_formula_in_mathml(text, shown):
    drawn = mathml(text)
    if "<" in shown:
        assert drawn == f"<math><mrow>{shown}</mrow></math>"
    else:
        assert re.sub("<[^>]*>|&#x2062;", "", drawn) == shown


@pytest.mark.parametrize(
    "text", ["u −", "g(w; D", "(w", "‖w", "|w", "|w‖", "w ≤", "u) + 1", "← u", ""]
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ValueError, match="formula"):
        parse(text)
