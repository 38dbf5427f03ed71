"""f(w; D) of a model of fedref's or of your own, as the specification's boxes take it, at any d."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedref.judge.tape import Node, record
from fedref.models.batch import Batch
from fedref.models.numerics import Array, complex_step


@dataclass(frozen=True)
class Objective:
    """f(w, D) of a model with f.grad(w, D), f.hvp(w, v, D), f.scores(w, X), f.predict(w, X), as in
    `fedref.spec`. N : the clients in all; train_loss(...) : the training loss that an algorithm is told
    after each round.

    `spec.gradient` differentiates it by the model's own grad, hvp and vjp (`tape.gradients`). dtype : that of
    a run, in which f answers; None: w's own.
    """

    model: Any
    N: int = 1
    train_loss: Callable[..., float] | None = None
    dtype: Any = None

    l2 = property(lambda self: getattr(self.model, "l2", 0.0))

    def cast(self, w: Any) -> Array:
        w = np.asarray(w)
        if w.shape != (self.model.d,):
            raise ValueError(f"f is given a w of shape {w.shape}, expected ({self.model.d},)")
        return w.astype(self.dtype, copy=False) if self.dtype and w.dtype.kind == "f" else w

    def __call__(self, w: Any, D: Any) -> Any:
        if isinstance(w, Node):
            return record(lambda w: self(w, D), w, pull=lambda g, y, w: g * self.grad(w, D))
        return self.model.loss(self.cast(w), Batch(*D))

    def grad(self, w: Any, D: Any) -> Any:
        if isinstance(w, Node):
            return record(lambda w: self.grad(w, D), w, pull=lambda g, y, w: self.hvp(w, g, D))
        return self.model.grad(self.cast(w), Batch(*D))

    def hvp(self, w: Any, v: Any, D: Any) -> Any:
        if isinstance(w, Node):
            raise TypeError("a third derivative: f.grad is differentiated once, f.hvp in v alone")
        if isinstance(v, Node):
            return record(lambda v: self.hvp(w, v, D), v, pull=lambda g, y, v: self.hvp(w, g, D))
        return self.model.hvp(self.cast(w), self.cast(v), Batch(*D))

    def scores(self, w: Any, X: Any) -> Any:
        if isinstance(w, Node):
            return record(lambda w: self.scores(w, X), w, pull=lambda g, y, w: self.vjp(X, w, g))
        return self.model.logits(self.cast(w), X)

    def vjp(self, X: Any, w: Any, r: Any) -> Any:
        """Return ∂(Σ r · scores)/∂w; its own derivatives are complex steps."""
        if isinstance(w, Node) or isinstance(r, Node):
            return record(partial(self.vjp, X), w, r, pull=[
                lambda g, y, w, r: step(lambda w: self.model.vjp(w, X, r + 0j), w, g),
                lambda g, y, w, r: step(lambda w: self.model.logits(w, X), w, g),
            ])  # fmt: skip
        return self.model.vjp(self.cast(w), X, r)

    def predict(self, w: Array, X: Array) -> Array:
        return np.asarray(self.model.predict(self.cast(w), X))


def step(f: Callable[[Array], Array], w: Array, v: Array) -> Array:
    h = complex_step(w, v)
    return np.asarray(np.imag(f(w + 1j * h * v)) / h)
