"""Every exercise: its file comes from the source, what is right passes, what is wrong is named."""

import ast
import inspect

import numpy as np
import pytest

from fedref.teach import template
from fedref.teach.catalogue import EXERCISES, KINDS
from fedref.teach.classify_mistake import Verdict, classify_mistake, terms
from fedref.teach.formula import tokens
from fedref.teach.run_solution import answer_all, answer_in_time

#: exercise | a wrong expression | the kinds of mistake, none where it is of no known kind.
WRONG = """
step | w + lr * model.grad(w, D) | sign
step | w - model.grad(w, D) | factor
step | w - 2 * lr * model.grad(w, D) | factor
step | -lr * model.grad(w, D) | missing term
proximal | model.grad(w, D) - mu * (w - w0) | sign
proximal | model.grad(w, D) + mu * (w + w0) | sign
proximal | model.grad(w, D) + mu / 2 * (w - w0) | factor
proximal | model.grad(w, D) + (w - w0) | factor
proximal | model.grad(w, D) | missing term
proximal | model.grad(w, D) + mu * (w - w0) ** 2 |
proximal | model.grad(w0, D) + mu * (w - w0) | wrong point
importance | lam * F_old - weighted_sum(p, importances) | sign
importance | F_old + weighted_sum(p, importances) | factor
importance | (1 - lam) * F_old + lam * weighted_sum(p, importances) | factor
importance | weighted_sum(p, importances) | missing term
importance | lam * F_old + importances.mean(0) | mean for sum
importance | lam * F_old + importances.sum(0) | mean for sum
importance | lam * F_old + weighted_sum(p, importances) / len(p) | mean for sum
importance | lam * F_old - importances.mean(0) | sign, mean for sum
backward | delta @ W[2 * l] | transpose
backward | -delta @ W[2 * l] | sign, transpose
backward | -delta @ W[2 * l].mT | sign
backward | 2 * delta @ W[2 * l].mT | factor
backward | delta |
backward | W[2 * l] @ delta |
curvature | -slope * self.logits(v, D.X) * base.mean_weights(D, z.dtype) | sign
curvature | slope * self.logits(v, D.X) | mean for sum
curvature | 2 * slope * self.logits(v, D.X) * base.mean_weights(D, z.dtype) | factor
curvature | self.logits(v, D.X) * base.mean_weights(D, z.dtype) | factor
curvature | self.logits(w, D.X) * base.mean_weights(D, z.dtype) * slope | wrong direction
curvature | slope | mean for sum, no direction
curvature | slope * base.mean_weights(D, z.dtype) | no direction
curvature | slope + v |
meta-gradient | u + alpha * model.hvp(w, u, D2) | sign
meta-gradient | u - model.hvp(w, u, D2) | factor
meta-gradient | u - alpha**2 * model.hvp(w, u, D2) | factor
meta-gradient | u | first order only
meta-gradient | -alpha * model.hvp(w, u, D2) | missing term
meta-gradient | u - alpha * model.hvp(w, u, D) | wrong batch
meta-gradient | u - alpha * model.hvp(w, u, D1) | wrong batch
meta-gradient | u + alpha * model.hvp(w, u, D1) | sign, wrong batch
meta-gradient | u - alpha * model.hvp(w - alpha * model.grad(w, D), u, D2) | wrong point
meta-gradient | u - alpha * model.hvp(w, model.grad(w, D), D2) | wrong direction
meta-gradient | u + alpha * model.hvp(w - alpha * model.grad(w, D), u, D2) | sign, wrong point
meta-gradient | u - alpha * model.hvp(w, np.ones(6), D2) | no direction
meta-gradient | u - model.hvp(u, u, D2) |
hessian-free | (model.grad(w - delta * u, D2) - model.grad(w + delta * u, D2)) / (2 * delta) | sign
hessian-free | (model.grad(w + delta * u, D2) + model.grad(w - delta * u, D2)) / (2 * delta) | sign
hessian-free | (model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / delta | factor
hessian-free | (model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / 2 * delta | factor
hessian-free | (model.grad(w + delta * u, D2) - model.grad(w, D2)) / delta | first order only
hessian-free | (model.grad(w, D2) - model.grad(w - delta * u, D2)) / delta | first order only
hessian-free | (model.grad(w + delta * u, D) - model.grad(w - delta * u, D)) / (2 * delta) | wrong batch
hessian-free | model.grad(w + delta * u, D2) / (2 * delta) | missing term
hessian-free | (model.grad(w + delta, D2) - model.grad(w - delta, D2)) / (2 * delta) | no direction
hessian-free | (model.grad({w} + delta * u, D2) - model.grad({w} - delta * u, D2)) / (2 * delta) | wrong point
hessian-free | model.hvp(w, u, D2) |
meta-sgd | g_alpha + q * g_j | sign
meta-sgd | g_alpha - 2 * q * g_j | factor
meta-sgd | g_alpha - alpha * q * g_j | factor
meta-sgd | -q * g_j | missing term
meta-sgd | g_alpha - q * model.grad(theta_j, Q) | wrong batch
meta-sgd | g_alpha - q |
"""
CASES = [
    [part.strip() for part in line.split("|")]
    for line in WRONG.strip().replace("{w}", "(w - alpha * model.grad(w, D))").splitlines()
]

