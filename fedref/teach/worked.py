"""Worked examples, small enough to redo by hand: every intermediate value of the function that runs.

Two parameters, three samples, two clients. `traced` runs a function and notes its local variables
after each line, so a table of intermediates has the names of the code and cannot drift from it.
"""

import ast
import importlib
import linecache
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from fedref import algorithm
from fedref.algorithms import (
    apfl,
    centralised,
    fedavg,
    fedcurv,
    fedmaml,
    fedmeta,
    fedprox,
    per_fedavg,
    server_optimiser,
)
from fedref.algorithms.units import spread
from fedref.models import BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, sigmoid
from fedref.teach.formula import Linear, evaluate, parse
from fedref.teach.source import Equation, equations, modules, symbols

#: p(y = 1 | x) = σ(θᵀx) with two parameters.
MODEL = BinaryLogistic(2, bias=False)
W = np.array([0.5, -0.25])
D = Batch(np.array([[1.0, 2.0], [-1.0, 1.0], [2.0, 0.0]]), np.array([1, 0, 1]))
D1 = Batch(np.array([[0.0, 1.0], [1.0, 1.0], [-2.0, 1.0]]), np.array([1, 1, 0]))
D2 = Batch(np.array([[1.0, -1.0], [2.0, 1.0], [0.0, 2.0]]), np.array([0, 1, 1]))
#: Two clients: their weights, parameters, gradients and importances.
P = np.array([0.25, 0.75])
WS = np.array([[0.5, -0.25], [1.0, 0.0]])
COHORT = algorithm.Cohort(np.arange(2), np.ones(2, int), np.array([1, 3]))
I = np.array([[0.5, 1.0], [0.25, 0.0]])
A, W_K, F, W_REF = (
    np.array([1.0]),
    np.array([0.25, 0.5]),
    np.array([2.0, 0.5]),
    np.array([0.25, 0.0]),
)

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

#: The functions that have a worked example, and what they are called with: once for each branch.
CALLS: list[Call] = [
    (algorithm.weighted_mean, (P, WS), {}),
    (fedavg.local_step, (MODEL, W, D), {"lr": 0.5}),
    (
        centralised.Centralised.step,
        (centralised.Centralised(lr=0.5), MODEL, algorithm.Server(W), W, D),
        {},
    ),
    (fedprox.objective, (MODEL, W, W_REF, D), {"mu": 0.5}),
    (fedprox.prox_gradient, (MODEL, W, W_REF, D), {"mu": 0.5}),
    (fedprox.inexactness, (MODEL, W, W_REF, D), {"mu": 0.5}),
    (fedprox.dissimilarity, (MODEL, W, (D, D1)), {}),
    (fedprox.adapt_mu, (0.5, 4, 0.75, 0.875), {}),
    (fedprox.adapt_mu, (0.5, 4, 0.75, 0.625), {}),
    (per_fedavg.meta_objective, (MODEL, W, D), {"alpha": 0.5}),
    (per_fedavg.meta_gradient, (MODEL, W, D, D1, D2), {"alpha": 0.5}),
    (per_fedavg.meta_gradient_fo, (MODEL, W, D, D1), {"alpha": 0.5}),
    (per_fedavg.meta_gradient_hf, (MODEL, W, D, D1, D2), {"alpha": 0.5, "delta": 0.01}),
    (per_fedavg.local_step, (W, np.array([0.5, -1.0])), {"beta": 0.5}),
    (fedmeta.maml_gradient, (MODEL, W, D, D1), {"alpha": 0.5}),
    (fedmeta.meta_sgd_gradient, (MODEL, W, np.array([0.5, 0.25]), D, D1), {}),
    (
        fedmeta.MAML.combine,
        (
            fedmeta.MAML(beta=0.5),
            MODEL,
            fedmeta.MetaServer(fedmeta.Learner(W), None),
            fedmeta.Learner(WS),
            COHORT,
        ),
        {},
    ),
    (fedmaml.adapt, (MODEL, W, D), {"alpha": 0.5, "steps": 1}),
    (fedmaml.meta_gradient, (MODEL, W, D, D1), {"alpha": 0.5, "steps": 1}),
    (fedmaml.meta_update, (W, WS, np.array([2.0, 1.0])), {"beta": 0.5}),
    (fedmaml.candidate, (WS, np.array([2.0, 1.0])), {}),
    (
        fedcurv.FedCurv.finish,
        (
            fedcurv.FedCurv(),
            MODEL,
            fedcurv.CurvServer(W, W, W, 0),
            fedcurv.Local(W, W, W),
            None,
            lambda: D,
        ),
        {},
    ),
    (fedcurv.penalty, (W_K, list(zip(I, WS))), {"lam": 0.5}),
    (
        fedcurv.penalty_gradient,
        (W_K, I.sum(0), (I * WS).sum(0), I[1], I[1] * WS[1]),
        {"lam": 0.5},
    ),
    (apfl.compose, (MODEL, W, A, W_K), {}),
    (apfl.objective, (MODEL, W, A, W_K, D), {"F": F, "w_ref": W_REF, "mu": 0.5}),
    (apfl.penalty_gradient, (W,), {"F": F, "w_ref": W_REF, "mu": 0.5}),
    (
        apfl.APFL.combine,
        (apfl.APFL(z=2), MODEL, apfl.Shared(W, 0, 0, True, None), apfl.Upload(WS, None), COHORT),
        {},
    ),
    (apfl.importance_update, (F, I, P), {"lam": 0.5}),
    (
        apfl.APFL.start,
        (apfl.APFL(z=2, init="continuous"), MODEL, apfl.Shared(W, F, 2, False, None), None),
        {},
    ),
    (
        apfl.APFL.step,
        (
            apfl.APFL(mu=0.5, lr=0.5),
            MODEL,
            apfl.Shared(W_REF, F, 2, False, None),
            apfl.Local(W, apfl.Own(A, W_K), None),
            D,
        ),
        {},
    ),
    (
        server_optimiser.server_step,
        (W, np.array([0.5, -1.0]), server_optimiser.Adam(np.array([1.0, 0.5]), W * W, 1)),
        {"beta": 0.5},
    ),
]

