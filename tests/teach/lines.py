"""What a tagged line computes, and what the formula beside it says, for calls with two parameters.

`trace_call` runs a function and notes its local variables after each line. Long because each function
with a formula is called once with numbers, and each symbol of a formula is looked up.
"""

import ast
import importlib
import inspect
import operator
import sys
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from fedref import algorithm, tree
from fedref.algorithms import apfl, fedavg, fedcurv, fedmaml, fedmeta, fedprox, per_fedavg
from fedref.models import BinaryLogistic, LinearSVM, Logistic
from fedref.models import numerics as nx
from fedref.models.base import SoftmaxLogits
from fedref.models.batch import Batch
from fedref.teach.formula import Linear, evaluate, parse
from fedref.teach.source import Equation, equations_in, modules, symbols

#: p(y = 1 | x) = σ(θᵀx) with two parameters.
MODEL = BinaryLogistic(2, bias=False)
W = np.array([0.5, -0.25])
D = Batch(np.array([[1.0, 2.0], [-1.0, 1.0], [2.0, 0.0]]), np.array([1, 0, 1]))
D1 = Batch(np.array([[0.0, 1.0], [1.0, 1.0], [-2.0, 1.0]]), np.array([1, 1, 0]))
D2 = Batch(np.array([[1.0, -1.0], [2.0, 1.0], [0.0, 2.0]]), np.array([0, 1, 1]))
#: Two clients: their weights, their parameters or gradients, the cohort, and their importances.
P = np.array([0.25, 0.75])
WS = np.array([[0.5, -0.25], [1.0, 0.0]])
COHORT = algorithm.Cohort(np.arange(2), np.ones(2, int), np.array([1, 3]), 2)
I = np.array([[0.5, 1.0], [0.25, 0.0]])
A, W_K = np.array([1.0]), np.array([0.25, 0.5])
F, W_REF = np.array([2.0, 0.5]), np.array([0.25, 0.0])
#: A direction for the Hessian; the same samples with the labels −1 and 1.
V = np.array([1.0, 0.5])
SIGNED = Batch(D.X, 2 * D.y - 1)
#: One feature, three classes: W (1, 3), then b.
SOFTMAX, SOFTMAX_W = Logistic(1, 3), np.array([0.5, 0, -0.5, 0, 0.25, 0])
SOFTMAX_V, SOFTMAX_D = np.array([1, 0, 0.5, 0, -1, 0]), Batch(D.X[:, :1], np.array([0, 2, 1]))
SVMS = [LinearSVM(2, squared=squared, bias=False) for squared in (True, False)]

MAML_SERVER = fedmeta.MetaServer(fedmeta.Learner(W), None)
ADAM = fedmeta.Adam(np.array([1.0, 0.5]), W * W, 1)
CURV_SERVER, CURV_LOCAL = fedcurv.CurvServer(W, W, W, 0), fedcurv.Local(W, W, W)
APFL_LOCAL = apfl.Local(W, apfl.ClientState(A, W_K), None)
STARTING = apfl.ServerState(W, 0, 0, True, None)
DECOMPOSED = apfl.ServerState(W, F, 2, False, None)

