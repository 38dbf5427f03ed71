"""A model's own functions: their code, what proves them, and worked examples where they fit on a page."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedref import numerics as nx
from fedref import proofs
from fedref.batch import Batch
from fedref.explain import source, worked
from fedref.explain.formula import Linear, evaluate, parse
from fedref.explain.source import Equation
from fedref.models import MLP, MODELS, LinearSVM, Logistic
from fedref.models.base import Model
from fedref.numerics import Array

#: What of a model is shown, where it has it: value, forward pass, backward, both of the R-operator.
METHODS = (
    "logits", "loss_of", "forward", "vjp", "backward", "grad", "R_forward", "R_backward", "hvp",
)  # fmt: skip

V = np.array([1.0, 0.5])

#: One feature, three classes: W (1, 3), then b. And two units between one feature and two classes.
SOFTMAX_W, SOFTMAX_V = np.array([0.5, 0, -0.5, 0, 0.25, 0]), np.array([1, 0, 0.5, 0, -1, 0])
NET_W = np.array([0.5, -1, 0, 0.5, 1, 0, -0.5, 0.5, 0, 0.25])
NET_V = np.array([1, 0, 0.5, 0, 0, 1, 0.5, 0, -1, 0])
X = np.array([[1.0], [-1.0], [2.0]])


class Example(NamedTuple):
    """A model with parameters, a batch, and a direction for the Hessian."""

    model: Model
    D: Batch
    w: Array
    v: Array


#: Models so small that three samples can be calculated by hand. CNN and LSTM have none.
EXAMPLES: Mapping[str, Example] = {
    "binary-logistic": Example(worked.MODEL, worked.D, worked.W, V),
    "svm": Example(
        LinearSVM(2, squared=True, bias=False),
        Batch(worked.D.X, 2 * worked.D.y - 1),
        worked.W,
        V,
    ),
    "logistic": Example(Logistic(1, 3), Batch(X, np.array([0, 2, 1])), SOFTMAX_W, SOFTMAX_V),
    "mlp": Example(MLP(1, (2,), 2), Batch(X, np.array([0, 1, 1])), NET_W, NET_V),
}


class Method(NamedTuple):
    """A function of a model."""

    name: str
    place: str
    code: str
    proved: list[str]
    function: Callable[..., Any]
    formulae: list[Equation]  # beside its lines


def methods(model: str) -> Iterator[Method]:
    """Those of `METHODS` that a model has."""
    cls = MODELS[model]
    for name in METHODS:
        if found := getattr(cls, name, None):
            module, line = inspect.getmodule(found), inspect.getsourcelines(found)[1]
            assert module
            function = inspect.unwrap(found)
            yield Method(
                name,
                source.place(module, line),
                inspect.cleandoc(" \n" + inspect.getsource(found)),
                proved(cls.__name__, name),
                function,
                [one for one in source.tagged(module) if one.function == function.__qualname__],
            )


def proved(cls: str, method: str) -> list[str]:
    """What `fedref check` proves of a method, for every variant of the model."""
    tags = [(one.tag.split(), one.claim) for one in proofs.PROOFS]
    return list(dict.fromkeys(c for tag, c in tags if (tag[0], tag[-1]) == (cls, method)))


def example(model: str, method: Method) -> worked.Trace | None:
    """The worked example of a gradient or a Hessian-vector product, if the model has one."""
    if model not in EXAMPLES or method.name not in ("grad", "hvp"):
        return None
    return traced(EXAMPLES[model], method)


def traced(example: Example, method: Method) -> worked.Trace:
    """What a method makes of an example, line by line."""
    one, D, w, v = example
    arguments = {"hvp": (w, v, D), "grad": (w, D), "loss_of": (one.logits(w, D.X), D.y)}
    return worked.traced(method.function, one, *arguments[method.name])


def computed(example: Example, method: Method, equation: Equation) -> tuple[Any, Any]:
    """(what the line of a formula computed, what the formula says) in an example with l2 = 0."""
    value = worked.value_of(equation, traced(example, method))
    return value, evaluate(parse(equation.formula), meaning(example))


def meaning(example: Example) -> dict[str, Any]:
    """The symbols of a model's formulae; _j runs over the samples, _c over the classes."""
    model, D, w, v = example
    z, n = model.logits(w, D.X), len(D.y)
    env = {"z": z, "y": D.y, "n": n, "v": v, "σ": nx.sigmoid, "log": np.log, "exp": np.exp}
    env |= {"max": np.maximum, "a": 1.0 * (1 - D.y * z > 0) if z.ndim == 1 else None}
    A = np.column_stack([D.X, np.ones((n, int(getattr(model, "bias", True))))])
    env["A"] = rows(A, z.shape[1:])
    if z.ndim == 2:
        env |= {"p": nx.softmax(z), "Y": 1.0 * nx.one_hot(D.y, z.shape[1])}
        env |= {"p_j": env["p"], "A_j": [rows(a, z.shape[1:]) for a in A]}
        env |= {"z_c": z.T, "z_y": np.sum(env["Y"] * z, -1)}
    return env


def rows(A: Array, classes: tuple[int, ...]) -> Linear:
    """v ↦ A v for v as a linear model lays it out, and r ↦ Aᵀ r; A (n, p), or (p,) for one sample."""
    two = np.atleast_2d(A)
    return Linear(
        lambda v: A @ v.reshape(A.shape[-1], *classes),
        lambda r: (two.T @ r.reshape(len(two), *classes)).ravel(),
    )
