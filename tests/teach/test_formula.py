"""A formula that is shown is the formula that runs; what is shown of it.

The line is run with two parameters, and the formula beside it is computed from the same values. A symbol's
value is a number, an array, or a function. A function may return a linear map, such as the Hessian H(w; D):
it is applied to the product that follows it, and I is the map that changes nothing. Side by side, xᵀy of
vectors is their dot product, and anything else goes entry by entry. Σ_k runs over the first axis of every
symbol that ends in _k.
"""

import ast
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from fedref import algorithm
from fedref.algorithms import ALGORITHMS, apfl
from fedref.boundary.docstrings import symbols
from fedref.models import MODELS, BinaryLogistic, linear_operator
from fedref.models import numerics as nx
from fedref.models.batch import Batch
from fedref.rounds.loop import run_clients
from fedref.teach import pages, pictures, source
from fedref.teach.formula import exponent, mathml, parse
from fedref.teach.source import Equation

# ---- formulae ------------------------------------------------------------------------------------


COMPUTED = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.MatMult: operator.mul,
    ast.Div: operator.truediv, ast.LtE: operator.le, ast.GtE: operator.ge,
}  # fmt: skip


def evaluate(node: ast.expr, env: Mapping[str, Any]) -> Any:
    """Return a formula's value, with each symbol's number, array or function from `env`."""

    def value(node: ast.expr) -> Any:
        return evaluate(node, env)

    match node:
        case ast.Name(text) if text[0].isdigit():
            power = exponent(text).replace("−", "-")
            return float(f"1e{power}" if power else text)
        case ast.Name(text):
            return env[text]
        case ast.BinOp(ast.Name(text), ast.Pow(), right) if text[0] == "Σ":
            running = {name: values for name, values in env.items() if name.endswith(text[1:])}
            each = (dict(zip(running, row)) for row in zip(*running.values()))
            return sum(evaluate(right, {**env, **one}) for one in each)
        case ast.BinOp(left, ast.Pow(), right):
            dot = isinstance(left, ast.Subscript) and ast.unparse(left.slice) == "transpose"
            return multiply(value(left), value(right), dot)
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            return COMPUTED[type(operator)](value(left), value(right))
        case ast.UnaryOp(ast.USub(), inner):
            return -value(inner)
        case ast.Subscript(inner, ast.Name(power)):
            x = value(inner)
            if power == "transpose":
                return x
            return x * x if power == "square" else x ** env["t"]
        case ast.Call(ast.Name("norm"), [inner]):
            return np.sqrt(np.sum(value(inner) ** 2))
        case ast.Call(ast.Name("group" | "bar" as name), [inner]):
            return abs(value(inner)) if name == "bar" else value(inner)
        case ast.Call(function, arguments):
            return value(function)(*map(value, arguments))
    raise ValueError(f"formula: {ast.unparse(node)} has no value")


def multiply(first: Any, then: Any, dot: bool) -> Any:
    """Multiply two factors that stand side by side: a linear map is applied to all that follows it."""
    if isinstance(first, LinearOperator):
        return first @ then
    if isinstance(then, LinearOperator):
        return then * first
    return np.sum(first * then) if dot else first * then


# ---- lines ---------------------------------------------------------------------------------------

#: p(y = 1 | x) = σ(θᵀx) with two parameters.
MODEL = BinaryLogistic(2, bias=False)
W = np.array([0.5, -0.25])
D = Batch(np.array([[1.0, 2.0], [-1.0, 1.0], [2.0, 0.0]]), np.array([1, 0, 1]))
D1 = Batch(np.array([[0.0, 1.0], [1.0, 1.0], [-2.0, 1.0]]), np.array([1, 1, 0]))
OTHERS = [(np.array([0.5, 1.0]), W), (np.array([0.25, 0.0]), np.array([1.0, 0.0]))]
#: The value of each parameter of what no round calls, by its name.
VALUES: dict[str, Any] = {
    "model": MODEL, "w": W, "w0": np.array([0.25, 0.0]), "w_k": np.array([0.25, 0.5]), "a": np.array([1.0]),
    "w_s": W, "w_ref": np.array([0.25, 0.0]), "F": np.array([2.0, 0.5]), "D": D, "clients": (D, D1),
    "theta": np.array([0.25, -0.5]), "pairs": OTHERS, "alpha": 0.5, "lam": 0.5, "mu": 0.5,
    "last_loss": 0.75, "falls": 4,
}  # fmt: skip


def calls_of(equation: Equation) -> Iterator[Callable[[], Any]]:
    """Yield calls that may run an equation's line: two rounds of its file's algorithms, or the function."""
    module, (owner, _, _) = module_of(equation), equation.function.__qualname__.rpartition(".")
    kind = getattr(module, owner, algorithm.Algorithm)
    labels = [name for name, cls in ALGORITHMS.items() if cls.__module__ == module.__name__]
    for label in labels or ["fedavg"]:
        for settings in ({}, {"server": "adam"} if "fedmeta" in label else {}):
            it = pictures.make_algorithm(label, settings)
            if isinstance(it, kind):
                with patch.object(pictures, "run_clients", partial(run_clients, stack=False)):
                    yield partial(pictures.play_rounds, it, 2)
    if not owner:
        yield from (partial(call, equation, VALUES | {"loss": x}) for x in (0.875, 0.625))