#: Right, and written otherwise.
OTHERWISE = [
    ("step", "-(lr * model.grad(w, D) - w)"),
    ("importance", "p @ importances + F_old * lam"),
    ("backward", "np.swapaxes(W[2 * l] @ np.swapaxes(delta, -1, -2), -1, -2)"),
    ("curvature", "np.exp(z) / (1 + np.exp(z))**2 * (D.X @ v) / len(D.y)"),
    ("hessian-free", "model.grad(w+delta*u, D2)/delta/2 - model.grad(w-delta*u, D2)/delta/2"),
]


def judged(name, expression):
    exercise = EXERCISES[name]
    found = answer_all(template.code(exercise, expression), exercise, "mine.py")
    return classify_mistake(exercise, found)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_missing_line_is_right(name):
    verdict = judged(name, ast.unparse(template.missing_line(EXERCISES[name]).value))
    assert verdict == Verdict(True)


@pytest.mark.parametrize(("name", "expression"), OTHERWISE)
def test_so_is_another_way_to_write_it(name, expression):
    assert judged(name, expression).right


@pytest.mark.parametrize(("name", "expression", "kinds"), CASES)
def test_a_wrong_line_is_named(name, expression, kinds):
    verdict = judged(name, expression)
    assert not verdict.right
    assert ", ".join(verdict.kinds) == kinds
    assert verdict.evidence
    assert ast.unparse(template.missing_line(EXERCISES[name]).value) not in " ".join(
        verdict.evidence
    )


def test_every_kind_that_an_exercise_lists_has_a_wrong_line_here():
    listed = {(name, kind) for name, one in EXERCISES.items() for kind in one.kinds}
    tried = {(name, kinds) for name, _, kinds in CASES}
    assert listed <= tried
    assert {kind for _, kind in listed} == set(KINDS)


def test_terms_are_multiplied_out():
    (node,) = ast.parse("a - (b + c(d + e)) * f / (g - h)").body
    parts = terms(node.value)
    assert len(parts) == 3
    scope = {**dict(zip("abdefgh", (2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0))), "c": lambda x: x}
    values = [eval(part, {}, scope) for part in parts]
    assert values == [2.0, -(3 * 11 / (13 - 17)), -(12 * 11 / (13 - 17))]


# ---- the file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXERCISES)
def test_the_file_is_the_source_without_one_expression(name):
    exercise = EXERCISES[name]
    text = template.student_file(exercise)
    assert template.exercise_of(text, "x") is exercise
    gap = template.find_gap(text)
    assert text.splitlines()[gap - 1].split("#")[0].rstrip().endswith(template.GAP)
    assert template.find_gap(text.replace(template.GAP, "0")) == 0
    assert ast.unparse(template.missing_line(exercise).value) not in text
    source = inspect.getsource(exercise.callable).splitlines()
    kept = [line.strip() for line in text.splitlines()]
    lost = [line for line in source if line.strip() not in kept]
    assert len(lost) == 1
    assert template.solution(exercise) in lost[0]


