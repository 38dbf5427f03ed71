"""The models: loss, gradient, Hessian-vector product, and all three of a stack."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np

from fedref import spec, tree
from fedref.checks import Report, complex_step_gradient, relative_error, stack_equals_loop
from fedref.judge.answer import scores
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM, Logistic, linear_operator
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs.case import Case, complex_hvp, equal
from fedref.proofs.table import FAMILIES, ONE, proof


def model_loss(c: Case) -> Iterator[Report]:
    for D, rows in zip((c.D, c.D1), c.real_rows):
        yield equal(c.model.loss(c.w, D), c.f(c.w, rows))


def model_grad(c: Case) -> Iterator[Report]:
    yield c.slope_of(lambda w: c.model.loss(w, c.D), c.model.grad(c.w, c.D))


def model_hvp(c: Case) -> Iterator[Report]:
    for v in c.vs:
        yield equal(c.model.hvp(c.w, v, c.D), complex_hvp(c.model, c.w, v, c.D))


def model_stack(c: Case) -> Iterator[Report]:
    K = 7  # clients; no other axis has this length
    w, v, D = c.draw_vectors(K), c.draw_vectors(K), tree.stack([c.draw_batch(2) for _ in range(K)])
    yield stack_equals_loop(c.model.loss, w, D)
    yield stack_equals_loop(c.model.grad, w, D)
    yield stack_equals_loop(c.model.hvp, w, v, D)
    yield stack_equals_loop(c.model.predict, w, D.X, bound=0)


def model_vjp(c: Case) -> Iterator[Report]:
    r = c.rng.normal(size=c.model.logits(c.w, c.D1.X).shape)
    expected = complex_step_gradient(lambda w: (r * c.model.logits(w, c.D1.X)).sum(), c.w)
    yield equal(c.model.vjp(c.w, c.D1.X, r), expected)


def model_labels(c: Case) -> Iterator[Report]:
    m, D = c.model, c.D2
    yield equal(m.predict(c.w, D.X), c.f.predict(c.w, D.X), bound=0)
    yield equal(m.sample_losses(c.w, D), c.f.loss(c.f.scores(c.w, D.X), D.y))
    level = 0 * c.w  # no score is above another, or above 0
    yield equal(m.predict(level, D.X), [m.labels[0]] * len(D.y), bound=0)
    assert m.d == len(c.w) == sum(view.size for view in m.unpack(c.w))


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
for _name, _model in MODELS.items():
    for _what, _compare, _claim in (
        ("loss", model_loss, "loss = that of the specification"),
        ("grad", model_grad, "grad = complex step of loss"),
        ("hvp", model_hvp, "hvp = complex step of grad"),
        ("stack", model_stack, "loss, grad, hvp, predict of a stack = one by one"),
        ("vjp", model_vjp, "vjp = complex step of Σ r·z"),
        ("labels", model_labels, "labels, predict, sample_losses = the specification's"),
    ):
        proof(f"{_name} {_what}", _claim, [_model])(_compare)


# Ties: all four numbers of a window are equal, and the first one counts as the maximum

TIES = CNN((5, 8, 2), (3,), 2, 4, 3, "tanh", "max", l2=0.1)


@proof("CNN ties", "loss, grad, hvp where all maxima are ties = those of the first", [TIES])
def cnn_ties(c: Case) -> Iterator[Report]:
    w, D, rows = c.w.copy(), c.D1, c.real_rows[1]
    TIES.unpack(w)[0][...] = 0  # then every window holds four zeros
    f = c.f._replace(scores=scores(TIES, pool=lambda z: z[0]))
    yield equal(TIES.loss(w, D), f(w, rows))
    yield equal(TIES.grad(w, D), f.grad(w, rows))
    yield directional_hvp(TIES, f, w, c.w, D, rows)


def directional_hvp(m: Any, f: spec.Risk, w: Array, v: Array, D: Batch, rows: spec.Batch) -> Report:
    """Compare m.hvp with a complex step, and with central differences of a smooth f's gradient."""
    exact = m.hvp(w, v, D)
    near, far = (f.grad(w + h * v, rows) - f.grad(w - h * v, rows) for h in (2.5e-4, 5e-4))
    error = relative_error(exact, (8 * near - far) / 3e-3)  # of order h⁴, as large as rounding here
    assert error < 1e-9, f"differences are off by {error:.1e}"
    return equal(exact, complex_hvp(m, w, v, D))


