"""The models: loss, gradient, Hessian-vector product, and all three of a stack."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedref import spec
from fedref.checks import Report, stack_equals_loop
from fedref.judge.adapter import scores
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic, linear_operator, tree
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs.setting import Setting, equal
from fedref.proofs.table import FAMILIES, ONE, proof


def model_loss(c: Setting) -> Iterator[Report]:
    for D, rows in c.batches:
        yield equal(c.model.loss(c.w, D), c.f(c.w, rows))


def spec_grad(c: Setting) -> Iterator[Report]:
    yield c.slope_of(lambda w: c.f(w, c.rows), c.f.grad(c.w, c.rows))


def model_grad(c: Setting) -> Iterator[Report]:
    for D, rows in c.batches:
        yield equal(c.model.grad(c.w, D), c.f.grad(c.w, rows))
    at = c.w + 0.1j * c.vs[0]  # users take complex steps through the gradient
    yield equal(c.model.grad(at, c.D), c.f.grad(at, c.rows))


def model_hvp(c: Setting) -> Iterator[Report]:
    for D, rows in c.batches:
        for v in c.vs:
            yield equal(c.model.hvp(c.w, v, D), c.f.hvp(c.w, v, rows))


def model_stack(c: Setting) -> Iterator[Report]:
    K = 7  # clients; no other axis has this length
    w, v, D = c.draw_vectors(K), c.draw_vectors(K), tree.stack([c.draw_batch(2) for _ in range(K)])
    yield stack_equals_loop(c.model.loss, w, D)
    yield stack_equals_loop(c.model.grad, w, D)
    yield stack_equals_loop(c.model.hvp, w, v, D)
    yield stack_equals_loop(c.model.predict, w, D.X, bound=0)


def model_labels(c: Setting) -> Iterator[Report]:
    m, D = c.model, c.D2
    yield equal(m.predict(c.w, D.X), c.f.predict(c.w, D.X), bound=0)
    yield equal(m.sample_losses(c.w, D), c.f.loss(c.f.scores(c.w, D.X), D.y))
    level = 0 * c.w  # no score is above another, or above 0
    for side in (m, c.f):
        yield equal(side.predict(level, D.X), [m.labels[0]] * len(D.y), bound=0)
    assert m.d == len(c.w) == sum(view.size for view in m.unpack(c.w))


def model_vjp(c: Setting) -> Iterator[Report]:
    X, shape = c.D1.X, c.f.scores(c.w, c.D1.X).shape
    r = np.cos(np.arange(math.prod(shape))).reshape(shape)
    yield equal(c.model.vjp(c.w, X, r), spec.gradient(lambda w: (r * c.f.scores(w, X)).sum(), c.w))


MODELS: dict[str, Any] = {
    "BinaryLogistic": BinaryLogistic(4, l2=0.1),
    "Logistic": Logistic(3, 4, l2=0.1),
    "BinaryLogistic without bias": BinaryLogistic(4, bias=False),
    "LinearSVM hinge": LinearSVM(4, l2=0.1),
    "LinearSVM without bias": LinearSVM(4, bias=False, squared=True),
    "LinearSVM squared": LinearSVM(4, l2=0.1, squared=True),
    **{f"MLP {phi}": MLP(3, (5, 4), 3, phi, l2=0.1) for phi in ("elu", "relu", "tanh")},
    **{
        f"CNN {phi} {pool}": CNN((5, 8, 2), (3,), 2, 4, 3, phi, pool, l2=0.1)  # pools 2×3
        for phi in ("elu", "relu", "tanh")
        for pool in ("max", "mean")
    },
    "CNN oblong": CNN((15, 22), (2, 3), 3, 3, 3, "tanh", "mean"),  # pools 6×10 and 2×4
    "CNN deep": CNN((9, 12), (3, 2), 2, 3, 3, "relu", "max"),  # pools 4×5 and 1×2 of odd images
    "LSTM": LSTM(3, 3, 4, 2, (3,), l2=0.1),
    "LSTM deep": LSTM(3, 2, 3, 2, (2, 3, 2)),
    "LSTM mean": LSTM(3, 2, 4, 2, (3,), "mean"),
}
#: What is proved of each of them, in the order of the table.
CLAIMS = (
    ("loss", "loss = that of the specification", model_loss),
    ("dual", "∇f of the specification, by dual numbers = by complex steps", spec_grad),
    ("grad", "grad = ∇f of the specification, at real and at complex w", model_grad),
    ("hvp", "hvp = ∇²f v of the specification", model_hvp),
    ("stack", "loss, grad, hvp, predict of a stack = one by one", model_stack),
    ("vjp", "vjp = ∇ of Σ r·z", model_vjp),
    ("labels", "labels, predict, sample_losses = the specification's", model_labels),
)
for _name, _model in MODELS.items():
    for _tag, _claim, _compare in CLAIMS:
        proof(f"{_name} {_tag}", _claim, [_model])(_compare)


# Kinks: all four numbers of a window are equal; a φ is at 0; a margin is exactly 1


def turn_hvp(c: Setting, m: Any, w: Array, D: Batch) -> Iterator[Report]:
    """Compare loss, grad and ±hvp: at a kink they must not depend on the direction's sign."""
    rows = spec.Batch(*D[:2])
    yield equal(m.loss(w, D), c.f(w, rows))
    yield equal(m.grad(w, D), c.f.grad(w, rows))
    for v in (c.vs[0], -c.vs[0]):
        yield equal(m.hvp(w, v, D), c.f.hvp(w, v, rows))


