"""A formula that is shown is the formula that runs; what is shown of it."""

import ast
import re

import numpy as np
import pytest
from teach.lines import compute_both, play_two_rounds

from fedref.algorithms import fedopt
from fedref.models import MODELS
from fedref.teach import pages, source
from fedref.teach.formula import evaluate, mathml, parse

WITH_FORMULA = [equation for equation in source.equations() if equation.formula]
#: The linear models' functions have worked examples; the networks are proved by `fedref check`.
OF_MODELS = {
    name: [e for *_, equations in pages.model_functions(name) for e in equations] for name in MODELS
}
LINEAR = [
    equation for name in ("logistic", "binary-logistic", "svm") for equation in OF_MODELS[name]
]


@pytest.mark.parametrize(
    "equation", [*WITH_FORMULA, *LINEAR], ids=lambda e: f"{e.tag}:{e.module[7:]}.{e.function}"
)
def test_each_formula_gives_what_its_line_computes(equation):
    got, expected = compute_both(equation)
    assert np.shape(got) == np.shape(expected)
    assert np.max(np.abs(expected)) > 0.01
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "equation",
    [e for e in [*WITH_FORMULA, *LINEAR] if re.search("[−+]", e.formula)],
    ids=lambda e: f"{e.tag}:{e.module[7:]}.{e.function}",
)
def test_a_formula_with_a_wrong_sign_does_not(equation):
    turned = equation.formula.translate(str.maketrans("+−", "−+"))
    try:
        with np.errstate(all="ignore"):
            got, wrong = compute_both(equation._replace(formula=turned))
    except ValueError:  # "+w" is no formula
        return
    assert not np.allclose(got, wrong, rtol=1e-3)


def test_every_model_says_its_formulae_and_each_can_be_read():
    assert {name: len(equations) for name, equations in OF_MODELS.items()} == {
        "logistic": 3, "binary-logistic": 3, "svm": 5, "mlp": 16, "cnn": 21, "lstm": 15,
    }  # fmt: skip
    for equations in OF_MODELS.values():
        for equation in equations:
            parse(equation.formula)


def test_every_equation_has_its_left_side_and_its_words():
    whole = [e for e in WITH_FORMULA if "≤" not in e.formula and "≥" not in e.formula]
    assert all(e.left and pages.words(e) for e in whole)
    for equation in whole:
        parse(equation.left)


def test_a_product_keeps_the_sign_of_every_factor():
    tree = parse("φ″ ⊙ z ⊙ δWᵀ")
    assert ast.unparse(tree.tree) == "a0 * a1 * a2 ** a3[transpose]"
    shown = re.sub("<[^>]*>", "", mathml(tree)).replace("&#x2062;", "")
    assert shown == "φ″⊙z⊙δWT"
    assert re.sub("<[^>]*>", "", mathml(parse("2λu ⊙ v · w"))) == "2⁢λ⁢u⊙v·w".replace("⁢", "&#x2062;")


def test_a_number_a_power_and_a_dot_product():
    v = np.array([1.0, 3.0])
    assert evaluate(parse("vᵀv"), {"v": v}) == pytest.approx(v @ v)
    assert evaluate(parse("1 − 0.5ᵗ + 10⁻²"), {"t": 3}) == pytest.approx(1 - 1 / 8 + 0.01)


def test_apfl_starts_in_round_z_and_not_before():
    (line,) = [e for e in WITH_FORMULA if e.tag == "apfl alg.1 line 21"]
    assert compute_both(line) == (True, True)
    for t in (1, 2, 3):
        assert evaluate(parse(line.formula), {"t": t, "z": 2}) == (t >= 2)


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


def test_the_clients_of_an_example_send_different_models():
    uploads = play_two_rounds(fedopt.FedAdam(lr=0.5))["uploads"]
    assert not np.array_equal(*uploads)


@pytest.mark.parametrize(
    ("text", "value"),
    [("|t − z| ≤ 1", True), ("|t − z| ≤ 0.5", False), ("2|t − z|", 2), ("‖v‖ |t|", 5), ("|t|t", 1)],
)
def test_bars(text, value):
    assert evaluate(parse(text), {"t": 1, "z": 2, "v": np.array([3, 4])}) == value


@pytest.mark.parametrize(
    "text", ["u −", "g(w; D", "(w", "‖w", "|w", "|w‖", "w ≤", "u) + 1", "← u", ""]
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ValueError, match="formula"):
        parse(text)


def test_a_fraction_that_is_a_factor_needs_no_brackets():
    def shown(text):
        return re.sub("<[^>]*>", "", mathml(parse(text))).replace("&#x2062;", "")

    assert shown("(μ/2)‖w‖²") == "μ2‖w‖2"
    assert shown("(μ/2)²w") == "(μ2)2w"
    assert shown("(μ + 2)w") == "(μ+2)w"
