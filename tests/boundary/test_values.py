"""Words of a command line: one rule for whole numbers and for seeds, whoever asks."""

import numpy as np
import pytest

import fedref
from fedref import ConfigError
from fedref.boundary.errors import place_of
from fedref.boundary.values import seeds_of
from fedref.lab.commands import parse


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", [3]), ("3,7", [3, 7]), ("7, 3", [7, 3]), ("0:3", [0, 1, 2]), ("2:2", []),
        ("1e1", [10]), ("0:1e1", list(range(10))), ("98:100", [98, 99]),
    ],
)  # fmt: skip
def test_seeds(text, seeds):
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "x", "0-2", "0..2", "1:2:3", "1.5", ":3", "3:", "1,", "0:x"])
def test_what_is_no_seeds(text):
    with pytest.raises(ConfigError, match=r"--seeds is .*, expected A:B \(A to B−1\) or A,B"):
        seeds_of(text)


def test_too_many_seeds():
    assert len(seeds_of("0:10000")) == 10_000
    for text in ("0:10001", "0:1e18", ",".join("0" * 10_001)):
        with pytest.raises(ConfigError, match="expected at most 10000 seeds"):
            seeds_of(text)


@pytest.mark.parametrize("words", ["check", "data show digits"])
def test_every_whole_number_may_be_1e3(words):
    for text in ("1000", "1e3", "1_000", "1000.0"):
        assert parse([*words.split(), "--seed", text]).keywords["seed"] == 1000


class Odd:
    """An object that answers nothing."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __getattr__(self, name):
        raise RuntimeError(name)


@pytest.mark.parametrize("key", ["what", "data", "model", "split", "rounds", "lr", "name"])
def test_an_object_that_answers_nothing_is_refused_in_one_line(key):
    with pytest.raises(ConfigError, match=r" is an? Odd, expected "):
        fedref.run(**{"what": "fedavg", key: Odd()})


def test_an_array_is_no_algorithm():
    with pytest.raises(
        ConfigError, match=r"algorithm is array\(\[0., 0.\]\), expected a table, or"
    ):
        fedref.run(algorithm=np.zeros(2))


def test_an_error_whose_text_cannot_be_made_has_its_type():
    class Wordless(Exception):
        def __str__(self):
            raise RuntimeError

    assert place_of(Wordless()) == "Wordless: a Wordless"
