"""The eight exercises: which line is missing, and what a solution is tried on.

A line is named by its function and the name that it sets ("return": what is returned); its text is in
the source alone. Inputs are made anew for every probe, from one seed.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedref.algorithms import apfl, fedavg, fedmeta, fedprox, per_fedavg
from fedref.boundary.errors import ConfigError, unknown
from fedref.models import MLP, BinaryLogistic
from fedref.models.batch import Batch
from fedref.models.numerics import Array, cross_entropy_slope

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

#: The mistakes that are told apart, and how each shows.
KINDS = {
    "sign": "a term has the opposite sign",
    "factor": "a term is right but for what multiplies it",
    "missing term": "a term is not there",
    "first order only": "what second derivatives or a second point would add is not there",
    "wrong batch": "it is right if all batches are the same rows, and only then",
    "transpose": "it is right if the matrix is symmetric, and only then",
    "wrong point": "a derivative is taken at other parameters",
    "wrong direction": "a Hessian is multiplied by another vector",
    "mean for sum": "a mean, a plain sum and a weighted sum are three things",
}


@dataclass(frozen=True)
class Exercise:
    """One missing line.

    owner : the module, or the model's class; target : the name that the line sets, or "return".
    inputs : (situation, n, knobs) → arguments; situation "" is the general one.
    knobs : the numbers in whose powers an error is measured.
    hides : situation → the kind of mistake that does not show in it ("" if several do not).
    slips : wrong expression → the kind of mistake, where none of the above tells it.
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
    inputs: Callable[[str, int, Mapping[str, float]], Arguments]
    knobs: Mapping[str, float] = field(default_factory=dict)
    hides: Mapping[str, str] = field(default_factory=dict)
    slips: Mapping[str, str] = field(default_factory=dict)
    example: Arguments | None = None  # where `teach.example` has none

    @property
    def callable(self) -> Any:
        """The function with its line, as fedref has it."""
        return getattr(self.owner, self.function)

    @property
    def right(self) -> Any:
        """The same without decorators."""
        return inspect.unwrap(self.callable)


#: The names of knobs in the papers.
SYMBOLS = {"lr": "η", "mu": "μ", "alpha": "α", "delta": "δ", "lam": "λ"}

MODEL = BinaryLogistic(6, bias=False)


def batches(n: int, count: int, *, same: bool = False) -> list[Batch]:
    """`count` batches of n samples of six numbers, all the same one if asked."""
    rng = np.random.default_rng(n)
    made = [Batch(rng.normal(size=(n, 6)), rng.integers(0, 2, n)) for _ in range(count)]
    return [made[0]] * count if same else made


def points(count: int) -> Array:
    """(count, 6): parameters, not small, so that second derivatives matter."""
    return np.random.default_rng(1).normal(size=(count, 6))


def step(situation: str, n: int, knobs: Mapping[str, float]) -> Arguments:
    return (MODEL, points(1)[0], *batches(n, 1)), {**knobs}


def proximal(situation: str, n: int, knobs: Mapping[str, float]) -> Arguments:
    w, w0 = points(2)
    return (MODEL, w, w0, *batches(n, 1)), {**knobs}


def importance(situation: str, n: int, knobs: Mapping[str, float]) -> Arguments:
    rng = np.random.default_rng(n)
    p = np.full(n, 1 / n) if situation == "equal weights" else rng.dirichlet(np.ones(n))
    return (rng.random(6), rng.random((n, 6)), p), {**knobs}


def meta(situation: str, n: int, knobs: Mapping[str, float]) -> Arguments:
    return (MODEL, points(1)[0], *batches(n, 3, same=situation == "one batch")), {**knobs}


def meta_sgd(situation: str, n: int, knobs: Mapping[str, float]) -> Arguments:
    theta, shape = points(2)
    alpha = knobs["alpha"] * (1 if situation == "equal step sizes" else 1 + 0.5 * np.tanh(shape))
    S, Q = batches(n, 2, same=situation == "one batch")
    return (MODEL, theta, alpha * np.ones(6), S, Q), {"steps": 2}


def curvature(situation: str, n: int, knobs: Mapping[str, float]) -> Arguments:
    w, v = points(2)
    return (MODEL, 0 * w if situation == "w = 0" else w, v, *batches(n, 1)), {}


