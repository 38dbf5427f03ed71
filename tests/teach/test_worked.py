"""A formula that is shown is the formula that runs."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedref.models import CNN, LSTM, MLP
from fedref.models.batch import Batch
from fedref.teach import derivatives, worked
from fedref.teach.formula import evaluate, mathml, parse


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
    """(line, formula) each time; the SVM's examples are as its tags say: hinge, or squared hinge."""
    example = derivatives.EXAMPLES[name]
    if "hinge" in equation.tag:
        model = replace(example.model, squared="squared" in equation.tag)
        example = example._replace(model=model)
    return derivatives.computed(example, method, equation)


def agree(got, said):
    assert np.shape(got) == np.shape(said)
    np.testing.assert_allclose(got, said, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "method", "equation"), OF_MODELS, ids=[f"{n} {e.tag}" for n, _, e in OF_MODELS]
)
def test_each_formula_of_a_model_gives_what_its_line_computes(name, method, equation):
    pairs = of_model(name, method, equation)
    assert max(np.abs(said).max() for _, said in pairs) > 0.01
    for got, said in pairs:
        agree(got, said)


def test_models_say_loss_gradient_and_hessian():
    said = {
        name: {e.tag.split(",")[0] for n, _, e in OF_MODELS if n == name} for name, *_ in OF_MODELS
    }
    three, backward = {"loss", "gradient", "HVP"}, {"δ_L", "next δ", "∂W", "∂b"}
    assert said == {
        "logistic": three, "binary-logistic": three, "svm": three,
        "mlp": {"loss", "next z", "first R{z}", "R{a}", "next R{z}"}
        | backward | {f"R{{{tag}}}" for tag in backward - {"next δ"}} | {"next R{δ}"},
    }  # fmt: skip


def deep(model, classes):
    """Parameters, a direction, and five samples at random: no term is small, no φ′ is 1."""
    rng = np.random.default_rng(1)
    D = Batch(rng.normal(size=(5, model.features)), rng.integers(0, classes, 5))
    return derivatives.Example(model, D, *0.7 * rng.normal(size=(2, model.d)))


#: More than one layer of each kind: every line of a pass runs with a layer behind it and one before.
DEEP = {
    "mlp": [deep(MLP(3, (4, 3), 3, activation=phi), 3) for phi in ("tanh", "elu")],
    "cnn": [
        deep(CNN((10, 10), (2, 3), 3, 4, 3, activation=phi, pool=pool), 3)
        for phi, pool in (("tanh", "max"), ("elu", "mean"))
    ],
}
codes = np.array([[0, 2, 1, 3], [1, 1, 3, 0], [3, 0, 2, 2]])  # four steps of three samples
rng = np.random.default_rng(2)
recurrent = LSTM(vocabulary=4, classes=3, length=4, embedding=2, hidden=(3,))
DEEP["lstm"] = [
    derivatives.Example(
        recurrent, Batch(codes, np.array([0, 2, 1])), *rng.normal(size=(2, recurrent.d))
    )
]
PASSES = [
    (example, method, one)
    for name, examples in DEEP.items()
    for example in examples
    for method in derivatives.methods(name)
    for one in method.formulae
    if one.tag != "loss"
]


@pytest.mark.parametrize(
    ("example", "method", "equation"),
    PASSES, ids=[f"{type(e.model).__name__} {one.tag}" for e, _, one in PASSES],
)  # fmt: skip
def test_each_formula_of_a_deep_network_holds_in_every_layer(example, method, equation):
    pairs = derivatives.computed(example, method, equation)
    layers = 4 if isinstance(example.model, LSTM) else len(example.model.shapes) // 2
    assert len(pairs) in (1, layers - 1, layers)
    assert len(pairs) > 1 or equation.tag.split()[0] in ("first", "δ_L", "R{δ_L}")
    for got, said in pairs:
        agree(got, said)


