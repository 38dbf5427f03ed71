"""A model's own functions: their code, what proves them, and worked examples where they fit on a page."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedref import proofs
from fedref.batch import Batch
from fedref.explain import source, worked
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


def methods(model: str) -> Iterator[Method]:
    """Those of `METHODS` that a model has."""
    cls = MODELS[model]
    for name in METHODS:
        if found := getattr(cls, name, None):
            module, line = inspect.getmodule(found), inspect.getsourcelines(found)[1]
            assert module
            yield Method(
                name,
                source.place(module, line),
                inspect.cleandoc(" \n" + inspect.getsource(found)),
                proved(cls.__name__, name),
                inspect.unwrap(found),
            )


def proved(cls: str, method: str) -> list[str]:
    """What `fedref check` proves of a method, for every variant of the model."""
    tags = [(one.tag.split(), one.claim) for one in proofs.PROOFS]
    return list(dict.fromkeys(c for tag, c in tags if (tag[0], tag[-1]) == (cls, method)))


def example(model: str, method: Method) -> worked.Trace | None:
    """The worked example of a gradient or a Hessian-vector product, if the model has one."""
    if model not in EXAMPLES or method.name not in ("grad", "hvp"):
        return None
    one, D, w, v = EXAMPLES[model]
    direction = (v,) if method.name == "hvp" else ()
    return worked.traced(method.function, one, w, *direction, D)
