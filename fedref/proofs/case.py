"""The case of a proof: a small model, a point away from all kinks, and batches."""

from functools import cached_property
from typing import Any

import numpy as np

from fedref import spec
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.proofs import oracle


class Case:
    """A small model with a point w, directions vs, and batches D, D1, D2 that keep off the kinks.

    f : the same model in the specification, which takes the batches of `real_rows`.

    From w to w + v/10, the longest step of a Taylor test, no sample crosses a kink: one that would is
    drawn again.
    """

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        self.model, self.rng = model, rng
        self.f = oracle.risk(model)
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
        """D, D1, D2 without weights and padding."""
        D, D1, D2 = (oracle.real_rows(D) for D in (self.D, self.D1, self.D2))
        return D, D1, D2

    def draw_vector(self) -> Array:
        return np.asarray(0.5 * self.rng.normal(size=self.model.d))

    def draw_vectors(self, n: int) -> Array:
        return np.stack([self.draw_vector() for _ in range(n)])

    def draw_batch(self, n: int) -> Batch:
        return Batch(
            *(np.concatenate(part) for part in zip(*(self.draw_sample() for _ in range(n))))
        )

    def draw_features(self) -> Array:
        """Draw one row: (1, p)."""
        if self.model.inputs == "codes":  # a code that is the vocabulary's size is padding
            return self.rng.integers(0, self.model.vocabulary + 1, (1, self.model.length))
        return self.rng.normal(size=(1, self.model.features))

    def draw_sample(self) -> tuple[Array, Array]:
        """Draw a row and its label that keep off the kinks."""
        for _ in range(1000):
            x = self.draw_features()
            D = Batch(x, self.rng.choice(self.model.labels, 1))
            here = oracle.sides(self.model, self.w, D)
            there = (oracle.sides(self.model, self.w + 0.1 * v, D) for v in self.vs)
            if not here or all(sides == here for sides in there):
                return D.X, D.y
        raise RuntimeError(f"no sample keeps off the kinks of {self.model}")  # pragma: no cover
