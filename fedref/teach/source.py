"""Tags, equations, symbols, decisions, and the specification's parts, as the source has them.

A formula stands once, in the comment behind its tag, on the line that computes it or above it:

    return u - alpha * model.hvp(w, u, D2)  # [per-fedavg eq.6] ∇F = u − αH(w; D″)u

Symbols are those of the table in the file's docstring. This module holds no formula of its own.
"""

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import fedref
from fedref import algorithm, spec
from fedref.algorithms import ALGORITHMS
from fedref.judge.lines import TRACED

#: A tag of any paper, or of the file's own without its name.
PAPERS = "|".join(
    cls.__module__.rpartition(".")[2].replace("_", "-") for cls in ALGORITHMS.values()
)
TAG = re.compile(rf"\[((?:{PAPERS}|Adam) (?=[^\]])|(?=(?:eq\.|alg\.|§)))([^\]]+)\]")
ROOT = Path(fedref.__file__).parents[1]
TAGGED = re.compile(r"# \[(?P<tag>[^\]]+)\](?: (?:(?P<left>[^=]+) = )?(?P<formula>\S.*))?$")


#: A function of so many lines is shown whole.
SHORT = 12


def text_of(name: str) -> str:
    """Return a text of fedref/teach/text, such as why.md."""
    return (files("fedref.teach") / "text" / name).read_text("utf-8")


def modules() -> list[ModuleType]:
    """Return the papers' files in the order of the command line, after the file that they share."""
    names = dict.fromkeys(cls.__module__ for cls in ALGORITHMS.values())
    return [algorithm, *(importlib.import_module(name) for name in names)]


# ---- places --------------------------------------------------------------------------------------


def place(module: ModuleType, line: int) -> str:
    """Return a line of a module as FILE:LINE, from the repository's root."""
    return f"{Path(inspect.getfile(module)).relative_to(ROOT).as_posix()}:{line}"


def place_and_code(function: Any) -> tuple[str, str]:
    """Return the place of a function or class, and its code from the left margin."""
    module: Any = inspect.getmodule(function)
    lines, line = inspect.getsourcelines(function)
    return place(module, line), inspect.cleandoc(" \n" + "".join(lines))


def page_name(thing: Any) -> str:
    """Return the name of the page of a paper's file, or of an algorithm's."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    return str(name).rpartition(".")[2]


def algorithms_of(page: str) -> list[str]:
    """Return the command line's names of a file's algorithms."""
    return [name for name, cls in ALGORITHMS.items() if page_name(cls) == page]


def first_paragraph(thing: Any) -> str:
    """Return what a docstring says first, on one line."""
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


def functions_in(home: Any) -> Iterator[Any]:
    """Yield the functions that a module or class defines, and those of its classes, in order."""
    name = getattr(home, "__module__", home.__name__)
    for value in vars(home).values():
        value = inspect.unwrap(value) if callable(value) else value
        if getattr(value, "__module__", "") != name:
            continue
        if inspect.isclass(value):
            yield from functions_in(value)
        elif inspect.isfunction(value) and value.__code__.co_filename[0] != "<":
            yield value  # a dataclass's is <string>


# ---- tags and equations --------------------------------------------------------------------------


class TagLine(NamedTuple):
    """A line that names a tag, beside code or in a docstring."""

    module: ModuleType
    number: int
    text: str


@cache
def tag_lines() -> dict[str, list[TagLine]]:
    """Return the lines that name each tag, by paper: the specification's, then those of papers' files."""
    lines: dict[str, list[TagLine]] = {}
    for module in (spec, *modules()):
        for number, text in enumerate(inspect.getsource(module).splitlines(), 1):
            for tag in tags_in(text, module.__name__.rpartition(".")[2].replace("_", "-")):
                lines.setdefault(tag, []).append(TagLine(module, number, text.strip()))
    papers = list(dict.fromkeys(tag.split()[0] for tag in lines))
    return {tag: lines[tag] for tag in sorted(lines, key=lambda tag: papers.index(tag.split()[0]))}


def tags_in(text: str, paper: str) -> list[str]:
    """Return the tags that a line names, in full: [eq.1–2] in apfl.py is apfl eq.1 and apfl eq.2."""
    tags = []
    for named, listed in re.findall(TAG, text):
        for part in re.split(r", *", listed.partition(":")[0]):
            numbers = re.fullmatch(r"eq\.(\d+)–(\d+)", part)
            first, last = map(int, numbers.groups()) if numbers else (0, 0)
            parts = [f"eq.{n}" for n in range(first, last + 1)] if numbers else [part]
            tags += [f"{named.strip() or paper} {one}" for one in parts]
    return tags


class Equation(NamedTuple):
    """A tagged line: what it says, left = formula or a formula alone ("" if none), and where."""

    tag: str
    left: str
    formula: str
    function: Any
    line: int  # of the tag

    @property
    def text(self) -> str:
        return f"{self.left} = {self.formula}" if self.left else self.formula

    @property
    def place(self) -> str:
        """Where it stands, such as fedref/algorithms/per_fedavg.py:63."""
        return place(sys.modules[self.function.__module__], self.line)


@cache
def equations() -> tuple[Equation, ...]:
    """Return every tagged line of the algorithms, in the order of the files."""
    return tuple(one for module in modules() for one in equations_in(module))


@cache
def equations_in(module: ModuleType) -> tuple[Equation, ...]:
    """Return every tagged line of a file's functions."""
    equations = (
        Equation(match[1], match[2] or "", match[3] or "", function, number)
        for function in functions_in(module)
        for number, text in number_lines(function).items()
        if (match := TAGGED.search(text.rstrip()))
    )
    return tuple(dict.fromkeys(equations))  # a method may have two names