ARGUMENTS: Mapping[tuple[str, str], Call] = {
    (call[0].__module__, call[0].__qualname__): call for call in CALLS
}


class Step(NamedTuple):
    """One line that ran: the local variables before and after it, and the objects that they are."""

    line: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    live: Mapping[str, Any]  # after it; arrays may have been changed since


class Trace(NamedTuple):
    """What a call returned, the lines of the function that ran, in order, and its file."""

    result: Any
    steps: list[Step]
    file: str
    given: Mapping[str, Any]  # the arguments themselves


def traced(function: Callable[..., Any], *arguments: Any, **options: Any) -> Trace:
    """Call it, and note its local variables around every line (of this function alone).

    Arrays are noted as they are then: what is changed in place later does not change the note.
    """
    seen: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
    noted: dict[str, tuple[Any, Any]] = {}  # name → (the value itself, the note of it)

    def note(values: Mapping[str, Any]) -> dict[str, Any]:
        for name, value in values.items():
            if name not in noted or noted[name][0] is not value or not same(*noted[name]):
                noted[name] = value, copied(value)
        return {name: noted[name][1] for name in values}

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            live = dict(frame.f_locals)
            seen.append((frame.f_lineno, note(live), live))
        return local

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code is function.__code__ else None

    outside = sys.gettrace()
    sys.settrace(enter)
    try:
        result = function(*arguments, **options)
    finally:
        sys.settrace(outside)
    steps = [Step(at, before, *now) for (at, before, _), (_, *now) in pairwise(seen)]
    return Trace(result, steps, function.__code__.co_filename, seen[0][2])


