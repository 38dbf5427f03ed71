"""The topics that can be explained, and the page of each: an equation, an algorithm, or a model.

A `Page` is data: the terminal and the site lay it out.
"""

import importlib
import inspect
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from fedref import checks, proofs
from fedref.algorithm import Algorithm
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.conformance.mistakes import MISTAKES
from fedref.models import MODELS
from fedref.models.batch import Batch
from fedref.models.numerics import Activation
from fedref.teach import mistakes, source
from fedref.teach.catalogue import EXERCISES
from fedref.teach.example import CALLS_OF_TAGS, Trace, compute_both, find_example, trace_call
from fedref.teach.source import Equation, Symbol

DIGITS = 4

#: The methods of a model that its page shows: value, forward and backward pass, the R-operator of both.
METHODS = (
    "logits", "loss_of", "forward", "vjp", "backward", "grad", "R_forward", "R_backward", "hvp",
)  # fmt: skip
#: name in the code → symbol, for all files; the table of symbols in a file adds its own.
SYMBOLS = {
    **{name: name for name in "wDuvFI"}, "grad": "g", "hvp": "H", "loss": "f", "delta": "δ", "phi": "φ",
}  # fmt: skip

#: Topics that are not an equation, an algorithm or a model, as lines for the terminal.
TEXTS: Mapping[str, Callable[[], Iterable[str]]] = {
    "mistakes": mistakes.mistakes_text,
    **{name: partial(mistakes.mistake_text, name) for name in MISTAKES},
}


class Function(NamedTuple):
    """A function: where it is, its code, the equations in it, its proofs, its worked example.

    symbols : name in its code → symbol of the paper.
    """

    name: str
    place: str
    code: str
    equations: list[Equation]
    proofs: list[str]
    trace: Trace | None
    symbols: Mapping[str, str]


class Page(NamedTuple):
    """The explanation of one topic.

    citation : paragraphs about the paper. text : the rest of a model's docstring, or the passages that
    mention a tag which marks no line of code.
    """

    title: str
    citation: list[str]
    objective: str
    symbols: list[Symbol]
    functions: list[Function]
    decisions: str
    text: str


def location(equation: Equation) -> str:
    """Return where an equation stands, such as fedref/algorithms/per_fedavg.py:63."""
    return source.place(importlib.import_module(equation.module), equation.line)


def topics() -> dict[str, list[str]]:
    """Return every name that can be explained, by kind."""
    kinds: dict[str, Iterable[str]] = {
        "equations": dict.fromkeys([*(e.tag for e in source.equations()), *source.mentions()]),
        "algorithms": ALGORITHMS,
        "models": MODELS,
        "exercises": EXERCISES,
        "mistakes": TEXTS,
    }
    return {kind: list(names) for kind, names in kinds.items()}


def find_topic(name: str) -> str:
    """Return the topic of this name, ignoring case; a ConfigError suggests similar names."""
    known = {topic.casefold(): topic for names in topics().values() for topic in names}
    wanted = " ".join(name.casefold().replace("[", " ").replace("]", " ").split())
    wanted = re.sub(r"\b(eq|alg)\. ", r"\1.", wanted)
    if wanted in known:
        return known[wanted]
    near = get_close_matches(wanted, known, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(repr(known[topic]) for topic in near)}?" if near else ""
    raise ConfigError(f"unknown topic {name!r}: `fedref explain --list` lists them all{hint}")


def page_of(name: str) -> Page:
    """Return the page of a tag, an algorithm, a model or an exercise; `TEXTS` have none."""
    topic = find_topic(name)
    if topic in MODELS:
        title, _, text = (inspect.getdoc(MODELS[topic]) or "").partition("\n\n")
        return Page(title, [], "", [], list(model_functions(topic)), "", text)
    if topic in ALGORITHMS:
        return file_page(importlib.import_module(ALGORITHMS[topic].__module__))
    if topic in EXERCISES:
        function = EXERCISES[topic].source_function
        home = importlib.import_module(function.__module__)
        inside = [e for e in source.equations_in(home) if e.function == function.__qualname__]
        return file_page(home, inside, [function.__qualname__])
    equations = [equation for equation in source.equations() if equation.tag == topic]
    if equations:
        return file_page(importlib.import_module(equations[0].module), equations)
    mention = source.mentions()[topic]
    page = file_page(mention.module, [], mention.functions)
    if topic in CALLS_OF_TAGS:
        trace = trace_call(CALLS_OF_TAGS[topic])
        page = page._replace(functions=[f._replace(trace=trace) for f in page.functions])
    return page._replace(text="\n".join(mention.text))


