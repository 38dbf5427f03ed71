"""Models of every kind and of random size, with points, directions and batches to try them on."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from fedref.models import (
    CNN,
    MLP,
    BinaryLogistic,
    LinearSVM,
    Logistic,
)
from fedref.models.batch import Batch

width = st.integers(1, 5)
wide = st.integers(1, 40)
l2s = st.sampled_from([0.0, 0.3])


@st.composite
def mlps(draw, activation, size=width):
    hidden = draw(st.lists(size, max_size=2))
    return MLP(draw(size), tuple(hidden), draw(st.integers(2, 4)), activation, draw(l2s))


@st.composite
def cnns(draw, activation, pool, size=width):
    channels = draw(st.lists(st.integers(1, 3), max_size=2))
    kernel = draw(st.integers(1, 3))
    least = 1
    for _ in channels:
        least = 2 * least + kernel - 1
    sides = draw(st.tuples(st.integers(least, least + 2), st.integers(least, least + 2)))
    image = draw(st.sampled_from([sides, (*sides, 1), (*sides, 3)]))
    classes = draw(st.integers(2, 4))
    return CNN(image, channels, kernel, draw(size), classes, activation, pool, draw(l2s))


def kinds(size):
    """A strategy for every kind of model, by name."""
    flags, size = st.booleans(), size.map(lambda n: n + 1)  # in one dimension sums can cancel
    return {
        "binary": st.builds(BinaryLogistic, size, l2s, flags),
        "logistic": st.builds(Logistic, size, st.integers(2, 4), l2s),
        "hinge": st.builds(LinearSVM, size, l2s, st.just(False), flags),
        "squared hinge": st.builds(LinearSVM, size, l2s, st.just(True), flags),
        "mlp elu": mlps("elu", size),
        "mlp relu": mlps("relu", size),
        "mlp tanh": mlps("tanh", size),
        "cnn relu max": cnns("relu", "max", size),
        "cnn elu max": cnns("elu", "max", size),
        "cnn tanh mean": cnns("tanh", "mean", size),
        "cnn relu mean": cnns("relu", "mean", size),
    }


KINDS = kinds(width)
WIDE = kinds(wide)
every_kind = pytest.mark.parametrize("kind", KINDS)

# One small model of each kind, for what does not depend on sizes.
FIXED = {
    "binary": BinaryLogistic(5, l2=0.1),
    "logistic": Logistic(5, 3, l2=0.1),
    "hinge": LinearSVM(5, l2=0.1),
    "squared hinge": LinearSVM(5, l2=0.1, squared=True),
    "mlp elu": MLP(5, (4,), 3, l2=0.1),
    "mlp relu": MLP(5, (4,), 3, "relu", l2=0.1),
    "mlp tanh": MLP(5, (4,), 3, "tanh", l2=0.1),
    "cnn max": CNN((6, 5), (2,), 2, 4, 3, l2=0.1),
    "cnn mean": CNN((7, 6, 2), (2,), 2, 4, 3, "tanh", "mean", l2=0.1),
}
every_model = pytest.mark.parametrize("model", FIXED.values(), ids=FIXED)

#: Leading axes of w (and v) and of X; with B in {1, 5, 7}, all sizes are pairwise coprime.
LEADS = [((), ()), ((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((2, 3), (2, 3))]


class Problem(NamedTuple):
    model: Any
    w: Any
    v: Any
    D: Batch


def make(model, B=7, w_lead=(), X_lead=(), weights="none", one_class=False, seed=0):
    rng = np.random.default_rng(seed)
    w, v = rng.standard_normal((2, *w_lead, model.d))
    X = rng.standard_normal((*X_lead, B, model.features))
    labels = model.labels[:1] if one_class else model.labels
    y = rng.choice(labels, (*X_lead, B))
    # Scores of at most 3: at p = 1 − 1e-4, p − 1 keeps 12 digits, in the complex step as in ours.
    w *= min(1, 3 / np.abs(model.logits(w, X)).max())
    s = None if weights == "none" else rng.uniform(0.1, 2, (*X_lead, B))
    if weights == "padded":
        s[..., 1:][rng.random((*X_lead, B - 1)) < 0.4] = 0
    return Problem(model, w, v, Batch(X, y, s))


@st.composite
def problems(draw, models, leads=LEADS):
    w_lead, X_lead = draw(st.sampled_from(leads))
    return make(
        draw(models),
        draw(st.sampled_from([1, 5, 7])),
        w_lead,
        X_lead,
        draw(st.sampled_from(["none", "random", "padded"])),
        draw(st.booleans()),
        draw(st.integers(0, 2**32 - 1)),
    )


def error(got, expected):
    """The largest error over the last axis, relative to its largest entry; the worst of all rows."""
    assert got.shape == expected.shape
    scale = np.abs(expected).max(-1)
    return (np.abs(got - expected).max(-1) / np.where(scale > 0, scale, 1)).max()


def dot(a, b):
    return (a * b).sum(-1)