def backward(situation: str, n: int, knobs: Mapping[str, float]) -> Arguments:
    """One hidden layer, as wide as there are classes; "" has 4 units and 3 classes."""
    rng = np.random.default_rng(n)
    hidden = {"": (4,), "two layers": (4, 3)}.get(situation, (3,))
    model = MLP(6, hidden, 3)
    w = rng.normal(size=model.d)
    if situation == "symmetric":
        W = model.unpack(w)[2]
        W += W.mT.copy()
    *a, z = model.forward(w, rng.normal(size=(n, 6)))
    delta = cross_entropy_slope(z, rng.integers(0, 3, n), np.asarray(1 / n))
    return (model, w, a, delta), {}


SMALL = MLP(1, (2,), 2)
SMALL_W = np.array([1.0, -1.0, 0.0, 0.0, 0.5, -0.5, 1.0, 0.25, 0.0, 0.0])

EXERCISES = {
    exercise.name: exercise
    for exercise in (
        Exercise(
            "step", fedavg, "local_step", "return",
            "one step of stochastic gradient descent", "gradients", 5, ("sign", "factor", "missing term"),
            step, {"lr": 0.25},
        ),
        Exercise(
            "proximal", fedprox, "prox_gradient", "return",
            "the gradient of a squared distance", "step", 5,
            ("sign", "factor", "missing term", "wrong point"),
            proximal, {"mu": 0.25}, slips={"model.grad(w0, D) + mu * (w - w0)": "wrong point"},
        ),
        Exercise(
            "importance", apfl, "importance_update", "return",
            "a running sum over rounds, and a weighted one over clients", "weighted means", 5,
            ("sign", "factor", "missing term", "mean for sum"),
            importance, {"lam": 0.25}, {"equal weights": "mean for sum"},
        ),
        Exercise(
            "backward", MLP, "backward", "delta",
            "the chain rule through a layer of an MLP", "matrix calculus", 20,
            ("sign", "factor", "transpose"),
            backward, {}, {"symmetric": "transpose", "square": "", "two layers": ""},
            example=(
                (SMALL, SMALL_W, [np.array([[2.0]]), np.array([[0.5, -0.5]])], np.array([[0.25, -0.25]])), {},
            ),
        ),
        Exercise(
            "curvature", BinaryLogistic, "hvp", "r",
            "a Hessian-vector product: the derivative of a gradient in a direction", "backward", 20,
            ("sign", "factor", "mean for sum", "wrong direction"),
            curvature, {}, {"w = 0": ""},
            {"slope * self.logits(w, D.X) * base.mean_weights(D, z.dtype)": "wrong direction"},
        ),
        Exercise(
            "meta-gradient", per_fedavg, "meta_gradient", "return",
            "the derivative of a loss after a gradient step", "curvature", 15,
            ("sign", "factor", "first order only", "missing term", "wrong batch", "wrong point",
             "wrong direction"),
            meta, {"alpha": 0.0625}, {"one batch": "wrong batch"},
            {"u - alpha * model.hvp(w - alpha * model.grad(w, D), u, D2)": "wrong point",
             "u - alpha * model.hvp(w, model.grad(w, D), D2)": "wrong direction"},
        ),
        Exercise(
            "hessian-free", per_fedavg, "meta_gradient_hf", "d",
            "a central difference of gradients in place of a Hessian", "meta-gradient, Taylor's formula",
            10, ("sign", "factor", "first order only", "missing term", "wrong batch"),
            meta, {"alpha": 0.0625, "delta": 0.03125}, {"one batch": "wrong batch"},
        ),
        Exercise(
            "meta-sgd", fedmeta, "meta_sgd_gradient", "g_alpha",
            "the derivative in the step sizes themselves", "meta-gradient", 15,
            ("sign", "factor", "missing term", "wrong batch"),
            meta_sgd, {"alpha": 0.0625}, {"one batch": "wrong batch", "equal step sizes": ""},
        ),
    )
}  # fmt: skip


def find(name: str) -> Exercise:
    """The exercise of that name; ConfigError lists them."""
    if name not in EXERCISES:
        raise ConfigError(unknown("exercise", name, EXERCISES))
    return EXERCISES[name]
