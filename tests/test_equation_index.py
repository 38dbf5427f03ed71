"""Any equation in ten seconds: its tag is in the file and in the index that `fedref explain` prints.

(It is in the name of a test, too: tests/proofs asks that each has a proof.)

And what else the house asks of an algorithm's file: its docstring; every doctest runs.
"""

import doctest
import importlib
import inspect
import linecache
import pkgutil
import re
from pathlib import Path

import pytest

import fedref
from fedref.algorithms import ALGORITHMS
from fedref.boundary import docstrings
from fedref.models import MODELS
from fedref.teach import source

ROOT = Path(__file__).parent.parent
PACKAGE = Path(fedref.__file__).parent
#: One file a paper: those in which the algorithms are, and what they share beside them.
FILES = {
    name.split(".")[-1]: Path(inspect.getfile(importlib.import_module(name)))
    for name in sorted({cls.__module__ for cls in ALGORITHMS.values()})
}
SHARED = sorted({*(PACKAGE / "algorithms").glob("*.py")} - {*FILES.values()})
PAPERS = sorted({stem.replace("_", "-") for stem in FILES} - {"fedavg"})


def tags(stem: str, text: str) -> list[str]:
    """Every tag of a file in full, also one that two lines share; [eq.2] alone is of its own paper."""
    found = source.tags_in(" ".join(text.split()), stem.replace("_", "-"))
    return sorted({tag for tag in found if tag.split()[0] != "Adam"})


TAGS = sorted(
    {tag for path in [*FILES.values(), *SHARED] for tag in tags(path.stem, path.read_text("utf-8"))}
)


def test_tags_are_found():
    """The index would be empty, and every test below pass, if nothing was found."""
    text = "[per-fedavg eq.6], [apfl eq.1–2] and [apfl\n§3.3, alg.1 lines 9–16]; [eq.4: the mean]"
    assert tags("fedprox", text) == [
        "apfl alg.1 lines 9–16", "apfl eq.1", "apfl eq.2", "apfl §3.3",
        "fedprox eq.4", "per-fedavg eq.6",
    ]  # fmt: skip
    assert {tag.split()[0] for tag in TAGS} == set(PAPERS)
    assert len(TAGS) > 30


def test_every_equation_is_in_the_index():
    """`fedref explain --list` prints these."""
    assert set(TAGS) - source.tag_lines().keys() == set()


def test_a_function_s_docstring_names_its_equations():
    """So that `help` gives the source; a method without a docstring has that of its base class."""
    for e in source.equations():
        assert not e.function.__doc__ or f"[{e.tag}]" in e.function.__doc__, e.place


# -- each algorithm's file


@pytest.mark.parametrize("stem", FILES)
def test_docstring_of_an_algorithm_has_all_its_parts(stem):
    module = importlib.import_module(f"fedref.algorithms.{stem}")
    text, before = module.__doc__, source.introduction(module)
    assert re.search(r"\b(19|20)\d\d\b|§4\.1", text.split("Objective")[0]), "no citation"
    assert re.search("^Objective", before, re.MULTILINE), "no objective before the table"
    assert tags(stem, text), "no equation"
    assert len(docstrings.symbols(module)) >= 3, "the table is empty"
    assert len(source.decisions(module).splitlines()) >= 2, "no decisions"
    assert tags(stem, inspect.getsource(module).replace(text, "", 1)), "no equation beside a line"


# -- doctests

MODULES = [info.name for info in pkgutil.walk_packages(fedref.__path__, "fedref.")]
#: What needs a package that fedref itself does without.
OPTIONAL = ("fedref.conformance.backends.", "fedref.lab.flower.apps")
#: What a reader of the equations looks into: there is an example in each.
MATHEMATICS = {cls.__module__ for cls in (*ALGORITHMS.values(), *MODELS.values())}


@pytest.mark.parametrize("name", ["fedref", *(name for name in MODULES if "__main__" not in name)])
def test_doctests(name, monkeypatch):
    monkeypatch.setattr(linecache, "checkcache", lambda *_: None)  # each asks for every file's date
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(OPTIONAL) or error.name.startswith("fedref"):
            raise
        pytest.skip(f"needs {error.name}: pip install 'fedref[peers,flower]'")
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0 or name not in MATHEMATICS) == (0, True)