#: The calls that are worked examples; a function with branches has one for each branch.
CALLS: list[partial[Any]] = [
    partial(algorithm.weighted_mean, P, WS),
    partial(fedavg.local_step, MODEL, W, D, lr=0.5),
    partial(fedavg.Centralised.step, fedavg.Centralised(lr=0.5), MODEL, algorithm.Server(W), W, D),
    partial(fedprox.objective, MODEL, W, W_REF, D, mu=0.5),
    partial(fedprox.prox_gradient, MODEL, W, W_REF, D, mu=0.5),
    partial(fedprox.inexactness, MODEL, W, W_REF, D, mu=0.5),
    partial(fedprox.dissimilarity, MODEL, W, (D, D1)),
    partial(fedprox.adapt_mu, 0.5, 4, 0.75, 0.875),
    partial(fedprox.adapt_mu, 0.5, 4, 0.75, 0.625),
    partial(per_fedavg.meta_objective, MODEL, W, D, alpha=0.5),
    partial(per_fedavg.meta_gradient, MODEL, W, D, D1, D2, alpha=0.5),
    partial(per_fedavg.meta_gradient_fo, MODEL, W, D, D1, alpha=0.5),
    partial(per_fedavg.meta_gradient_hf, MODEL, W, D, D1, D2, alpha=0.5, delta=0.01),
    partial(per_fedavg.local_step, W, np.array([0.5, -1.0]), beta=0.5),
    partial(fedmeta.maml_gradient, MODEL, W, D, D1, alpha=0.5),
    partial(fedmeta.meta_sgd_gradient, MODEL, W, np.array([0.5, 0.25]), D, D1),
    partial(
        fedmeta.MAML.combine,
        fedmeta.MAML(beta=0.5),
        MODEL,
        MAML_SERVER,
        fedmeta.Learner(WS),
        COHORT,
    ),
    partial(fedmaml.adapt, MODEL, W, D, alpha=0.5, steps=1),
    partial(fedmaml.meta_gradient, MODEL, W, D, D1, alpha=0.5, steps=1),
    partial(fedmaml.meta_update, W, WS, np.array([2.0, 1.0]), beta=0.5),
    partial(fedmaml.candidate, WS, np.array([2.0, 1.0])),
    partial(
        fedcurv.FedCurv.finish, fedcurv.FedCurv(), MODEL, CURV_SERVER, CURV_LOCAL, None, lambda: D
    ),
    partial(fedcurv.penalty, np.array([0.25, -0.5]), list(zip(I, WS)), lam=0.5),
    partial(fedcurv.penalty_gradient, W_K, I.sum(0), (I * WS).sum(0), I[1], I[1] * WS[1], lam=0.5),
    partial(apfl.compose, MODEL, W, A, W_K),
    partial(apfl.objective, MODEL, W, A, W_K, D, F=F, w_ref=W_REF, mu=0.5),
    partial(apfl.penalty_gradient, W, F=F, w_ref=W_REF, mu=0.5),
    partial(apfl.APFL.combine, apfl.APFL(z=2), MODEL, STARTING, apfl.Upload(WS, None), COHORT),
    partial(apfl.importance_update, F, I, P, lam=0.5),
    partial(apfl.APFL.start, apfl.APFL(z=2, init="continuous"), MODEL, DECOMPOSED, None),
    partial(
        apfl.APFL.step,
        apfl.APFL(mu=0.5, lr=0.5),
        MODEL,
        DECOMPOSED._replace(w=W_REF),
        APFL_LOCAL,
        D,
    ),
    partial(fedmeta.server_step, W, np.array([0.5, -1.0]), ADAM, beta=0.5),
    partial(BinaryLogistic.loss_of, MODEL, MODEL.logits(W, D.X), D.y),
    partial(BinaryLogistic.grad, MODEL, W, D),
    partial(BinaryLogistic.hvp, MODEL, W, V, D),
    partial(SoftmaxLogits.loss_of, SOFTMAX, SOFTMAX.logits(SOFTMAX_W, SOFTMAX_D.X), SOFTMAX_D.y),
    partial(Logistic.grad, SOFTMAX, SOFTMAX_W, SOFTMAX_D),
    partial(Logistic.hvp, SOFTMAX, SOFTMAX_W, SOFTMAX_V, SOFTMAX_D),
    *(partial(LinearSVM.loss_of, svm, svm.logits(W, D.X), SIGNED.y) for svm in SVMS),
    *(partial(LinearSVM.grad, svm, W, SIGNED) for svm in SVMS),
    *(partial(LinearSVM.hvp, svm, W, V, SIGNED) for svm in SVMS),
]


#: The examples of tags that have no line of their own, where the function's example does not fit.
CALLS_OF_TAGS: dict[str, partial[Any]] = {
    "per-fedavg eq.3": partial(per_fedavg.meta_gradient, MODEL, W, D, D, D, alpha=0.5),
}


class Step(NamedTuple):
    """One line that ran, and copies of the local variables before and after it."""

    line: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def changes(self) -> dict[str, Any]:
        """Return the variables that the line made or changed."""
        before, after = self.before, self.after
        return {n: x for n, x in after.items() if n not in before or not equal(before[n], x)}


class Trace(NamedTuple):
    """The result of a call, and the lines of the function that ran, in order."""

    function: Any
    result: Any
    steps: list[Step]