def equations_of(cls: type) -> list[Equation]:
    """Return the equations of a model, of its bases, and of the layers beside it."""
    kinds = [kind for kind in cls.__mro__ if kind.__module__.startswith("fedref.")]
    names, homes = {kind.__qualname__ for kind in kinds}, map(inspect.getmodule, kinds)
    equations = (e for home in dict.fromkeys(homes) for e in equations_in(home))
    return [e for e in equations if {*e.function.__qualname__.split(".")[:-1]} <= names]


@cache
def number_lines(function: Any) -> dict[int, str]:
    """Return the lines of a function by their numbers."""
    lines, first = inspect.getsourcelines(function)
    return dict(enumerate(lines, first))


# ---- docstrings of papers' files -----------------------------------------------------------------


def title(thing: Any) -> str:
    """Return the first line of a file's or class's docstring, as a heading."""
    return (thing.__doc__ or "").split("\n", 1)[0].rstrip(".")


def introduction(module: ModuleType) -> str:
    """Return what stands between the title and the table of symbols: the paper and its objective."""
    before, table, _ = (module.__doc__ or "").partition("\n    symbol ")
    return before.partition("\n\n")[2].strip() if table else ""


def decisions(module: ModuleType) -> str:
    """Return the docstring's decisions as a list in Markdown."""
    text = (module.__doc__ or "").partition("\nDecisions\n")[2].partition("\n\n")[0]
    return re.sub(r"^ *", "- ", re.sub(r"\n {3,}", " ", text), flags=re.M) if text else ""


# ---- the specification ---------------------------------------------------------------------------


@cache
def spec_sections(text: str = inspect.getsource(spec)) -> dict[str, str]:
    """Return the specification's sections by title, each with its code. text : an edited one."""
    _, *parts = re.split(r"^# -+ \d+\. (.*?) -+\n", text, flags=re.M)
    both = zip(parts[::2], parts[1::2])
    return {title: code.partition("# ====")[0].strip("\n") for title, code in both}


def paper_of_section(title: str) -> str:
    """Return the file of a section: "5. Per-FedAvg: ..." is per_fedavg."""
    return re.findall(r"[\w-]+", title)[0].lower().replace("-", "_")


def spec_code(paper: str, *text: str) -> str:
    """Return the section of the specification about a paper's file, its loops first; "" if none is."""
    titles = spec_sections(*text).items()
    sections = (code for title, code in titles if paper_of_section(title) == paper)
    parts = next(sections, "").split("\n\n\n")
    return "\n\n\n".join(sorted(parts, key=lambda part: ", rounds, " not in part[:200]))


def spec_parts(tag: str) -> Iterator[tuple[int, str]]:
    """Yield (number, code) of what the specification has of a tag: short functions, or lines of code."""
    numbers = {line.number for line in tag_lines().get(tag, []) if line.module is spec}
    for function in functions_in(spec):
        lines = number_lines(function)
        named = sorted(numbers & {*lines} & {*TRACED})  # not those of models
        if named and len(lines) <= SHORT:
            yield min(lines), textwrap.dedent("".join(lines.values())).strip()
            continue
        for number in named:
            rest = list(lines.values())[number - min(lines) :]
            code = inspect.getblock(rest) if rest[0].lstrip().startswith("def ") else rest[:1]
            if "  # " in rest[0].strip():
                yield number, textwrap.dedent("".join(code)).strip()