# Exact kinks, where the complex step must not depend on the direction's sign

PHI = {"relu": spec.relu, "elu": spec.elu}
KINKED: dict[Any, Any] = {  # → φ on the side that counts: ReLU′(0) = 0, ELU″(0) = 0
    make(phi): side
    for phi, side in (("relu", lambda z: 0 * z), ("elu", lambda z: z))
    for make in (
        lambda phi: MLP(3, (5, 4), 3, phi, l2=0.1),
        lambda phi: CNN((5, 8, 2), (3,), 2, 4, 3, phi, "mean", l2=0.1),
    )
}


@proof("kinks of φ", "loss, grad, ±hvp where the first φ's are at 0 = those of one side", [*KINKED])
def activation_kinks(c: Case) -> Iterator[Report]:
    m, w, D, rows = c.model, c.w.copy(), c.D1, c.real_rows[1]
    W, b, *_ = m.unpack(w)
    W[...] = b[...] = 0
    phis = cycle([KINKED[m], PHI[m.activation]])
    f = c.f._replace(scores=scores(m, lambda z: next(phis)(z)))
    yield equal(m.loss(w, D), f(w, rows))
    yield equal(m.grad(w, D), f.grad(w, rows))
    for v in (c.vs[0], -c.vs[0]):
        yield directional_hvp(m, f, w, v, D, rows)


@proof("kinks of the hinge", "grad, ±hvp where a margin is 0 = those of the other samples",
       [LinearSVM(4, l2=0.1, squared=squared) for squared in (False, True)])  # fmt: skip
def hinge_kinks(c: Case) -> Iterator[Report]:
    m, w, D = c.model, c.w.copy(), c.D2
    D.X[0], w[-1] = 0, D.y[0]  # 1 − yz = 1 − y² = 0
    rest, share = c.real_rows[2].rows(slice(1, None)), 1 - 1 / len(D.y)
    yield equal(m.grad(w, D), share * c.f.grad(w, rest) + (1 - share) * m.l2 * w)
    for v in (c.vs[0], -c.vs[0]):
        expected = share * c.f.hvp(w, v, rest) + (1 - share) * m.l2 * v
        yield equal(m.hvp(w, v, D), expected)
        yield equal(complex_hvp(m, w, v, D), expected)


# Where a model starts


@proof("initialisation", "fan-in, glorot, he = the bounds as printed, layer by layer", ONE)
def initialisation(c: Case) -> Iterator[Report]:
    for model in (MLP(3, (5, 4), 3), CNN((5, 8, 2), (3,), 2, 4, 3)):
        for name in ("fan-in", "glorot", "he"):
            rng, expected = np.random.default_rng(7), list[float]()
            for shape in model.shapes[::2]:
                *taps, inputs, out = shape
                n, m = math.prod(taps) * inputs, math.prod(taps) * out
                if name == "fan-in":
                    expected += rng.uniform(-(n**-0.5), n**-0.5, (n + 1) * out).tolist()
                    continue
                weights = (
                    rng.uniform(-((6 / (n + m)) ** 0.5), (6 / (n + m)) ** 0.5, n * out)
                    if name == "glorot"
                    else rng.normal(0, (2 / n) ** 0.5, n * out)
                )
                expected += [*weights.tolist(), *[0.0] * out]
            got = replace(model, initialisation=name).init(np.random.default_rng(7))
            yield equal(got, expected)
    for gates in LSTM(3, 2, 3, 2, (2, 3)).unpack(LSTM(3, 2, 3, 2, (2, 3)).init(c.rng))[2:-2:2]:
        H = len(gates) // 4  # the order is i, f, g, o
        yield equal(gates[H : 2 * H], [1.0] * H, bound=0)
    for flat in (Logistic(3, 4), BinaryLogistic(4), LinearSVM(4)):
        yield equal(flat.init(c.rng), [0.0] * flat.d, bound=0)


@proof("linear_operator", "the operator's products = complex step of grad", FAMILIES)
def operator(c: Case) -> Iterator[Report]:
    product, H = complex_hvp(c.model, c.w, c.vs[0], c.D), linear_operator(c.model, c.w, c.D)
    yield equal(H @ c.vs[0], product)
    yield equal(H.T @ c.vs[0], product)  # a Hessian is symmetric
