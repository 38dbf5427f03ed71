"""Worked examples, small enough to redo by hand: every intermediate value of the function that runs.

Two parameters, three samples, two clients. `traced` runs a function and notes its local variables
after each line, so a table of intermediates has the names of the code and cannot drift from it.
"""

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
)
from fedref.algorithms.units import spread
from fedref.batch import Batch
from fedref.explain.formula import Linear, evaluate, parse
from fedref.explain.source import Equation, equations, modules, symbols
from fedref.models import BinaryLogistic
from fedref.numerics import sigmoid

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
]

ARGUMENTS: Mapping[tuple[str, str], Call] = {
    (call[0].__module__, call[0].__qualname__): call for call in CALLS
}


class Step(NamedTuple):
    """One line that ran: the local variables before and after it."""

    line: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]


class Trace(NamedTuple):
    """What a call returned, the lines of the function that ran, in order, and its file."""

    result: Any
    steps: list[Step]
    file: str


def traced(function: Callable[..., Any], *arguments: Any, **options: Any) -> Trace:
    """Call it, and note its local variables around every line (of this function alone)."""
    seen: list[tuple[int, dict[str, Any]]] = []

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            seen.append((frame.f_lineno, dict(frame.f_locals)))
        return local

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code is function.__code__ else None

    outside = sys.gettrace()
    sys.settrace(enter)
    try:
        result = function(*arguments, **options)
    finally:
        sys.settrace(outside)
    steps = [Step(at, before, after) for (at, before), (_, after) in pairwise(seen)]
    return Trace(result, steps, function.__code__.co_filename)


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
    options = vars(values["self"]) if "self" in values else {}
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
    step = run_at(equation, trace)
    return value_of(equation, trace), evaluate(
        parse(equation.formula), meaning(equation, step.before)
    )


def run_at(equation: Equation, trace: Trace) -> Step:
    """The last time that an equation's line ran."""
    return [step for step in trace.steps if step.line == equation.line][-1]


def value_of(equation: Equation, trace: Trace) -> Any:
    """What it computed then."""
    step = run_at(equation, trace)
    target, equals, _ = equation.code.partition(" = ")
    value = step.after[target] if equals and target.isidentifier() else trace.result
    return leading(value)


def with_formula() -> list[Equation]:
    """The equations that say what they compute and have an example."""
    return [one for one in equations() if one.formula]
