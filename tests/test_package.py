"""What a published package promises: public names, a quick import, one version, links that lead somewhere.

`python tests/test_package.py` writes tests/public.txt anew: at each release, and before the first one.
"""

import ast
import inspect
import json
import pydoc
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from doctest import DocTestParser
from pathlib import Path
from pkgutil import resolve_name

import pytest
from pages import PYTHON, README, SHELL
from running import soon

import fedref
from fedref import checks
from fedref.algorithms import ALGORITHMS
from fedref.teach import source
from fedref.teach.reference import signature

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = ROOT / "tests" / "public.txt"


#: The classes whose methods are public too. An algorithm has those of Algorithm, a model those of Model.
WITH_METHODS = {"Algorithm", "Batch", "Cohort", "Model", "Run"}
#: Rooms that a user of the package needs no name of.
INTERNAL = {"judge", "lab", "proofs", "tree"}
CLASSES = {f"{cls.__module__}.{cls.__qualname__}" for cls in ALGORITHMS.values()}
#: The names in tests/public.txt, which begins with the algorithms.
LISTED = {*re.findall(r"^(fedref[\w.]*)", PUBLIC.read_text("utf-8"), re.MULTILINE)}


def public_names() -> dict[str, object]:
    """Return public name → what it names: those listed, and the functions of equations."""
    named = {f"{e.function.__module__}.{e.function.__qualname__}" for e in source.equations()}
    things = {}
    for name in (LISTED - CLASSES) | named:
        with suppress(AttributeError):
            things[name] = None if ".torch." in name else resolve_name(name)  # torch may be absent
    return things


def imported_names(code: str) -> Iterator[str]:
    """Yield the names of fedref that a snippet imports, and the attributes of modules that it takes."""
    nodes, full = list(ast.walk(ast.parse(code))), {"fedref": "fedref"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "fedref":
            full |= {x.asname or x.name: f"{node.module}.{x.name}" for x in node.names}
    yield from full.values()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            path = ROOT / full.get(node.value.id, "none").replace(".", "/")
            if path.is_dir() or path.with_suffix(".py").exists():
                yield f"{full[node.value.id]}.{node.attr}"


def snippets() -> Iterator[str]:
    """Yield the code that READMEs, the notebook and the checks' documentation show."""
    yield from PYTHON
    yield from re.findall(r"^cat > \w+\.py <<'END'\n(.*?)^END$", "\n".join(SHELL), re.S | re.M)
    for cell in json.loads((ROOT / "fedref/teach/tour.ipynb").read_text("utf-8"))["cells"]:
        yield "".join(cell["source"]) * (cell["cell_type"] == "code")
    yield "".join(example.source for example in DocTestParser().get_examples(checks.__doc__))


def test_what_pages_and_notebook_import_is_public():
    modules = {name.rpartition(".")[0] for name in LISTED | CLASSES}
    imported = {name for code in snippets() for name in imported_names(code)}
    assert len(imported) > 30
    assert imported - LISTED - CLASSES - modules == set()


def signatures() -> Iterator[str]:
    """Yield a line for each algorithm, each public name, and each public method of a class."""
    for name, kind in ALGORITHMS.items():
        yield f"{name}{signature(kind)}: {' '.join(kind().roles)}"
    for name, thing in sorted(public_names().items()):
        yield f"{name}{signature(thing)}"
        if name.rpartition(".")[2] in WITH_METHODS:
            for method, function in sorted(vars(thing).items()):
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}{signature(function)}"


def test_public_names_keep_their_parameters():
    """What a release has is public until it was deprecated; new names need no line before the next one."""
    gone = {*PUBLIC.read_text("utf-8").splitlines()} - {*signatures()}
    assert gone == set(), "public names have gone or changed: see fedref/README.md, What is public"