def call(equation: Equation, values: Mapping[str, Any]) -> Any:
    """Return what an equation's function returns for the values of its parameters."""
    wanted = inspect.signature(equation.function).parameters.values()
    named = {p.name: values[p.name] for p in wanted if p.kind == p.KEYWORD_ONLY}
    given = [values[p.name] for p in wanted if p.kind == p.POSITIONAL_OR_KEYWORD]
    return equation.function(*given, **named)


def module_of(equation: Equation) -> Any:
    return inspect.getmodule(equation.function)


def run_line(equation: Equation) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return what a call of the function returns, and its local variables around the line's last run."""
    line, code = statement_at(equation).lineno, equation.function.__code__
    for run in calls_of(equation):
        notes, outside = list[tuple[str, int, dict[str, Any], Any]](), sys.gettrace()

        def note_line(frame: Any, event: str, argument: Any) -> Any:
            notes.append((event, frame.f_lineno, dict(frame.f_locals), argument))  # noqa: B023
            return note_line

        sys.settrace(lambda frame, *_: note_line if frame.f_code is code else None)
        try:
            run()
        finally:
            sys.settrace(outside)
        for i in reversed(range(len(notes) - 1)):
            event, number, before, _ = notes[i]
            if number == line and event == "line":
                result = next(x for event, *_, x in notes[i:] if event == "return")
                return result, before, notes[i + 1][2]
    raise AssertionError(f"no call runs {equation.place}")


def first_part(value: Any) -> Any:
    """Return the first item of a result or a state, such as w or θ: formulae are about that."""
    while isinstance(value, tuple) and value and not isinstance(value, Batch):
        value = value[0]
    return value


def symbol_values(equation: Equation, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every symbol: by the file's table, by its name, and the model's functions."""
    options = dict(vars(values["self"])) if "self" in values else {}
    for state in ("uploads", "server"):
        options |= getattr(values.get(state), "_asdict", dict)()
    for state in ("sent", "adam"):
        options |= values[state]._asdict() if state in values else {}
    options |= {"w_ref": options["w"]} if "sent" in values and "w" in options else {}
    if isinstance(values.get("local"), np.ndarray):
        options["w"] = values["local"]
    values = {name: first_part(value) for name, value in {**options, **values}.items()}
    model = values.get("model")
    env: dict[str, Any] = {
        "sqrt": np.sqrt, "max": np.maximum, "sign": np.sign, "diag": lambda a: aslinearoperator(np.diag(a)),
        "I": aslinearoperator(np.eye(2)),
    }  # fmt: skip
    if model is not None:
        env |= dict.fromkeys("fFLh", model.loss) | {
            "g": model.grad,
            "H": partial(linear_operator, model),
        }
    env |= {name: value for name, value in values.items() if len(name) == 1 and name not in env}
    env |= {f"{name}_k": values[name] for name in ("p", "w") if name in values}
    if model is not None and module_of(equation) is apfl and "a" in values:
        # one value for each unit, repeated for the unit's parameters
        env["m_k"] = apfl.expand_units(model, nx.sigmoid(values["a"]))
    if "pairs" in values:  # FedCurv's pairs (I_j, θ̂_j)
        env["I_j"], env["θ̂_j"] = zip(*values["pairs"])
    if "data" in values:
        rows = values["data"]()
        env["n"] = len(rows.y)
        env["D_j"] = [Batch(rows.X[[j]], rows.y[[j]]) for j in range(len(rows.y))]
    if "F_old" in values:
        env["F"] = values["F_old"]
    table = symbols(module_of(equation))
    return env | {symbol: values[name] for symbol, name, _ in table if name in values}


def statement_at(equation: Equation) -> ast.stmt:
    """Return the innermost statement on an equation's line, or the next one below it."""

    def last_line(node: Any) -> int:  # of a statement that holds others, of its head
        return getattr(node, "test", getattr(node, "iter", node)).end_lineno

    inner = (ast.FunctionDef, ast.ClassDef)
    tree = ast.walk(ast.parse(inspect.getsource(module_of(equation))))
    nodes = [x for x in tree if isinstance(x, ast.stmt) and not isinstance(x, inner)]
    nodes = [node for node in nodes if last_line(node) >= equation.line]
    return min(nodes, key=lambda node: (max(node.lineno - equation.line, 0), -node.lineno))


def compute_both(equation: Equation) -> tuple[Any, Any]:
    """Return the value of the line and the value of its formula, the last time the example ran it."""
    result, before, after = run_line(equation)
    formula = evaluate(parse(equation.formula), symbol_values(equation, before))
    match statement_at(equation):
        case ast.If(test=where):
            values = before
        case ast.Assign(targets=[ast.Tuple(elts=[where, *_]) | where]):
            values = after
        case _:
            return first_part(result), formula
    names = dict(vars(module_of(equation)))
    return first_part(eval(ast.unparse(where), names, dict(values))), formula


# ---- tests ---------------------------------------------------------------------------------------

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
        pages.summary_of(e.function)
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
