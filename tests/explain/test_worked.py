"""A formula that is shown is the formula that runs."""

import re

import numpy as np
import pytest

from fedref.explain import worked
from fedref.explain.formula import mathml, parse


@pytest.mark.parametrize("equation", worked.with_formula(), ids=lambda e: f"{e.tag}:{e.function}")
def test_each_formula_gives_what_its_line_computes(equation):
    assert worked.has_example(equation)
    got, expected = worked.computed(equation)
    assert np.shape(got) == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_a_formula_with_a_wrong_sign_does_not():
    (eq6,) = [e for e in worked.with_formula() if e.tag == "per-fedavg eq.6"]
    got, wrong = worked.computed(eq6._replace(formula=eq6.formula.replace("−", "+")))
    assert np.abs(got - wrong).max() > 1e-3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("w", "<mi>w</mi>"),
        ("D″", '<mi>D</mi><mo lspace="0" rspace="0">″</mo>'),
        ("wᵗ_S", "<msubsup><mi>w</mi><mi>S</mi><mi>t</mi></msubsup>"),
        ("θ*", "<msup><mi>θ</mi><mo>*</mo></msup>"),
        ("∇F", '<mrow><mo rspace="0">∇</mo><mi>F</mi></mrow>'),
    ],
)
def test_a_symbol_in_mathml(text, shown):
    assert mathml(parse(text)) == (
        f'<math><mrow><mrow data-symbol="{text}">{shown}</mrow></mrow></math>'
    )


def test_a_root_of_a_quotient_stands_on_one_line():
    shown = mathml(parse("sqrt(u / (v + w))"))
    assert "<mfrac>" not in shown
    assert re.sub("<[^>]*>", "", shown) == "u/(v+w)"
    assert "<mfrac>" in mathml(parse("u / (v + w)"))


@pytest.mark.parametrize("text", ["u −", "g(w; D", "(w", "‖w", "u) + 1", "← u", ""])
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ValueError, match="formula"):
        parse(text)
