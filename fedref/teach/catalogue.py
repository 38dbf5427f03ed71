"""The eight exercises: the missing line, the inputs that a solution is tried on, known wrong lines.

A line is named by its function and the name that it sets ("return": the value that is returned). Its
text stands in the source alone. Every call of a solution gets fresh inputs, with random numbers that
depend on nothing but their size.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedref.algorithms import apfl, fedavg, fedmeta, fedprox, per_fedavg
from fedref.boundary.errors import ConfigError, unknown
from fedref.models import MLP, BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, cross_entropy_slope

#: Positional and keyword arguments.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]

#: The kinds of mistakes that are told apart, and the words for each.
KINDS = {
    "sign": "a term has the opposite sign",
    "factor": "a term is right except for a factor",
    "missing term": "a term is missing",
    "first order only": "the part that second derivatives or a second point would add is missing",
    "wrong batch": "a derivative is taken on another batch",
    "transpose": "a matrix must be transposed",
    "wrong point": "a derivative is taken at other parameters",
    "wrong direction": "a Hessian is multiplied by another vector",
    "no direction": "the vector that the Hessian is multiplied by is missing",
    "mean for sum": "a mean, a plain sum and a weighted sum are three things",
}


@dataclass(frozen=True)
class Exercise:
    """One missing line.

    owner : the module, or the model's class; target : the name that the line sets, or "return".
    inputs : number of samples (or clients) → arguments.
    slips : wrong line → its kind of mistake, for wrong lines that are more than a wrong factor.
    minutes : an estimate, not measured in a class.
    """

    name: str
    owner: Any
    function: str
    target: str
    trains: str
    before: str
    minutes: int
    kinds: tuple[str, ...]
    inputs: Callable[[int], Arguments]
    slips: Mapping[str, str] = field(default_factory=dict)
    example: partial[Any] | None = None  # where `teach.example` has none

    @property
    def callable(self) -> Any:
        """The function with its line, as fedref has it."""
        return getattr(self.owner, self.function)

    @property
    def source_function(self) -> Any:
        """The same function without decorators."""
        return inspect.unwrap(self.callable)


MODEL = BinaryLogistic(6, bias=False)
#: The papers' hyperparameters η, μ, λ, α and δ: powers of two, so that a wrong factor shows exactly.
LR = MU = LAM = 0.25
ALPHA, DELTA = 0.0625, 0.03125


def make_batches(n: int, count: int) -> list[Batch]:
    """Return `count` batches of n samples of six numbers."""
    rng = np.random.default_rng(n)
    return [Batch(rng.normal(size=(n, 6)), rng.integers(0, 2, n)) for _ in range(count)]


def make_points(count: int) -> Array:
    """Return (count, 6) parameters, not small, so that second derivatives matter."""
    return np.random.default_rng(1).normal(size=(count, 6))


def step_inputs(n: int) -> Arguments:
    return (MODEL, make_points(1)[0], *make_batches(n, 1)), {"lr": LR}


def proximal_inputs(n: int) -> Arguments:
    return (MODEL, *make_points(2), *make_batches(n, 1)), {"mu": MU}


def importance_inputs(n: int) -> Arguments:
    rng = np.random.default_rng(n)
    return (rng.random(6), rng.random((n, 6)), rng.dirichlet(np.ones(n))), {"lam": LAM}


def meta_inputs(n: int) -> Arguments:
    return (MODEL, make_points(1)[0], *make_batches(n, 3)), {"alpha": ALPHA}


def hessian_free_inputs(n: int) -> Arguments:
    arguments, options = meta_inputs(n)
    return arguments, {**options, "delta": DELTA}


def meta_sgd_inputs(n: int) -> Arguments:
    theta, shape = make_points(2)
    alpha = ALPHA * (1 + 0.5 * np.tanh(shape))
    return (MODEL, theta, alpha, *make_batches(n, 2)), {"steps": 2}


def curvature_inputs(n: int) -> Arguments:
    return (MODEL, *make_points(2), *make_batches(n, 1)), {}


def backward_inputs(n: int) -> Arguments:
    """Return an MLP whose last weight is square, so that its transpose fits too.

    With n = 12 it is oblong, and with n = 16 there are two hidden layers.
    """
    rng = np.random.default_rng(n)
    model = MLP(6, {12: (4,), 16: (4, 3)}.get(n, (3,)), 3)
    w = rng.normal(size=model.d)
    *a, z = model.forward(w, rng.normal(size=(n, 6)))
    delta = cross_entropy_slope(z, rng.integers(0, 3, n), np.asarray(1 / n))
    return (model, w, a, delta), {}


SMALL = MLP(1, (2,), 2)
SMALL_W = np.array([1.0, -1.0, 0.0, 0.0, 0.5, -0.5, 1.0, 0.25, 0.0, 0.0])
SMALL_A = [np.array([[2.0]]), np.array([[0.5, -0.5]])]
ADAPTED = "w - alpha * model.grad(w, D)"


def difference(w: str = "w", u: str = "u", D: str = "D2") -> str:
    """Return the text of a central difference of gradients."""
    return (
        f"(model.grad({w} + delta * {u}, {D}) - model.grad({w} - delta * {u}, {D})) / (2 * delta)"
    )


EXERCISES = {
    exercise.name: exercise
    for exercise in (
        Exercise(
            "step", fedavg, "local_step", "return",
            "one step of stochastic gradient descent", "gradients", 5,
            ("sign", "factor", "missing term"), step_inputs,
        ),
        Exercise(
            "proximal", fedprox, "prox_gradient", "return",
            "the gradient of a loss with a squared distance", "step", 5,
            ("sign", "factor", "missing term", "wrong point"), proximal_inputs,
            {"model.grad(w0, D) + mu * (w - w0)": "wrong point"},
        ),
        Exercise(
            "importance", apfl, "importance_update", "return",
            "a running sum over rounds, and a weighted one over clients", "weighted means", 5,
            ("sign", "factor", "missing term", "mean for sum"), importance_inputs,
            {"lam * F_old + importances.mean(0)": "mean for sum",
             "lam * F_old + importances.sum(0)": "mean for sum"},
        ),
        Exercise(
            "backward", MLP, "backward", "delta",
            "the chain rule through a layer of an MLP", "matrix calculus", 20,
            ("sign", "factor", "transpose"), backward_inputs,
            {"delta @ W[2 * l]": "transpose"},
            partial(MLP.backward, SMALL, SMALL_W, SMALL_A, np.array([[0.25, -0.25]])),
        ),
        Exercise(
            "curvature", BinaryLogistic, "hvp", "r",
            "a Hessian-vector product: the derivative of a gradient in a direction", "backward", 20,
            ("sign", "factor", "mean for sum", "wrong direction", "no direction"), curvature_inputs,
            {"self.logits(v, D.X) / len(D.y)": "factor",
             "slope * self.logits(w, D.X) / len(D.y)": "wrong direction",
             "slope / len(D.y)": "no direction"},
        ),
        Exercise(
            "meta-gradient", per_fedavg, "meta_gradient", "return",
            "the derivative of a loss after a gradient step", "curvature", 15,
            ("sign", "factor", "first order only", "missing term", "wrong batch", "wrong point",
             "wrong direction", "no direction"), meta_inputs,
            {"u - alpha * model.hvp(w, u, D)": "wrong batch",
             "u - alpha * model.hvp(w, u, D1)": "wrong batch",
             f"u - alpha * model.hvp({ADAPTED}, u, D2)": "wrong point",
             "u - alpha * model.hvp(w, model.grad(w, D), D2)": "wrong direction",
             "u - alpha * model.hvp(w, np.ones_like(u), D2)": "no direction"},
        ),
        Exercise(
            "hessian-free", per_fedavg, "meta_gradient_hf", "d",
            "a central difference of gradients in place of a Hessian",
            "meta-gradient, Taylor's formula", 10,
            ("sign", "factor", "first order only", "missing term", "wrong batch", "wrong point",
             "no direction"), hessian_free_inputs,
            {**{difference(D=D): "wrong batch" for D in ("D", "D1")},
             difference(w=f"({ADAPTED})"): "wrong point",
             difference(u="1"): "no direction",
             "(model.grad(w + delta * u, D2) - model.grad(w, D2)) / delta": "first order only",
             "(model.grad(w, D2) - model.grad(w - delta * u, D2)) / delta": "first order only"},
        ),
        Exercise(
            "meta-sgd", fedmeta, "meta_sgd_gradient", "g_alpha",
            "the derivative in the step sizes themselves", "meta-gradient", 15,
            ("sign", "factor", "missing term", "wrong batch"), meta_sgd_inputs,
            {"g_alpha - q * model.grad(theta_j, Q)": "wrong batch",
             "g_alpha - alpha * q * g_j": "factor"},
        ),
    )
}  # fmt: skip


def find(name: str) -> Exercise:
    """Return the exercise of that name; ConfigError lists them."""
    if name not in EXERCISES:
        raise ConfigError(unknown("exercise", name, EXERCISES))
    return EXERCISES[name]
