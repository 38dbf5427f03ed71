"""What holds the house up: the reference imports nothing of the lab, no import goes up or in a
circle, and the drawing of the rooms stays small enough to be drawn.

A room is a file or folder directly under fedref/ or fedref/lab/, and reproduce/ and data/ beside it; an
arrow is one room that imports another at least once, at any place, functions included.
"""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import fedref

PACKAGE = Path(fedref.__file__).parent
ROOT = PACKAGE.parent

#: From the ground up: a room imports rooms before it only. First the reference, then the lab.
REFERENCE = [
    "spec", "boundary", "models", "judge", "sampling", "algorithm", "algorithms", "rounds", "draws",
    "strategies", "checks", "conformance", "proofs", "teach",
]  # fmt: skip
FLOORS = [*REFERENCE, "datasets", "plots", "experiments", "flower", "commands", "reproduce"]
#: What of the reference needs more than NumPy: drawn cases, pictures, pages, pytest's options, tensors.
NEEDS_MORE = ("fedref.strategies", "fedref.conformance.drawn", "fedref.draws.shrinking",
              "fedref.boundary.style", "fedref.teach", "fedref.conformance.plugin",
              "fedref.conformance.test_backend", "fedref.conformance.backends.torch")  # fmt: skip
#: The core's finer borders: what each of its lower rooms may import beside itself.
MAY_IMPORT = {
    "spec": set(),
    "boundary": set(),
    "models": {"boundary"},
    "judge": {"spec", "boundary", "models"},
    "algorithm": {"boundary", "models"},
    "algorithms": {"boundary", "models", "algorithm"},
}
MOST_ROOMS, MOST_FLOORS, MOST_ARROWS = 21, 10, 120
SEVEN = ("pyproject.toml", "fedref", "data", "reproduce", "tests", "README.md")


def module_of(path: Path) -> str:
    """fedref/models/base.py → fedref.models.base; a package is its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(source: str, modules: object, own: str = "") -> set[str]:
    """Return the modules of `modules` that a source imports at any place, functions included.

    Where it calls `import_module`, a text in it that names a module counts: in full, below fedref, or below
    `own`, the module that it is of.
    """
    found, follows = set(), "import_module(" in source
    for node in ast.walk(ast.parse(source)):
        if follows and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value, f"fedref.{node.value}", f"{own}.{node.value}"}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules else node.module)
    return {name for name in found if name in modules}


def room_of(module: str) -> str:
    """The room that a module is in; "" for the front door, fedref itself, and `python -m fedref`."""
    name = module.removeprefix("fedref").removeprefix(".lab").lstrip(".").split(".")[0]
    return "" if name == "__main__" else name


def arrows_of(graph: dict[str, set[str]]) -> dict[tuple[str, str], list[str]]:
    """(room, room that it imports) → the modules that do so."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for module, others in graph.items():
        for arrow in {(room_of(module), room_of(other)) for other in others}:
            if all(arrow) and arrow[0] != arrow[1]:
                arrows.setdefault(arrow, []).append(module)
    return arrows


MODULES = {
    module_of(p): p for folder in (PACKAGE, ROOT / "reproduce") for p in folder.rglob("*.py")
}


def read_graph() -> dict[str, set[str]]:
    texts = {name: path.read_text("utf-8") for name, path in MODULES.items()}
    return {name: imported_modules(text, MODULES, name) for name, text in texts.items()}


def test_imports_are_read():
    source = "import fedref.a\ndef f():\n    from fedref.b import c, D\n    from numpy import e\n"
    modules = {"fedref.a", "fedref.b", "fedref.b.c"}
    assert imported_modules(source, modules) == {"fedref.a", "fedref.b.c", "fedref.b"}
    later = "NAMES = 'b', 'c', 'numpy'\nimport_module(f'fedref.b.{name}')\n"
    assert imported_modules(later, modules, "fedref.b") == {"fedref.b", "fedref.b.c"}
    graph = {"fedref.a.x": {"fedref.b", "fedref.a.y"}, "fedref": {"fedref.b"}}
    assert arrows_of(graph) == {("a", "b"): ["fedref.a.x"]}


def test_no_arrow_goes_up_or_in_a_circle_and_there_are_few():
    """So none goes from the reference, which is below, to the lab."""
    graph = read_graph()
    arrows, rooms = arrows_of(graph), {room_of(name) for name in MODULES} - {""}
    assert rooms <= set(FLOORS), "on which floor is it? See FLOORS"
    assert len(rooms | {"data"}) <= MOST_ROOMS, sorted(rooms)
    assert 50 < len(arrows) <= MOST_ARROWS, sorted(arrows)
    wrong = {
        (a, b): modules
        for (a, b), modules in arrows.items()
        if FLOORS.index(a) <= FLOORS.index(b) or b not in MAY_IMPORT.get(a, FLOORS)
    }
    assert wrong == {}
    floors = dict[str, int]()
    for room in sorted(rooms, key=FLOORS.index):
        floors[room] = 1 + max((floors[below] for a, below in arrows if a == room), default=0)
    assert max(floors.values()) <= MOST_FLOORS, floors
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    # a package that gathers its modules' names is no circle: they do not import it
    TopologicalSorter({
        name: {other for other in others if other not in packages or not name.startswith(other)}
        for name, others in graph.items()
    }).prepare()  # fmt: skip


def test_the_reference_opens_the_lab_at_the_front_door_alone():
    """`fedref.run`, `fedref.load_run` and `python -m fedref`, for users; nothing is loaded by its path."""
    lab = {
        name: {other for other in others if other.startswith("fedref.lab")}
        for name, others in read_graph().items()
        if not name.startswith(("fedref.lab", "reproduce"))
    }
    assert {name: others for name, others in lab.items() if others} == {
        "fedref": {"fedref.lab", "fedref.lab.experiments.run", "fedref.lab.experiments.results"},
        "fedref.__main__": {"fedref.lab.commands"},
    }
    texts = {name: path.read_text("utf-8") for name, path in MODULES.items()}
    assert [name for name, text in texts.items() if "spec_from_file_location" in text] == []


def test_the_reference_imports_with_numpy_alone():
    rooms = [m for m in MODULES if room_of(m) in REFERENCE and not m.startswith(NEEDS_MORE)]
    absent = "scipy hypothesis matplotlib tqdm pooch tomli_w threadpoolctl torch pytest"
    code = f"import sys\nsys.modules.update(dict.fromkeys({absent.split()}))\nimport {', '.join(rooms)}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_one_name_is_one_thing():
    """No function hides the module of its name, and of a file's name there are two at most."""
    for name, path in MODULES.items():
        if path.name == "__init__.py" and name.startswith("fedref"):
            package = import_module(name)
            below = [x.rpartition(".")[2] for x in MODULES if x.rpartition(".")[0] == name]
            hidden = [x for x in below if callable(getattr(package, x, None))]
            assert hidden == [], name
    times = Counter(path.name for name, path in MODULES.items() if "adapters" not in name)
    assert {name for name, n in times.items() if n > 2} <= {"__init__.py", "__main__.py"}


def test_the_top_level_is_what_it_should_be():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    pages = {"LICENSE", "CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md"}
    allowed = {*SEVEN, *pages, "findings", "runs", "dist", "build"}
    found = {p.name for p in ROOT.iterdir() if not p.name.startswith((".", "__"))}
    assert {name for name in found if not name.endswith(".egg-info")} <= allowed
