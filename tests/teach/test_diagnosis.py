"""Every exercise: its file comes from the source, what is right passes, what is wrong is named."""

import ast
import inspect

import numpy as np
import pytest

from fedref.teach import answers, diagnosis, files
from fedref.teach.catalogue import EXERCISES, KINDS, SYMBOLS

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
curvature | slope * self.logits(w, D.X) * base.mean_weights(D, z.dtype) |
meta-gradient | u + alpha * model.hvp(w, u, D2) | sign
meta-gradient | u - model.hvp(w, u, D2) | factor
meta-gradient | u - alpha**2 * model.hvp(w, u, D2) | factor
meta-gradient | u | first order only
meta-gradient | -alpha * model.hvp(w, u, D2) | missing term
meta-gradient | u - alpha * model.hvp(w, u, D) | wrong batch
meta-gradient | u - alpha * model.hvp(w, u, D1) | wrong batch
meta-gradient | u + alpha * model.hvp(w, u, D1) | sign, wrong batch
meta-gradient | u - alpha * model.hvp(w - alpha * model.grad(w, D), u, D2) |
hessian-free | (model.grad(w - delta * u, D2) - model.grad(w + delta * u, D2)) / (2 * delta) | sign
hessian-free | (model.grad(w + delta * u, D2) + model.grad(w - delta * u, D2)) / (2 * delta) | sign
hessian-free | (model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / delta | factor
hessian-free | (model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / 2 * delta | factor
hessian-free | (model.grad(w + delta * u, D2) - model.grad(w, D2)) / delta | first order only
hessian-free | (model.grad(w, D2) - model.grad(w - delta * u, D2)) / delta | first order only
hessian-free | (model.grad(w + delta * u, D) - model.grad(w - delta * u, D)) / (2 * delta) | wrong batch
hessian-free | model.grad(w + delta * u, D2) / (2 * delta) | missing term
hessian-free | model.hvp(w, u, D2) |
meta-sgd | g_alpha + q * g_j | sign
meta-sgd | g_alpha - 2 * q * g_j | factor
meta-sgd | g_alpha - alpha * q * g_j | factor
meta-sgd | -q * g_j | missing term
meta-sgd | g_alpha - q * model.grad(theta_j, Q) | wrong batch
meta-sgd | g_alpha - q |
"""
CASES = [[part.strip() for part in line.split("|")] for line in WRONG.strip().splitlines()]

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
    found = answers.answered(files.code(exercise, expression), exercise, "mine.py", golden=False)
    return diagnosis.diagnose(exercise, found)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_missing_line_is_right(name):
    verdict = judged(name, ast.unparse(files.expression(EXERCISES[name])))
    assert verdict == diagnosis.Verdict(True)


@pytest.mark.parametrize(("name", "expression"), OTHERWISE)
def test_so_is_another_way_to_write_it(name, expression):
    assert judged(name, expression).right


@pytest.mark.parametrize(("name", "expression", "kinds"), CASES)
def test_a_wrong_line_is_named(name, expression, kinds):
    verdict = judged(name, expression)
    assert not verdict.right
    assert ", ".join(verdict.kinds) == kinds
    assert verdict.evidence
    assert ast.unparse(files.expression(EXERCISES[name])) not in " ".join(verdict.evidence)


def test_every_kind_that_an_exercise_lists_has_a_wrong_line_here():
    listed = {(name, kind) for name, one in EXERCISES.items() for kind in one.kinds}
    tried = {(name, kinds) for name, _, kinds in CASES}
    assert listed <= tried
    assert {kind for _, kind in listed} == set(KINDS)
    assert {knob for one in EXERCISES.values() for knob in one.knobs} == set(SYMBOLS)


def test_the_error_s_order_is_told():
    said = judged("hessian-free", "model.hvp(w, u, D2)").evidence[-1]
    assert said.endswith("; it goes as α to the power 1 and δ to the power 2")
    doubled = "(model.grad(w + delta * u, D2) - model.grad(w - delta * u, D2)) / delta"
    assert judged("hessian-free", doubled).evidence[-1].endswith("it goes as α to the power 1")
    assert "power" not in judged("backward", "-delta @ W[2 * l].mT").evidence[-1]


def test_terms_are_multiplied_out():
    (node,) = ast.parse("a - (b + c(d + e)) * f / (g - h)").body
    parts = diagnosis.terms(node.value)
    assert len(parts) == 3
    scope = {**dict(zip("abdefgh", (2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0))), "c": lambda x: x}
    values = [eval(part, {}, scope) for part in parts]
    assert values == [2.0, -(3 * 11 / (13 - 17)), -(12 * 11 / (13 - 17))]


# ---- the file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXERCISES)
def test_the_file_is_the_source_without_one_expression(name):
    exercise = EXERCISES[name]
    text = files.text(exercise)
    assert files.exercise_of(text, "x") is exercise
    gap = files.unfinished(text)
    assert text.splitlines()[gap - 1].split("#")[0].rstrip().endswith(files.GAP)
    assert files.unfinished(text.replace(files.GAP, "0")) == 0
    assert ast.unparse(files.expression(exercise)) not in text
    source = inspect.getsource(exercise.callable).splitlines()
    kept = [line.strip() for line in text.splitlines()]
    lost = [line for line in source if line.strip() not in kept]
    assert len(lost) == 1
    assert files.solution(exercise) in lost[0]


@pytest.mark.parametrize("name", [name for name, one in EXERCISES.items() if one.example is None])
def test_the_file_has_the_formula_of_the_tag(name):
    equation = files.equation_of(EXERCISES[name])
    assert equation is not None
    assert f"[{equation.tag}]  {equation.formula}\n" in files.text(EXERCISES[name])


def test_the_worked_example_is_that_of_explain():
    text = files.text(EXERCISES["meta-gradient"])
    assert "    u = (-0.2319, -0.2405)\n    returned = (-0.181, -0.1769)\n" in text
    right = files.trace(EXERCISES["curvature"])
    (model, w, v, D), _ = EXERCISES["curvature"].example
    np.testing.assert_array_equal(right.result, model.hvp(w, v, D))


# ---- the golden vectors ---------------------------------------------------------------------------


def test_known_mistakes_are_recognised_and_fedref_is_left_as_it_was():
    exercise = EXERCISES["hessian-free"]
    before = exercise.callable
    right = ast.unparse(files.expression(exercise))
    doubled = files.run(files.code(exercise, right.replace("(2 * delta)", "delta")), exercise)
    count, failed, mistakes = answers.known_mistakes(doubled, exercise)
    assert 0 < failed < count
    assert "HF: divided by δ" in mistakes
    assert exercise.callable is before
    assert answers.known_mistakes(before, exercise)[1:] == (0, ())


def test_a_line_that_takes_no_leading_axes_is_right_and_told_so():
    exercise = EXERCISES["importance"]
    found = answers.answered(files.code(exercise, "lam * F_old + p @ importances"), exercise, "x")
    assert diagnosis.diagnose(exercise, found).right
    assert found.failed == 0
    exercise = EXERCISES["curvature"]
    found = answers.answered(files.code(exercise, OTHERWISE[3][1]), exercise, "x")
    assert diagnosis.diagnose(exercise, found).right
    assert found.failed > 0


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
    gap = files.unfinished(files.code(EXERCISES["meta-gradient"]))
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
    assert answers.answered(text, EXERCISES["meta-gradient"], "mine.py") == said
