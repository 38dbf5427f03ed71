"""What follows from the schema: each value of an algorithm, a model, a plan, a split or an experiment, and
each option of a command, is held to its type, its bounds and its words. What the schema cannot know is in
the tests of each room.
"""

import inspect
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from math import inf, nan, nextafter

import numpy as np
import pytest
from running import TINY, experiment

from fedref import ConfigError
from fedref.algorithms import ALGORITHMS
from fedref.boundary.values import Entry, build, schema
from fedref.lab.commands import COMMANDS, parse
from fedref.lab.commands.run import How
from fedref.lab.datasets import RULES, split
from fedref.lab.datasets.synthetic import Synthetic
from fedref.lab.experiments.config import Experiment
from fedref.models import CNN, LSTM, MLP
from fedref.rounds.federation import Source
from fedref.sampling import Sampling


def make_plan(**table):
    return Sampling(**(table if table.keys() & {"epochs", "steps"} else {"epochs": 1, **table}))


def make_experiment(**table):
    return experiment(
        {k: v for k, v in TINY.items() if k != "epochs" or "steps" not in table} | table
    )


SOURCE = Source(np.arange(8.0)[:, None], np.arange(8) % 2, np.arange(8) // 4)
#: Name → its schema, and what makes it of a table of values.
MAKERS = {
    **{name: (cls, cls) for name, cls in ALGORITHMS.items()},
    "mlp": (MLP, partial(MLP, features=3)),
    "cnn": (CNN, CNN),
    "lstm": (LSTM, partial(LSTM, vocabulary=5, classes=3, length=6)),
    "plan": (Sampling, make_plan),
    "experiment": (Experiment, make_experiment),
    "synthetic": (Synthetic, lambda **table: build(Synthetic, table, "synthetic")),
    **{f"split {name}": (rule, partial(split, name, SOURCE)) for name, rule in RULES.items()},
}


def around(number: float, kind: type) -> tuple[float, float]:
    """The nearest values below and above."""
    if kind is int:
        return number - 1, number + 1
    return nextafter(number, -inf), nextafter(number, inf)


def right_values(entry: Entry) -> Iterator[object]:
    """The ends of its range, and its words."""
    yield from entry.words
    low, high, open_ends = entry.bounds
    if entry.kind in (int, float):
        ends = [(low, 1, open_ends == "both"), (high, 0, open_ends != "")]
        yield from (
            around(end, entry.kind)[inside] if excluded else end
            for end, inside, excluded in ends
            if abs(end) < inf
        )


def wrong_values(entry: Entry) -> Iterator[object]:
    """Values just outside its range, no words of its own, other types."""
    if entry.words:
        yield f"{entry.words[0]}x"
    low, high, open_ends = entry.bounds
    if entry.kind in (int, float):
        yield from ("a", True, nan, inf, [1])
        yield from [low if open_ends == "both" else around(low, entry.kind)[0]] * (low > -inf)
        yield from [high if open_ends else around(high, entry.kind)[1]] * (high < inf)
    yield from [2.5] * (entry.kind is int) + [1] * (entry.kind in (bool, str))


ROWS = [
    (name, entry)
    for name, (of, _) in MAKERS.items()
    for entry in schema(of).values()
    if entry.name != "of"  # another rule's name: a lookup
]


@pytest.mark.parametrize(("name", "entry"), ROWS, ids=lambda x: getattr(x, "name", x))
def test_a_value_is_held_to_its_type_bounds_and_words(name, entry):
    make = MAKERS[name][1]
    if name in ALGORITHMS or name == "plan":  # the others ask for more than the schema
        for value in right_values(entry):
            assert getattr(make(**{entry.name: value}), entry.name) == value
    key = entry.name.replace("_", "-")
    for value in wrong_values(entry):
        given = [value] if entry.many else value
        with pytest.raises(ConfigError, match=rf"({key} is .*, expected |unknown {key} '.*x'.*: )"):
            make(**{entry.name: given})
    if entry.many:
        with pytest.raises(ConfigError, match=f"{key} is 80, expected a list"):
            make(**{entry.name: 80})


@pytest.mark.parametrize("command", [c for c, text in COMMANDS.items() if ":" in text.split()[0]])
def test_an_option_is_held_to_its_type_bounds_and_words(command):
    module, _, name = COMMANDS[command].split()[0].partition(":")
    known = schema(function := getattr(import_module(module), name))
    optional = {
        name
        for name, p in inspect.signature(function).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }
    for key, entry in [*known.items(), *(schema(How).items() if "how" in known else ())]:
        if key in optional or key not in known:
            option = f"--{key.replace('_', '-')}"
            for value in wrong_values(entry) if entry.kind in (int, float) or entry.words else ():
                with pytest.raises(
                    ConfigError, match=f"{option} is .*, expected |unknown {option} "
                ):
                    parse([*command.split(), f"{option}={value}"])
