"""A formula that is shown is the formula that runs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedref.explain import derivatives, worked
from fedref.explain.formula import evaluate, mathml, parse


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


OF_MODELS = [
    (name, method, one)
    for name in derivatives.EXAMPLES
    for method in derivatives.methods(name)
    for one in method.formulae
]


def of_model(name, method, equation):
    """(line, formula); the SVM's examples are as its tags say: hinge, or squared hinge."""
    example = derivatives.EXAMPLES[name]
    if "hinge" in equation.tag:
        model = replace(example.model, squared="squared" in equation.tag)
        example = example._replace(model=model)
    return derivatives.computed(example, method, equation)


@pytest.mark.parametrize(
    ("name", "method", "equation"), OF_MODELS, ids=[f"{n} {e.tag}" for n, _, e in OF_MODELS]
)
def test_each_formula_of_a_model_gives_what_its_line_computes(name, method, equation):
    got, expected = of_model(name, method, equation)
    assert np.shape(got) == np.shape(expected)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-16)


def test_models_say_loss_gradient_and_hessian():
    said = {
        name: {e.tag.split(",")[0] for n, _, e in OF_MODELS if n == name} for name, *_ in OF_MODELS
    }
    three = {"loss", "gradient", "HVP"}
    assert said == {
        "logistic": three, "binary-logistic": three, "svm": three, "mlp": {"loss", "slope in z_L"},
    }  # fmt: skip


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


@pytest.mark.parametrize(
    ("text", "value"),
    [("|t − z| ≤ 1", True), ("|t − z| ≤ ½", False), ("2|t − z|", 2), ("‖v‖ |t|", 5), ("|t|t", 1)],
)
def test_bars(text, value):
    assert evaluate(parse(text), {"t": 1, "z": 2, "v": np.array([3, 4])}) == value


@pytest.mark.parametrize(
    "text", ["u −", "g(w; D", "(w", "‖w", "|w", "|w‖", "w ≤", "u) + 1", "← u", ""]
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ValueError, match="formula"):
        parse(text)
