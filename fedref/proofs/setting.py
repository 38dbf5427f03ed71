"""The setting of a proof: a small model, a random point, and batches; and how results are compared."""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedref import checks, spec
from fedref.checks import BOUND, Report, complex_step_gradient, relative_error
from fedref.draws.sources import NumPySource, draw_batch, draw_start
from fedref.judge.adapter import batch, risk_of
from fedref.models import LinearSVM
from fedref.models.batch import Batch
from fedref.models.numerics import Array


class Setting:
    """A small model with a point w, directions vs, and batches D, D1, D2. Random points meet no kink.

    f : the same model in the specification. rows : D for it. D has weights and padding, and shows what
    `is_telling` asks for. w0, h, F, a : the server's parameters, a client's vector, importances, and a
    number for each output unit.
    """

    def __init__(self, model: Any, rng: np.random.Generator) -> None:
        self.model, self.rng, self.f = model, rng, risk_of(model)
        self.source = NumPySource(rng)
        self.w, self.vs = self.draw_vector(), 0.1 * self.draw_vectors(3)
        self.w0, self.h = self.draw_vectors(2)
        self.F = self.draw_vector() ** 2
        self.a = rng.normal(size=spec.unit_of_parameter(model.shapes).max() + 1)
        self.s = np.array([1.0, 0.5, 0.0, 2.0])

    @cached_property
    def D(self) -> Batch:
        for _ in range(10_000):
            D = self.draw_batch(4)._replace(s=self.s)
            if self.is_telling(D):
                return D
        raise RuntimeError(f"no batch of {self.model} shows all that it must")  # pragma: no cover

    def is_telling(self, D: Batch) -> bool:
        """Return whether rows that count have padding at both ends and inside; samples active and not."""
        X, y = D.X[self.s > 0], D.y[self.s > 0]
        if self.model.inputs == "codes" and self.model.length > 2:
            pad = self.model.vocabulary == X
            first, last, whole = pad[:, 0], pad[:, -1], pad.all(1)
            inside = pad[:, 1:-1].any(1) & ~first & ~last
            return bool(first.any() and last.any() and inside.any() and not whole.any())
        if isinstance(self.model, LinearSVM) and self.model.features > 3:
            active = y * self.f.scores(self.w, X) < 1
            return bool(active.any() and not active.all())
        return True

    @cached_property
    def D1(self) -> Batch:
        return self.draw_batch(3)

    @cached_property
    def D2(self) -> Batch:
        return self.draw_batch(5)

    @property
    def rows(self) -> spec.Batch:
        return batch(self.D._asdict())

    @property
    def batches(self) -> list[tuple[Batch, spec.Batch]]:
        """Batches with weights, with weights whose sum is below 1, and without, for both sides."""
        light = self.D._replace(s=self.s / 8)
        given = [D._asdict() for D in (self.D, light, self.D1)]
        given[-1].pop("s")
        return list(zip((self.D, light, self.D1), map(batch, given)))

    @cached_property
    def real_rows(self) -> tuple[spec.Batch, spec.Batch, spec.Batch]:
        """D, D1, D2 without weights and padding: a row of weight s, a multiple of ½, 2s times."""
        times = (2 * self.s).astype(int)
        D = spec.Batch(np.repeat(self.D.X, times, 0), np.repeat(self.D.y, times))
        return D, spec.Batch(*self.D1[:2]), spec.Batch(*self.D2[:2])

    def draw_vector(self) -> Array:
        return draw_start(self.source, self.model)

    def draw_vectors(self, n: int) -> Array:
        return np.stack([self.draw_vector() for _ in range(n)])

    def draw_batch(self, n: int) -> Batch:
        return Batch(**draw_batch(self.source, self.model, n))

    def slope_of(self, f: Callable[[Array], Any], g: Any) -> Report:
        """Report whether g is ∇f at w, by complex steps of f."""
        slope = partial(complex_step_gradient, f)
        return Report(checks.error_with_cancellation(g, slope, self.w, BOUND, None))


def equal(got: Any, expected: Any, bound: float = BOUND) -> Report:
    """Report the relative error; True counts as 1."""
    return Report(relative_error(got, expected), bound=bound)