TIES = MODELS["CNN tanh max"]
KINKED = [MODELS[name] for name in ("MLP relu", "CNN relu mean", "MLP elu", "CNN elu mean")]


@proof("CNN ties", "loss, grad, ±hvp where all maxima are ties = the specification", [TIES])
def cnn_ties(c: Setting) -> Iterator[Report]:
    w = c.w.copy()
    TIES.unpack(w)[0][...] = 0  # then every window holds four equal numbers
    yield from turn_hvp(c, TIES, w, c.D1)
    first = c.f._replace(scores=scores(TIES, pool=lambda z: z[0]))
    yield equal(c.f.grad(w, spec.Batch(*c.D1[:2])), first.grad(w, spec.Batch(*c.D1[:2])))


@proof("kinks of φ", "loss, grad, ±hvp where the first φ's are at 0 = the specification", KINKED)
def activation_kinks(c: Setting) -> Iterator[Report]:
    w = c.w.copy()
    W, b, *_ = c.model.unpack(w)
    W[...] = b[...] = 0
    yield from turn_hvp(c, c.model, w, c.D1)
    zero, one = np.zeros(1), np.ones(1)
    yield equal(spec.gradient(lambda z: spec.relu(z).sum(), zero), 0 * one, bound=0)  # ReLU′(0) = 0
    elu = spec.Risk(lambda w, X: w, lambda z, y: spec.elu(z), ())
    rows = spec.Batch(one, one)
    yield equal([elu.grad(zero, rows), elu.hvp(zero, one, rows)], [one, zero], bound=0)


HINGES = [MODELS[name] for name in ("LinearSVM hinge", "LinearSVM squared")]
AT_ONE = "loss, grad, ±hvp where a margin is 1 = the specification: the slope is 0"


@proof("kinks of the hinge", AT_ONE, HINGES)
def hinge_kinks(c: Setting) -> Iterator[Report]:
    w, D = c.w.copy(), c.D2
    D.X[0], w[-1] = 0, D.y[0]  # 1 − yz = 1 − y² = 0
    yield from turn_hvp(c, c.model, w, D)
    rest, share = spec.Batch(D.X[1:], D.y[1:]), 1 - 1 / len(D.y)
    yield equal(c.model.grad(w, D), share * c.f.grad(w, rest) + (1 - share) * c.model.l2 * w)


# Where a model starts


@proof("initialisation", "fan-in, glorot, he = the bounds as printed, layer by layer", ONE)
def initialisation(c: Setting) -> Iterator[Report]:
    for model in (MLP(3, (5, 4), 3), CNN((5, 8, 2), (3,), 2, 4, 3)):
        for name in ("fan-in", "glorot", "he"):
            rng, expected = np.random.default_rng(7), list[float]()
            for *taps, inputs, out in model.shapes[::2]:
                n, m = math.prod(taps) * inputs, math.prod(taps) * out
                bound = n**-0.5 if name == "fan-in" else (6 / (n + m)) ** 0.5
                biases = out * (name == "fan-in")  # else they are 0
                expected += (
                    rng.normal(0, (2 / n) ** 0.5, n * out)
                    if name == "he"
                    else rng.uniform(-bound, bound, n * out + biases)
                ).tolist() + [0.0] * (out - biases)
            got = replace(model, initialisation=name).init(np.random.default_rng(7))
            yield equal(got, expected)
    for gates in LSTM(3, 2, 3, 2, (2, 3)).unpack(LSTM(3, 2, 3, 2, (2, 3)).init(c.rng))[2:-2:2]:
        H = len(gates) // 4  # the order is i, f, g, o
        yield equal(gates[H : 2 * H], [1.0] * H, bound=0)
    for flat in (Logistic(3, 4), BinaryLogistic(4), LinearSVM(4)):
        yield equal(flat.init(c.rng), [0.0] * flat.d, bound=0)


@proof("linear_operator", "the operator's products = ∇²f v of the specification", FAMILIES)
def operator(c: Setting) -> Iterator[Report]:
    product, H = c.f.hvp(c.w, c.vs[0], c.rows), linear_operator(c.model, c.w, c.D)
    for side in (H, H.T):  # a Hessian is symmetric
        yield equal(side @ c.vs[0], product)
