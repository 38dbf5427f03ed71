"""A model as the specification has it, and the side of each kink that a sample is on."""

from functools import partial
from typing import Any

import numpy as np

from fedref import spec
from fedref.models import CNN, LSTM, MLP, BinaryLogistic, LinearSVM
from fedref.models.batch import Batch
from fedref.models.numerics import Array

PHI = {"elu": spec.elu, "relu": spec.relu, "tanh": np.tanh}
POOL = {"max": spec.first_max, "mean": partial(np.mean, axis=0)}


def scores(model: Any, phi: Any = None, pool: Any = None) -> Any:
    """Return z(w, X) of the specification, with phi and pool, if given, instead of the model's."""
    phi = phi or PHI.get(getattr(model, "activation", ""))
    if isinstance(model, LSTM):
        sizes = model.vocabulary, model.embedding, model.hidden, model.classes
        return lambda w, X: spec.lstm(w, X, *sizes, model.output == "mean")
    if isinstance(model, CNN):
        image, pool = (*model.image, 1)[:3], pool or POOL[model.pool]
        layers = model.channels, model.kernel, model.hidden, model.classes
        return lambda w, X: spec.cnn(w, X, image, *layers, phi, pool)
    if isinstance(model, MLP):
        return partial(spec.mlp, widths=model.sizes, phi=phi)
    if isinstance(model, BinaryLogistic | LinearSVM):
        return partial(spec.one_score, bias=model.bias)
    return partial(spec.linear, classes=model.classes)


def risk(model: Any) -> spec.Risk:
    """Return f(w; D) of the specification; its gradient by hand is the model's."""

    def analytic_grad(w: Array, D: spec.Batch) -> Array:
        return model.grad(w, Batch(D.X, D.y))

    loss = spec.cross_entropy
    if isinstance(model, BinaryLogistic):
        loss = spec.logistic_loss
    if isinstance(model, LinearSVM):
        loss = partial(spec.hinge, power=2 if model.squared else 1)
    return spec.Risk(scores(model), loss, analytic_grad, model.labels, model.l2)


def real_rows(D: Batch) -> spec.Batch:
    """Return D without weights: a row of weight s, a multiple of ½, is repeated 2s times."""
    times = 1 if D.s is None else (2 * D.s).astype(int)
    return spec.Batch(np.repeat(D.X, times, 0), np.repeat(D.y, times))


def sides(model: Any, w: Array, D: Batch) -> list[Any]:
    """Return on which side of each kink each sample is; an empty list for a model without kinks."""
    seen = list[Any]()

    def watch(f: Any, side: Any) -> Any:
        def note_side(z: Array) -> Array:
            seen.append(side(z).tolist())
            return f(z)

        return note_side

    phi, pool = getattr(model, "activation", ""), getattr(model, "pool", "")
    kinked = phi in ("elu", "relu"), pool == "max"
    z = scores(
        model,
        watch(PHI[phi], lambda z: z > 0) if kinked[0] else None,
        watch(POOL[pool], lambda z: z.argmax(0)) if kinked[1] else None,
    )(w, D.X)
    if isinstance(model, LinearSVM):
        seen.append((1 - D.y * z > 0).tolist())
    return seen