@pytest.mark.parametrize(
    "name", [name for name in EXERCISES if name not in ("backward", "curvature")]
)
def test_the_file_has_the_formula_of_the_tag(name):
    equation = template.equation_of(EXERCISES[name])
    assert equation is not None
    assert f"[{equation.tag}]  {equation.formula}\n" in template.student_file(EXERCISES[name])


@pytest.mark.parametrize("name", EXERCISES)
def test_a_hard_file_has_neither_formulae_nor_comments(name):
    exercise = EXERCISES[name]
    text = template.student_file(exercise, hard=True)
    file = ast.parse(text)
    assert "#" not in text
    for node in ast.walk(file):
        assert not isinstance(node, ast.FunctionDef) or ast.get_docstring(node) is None
    equation = template.equation_of(exercise)
    if equation:
        assert f"[{equation.tag}]\n" in text
        assert equation.formula not in text
    assert "φ′(z_l) ⊙" not in text  # MLP's docstring
    assert "∂ℓ/∂z =" not in text  # BinaryLogistic's
    assert template.exercise_of(text, "x") is exercise
    right = text.replace(template.GAP, ast.unparse(template.missing_line(exercise).value))
    right = right.replace(right.partition("from fedref")[0], "import numpy as np\n")
    assert classify_mistake(exercise, answer_all(right, exercise, "mine.py")).right


@pytest.mark.parametrize("name", EXERCISES)
def test_the_file_says_what_every_sign_of_its_formula_means(name):
    exercise = EXERCISES[name]
    equation = template.equation_of(exercise)
    meant = {line.split("  ")[0] for line in template.symbol_lines(exercise, hard=True)}
    if equation is None:  # a method: z and A, δ and W
        assert meant >= ({"z, Av", "Aᵀr"} if name == "curvature" else {"δ_l", "φ′(z)"})
        return
    used = {text for kind, text in tokens(equation.formula) if kind == "symbol"}
    explained = {text for line in meant for kind, text in tokens(line) if kind == "symbol"}
    assert used <= explained


def test_the_worked_example_is_that_of_explain():
    text = template.student_file(EXERCISES["meta-gradient"])
    assert "    u = (-0.2319, -0.2405)\n    returned = (-0.181, -0.1769)\n" in text
    right = template.worked_example(EXERCISES["curvature"])
    given = right.steps[0].before
    model, arguments = given["self"], [given[name] for name in "wvD"]
    np.testing.assert_array_equal(right.result, model.hvp(*arguments))
    assert "0x" not in "".join(map(template.student_file, EXERCISES.values()))


# ---- what can't be judged -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("u[None]", "what is returned has shape (1, 6), expected (6,)"),
        ("'u'", "what is returned has shape (), expected (6,)"),
        ("u / 0", "what is returned holds NaN or infinity"),
        ("u - nothing", "line {}: NameError: name 'nothing' is not defined"),
        ("w.__iadd__(u)", "an argument is changed in place: other callers hold the same array"),
        ("exit(3)", "line {}: SystemExit: 3"),
    ],
)
def test_what_gives_no_numbers_is_one_line(expression, said):
    gap = template.find_gap(template.code(EXERCISES["meta-gradient"]))
    assert judged("meta-gradient", expression).evidence == (said.format(gap),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def meta_gradient(:", "line 1: SyntaxError: invalid syntax"),
        ("import nowhere", "line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("meta_gradients = 0", "meta_gradient is not defined"),
    ],
)
def test_a_file_that_defines_nothing_is_one_line(text, said):
    assert answer_all(text, EXERCISES["meta-gradient"], "mine.py") == said


def test_only_computing_counts_against_the_time_limit():
    """On a busy machine a right answer takes long by the clock; an endless loop computes."""
    slow = template.code(EXERCISES["step"], "w - lr * model.grad(w, D)")
    slow = slow.replace("    return", "    import time; time.sleep(0.02)\n    return", 1)
    assert classify_mistake(EXERCISES["step"], answer_all(slow, EXERCISES["step"], "x")).right
    assert not isinstance(answer_in_time(slow, "step", "x", 0.05), str)
    endless = slow.replace("time.sleep(0.02)", "[0 for _ in iter(int, 1)]")
    said = "no answer after 0.05 s of computing: an endless loop? (--timeout)"
    assert answer_in_time(endless, "step", "x", 0.05) == said