def trace_call(call: partial[Any]) -> Trace:
    """Call a function and note its own local variables around every line."""
    function = inspect.unwrap(call.func)
    notes: list[tuple[int, dict[str, Any]]] = []

    def note_line(frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            notes.append((frame.f_lineno, {n: copy(x) for n, x in frame.f_locals.items()}))
        return note_line

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return note_line if frame.f_code is function.__code__ else None

    outside = sys.gettrace()
    sys.settrace(enter)
    try:
        result = function(*call.args, **call.keywords)
    finally:
        sys.settrace(outside)
    steps = [Step(line, before, after) for (line, before), (_, after) in pairwise(notes)]
    return Trace(function, result, steps)


def copy(value: Any) -> Any:
    """Return the value with its arrays copied, within lists and tuples too."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [copy(part) for part in value]
    if isinstance(value, tuple):
        parts = [copy(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def equal(one: Any, other: Any) -> bool:
    """Return whether two values hold the same, to the bit."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return one is other or bool(one == other)


def find_example(module: str, function: str, equation: Equation | None = None) -> Trace | None:
    """Return the worked example of a function: the one that runs the equation's line, if there is one.

    A tag of the hinge loss is tried with that variant of the SVM.
    """
    trace = None
    for call in CALLS:
        if (call.func.__module__, call.func.__qualname__) != (module, function):
            continue
        if (
            equation
            and "hinge" in equation.tag
            and call.args[0].squared != ("squared" in equation.tag)
        ):
            continue
        trace = trace_call(call)
        if equation is None or any(step.line == equation.line for step in trace.steps):
            break
    own = [e for e in equations_in(importlib.import_module(module)) if e.function == function]
    if trace is None and any(e.formula for e in own):
        by_names = default_call(module, function)
        return trace_call(by_names) if by_names else None
    return trace


#: The value of each parameter, by its name, in the example of a function that `CALLS` does not list.
VALUES: dict[str, Any] = {
    "model": MODEL, "w": W, "w0": W_REF, "x": W_REF, "y": W, "theta": WS[1], "w_k": W_K, "v": V, "a": A[0],
    "c": I[0], "c_i": I[1], "h_k": W_K, "delta": W, "D": D, "alpha": 0.5, "lam": 0.5, "lr": 0.5,
    "beta2": 0.75, "K": 2, "tau": 2, "steps": 1,
}  # fmt: skip


def default_call(module: str, name: str) -> partial[Any] | None:
    """Return the example of a function that `CALLS` does not list, with values by parameter name."""
    function = operator.attrgetter(name)(importlib.import_module(module))
    values = VALUES
    if "." in name:
        kind = getattr(importlib.import_module(module), name.split(".")[0])
        if not issubclass(kind, algorithm.Algorithm):
            return None
        values = play_two_rounds(kind(lr=0.5))
    wanted = inspect.signature(function).parameters
    if not {n for n, p in wanted.items() if p.kind != p.VAR_POSITIONAL} <= values.keys():
        return None
    named = {n: values[n] for n, p in wanted.items() if p.kind == p.KEYWORD_ONLY}
    rest = [values["D"] for p in wanted.values() if p.kind == p.VAR_POSITIONAL]
    given = [values[n] for n, p in wanted.items() if p.kind == p.POSITIONAL_OR_KEYWORD]
    return partial(function, *given, *rest, **named)


def play_two_rounds(it: algorithm.AnyAlgorithm) -> dict[str, Any]:
    """Return the arguments that an algorithm's functions get in the second round of two clients."""
    server, states = it.initial(MODEL, W), [None, None]
    for _ in range(2):
        before, sent = server, it.download(server)
        starts = [it.start(MODEL, sent, own) for own in states]
        locals_ = [it.step(MODEL, sent, x, rows) for x, rows in zip(starts, (D, D1))]
        results = [
            it.finish(MODEL, sent, x, own, partial(Batch, *rows))
            for x, own, rows in zip(locals_, states, (D, D1))
        ]
        uploads = tree.stack([result.upload for result in results])
        values = {"client_state": states[0]}
        server = it.combine(MODEL, server, uploads, COHORT)
        states = [result.client_state for result in results]
    return values | {
        "self": it, "model": MODEL, "server": before, "sent": sent, "local": locals_[0], "D": D,
        "data": lambda: D, "uploads": uploads, "cohort": COHORT,
    }  # fmt: skip


def first_part(value: Any) -> Any:
    """Return the first item of a result or a state, such as w or θ: formulae are about that."""
    while isinstance(value, tuple) and value and not isinstance(value, Batch):
        value = value[0]
    return value


def symbol_values(equation: Equation, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every symbol: by the file's table, by its name, and the model's functions."""
    if isinstance(values.get("self"), BinaryLogistic | Logistic | LinearSVM):
        return linear_values(values["self"], values)
    options = dict(vars(values["self"])) if "self" in values else {}
    for state in ("uploads", "server"):
        options |= getattr(values.get(state), "_asdict", dict)()
    for state in ("sent", "adam"):
        options |= values[state]._asdict() if state in values else {}
    options |= {"w_ref": options["w"]} if "sent" in values and "w" in options else {}
    values = {name: first_part(value) for name, value in {**options, **values}.items()}
    model = values.get("model")
    env: dict[str, Any] = {
        "sqrt": np.sqrt, "max": np.maximum, "diag": lambda a: Linear(lambda v: a * v),
    }  # fmt: skip
    if model is not None:
        env |= dict.fromkeys("fFLh", model.loss) | {
            "g": model.grad,
            "H": lambda w, D: Linear(lambda v: model.hvp(w, v, D)),
        }
    (module,) = (module for module in modules() if module.__name__ == equation.module)
    env |= {name: value for name, value in values.items() if len(name) == 1 and name not in env}
    env |= {f"{name}_k": values[name] for name in ("p", "w") if name in values}
    if model is not None and equation.module == apfl.__name__ and "a" in values:
        # one value for each unit, repeated for the unit's parameters
        env["m_k"] = apfl.expand_units(model, nx.sigmoid(values["a"]))
    if "others" in values:  # FedCurv's pairs (I_j, θ̂_j)
        env["I_j"], env["θ̂_j"] = zip(*values["others"])
    if "data" in values:
        rows = values["data"]()
        env["n"] = len(rows.y)
        env["D_j"] = [Batch(rows.X[[j]], rows.y[[j]]) for j in range(len(rows.y))]
    if "F_old" in values:
        env["F"] = values["F_old"]
    return env | {row.symbol: values[row.name] for row in symbols(module) if row.name in values}


def linear_values(model: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the symbols of a linear model's formulae; _j runs over the samples, _c over the classes."""
    D = values.get("D")
    z = model.logits(values["w"], D.X) if D else values["z"]
    y = D.y if D else values["y"]
    env = {"z": z, "y": y, "n": len(y), "σ": nx.sigmoid, "log": np.log, "exp": np.exp}
    env |= {"v": values.get("v"), "max": np.maximum}
    if z.ndim == 1:
        env["a"] = 1.0 * (1 - y * z > 0)
    else:
        env |= {"p": nx.softmax(z), "Y": 1.0 * nx.one_hot(y, z.shape[1]), "z_c": z.T}
        env |= {"p_j": env["p"], "z_y": np.sum(env["Y"] * z, -1)}
    if D:
        A = np.column_stack([D.X, np.ones((len(y), int(getattr(model, "bias", True))))])
        env["A"] = linear_map(A, z.shape[1:])
        env["A_j"] = [linear_map(a, z.shape[1:]) for a in A]
    return env


def linear_map(A: Any, classes: tuple[int, ...]) -> Linear:
    """Return v ↦ A v for v as a linear model lays it out, and r ↦ Aᵀ r; A (n, p), or (p,) for one sample."""
    rows = np.atleast_2d(A)
    return Linear(
        lambda v: A @ v.reshape(A.shape[-1], *classes),
        lambda r: (rows.T @ r.reshape(len(rows), *classes)).ravel(),
    )


def compute_both(equation: Equation) -> tuple[Any, Any]:
    """Return the value of the line and the value of its formula, the last time the example ran it."""
    trace = find_example(equation.module, equation.function, equation)
    assert trace
    step = [step for step in trace.steps if step.line == equation.line][-1]
    values = symbol_values(equation, step.before)
    return line_value(equation, step, trace), evaluate(parse(equation.formula), values)


def line_value(equation: Equation, step: Step, trace: Trace) -> Any:
    """Return what an equation's line computed: what it assigns, tests or returns."""
    node = ast.parse(equation.code).body[0]
    if isinstance(node, ast.If):
        where, values = node.test, step.before
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
        where, values = target.elts[0] if isinstance(target, ast.Tuple) else target, step.after
    else:
        return first_part(trace.result)
    names = vars(importlib.import_module(equation.module))
    return first_part(eval(ast.unparse(where), dict(names), dict(values)))
