"""The case of a proof: a small model, a random point, and batches; and how results are compared."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedref import spec
from fedref.checks import (
    BOUND,
    Report,
    complex_step_gradient,
    complex_step_hvp,
    error_with_cancellation,
    relative_error,
)
from fedref.judge.answer import risk
from fedref.models.batch import Batch
from fedref.models.numerics import Array


class Case:
    """A small model with a point w, directions vs, and batches D, D1, D2. Random points meet no kink.

    f : the same model in the specification, which takes the batches of `real_rows`.
    """

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        self.model, self.rng, self.f = model, rng, risk(model)
        self.w, self.vs = self.draw_vector(), 0.1 * self.draw_vectors(3)
        self.s = np.array([1.0, 0.5, 0.0, 2.0])  # weights of D, and padding

    @cached_property
    def D(self) -> Batch:
        return self.draw_batch(4)._replace(s=self.s)

    @cached_property
    def D1(self) -> Batch:
        return self.draw_batch(3)

    @cached_property
    def D2(self) -> Batch:
        return self.draw_batch(5)

    @cached_property
    def real_rows(self) -> tuple[spec.Batch, spec.Batch, spec.Batch]:
        """D, D1, D2 without weights and padding: a row of weight s, a multiple of ½, 2s times."""
        times = (2 * self.s).astype(int)
        D = spec.Batch(np.repeat(self.D.X, times, 0), np.repeat(self.D.y, times))
        return D, spec.Batch(*self.D1[:2]), spec.Batch(*self.D2[:2])

    def draw_vector(self) -> Array:
        return np.asarray(0.5 * self.rng.normal(size=self.model.d))

    def draw_vectors(self, n: int) -> Array:
        return np.stack([self.draw_vector() for _ in range(n)])

    def draw_batch(self, n: int) -> Batch:
        return Batch(self.draw_features(n), self.rng.choice(self.model.labels, n))

    def draw_features(self, n: int) -> Array:
        """Draw n rows: (n, p)."""
        if self.model.inputs == "codes":  # a code that is the vocabulary's size is padding
            return self.rng.integers(0, self.model.vocabulary + 1, (n, self.model.length))
        return self.rng.normal(size=(n, self.model.features))

    def slope_of(self, f: Callable[[Array], Any], g: Any, at: Array | None = None) -> Report:
        """Report whether g is ∇f, by complex steps of f. at : the point, w if it is not given."""
        at = self.w if at is None else at
        near = 0.1 * np.eye(2, len(at))
        error = error_with_cancellation(
            g, lambda w: complex_step_gradient(f, w), at, near, BOUND, None
        )
        return Report(error)


def equal(got: Any, expected: Any, bound: float = BOUND) -> Report:
    """Report the relative error; True counts as 1."""
    return Report(relative_error(np.add(got, 0), np.add(expected, 0)), bound=bound)


def complex_hvp(model: Any, w: Array, v: Array, D: Batch) -> Array:
    """Return H(w; D)v by a complex step of the model's gradient."""
    return complex_step_hvp(lambda w: model.grad(w, D), w, v)


def replace_block(at: Sequence[Any], block: int, x: Any) -> list[Any]:
    """Return `at` with x in the place `block`: so a function of several arguments becomes one of x."""
    return [*at[:block], x, *at[block + 1 :]]