def copied(value: Any) -> Any:
    """Its arrays copied, within lists and tuples too."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [copied(part) for part in value]
    if isinstance(value, tuple):
        parts = [copied(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def same(one: Any, other: Any) -> bool:
    """Whether they hold the same, to the bit."""
    if isinstance(one, np.ndarray):
        return one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other


def arrays(value: Any) -> list[Array]:
    """The arrays that a value is or holds."""
    if isinstance(value, list | tuple):
        return [array for part in value for array in arrays(part)]
    return [value] if isinstance(value, np.ndarray) else []


def overlap(some: list[Array], others: list[Array]) -> bool:
    """Whether they are views of the same memory: what is given, or filled in until the end."""
    return any(np.shares_memory(a, b) for a in some for b in others)


def has_example(equation: Equation) -> bool:
    return (equation.module, equation.function) in ARGUMENTS


def example(equation: Equation) -> Trace:
    """The worked example that runs an equation's line, or else its function's last one."""
    name = equation.module, equation.function
    for function, arguments, options in CALLS:
        if (function.__module__, function.__qualname__) == name:
            trace = traced(function, *arguments, **options)
            if any(step.line == equation.line for step in trace.steps):
                break
    return trace


def leading(value: Any) -> Any:
    """What comes first in a result or a state, such as w or θ: formulae speak of that."""
    while isinstance(value, tuple) and value and not isinstance(value, Batch):
        value = value[0]
    return value


def meaning(equation: Equation, values: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every symbol: by the file's table, by its name, and the model's own functions."""
    options = dict(vars(values["self"])) if "self" in values else {}
    for state in ("sent", "adam"):
        options |= values[state]._asdict() if state in values else {}
    options |= {"w_ref": options["w"]} if "sent" in values and "w" in options else {}
    values = {name: leading(value) for name, value in {**options, **values}.items()}
    model = values.get("model")
    env: dict[str, Any] = {
        "sqrt": np.sqrt,
        "max": np.maximum,
        "diag": lambda a: Linear(lambda v: a * v),
    }
    if model is not None:
        env |= dict.fromkeys("fFLh", model.loss) | {
            "g": model.grad,
            "H": lambda w, D: Linear(lambda v: model.hvp(w, v, D)),
        }
    table = {
        row.symbol: row.name
        for module in modules()
        if module.__name__ == equation.module
        for row in symbols(module)
    }
    env |= {name: value for name, value in values.items() if len(name) == 1 and name not in env}
    env |= {f"{name}_k": values[name] for name in ("p", "w") if name in values}
    if (
        model is not None and "a" in values
    ):  # APFL's m_k: a value a unit, spread over the unit's parameters
        env["m_k"] = spread(model, sigmoid(values["a"]))
    if "others" in values:  # FedCurv's pairs (I_j, θ̂_j)
        env["I_j"], env["θ̂_j"] = zip(*values["others"])
    if "data" in values:
        rows = values["data"]()
        env["n"] = len(rows.y)
        env["D_j"] = [Batch(rows.X[[j]], rows.y[[j]]) for j in range(len(rows.y))]
    if "F_old" in values:
        env["F"] = values["F_old"]
    return env | {symbol: values[name] for symbol, name in table.items() if name in values}


def computed(equation: Equation) -> tuple[Any, Any]:
    """(what the line computed, what the formula says) in the worked example; the last time it ran."""
    trace = example(equation)
    step = trace.steps[runs(equation, trace)[-1]]
    return value_of(equation, step, trace), evaluate(
        parse(equation.formula), meaning(equation, step.before)
    )


def runs(equation: Equation, trace: Trace) -> list[int]:
    """The steps in which an equation's line ran."""
    return [i for i, step in enumerate(trace.steps) if step.line == equation.line]


def when(equation: Equation, k: int, trace: Trace) -> dict[str, Any]:
    """The local variables before a line ran as step k, as its formula means them.

    What it changes in place is as it was when the pass through the loop began; the variables of
    loops that are over are none.
    """
    values, line = dict(trace.steps[k].before), equation.line
    tree = ast.parse("".join(linecache.getlines(trace.file)))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    (function,) = (one for one in functions if one.lineno <= line <= (one.end_lineno or 0))
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For)]
    around = [loop for loop in loops if line <= (loop.end_lineno or 0) and loop.lineno < line]
    for loop in loops:
        if loop not in around:
            for name in bound(loop) - {name for other in around for name in bound(other)}:
                values.pop(name, None)
    node = ast.parse(equation.code).body[0]
    if around and isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        start = max(loop.lineno for loop in around)
        began = [step for step in trace.steps[:k] if step.line == start][-1]
        values[node.target.id] = began.after.get(node.target.id)
    return values


def bound(loop: ast.For) -> set[str]:
    """The variables of a loop."""
    return {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def value_of(equation: Equation, step: Step, trace: Trace) -> Any:
    """What its line computed in a step: what it is assigned to, or what is changed by it."""
    node = ast.parse(equation.code).body[0]
    if isinstance(node, ast.If):
        where, values = node.test, step.before
    elif (place := written(node)) is not None:
        where, values = place, step.after
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
        where, values = target.elts[0] if isinstance(target, ast.Tuple) else target, step.after
    else:
        return leading(trace.result)
    names = vars(importlib.import_module(equation.module))
    value = eval(ast.unparse(where), dict(names), dict(values))
    return leading(value[-1] if isinstance(value, list) else value)


def written(node: ast.stmt) -> ast.expr | None:
    """What a statement changes in place: `x` in `x *= 2`, `f(out=x)`, `x[...] = 2`, `x.append(2)`."""
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return node.targets[0]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            return call.func.value
        return next((one.value for one in call.keywords if one.arg == "out"), None)
    return None


def with_formula() -> list[Equation]:
    """The equations that say what they compute and have an example."""
    return [one for one in equations() if one.formula]
