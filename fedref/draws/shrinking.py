"""Hypothesis as a source of what is drawn: simple numbers, and what fails is made as small as it can be."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any, ClassVar

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.models.numerics import Array

try:
    from hypothesis import HealthCheck, Phase, errors, find, settings
    from hypothesis import strategies as st
except ImportError as error:
    raise ConfigError('drawing cases needs Hypothesis: pip install "fedref[strategies]"') from error

Draw = Any
Strategy = st.SearchStrategy[Any]

#: Numbers of a case, the simplest first.
NUMBERS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 0.25, 1.5)


def arrays(*shape: int, numbers: Sequence[float] = NUMBERS) -> Strategy:
    """Draw an array.

    shape : its shape, a whole number for each axis.
    numbers : what entries are drawn from, the simplest first.
    """
    n = int(np.prod(shape))
    entries = st.lists(st.sampled_from(numbers), min_size=n, max_size=n)
    return entries.map(lambda x: np.reshape(np.array(x, float), shape))


@dataclass(frozen=True)
class HypothesisSource:
    """A source of choices by Hypothesis: simple numbers, and of failures the smallest."""

    draw: Draw
    most_rows: ClassVar[int] = 3

    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def numbers(self, *shape: int, scale: float = 1.0) -> Array:
        x: Array = self.draw(arrays(*shape))
        return x

    def rates(self, d: int) -> Array:
        return self.numbers(d)

    def labels(self, known: Sequence[int], n: int) -> Array:
        return self.codes_of(known, n)

    def codes(self, most: int, *shape: int) -> Array:
        return self.codes_of(range(most + 1), *shape)

    def codes_of(self, known: Sequence[int], *shape: int) -> Array:
        x: Array = self.draw(arrays(*shape, numbers=known))
        return x.astype(np.int64)


def drawn(describe: Callable[..., Any], *given: Any, **options: Any) -> Strategy:
    """Return a strategy for what a function of `sources` draws."""

    @st.composite
    def strategy(draw: Draw) -> Any:
        return describe(HypothesisSource(draw), *given, **options)

    return strategy()


#: Of more draws than these Hypothesis varies what it has instead of drawing anew.
DRAWS_AT_ONCE = 9


class TimeIsUp(BaseException):
    """The time to draw, or to make an example smaller, is over; Hypothesis lets it pass."""


def smallest(
    strategy: Strategy, fails: Callable[[Any], bool], draws: int, seed: int | None = None,
    key: bytes | None = None, seconds: float = 300.0, attempts: float = math.inf,
    form: Callable[[Any], Any] = lambda x: None, forms: float = math.inf,
) -> Any:  # fmt: skip
    """Return the smallest example that fails, if one of `draws` does, else None.

    strategy : what examples are drawn from.
    fails : a function of an example: whether it fails.
    draws : how many examples are drawn, at most.
    seed : of the draws (None: the same examples each time).
    key : keeps a failure in Hypothesis' database (None: it is not kept).
    seconds : for how long a failure is made smaller, > 0.
    attempts : by how many examples it is made smaller, at most.
    form : a function of an example: what a compiled function is compiled for, which can be hashed.
    forms : how many new forms are tried while a failure is made smaller; then known ones alone are.
    """
    how: dict[str, Any] = {"database": None} if key is None else {}
    how |= {"deadline": None, "suppress_health_check": list(HealthCheck)}
    how["phases"] = (Phase.reuse, Phase.generate, Phase.shrink)
    failing, end, tried, seen, new = list[Any](), math.inf, 0, set[Any](), 0

    def fails_in_time(x: Any) -> bool:
        nonlocal end, tried, new
        if monotonic() > end or tried > attempts:
            raise TimeIsUp
        tried, new = tried + bool(failing), new + (bool(failing) and form(x) not in seen)
        if form(x) not in seen and new > forms:
            return False
        seen.add(form(x))
        if not fails(x):
            return False
        failing.append(x)
        end = min(end, monotonic() + seconds)
        return True

    for start in range(0, draws, DRAWS_AT_ONCE):
        limits = settings(max_examples=min(DRAWS_AT_ONCE, draws - start), **how)
        random = Random(f"{seed or 0} {start}")
        try:
            return find(strategy, fails_in_time, settings=limits, random=random, database_key=key)
        except (errors.NoSuchExample, errors.Unsatisfiable):
            continue
        except (TimeIsUp, errors.Flaky):  # what failed may pass when it is asked again
            return min(failing, key=lambda x: len(repr(x)), default=None)
    return None