def file_page(
    module: ModuleType, equations: Iterable[Equation] | None = None, functions: Iterable[str] = ()
) -> Page:
    """Return a page about a paper's file: its equations, or only these, and `functions` besides."""
    groups: dict[str, list[Equation]] = {name: [] for name in functions}
    for equation in source.equations_in(module) if equations is None else equations:
        groups.setdefault(equation.function, []).append(equation)
    return Page(
        source.title(module),
        source.citation(module),
        source.section(module, "Objective"),
        source.symbols(module),
        [describe_function(module, name, group) for name, group in groups.items()],
        source.section(module, "Decisions"),
        "",
    )


def describe_function(
    module: ModuleType, name: str, equations: list[Equation], function: Any = None
) -> Function:
    """Return the description of a function, which is looked up by its name unless it is given."""
    equation = equations[0] if equations and function is None else None
    function = function or source.find(module, name)
    claims = [proof.claim for e in equations for proof in proofs.PROOFS if proof.tag == e.tag]
    return Function(
        name,
        *source.place_and_code(function),
        equations,
        list(dict.fromkeys(claims)),
        find_example(function.__module__, function.__qualname__, equation),
        SYMBOLS | {row.name: row.symbol for row in source.symbols(module)},
    )


def model_functions(model: str) -> Iterator[Function]:
    """Yield those of `METHODS` that a model has, as methods or as functions for one of its layers."""
    cls: Any = MODELS[model]
    module = vars(inspect.getmodule(cls))
    named = {name: getattr(cls, name, None) for name in METHODS}
    named |= {f"{name}, one layer": module.get(name) for name in METHODS}
    tags = [(proof.tag.split(), proof.claim) for proof in proofs.PROOFS]
    for name, function in named.items():
        home: Any = inspect.getmodule(function)
        if function is None or (name not in METHODS and home is not inspect.getmodule(cls)):
            continue
        function = inspect.unwrap(function)
        equations = [e for e in source.equations_in(home) if e.function == function.__qualname__]
        claims = dict.fromkeys(c for tag, c in tags if (tag[0], tag[-1]) == (cls.__name__, name))
        yield describe_function(home, name, equations, function)._replace(proofs=list(claims))


# ---- numbers -------------------------------------------------------------------------------------


def format_value(value: Any) -> str:
    """Return a value as text, with up to four decimals; a batch by its rows, a tuple part by part."""
    if isinstance(value, Batch):
        pairs = zip(np.asarray(value.X), np.asarray(value.y).tolist())
        return ", ".join(f"{format_value(x)} → {y}" for x, y in pairs)
    if isinstance(value, tuple | list):
        return "; ".join(map(format_value, value))
    if isinstance(value, np.ndarray) and value.ndim:
        return f"({', '.join(map(format_value, value))})"
    if isinstance(value, float | np.floating | np.ndarray):
        number = float(value)
        return f"{number:.{DIGITS}f}".rstrip("0").rstrip(".") if number else "0"
    return str(value)


def given_values(trace: Trace) -> list[tuple[str, str]]:
    """Return what a worked example starts from: (name, value), an algorithm's options among them."""
    first = dict(trace.steps[0].before)
    if not isinstance(first.get("self"), Algorithm):
        first.pop("self", None)
    if "data" in first:  # a function that returns all the client's data
        first["data()"] = first.pop("data")()
    return [(name, format_value(value)) for name, value in first.items() if name != "model"]


def computed_values(trace: Trace) -> list[tuple[str, str]]:
    """Return (name, value) of every variable that a worked example assigns, in order.

    Three kinds are left out: activations (they are functions, not numbers), views of the parameters,
    and arrays that are filled later.
    """
    file, values, buffers = trace.function.__code__.co_filename, [], set[str]()
    for step in trace.steps:
        code, changes = linecache.getline(file, step.line).strip(), step.changes()
        if "np.empty(" in code or ".unpack(" in code:
            buffers |= changes.keys()
        for name, value in changes.items():
            is_computed = name not in buffers and not isinstance(value, Activation)
            if is_computed and name != "_" and not code.startswith("for "):
                values.append((name, format_value(value)))
    return [*values, ("returned", format_value(trace.result))]


def model_of(trace: Trace) -> Any:
    """Return the model of a worked example, or None."""
    first = trace.steps[0].before
    model = first.get("model", first.get("self"))
    return None if isinstance(model, Algorithm) else model


def agreement(equation: Equation) -> float:
    """Return the relative error between the result of the code and that of the formula (0: equal)."""
    got, said = compute_both(equation)
    return checks.relative_error(1.0 * got, 1.0 * said)  # 1.0 * makes numbers of booleans
