"""What follows from the schema: each value of an algorithm, a model, a plan or a split is held to its type,
its bounds and its words. What the schema cannot know is in the tests of each room.
"""

from collections.abc import Iterator
from functools import partial
from math import inf, nan, nextafter

import numpy as np
import pytest

from fedref import ConfigError
from fedref.algorithms import ALGORITHMS
from fedref.boundary.values import Entry, build, schema
from fedref.lab.datasets import RULES, split
from fedref.lab.datasets.synthetic import Synthetic
from fedref.models import CNN, LSTM, MLP
from fedref.rounds.federation import Source
from fedref.sampling import Sampling

SOURCE = Source(np.arange(8.0)[:, None], np.arange(8) % 2, np.arange(8) // 4)
#: Name → its schema, and what makes it of a table of values.
MAKERS = {
    **{name: (cls, cls) for name, cls in ALGORITHMS.items()},
    "mlp": (MLP, partial(MLP, features=3)),
    "cnn": (CNN, CNN),
    "lstm": (LSTM, partial(LSTM, vocabulary=5, classes=3, length=6)),
    "plan": (Sampling, lambda **table: Sampling(**{"epochs": 1} | table)),
    "synthetic": (Synthetic, lambda **table: build(Synthetic, table, "synthetic")),
    **{f"split {name}": (rule, partial(split, name, SOURCE)) for name, rule in RULES.items()},
}
#: Another rule's name is looked up; of epochs and steps one alone may be given.
LEFT_OUT = ("of", "steps")
ROWS = [
    (name, entry)
    for name, (of, _) in MAKERS.items()
    for entry in schema(of).values()
    if entry.name not in LEFT_OUT
]


def ends_of(entry: Entry) -> Iterator[tuple[object, object]]:
    """The last value inside each end of its range, and the first outside."""
    low, high, is_open = entry.bounds
    for end, sign, excluded in ((low, -1, is_open == "both"), (high, 1, is_open != "")):
        if entry.kind in (int, float) and abs(end) < inf:
            inwards, outwards = end - sign, end + sign
            if entry.kind is float:
                inwards, outwards = (nextafter(end, s * inf) for s in (-sign, sign))
            yield (inwards, end) if excluded else (end, outwards)


def wrong_values(entry: Entry) -> Iterator[object]:
    """Values just outside its range, a word that is none of its own, other types."""
    yield from [f"{word}x" for word in entry.words[:1]]
    yield from {int: ("a", True, nan, 2.5), float: ("a", True, nan, inf)}.get(entry.kind, (1,))
    yield from (outside for _, outside in ends_of(entry))


@pytest.mark.parametrize(("name", "entry"), ROWS, ids=lambda x: getattr(x, "name", x))
def test_a_value_is_held_to_its_type_bounds_and_words(name, entry):
    make = MAKERS[name][1]
    if name in ALGORITHMS or name == "plan":  # the others ask for more than the schema
        for value in (*entry.words, *(inside for inside, _ in ends_of(entry))):
            assert getattr(make(**{entry.name: value}), entry.name) == value
    key = entry.name.replace("_", "-")
    for value in wrong_values(entry):
        with pytest.raises(ConfigError, match=rf"({key} is .*, expected |unknown {key} '.*x'.*: )"):
            make(**{entry.name: [value] if entry.many else value})
    if entry.many:
        with pytest.raises(ConfigError, match=f"{key} is 80, expected a list"):
            make(**{entry.name: 80})
