"""Equations as the source has them: lines, formulae, symbols, decisions.

A formula stands once, in the comment behind its tag, on the line that computes it or above it:

    return u - alpha * model.hvp(w, u, D2)  # [per-fedavg eq.6] ∇F = u − αH(w; D″)u

Symbols are those of the table in the file's docstring. This module holds no formula of its own.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import fedref
from fedref import algorithm, spec
from fedref.algorithms import ALGORITHMS

#: A tag of any paper, or of the file's own without its name.
PAPERS = "|".join(
    cls.__module__.rpartition(".")[2].replace("_", "-") for cls in ALGORITHMS.values()
)
TAG = re.compile(rf"\[((?:{PAPERS}|Adam) (?=[^\]])|(?=(?:eq\.|alg\.|§)))([^\]]+)\]")
ROOT = Path(fedref.__file__).parents[1]
TAGGED = re.compile(r"# \[(?P<tag>[^\]]+)\](?: (?:(?P<left>[^=]+) = )?(?P<formula>\S.*))?$")


def text_of(name: str) -> str:
    """Return a text of fedref/teach/text, such as why.md."""
    return (files("fedref.teach") / "text" / name).read_text("utf-8")


@cache
def sections_of(name: str) -> dict[str, str]:
    """Return {heading: text below it} for the second-level headings of a text."""
    _, *parts = re.split(r"^## (\S+)\n", text_of(name), flags=re.M)
    return {head: body.strip() for head, body in zip(parts[::2], parts[1::2])}


class Symbol(NamedTuple):
    """A row of a docstring's table: θ̂_j is `theta_j`, of this shape."""

    symbol: str
    name: str
    shape: str


class Equation(NamedTuple):
    """A tagged line: where it is, what it says, and the equation left = formula if there is one."""

    tag: str
    left: str
    formula: str
    module: str
    function: str  # dotted where it is a method
    line: int  # of the statement that computes it
    code: str


def modules() -> list[ModuleType]:
    """Return the papers' files in the order of the command line, after the file that they share."""
    names = dict.fromkeys(cls.__module__ for cls in ALGORITHMS.values())
    return [algorithm, *(importlib.import_module(name) for name in names)]


def title(module: ModuleType) -> str:
    """Return the first line of a file's docstring, as a heading."""
    return (module.__doc__ or "").split("\n", 1)[0].rstrip(".")


def citation(module: ModuleType) -> list[str]:
    """Return the paragraphs between the title and the objective: the paper."""
    before = (
        (module.__doc__ or "").partition("\nObjective")[0] if section(module, "Objective") else ""
    )
    return [text.strip() for text in before.split("\n\n")[1:] if text.strip()]


def section(module: ModuleType, name: str) -> str:
    """Return what a docstring says under a heading such as Objective, up to a blank line."""
    found = re.search(
        rf"^{name}\b(.*?)(?=^\s*$|\Z)", module.__doc__ or "", re.DOTALL | re.MULTILINE
    )
    return f"{name}{found[1]}".rstrip() if found else ""


def symbols(module: ModuleType) -> list[Symbol]:
    """Return the docstring's table symbol → name → shape, a row for each symbol."""
    table = re.search(
        r"^ {4}symbol +name +shape\n((?: {4}.+\n)+)", module.__doc__ or "", re.MULTILINE
    )
    rows = []
    for line in table[1].splitlines() if table else []:
        symbol, name, shape = (*re.split(r"  +", line.strip(), maxsplit=2), "")[:3]
        if shape:
            rows.append(Symbol(symbol, name, " ".join(shape.split())))
    return rows


def entries(section: str) -> list[str]:
    """Return the entries of a docstring's section; a line indented further belongs to the one before."""
    lines = section.splitlines()[1:]
    least = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    found: list[str] = []
    for line in lines:
        if line[least] == " ":
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
    return found


def statement_at(tree: ast.AST, line: int) -> ast.stmt | None:
    """Return the innermost statement on a line, or the next one below it."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and not isinstance(node, ast.FunctionDef | ast.ClassDef)
        and last_line(node) >= line
    ]
    return min(found, key=lambda node: (max(node.lineno - line, 0), -node.lineno), default=None)


def last_line(node: ast.stmt) -> int:
    """Return the last line of a statement; if it holds others, the last line of its head."""
    part: ast.AST = node
    if isinstance(node, ast.If | ast.While):
        part = node.test
    elif isinstance(node, ast.For):
        part = node.iter
    return getattr(part, "end_lineno", 0)


def function_at(tree: ast.Module, line: int) -> str:
    """Return the innermost function or method that holds a line, dotted."""
    around = [name for name, node in definitions(tree) if node.lineno <= line <= node.end_lineno]
    return around[-1] if around else ""


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


def definitions(tree: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, node) of every function and class in a tree."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield within + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from definitions(node, f"{node.name}.")


@cache
def equations() -> tuple[Equation, ...]:
    """Return every tagged line of the algorithms, in the order of the files."""
    return tuple(one for module in modules() for one in equations_in(module))


@cache
def equations_in(module: ModuleType) -> tuple[Equation, ...]:
    """Return every tagged line of a file."""
    found = []
    source = inspect.getsource(module)
    lines, tree = source.splitlines(), ast.parse(source)
    for number, text in enumerate(lines, 1):
        match = TAGGED.search(text)
        node = statement_at(tree, number) if match else None
        if match and node:
            code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            code = re.sub(r"\s*# \[.*", "", inspect.cleandoc(" \n" + code)).strip("\n")
            found.append(
                Equation(
                    match["tag"], match["left"] or "", match["formula"] or "", module.__name__,
                    function_at(tree, node.lineno), node.lineno, code,
                )
            )  # fmt: skip
    return tuple(found)


def find(module: ModuleType, name: str) -> Any:
    """Return a function or class of a module by its dotted name; None if there is none."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def place_and_code(function: Any) -> tuple[str, str]:
    """Return the place of a function or class, and its code from the left margin."""
    module = inspect.getmodule(function)
    assert module
    lines, line = inspect.getsourcelines(function)
    return place(module, line), inspect.cleandoc(" \n" + "".join(lines))


def place(module: ModuleType, line: int) -> str:
    """Return a line of a module as FILE:LINE, from the repository's root."""
    return f"{Path(inspect.getfile(module)).relative_to(ROOT).as_posix()}:{line}"
