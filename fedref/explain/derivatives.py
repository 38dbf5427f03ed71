"""A model's own functions: their code, what proves them, and worked examples where they fit on a page."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedref import proofs
from fedref.batch import Batch
from fedref.explain import source, worked
from fedref.models import MODELS, LinearSVM
from fedref.models.base import Model

#: What of a model is shown, where it has it: value, forward pass, backward, both of the R-operator.
METHODS = (
    "logits", "loss_of", "forward", "vjp", "backward", "grad", "R_forward", "R_backward", "hvp",
)  # fmt: skip

V = np.array([1.0, 0.5])

#: The models of two parameters, with three samples. Others have too many for a calculation by hand.
EXAMPLES: Mapping[str, tuple[Model, Batch]] = {
    "binary-logistic": (worked.MODEL, worked.D),
    "svm": (LinearSVM(2, squared=True, bias=False), Batch(worked.D.X, 2 * worked.D.y - 1)),
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
    one, D = EXAMPLES[model]
    direction = (V,) if method.name == "hvp" else ()
    return worked.traced(method.function, one, worked.W, *direction, D)
