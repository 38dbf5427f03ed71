"""What a published package promises: public names, a quick import, one version, links that lead somewhere.

`python tests/test_package.py` writes tests/public.txt anew: at each release, and before the first one.
"""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import fedref
from fedref.algorithms import ALGORITHMS
from fedref.teach import source

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PUBLIC = ROOT / "tests" / "public.txt"
LISTED = (ROOT / "fedref" / "README.md").read_text("utf-8").partition("## What is public\n")[2]


#: The classes whose methods are public too. An algorithm has those of Algorithm, a model those of Model.
WITH_METHODS = {"Algorithm", "Batch", "Cohort", "Model", "Run"}


def public_names() -> dict[str, object]:
    """Return public name → what it names: fedref/README.md's list, and the functions of equations."""
    names = [
        f"{module}.{name}"
        for module, names in re.findall(r"^- `([\w.]+)`: ((?:.|\n  )+)", LISTED, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    ]
    names += [f"{e.function.__module__}.{e.function.__qualname__}" for e in source.equations()]
    return {name: resolve_name(name) for name in names}


def signature(thing: Any) -> str:
    """Return the parameters and their defaults, without types."""
    if inspect.isclass(thing) and (issubclass(thing, Exception) or inspect.isabstract(thing)):
        return ""
    parameters = []
    for p in inspect.signature(thing).parameters.values():
        default = ... if " at 0x" in repr(p.default) else p.default
        parameters.append(p.replace(annotation=p.empty, default=default))
    return str(inspect.Signature(parameters)).replace("Ellipsis", "...")


def signatures() -> Iterator[str]:
    """Yield a line for each public name, each public method of a class, and each algorithm."""
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
    now, gone = set(signatures()), []
    for line in PUBLIC.read_text("utf-8").splitlines():
        if line not in now:
            gone.append(line)
    assert gone == [], "public names have gone or changed: see fedref/README.md, What is public"


@pytest.mark.parametrize(
    ("code", "seconds"),
    [("import fedref", 0.15), ("from fedref.lab.commands import main; main(['--help'])", 0.2)],
)
def test_importing_takes_little_cpu(code, seconds):
    """The least of three, the interpreter's own start included."""
    script = f"import atexit, time; atexit.register(lambda: print(time.process_time()));{code}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    took = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True
        )
        assert done.stderr == ""
        took.append(float(done.stdout.split()[-1]))
    assert min(took) <= seconds


def test_one_version():
    assert f"\nversion: {fedref.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## {fedref.__version__} " in (ROOT / "CHANGELOG.md").read_text("utf-8")


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