@pytest.mark.parametrize("name", DEEP)
def test_each_sign_and_factor_of_a_network_s_formulae_counts(name):
    """A sign turned, a derivative too many, or a factor left out is seen in one of the examples."""
    tried = 0
    for example, method, one in PASSES:
        if example is DEEP[name][0]:
            for wrong in spoilt(one.formula):
                tried += 1
                seen = [differs(e, method, one, wrong) for e in DEEP[name]]
                assert any(seen), f"{one.formula} and {wrong}"
    assert tried > 40


def differs(example, method, equation, wrong):
    try:
        for got, said in derivatives.computed(example, method, equation._replace(formula=wrong)):
            agree(got, said)
    except (AssertionError, ValueError, KeyError, AttributeError, TypeError):
        return True
    return False


def spoilt(formula):
    """The formula with one mistake: a turned sign, a wrong derivative, a lost transpose or factor."""
    swaps = {"+": "−", "−": "+", "′": "″", "″": "′", "ᵀ": "", "⊙": "+"}
    wrong = [
        formula[:i] + swaps[sign] + formula[i + 1 :]
        for i, sign in enumerate(formula)
        if sign in swaps
    ]
    parts = re.findall(r"(?:[^\s(]+ ⊙ |φ.\(z\) ⊙ | / n)", formula)
    for text in [*wrong, *(formula.replace(part, "", 1) for part in parts)]:
        try:
            parse(text)
        except ValueError:
            continue  # no formula at all
        yield text


def test_a_product_keeps_the_sign_of_every_factor():
    tree = parse("φ″ ⊙ Rz ⊙ δWᵀ")
    assert tree.kind == "product"
    assert [part.kind for part in tree.parts] == ["symbol", "times", "times"]
    shown = re.sub("<[^>]*>", "", mathml(tree)).replace("&#x2062;", "")
    assert shown == "φ″⊙Rz⊙δWT"
    assert re.sub("<[^>]*>", "", mathml(parse("2λu ⊙ v · w"))) == "2⁢λ⁢u⊙v·w".replace("⁢", "&#x2062;")


def test_matrices_side_by_side_are_multiplied():
    rng = np.random.default_rng(0)
    A, B, v = rng.normal(size=(2, 3)), rng.normal(size=(4, 3)), rng.normal(size=3)
    env = {"A": A, "B": B, "v": v, "s": 2.0, "t": 3}
    np.testing.assert_allclose(evaluate(parse("A Bᵀ"), env), A @ B.T)
    np.testing.assert_allclose(evaluate(parse("sA ⊙ A"), env), 2 * A * A)
    np.testing.assert_allclose(evaluate(parse("A ⊙ sA Bᵀ B"), env), A * (2 * A @ B.T @ B))
    assert evaluate(parse("vᵀv"), env) == pytest.approx(v @ v)
    assert evaluate(parse("1 − ½ᵗ + 10⁻²"), env) == pytest.approx(1 - 1 / 8 + 0.01)


def test_what_is_changed_in_place_is_noted_as_it_was():
    def doubled(x):
        y = x + 1
        y *= 2
        y *= 2
        return y

    trace = worked.traced(doubled, np.array([1.0]))
    assert [float(step.after["y"][0]) for step in trace.steps] == [2, 4, 8, 8]


def test_apfl_starts_in_round_z_and_not_before():
    (line,) = [e for e in worked.with_formula() if e.tag == "apfl alg.1 line 21"]
    assert worked.computed(line) == (True, True)
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


def test_a_fraction_that_is_a_factor_needs_no_brackets():
    def shown(text):
        return re.sub("<[^>]*>", "", mathml(parse(text))).replace("&#x2062;", "")

    assert shown("(μ/2)‖w‖²") == "μ2‖w‖2"
    assert shown("(μ/2)²w") == "(μ2)2w"
    assert shown("(μ + 2)w") == "(μ+2)w"
