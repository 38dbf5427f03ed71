"""The reference: every public name is in it, with all that its reader asks for."""

import inspect
import pydoc
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from fedref import spec
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.teach import reference, topics

LISTED = {
    re.split(r"[(\n]", line)[0]
    for line in (Path(__file__).parents[1] / "public.txt").read_text("utf-8").splitlines(True)
    if line.startswith("fedref.")
}


def test_it_has_every_public_name():
    assert LISTED - {*reference.public()} <= {"fedref.conformance.backends.torch.loss"}  # torch


@pytest.mark.parametrize("name", reference.public())
def test_a_name_says_what_it_does_and_what_each_parameter_is(name):
    thing = resolve_name(name)
    assert len(inspect.getdoc(thing) or "") > 8
    meanings = reference.parameters(thing)
    assert all(len(text) > 4 for text in meanings.values()), meanings
    assert topics.explain(name) == reference.entry(name)


@pytest.mark.parametrize("name", reference.public())
def test_help_says_the_same_of_each_parameter_on_a_line_of_its_own(name):
    """The specification is to be read in a sitting: there a line has several, and its head has most."""
    thing = resolve_name(name)
    doc, of_spec = inspect.getdoc(thing) or "", inspect.getmodule(thing) is spec
    shown = re.sub(r"^ \|", "", pydoc.plain(pydoc.render_doc(thing)), flags=re.M)
    shown = " ".join((shown + of_spec * str(spec.__doc__)).split())
    for parameter, text in reference.parameters(thing).items():
        assert re.search(rf"^{parameter} : ", doc, re.M) or of_spec, parameter
        own = parameter in reference.divide(thing)[1]
        assert (text if own else text.partition(", ")[2]) in shown, (parameter, text)


def test_help_of_an_algorithm_has_its_hyperparameters():
    for cls in ALGORITHMS.values():
        for name in inspect.signature(cls).parameters:
            assert f"\n    {name} : " in cls.__doc__, (cls, name)


def test_the_last_part_of_a_name_is_enough():
    name = "fedref.checks.check_gradient"
    assert topics.explain("Check_Gradient") == reference.entry(name)
    assert "| `atol` | an absolute error that passes" in reference.entry(name)
    assert "tests/test_checks.py" in reference.entry(name)
    assert "fedref.sampling.Plan(" in topics.explain("Plan")
    assert "Run.plan(" in topics.explain("plan")
    with pytest.raises(ConfigError, match="is the end of several names, expected one of"):
        topics.explain("objective")


def test_words_on_a_parameter_end_with_their_sentence():
    def f(a, b):
        """Add.

        a, b : numbers,
        of any size.
        The sum is exact. b : more.

        >>> 1 + 1
        2
        """

    words, explained = reference.divide(f)
    assert explained == {"a": "numbers, of any size", "b": "more"}
    assert words.split() == ["Add.", "The", "sum", "is", "exact.", ">>>", "1", "+", "1", "2"]
