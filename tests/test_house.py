"""What holds the house up: the mathematics imports nothing of the apparatus, and nothing in a circle.

The border: a file of `CORE` may import files of `CORE` only. Within it models look at `numerics` and
`batch`, and an algorithm's file at the models' protocol and `algorithm`.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fedref

PACKAGE = Path(fedref.__file__).parent
ROOT = PACKAGE.parent

#: From the primitives up; a folder stands for all that is in it.
CORE = ["boundary", "tree", "models", "algorithm", "algorithms", "sampling", "rounds", "checks"]
SEVEN = ("pyproject.toml", "fedref", "data", "reproduce", "tests", "README.md")
#: Longer than 400 lines for a reason that the file's docstring gives.
LONGEST = 400


def module_of(path: Path) -> str:
    """fedref/models/base.py → fedref.models.base; a package is its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(source: str, modules: object) -> set[str]:
    """The modules of `modules` that a source imports at any place, functions included."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules else node.module)
    return {name for name in found if name in modules}


def story(module: str) -> str:
    """The top-level file or folder that a module is in."""
    return module.removeprefix("fedref").lstrip(".").split(".")[0]


GRAPH = {name: imported(path.read_text("utf-8"), MODULES) for name, path in MODULES.items()}


def beyond(core: set[str], graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports that cross the border from below: (importer, imported)."""
    return {
        (name, other)
        for name, others in graph.items()
        if story(name) in core
        for other in others
        if story(other) not in core
    }


def test_imports_are_read():
    source = "import fedref.a\ndef f():\n    from fedref.b import c, D\n    from numpy import e\n"
    modules = {"fedref.a", "fedref.b", "fedref.b.c"}
    assert imported(source, modules) == {"fedref.a", "fedref.b.c", "fedref.b"}
    graph = {"fedref.rounds": {"fedref.plots"}, "fedref.plots": {"fedref.rounds"}}
    assert beyond(set(CORE), graph) == {("fedref.rounds", "fedref.plots")}
    assert len(GRAPH) > 50
    assert sum(map(len, GRAPH.values())) > 200


def test_the_mathematics_imports_nothing_of_the_apparatus():
    assert {story(name) for name in MODULES} >= set(CORE), "a name in CORE is no file or folder"
    assert beyond(set(CORE), GRAPH) == set()


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (["boundary", "tree"], []),
        (["models"], []),
        (["algorithm"], ["models"]),
        (["algorithms"], ["models", "algorithm"]),
    ],
    ids=lambda names: " ".join(names),
)
def test_each_story_stands_on_those_beneath_it(below, above):
    """Algorithms know the models' protocol; models know numbers; neither knows how it is run."""
    primitives = ["boundary", "tree"]
    assert beyond({*primitives, *below}, GRAPH) <= {
        (name, other) for name, others in GRAPH.items() for other in others if story(other) in above
    }


def test_no_import_goes_in_a_circle():
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    # a package that gathers its modules' names is no circle: they do not import it
    graph = {
        name: {other for other in others if other not in packages or not name.startswith(other)}
        for name, others in GRAPH.items()
    }
    TopologicalSorter(graph).prepare()


def test_the_top_level_is_what_it_should_be():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    allowed = {*SEVEN, "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "runs", "dist", "build"}
    found = {p.name for p in ROOT.iterdir() if not p.name.startswith((".", "__"))}
    assert {name for name in found if not name.endswith(".egg-info")} <= allowed


@pytest.mark.parametrize(
    "path",
    [p for folder in (PACKAGE, ROOT / "tests") for p in sorted(folder.rglob("*.py"))],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_a_long_file_says_why(path):
    source = path.read_text("utf-8")
    if source.count("\n") > LONGEST:
        assert "Long because" in (ast.get_docstring(ast.parse(source)) or "")
