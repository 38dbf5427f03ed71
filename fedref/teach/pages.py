"""What there is to explain, and what is said of each: an equation, an algorithm, or a model."""

import ast
import importlib
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedref import checks, proofs
from fedref.algorithm import Algorithm
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.models import MODELS
from fedref.models.batch import Batch
from fedref.models.numerics import Activation, Array
from fedref.teach import mistakes, source, worked
from fedref.teach.source import Equation, Symbol

DIGITS = 4

#: What is no equation, algorithm or model, as lines for the terminal.
TEXTS: Mapping[str, Callable[[], Iterable[str]]] = {"mistakes": mistakes.mistakes_text}


class Value(NamedTuple):
    """One line of a worked example: the code, and what it made."""

    code: str
    name: str
    value: str


class Page(NamedTuple):
    """All that is said of one topic, as data: the terminal and the site lay it out."""

    name: str
    title: str
    objective: str
    equations: list[Equation]
    symbols: list[Symbol]
    decisions: str
    text: str  # a model's docstring


def location(equation: Equation) -> str:
    """fedref/algorithms/per_fedavg.py:63"""
    return source.place(importlib.import_module(equation.module), equation.line)


def topics() -> dict[str, list[str]]:
    """Every name that can be explained, by kind."""
    tags = dict.fromkeys(equation.tag for equation in source.equations())
    kinds: dict[str, Iterable[str]] = {
        "equations": tags,
        "algorithms": ALGORITHMS,
        "models": MODELS,
        "pages": TEXTS,
    }
    return {kind: list(names) for kind, names in kinds.items()}


def page(name: str) -> Page:
    """What is said of a tag, an algorithm or a model; ConfigError names what there is."""
    wanted = name.strip().strip("[]")
    if wanted in MODELS:
        text = inspect.getdoc(MODELS[wanted]) or ""
        title, _, rest = text.partition("\n\n")
        return Page(wanted, title, "", [], [], "", rest)
    if wanted in ALGORITHMS:
        module = importlib.import_module(ALGORITHMS[wanted].__module__)
        chosen = [one for one in source.equations() if one.module == module.__name__]
    else:
        chosen = [one for one in source.equations() if one.tag == wanted]
        if not chosen:
            known = [topic for kind in topics().values() for topic in kind]
            raise ConfigError(unknown("topic", wanted, known))
        module = importlib.import_module(chosen[0].module)
    return Page(
        wanted,
        source.title(module),
        source.section(module, "Objective"),
        chosen,
        source.symbols(module),
        source.section(module, "Decisions"),
        "",
    )


def shown(value: Any) -> str:
    """A value with four digits; a batch by its rows, a tuple part by part."""
    if isinstance(value, Batch):
        pairs = zip(np.asarray(value.X), np.asarray(value.y).tolist())
        return ", ".join(f"{shown(x)} → {y}" for x, y in pairs)
    if isinstance(value, tuple | list):
        return "; ".join(map(shown, value))
    if isinstance(value, np.ndarray) and value.ndim:
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, float | np.floating | np.ndarray):
        number = float(value)
        return f"{number:.{DIGITS}f}".rstrip("0").rstrip(".") if number else "0"
    return str(value)


def given(trace: worked.Trace) -> list[tuple[str, str]]:
    """What a worked example starts from: (name, value), an algorithm's options among them."""
    first = dict(trace.steps[0].before)
    if not isinstance(first.get("self"), Algorithm):
        first.pop("self", None)
    if "data" in first:  # a function of all the client's data
        first["data()"] = first.pop("data")()
    return [(name, shown(value)) for name, value in first.items() if name != "model"]


def intermediates(trace: worked.Trace) -> list[Value]:
    """Each line of a worked example that makes a value, in the order in which they ran.

    An activation is no value: its functions have no digits; nor is memory that is yet to be filled:
    of that, the part is shown that a line fills.
    """
    lines = linecache.getlines(trace.file)
    values: list[Value] = []
    empty: list[Array] = []
    for step in trace.steps:
        code = lines[step.line - 1].split("# [")[0].strip()
        if code.startswith("for "):
            continue
        if part := written(code, step):
            values.append(part)
            continue
        for name, value in step.after.items():
            new = name not in step.before or step.before[name] is not value
            live = worked.arrays(step.live[name])
            if new and "np.empty(" in code:
                empty += live
            plain = name != "_" and not isinstance(value, Activation)
            if new and plain and not worked.overlap(live, empty):
                values.append(Value(code, name, shown(value)))
    last = lines[trace.steps[-1].line - 1].split("# [")[0].split("# noqa")[0].strip()
    return [*values, Value(last, "returned", shown(trace.result))]


def written(code: str, step: worked.Step) -> Value | None:
    """What a line changes in place, such as out[2] by f(out=out[2 * l]), or the end of a list."""
    try:
        place = worked.written(ast.parse(code).body[0])
    except (SyntaxError, IndexError):
        return None
    if place is None:
        return None
    while isinstance(place, ast.Subscript) and isinstance(place.slice, ast.Constant | ast.Tuple):
        place = place.value  # x[...] is x
    name = ast.unparse(place)
    if isinstance(place, ast.Subscript):
        k = eval(ast.unparse(place.slice), {}, dict(step.after))
        name = f"{ast.unparse(place.value)}[{k}]"
    value = eval(name, {}, dict(step.after))
    if isinstance(value, list):
        return Value(code, f"{name}[{len(value) - 1}]", shown(value[-1]))
    return Value(code, name, shown(value))


def agreement(equation: Equation) -> float:
    """The relative error between what the line computed and what the formula says."""
    got, said = worked.computed(equation)
    return checks.relative_error(1.0 * got, 1.0 * said)  # true is 1


def proved_by(tag: str) -> Iterator[str]:
    """What `fedref check` proves of it."""
    for proof in proofs.PROOFS:
        if proof.tag == tag:
            yield proof.claim
