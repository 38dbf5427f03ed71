"""Any equation in ten seconds: its tag is in the file and in the index that `fedref explain` prints.

(It is in the name of a test, too: tests/proofs asks that each has a proof.)

And what else the house asks of an algorithm's file: its docstring, its length; every doctest runs.
"""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import fedref
from fedref.algorithms import ALGORITHMS
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


def split_tag(paper: str, text: str) -> list[str]:
    """One tag's equations: "eq.1–2" are two, so are "§3.3, alg.1 lines 9–16"."""
    found = []
    for part in re.split(r",\s*", " ".join(text.split(":")[0].split())):
        equations = re.fullmatch(r"eq\.(\d+)–(\d+)", part)
        if equations:
            first, last = map(int, equations.groups())
            found += [f"{paper} eq.{n}" for n in range(first, last + 1)]
        else:
            found.append(f"{paper} {part}")
    return found


def tags(stem: str, text: str) -> list[str]:
    """Every tag of a file in full; [eq.2] alone is of the file's own paper."""
    own = stem.replace("_", "-")
    found = []
    for paper, rest in re.findall(rf"\[({'|'.join(PAPERS)})\s([^\]]+)\]", text):
        found += split_tag(paper, rest)
    for rest in re.findall(r"\[((?:eq|alg)\.[^\]]+)\]", text):
        found += split_tag(own, rest)
    return sorted(set(found))


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


# -- each algorithm's file


@pytest.mark.parametrize("stem", FILES)
def test_docstring_of_an_algorithm_has_all_its_parts(stem):
    text = ast.get_docstring(ast.parse(FILES[stem].read_text("utf-8")))
    assert text is not None
    title, _, rest = text.partition("\n\n")
    assert "\n" not in title or len(title.splitlines()) <= 2
    citation = rest.split("Objective")[0]
    assert re.search(r"\b(19|20)\d\d\b|§4\.1", title + citation), "no citation"
    for part in (r"^Objective", r"^Decisions$", r"^ {4}symbol +name +shape$", r"^>>> "):
        assert re.search(part, text, re.MULTILINE), f"{part} is missing"
    assert tags(stem, text), "no equation"
    table = re.search(r"^ {4}symbol +name +shape\n((?: {4}.+\n)+)", text, re.MULTILINE)
    assert table is not None
    assert len(table.group(1).splitlines()) >= 3, "the table is empty"
    decisions = text.split("\nDecisions\n")[1].split("\n\n")[0]
    assert len(re.findall(r"^ {2}\S", decisions, re.MULTILINE)) >= 2, "no decisions"
    whole = FILES[stem].read_text("utf-8")
    module = ast.get_docstring(ast.parse(whole), clean=False) or ""
    assert tags(stem, whole.replace(module, "", 1)), "no equation beside a line"


def statement_lines(source: str) -> int:
    """Return the lines of a source without imports, docstrings and comments, a statement a line."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [
                x for x in node.body
                if not isinstance(x, ast.Import | ast.ImportFrom)
                and not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))
            ] or [ast.Pass()]  # fmt: skip
    return len([*filter(None, ast.unparse(tree).split("\n"))])


#: Longer where a file holds a part of its own: plateau and units, server's Adam.
LIMITS = {"apfl": 130, "fedmeta": 105}


@pytest.mark.parametrize("stem", FILES)
def test_an_algorithm_is_short_and_imports_little(stem):
    """No copy of the round loop; nothing of data, sampling, evaluation."""
    source = FILES[stem].read_text("utf-8")
    assert statement_lines(source) <= LIMITS.get(stem, 80)
    barred = r"fedref\.(datasets|sampling|experiments|commands)|evaluation"
    assert not re.search(rf"^\s*from \S*({barred})", source, re.MULTILINE)
    assert not re.search(r"\b(run_(round|client|stacked|group)|make_plan)\(", source)


# -- doctests

MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(fedref.__path__, "fedref.")
    if not info.name.endswith("__main__")
)

#: What needs a package that fedref itself does without.
OPTIONAL = ("fedref.conformance.backends.", "fedref.flower.apps")


@pytest.mark.parametrize("name", ["fedref", *MODULES])
def test_doctests(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(OPTIONAL) or error.name.startswith("fedref"):
            raise
        pytest.skip(f"needs {error.name}: pip install 'fedref[peers,flower]'")
    failed, _ = doctest.testmod(module)
    assert failed == 0


def test_there_are_doctests_in_every_algorithm_and_model():
    finder = doctest.DocTestFinder()
    modules = {cls.__module__ for cls in (*ALGORITHMS.values(), *MODELS.values())}
    assert {name.split(".")[1] for name in modules} == {"algorithms", "models"}
    for name in modules:
        tests = finder.find(importlib.import_module(name))
        assert any(test.examples for test in tests), name