#: Pronouns, prepositions, participles: no names. (`what` and `out` are words of `fedref run`, too.)
NO_NAME = re.compile(
    "about|above|after|against|all|any|at|before|below|by|done|drawn|each|every|for|found|from|given|got|here|how|"
    "in|into|its?|kept|known|last|left|made|mine|of|off|on|ones?|others?|own|same|seen|shown|some|such|taken|that|"
    "their|them|then|there|these|this|those|to|under|until|up|when|where|which|who|why|with|within|without|"
    r"yours|[a-z]+ed|[a-z]+ing"
)
#: What ends like a participle and is none.
NOUNS = (
    "centralised",
    "embedding",
    "mixing",
    "padding",
    "sampling",
    "seed",
    "squared",
    "weighting",
)


def test_public_names_are_no_participles_prepositions_or_pronouns():
    words = {
        word
        for line in signatures()
        for word in re.findall(
            r"[\w.]+(?=\(|:|$)|(?<=[(, *])\w+(?=[=,)])", line.partition("):")[0] + ")"
        )
    }
    names = {word.rpartition(".")[2] for word in words}
    assert {"run", "D", "weighting", "measure"} <= names
    assert {x for x in names if NO_NAME.fullmatch(x.lower())} <= {*NOUNS, "Sampling"}


def test_help_lists_modules_and_settings():
    overview, of_run = pydoc.render_doc(fedref), pydoc.render_doc(fedref.run)
    for name in ("run", "Batch", *(m for m in fedref.MODULES if m not in INTERNAL)):
        assert re.search(rf"^ {{8}}.*\b{name}\b", overview, re.MULTILINE), name
        assert getattr(fedref, name)
    assert all(f"      {name} : " in of_run for name in ("rounds", "batch_size", "mu", "tau"))
    assert " at 0x" not in of_run


@pytest.mark.parametrize(
    ("code", "share"),
    [("import fedref", 0.7), ("from fedref.lab.commands import main; main(['--help'])", 1.3)],
)
def test_importing_takes_little_cpu(code, share):
    """Beside NumPy's import, the interpreter's own start included: 0.36 and 0.84 of it, both undisturbed."""

    def seconds(code):
        script = f"import atexit, time; atexit.register(lambda: print(time.process_time()));{code}"
        run = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
        )
        assert run.stderr == ""
        return float(run.stdout.split()[-1])

    assert soon(lambda: seconds(code) < share * seconds("import numpy"))


def test_one_version():
    assert f"\nversion: {fedref.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## {fedref.__version__} " in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_what_was_tried_is_one_list_for_ci_and_readme():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    stated = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8")
    ci, tried = ((ROOT / ".ci" / name).read_text("utf-8") for name in ("run", "tried.md"))
    assert tried in README
    assert f"| the wheel | {', '.join(stated)} |" in tried
    assert "the wheel | " in ci  # which reads the Pythons there
    assert ".ci/tried.md" in ci
    assert re.search(rf"\| {re.escape(stated[-1])} \| the newest: ", tried)
    (flower,) = project["optional-dependencies"]["flower"]
    assert f"flwr {flower.removeprefix('flwr==').removesuffix('*')}" in tried
    for pinned in re.findall(r"pip\" install -q torch==(\S+)", ci):
        assert f"with torch {pinned}; " in tried
    assert f"try-wheel dist/*.whl {' '.join(stated)}\n" in workflow
    assert set(re.findall(r"runs-on: (\S+)", workflow)) == {"ubuntu-latest"}


def test_links_of_the_index_page_are_addresses(tmp_path):
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "absolute-links"
    script.write_bytes((ROOT / ".ci" / "absolute-links").read_bytes())
    page = tmp_path / "README.md"
    page.write_text(README, encoding="utf-8")
    subprocess.run(["bash", script, "https://host/us/fedref", "v1"], check=True)
    before, after = (re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", t) for t in (README, page.read_text()))
    assert len(before) == len(after) > 10
    for (picture, was), (_, link) in zip(before, after):
        place = "raw" if picture else "blob"
        assert link == (was if "://" in was else f"https://host/us/fedref/{place}/v1/{was}")


if __name__ == "__main__":
    PUBLIC.write_text("\n".join(dict.fromkeys(signatures())) + "\n", encoding="utf-8")
