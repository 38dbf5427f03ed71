"""The topics that can be explained, and each as lines for the terminal."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from fedref import proofs, spec
from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, unknown
from fedref.conformance.errata import MISTAKES
from fedref.models import MODELS
from fedref.teach import example, mistakes, source
from fedref.teach.exercises import EXERCISES
from fedref.teach.source import Equation, sections_of

#: The methods of a model that its page shows: value, forward and backward pass, the R-operator of both.
METHODS = (
    "logits", "loss_of", "forward", "vjp", "backward", "grad", "R_forward", "R_backward", "hvp",
)  # fmt: skip
#: A function of so many lines is shown whole.
SHORT = 12


# ---- topics --------------------------------------------------------------------------------------


def topics() -> dict[str, list[str]]:
    """Return every name that can be explained, by kind."""
    kinds: dict[str, Iterable[str]] = {
        "equations": source.tag_lines(),
        "algorithms": ALGORITHMS,
        "models": MODELS,
        "exercises": EXERCISES,
        "mistakes": ["mistakes", *MISTAKES],
    }
    return {kind: list(names) for kind, names in kinds.items()}


def list_topics() -> Iterator[str]:
    """Yield every topic by kind, and with each equation its lines."""
    for kind, names in topics().items():
        yield kind
        yield from index() if kind == "equations" else (f"  {name}" for name in names)


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


def explain(name: str) -> Iterator[str]:
    """Yield the lines about a topic."""
    topic = find_topic(name)
    if topic == "mistakes":
        yield from mistakes.mistakes_text()
    elif topic in MISTAKES:
        yield from mistakes.mistake_text(topic)
    elif topic in ALGORITHMS:
        yield from algorithm_lines(topic)
    elif topic in MODELS:
        yield from inspect.getdoc(MODELS[topic]).splitlines()  # type: ignore[union-attr]
        for _, place, code, equations in model_functions(topic):
            yield from (
                "",
                place,
                *(equation_text(e) for e in equations),
                textwrap.indent(code, "    "),
            )
    elif topic in EXERCISES:
        one = EXERCISES[topic]
        yield from (f"{topic}: {one.trains}", f"from {one.function} of fedref/spec.py, about")
        yield from (f"  {one.minutes} minutes; before it: {one.before}", "")
        yield f"fedref exercise start {topic} DIR writes the file, fedref exercise check tries it."
    else:
        yield from tag_lines(topic)


def tag_lines(tag: str) -> Iterator[str]:
    """Yield an equation: the lines that name it, those that compute it by hand, and what is proved."""
    yield from (f"[{tag}]", "", "where it is named; fedref/spec.py has it as its paper prints it")
    for line in source.tag_lines()[tag]:
        yield f"  {source.place(line.module, line.number)}  {line.text}"
    for equation in source.equations():
        if equation.tag == tag:
            yield from ("", f"by hand  {location(equation)}, {equation.function}")
            yield from (
                (f"  {equation_text(equation)}", f"  {words(equation)}") if equation.formula else ()
            )
            function = source.find(importlib.import_module(equation.module), equation.function)
            yield from ("", textwrap.indent(source.place_and_code(function)[1], "    "))
    claims = dict.fromkeys(proof.claim for proof in proofs.PROOFS if proof.tag == tag)
    yield from ["", *(f"proved: {claim}" for claim in claims)] if claims else []
    paper = next((n for n, c in ALGORITHMS.items() if page_name(c) == paper_of(tag)), None)
    yield from ["", *example_lines(paper)] if paper else []


def algorithm_lines(name: str) -> Iterator[str]:
    """Yield an algorithm: why, the loop as its paper prints it, a worked example, decisions."""
    module = importlib.import_module(ALGORITHMS[name].__module__)
    why, _, derivation = sections_of("why.md")[page_name(module)].partition("### Derivation")
    yield from (source.title(module), "", why.strip(), "", *source.citation(module), "")
    yield from (spec_code(page_name(module)), "")
    yield from ("Derivation", "", derivation.strip(), "") if derivation else ()
    for equation in source.equations_in(module):
        yield f"[{equation.tag}]  {equation_text(equation)}".rstrip()
        yield f"  {location(equation)}, {equation.function}"
    yield from ("", *example_lines(name), "", source.section(module, "Decisions"))


def example_lines(name: str) -> Iterator[str]:
    """Yield the worked example of an algorithm."""
    worked = example.worked_example(name)
    if worked is None:
        return
    yield from (f"Worked example of {name}", *textwrap.wrap(example.ABOUT_MODEL, 96), "")
    yield from (f"  {key} = {value}" for key, value in example.given_lines(worked.case))
    yield ""
    for number, line, value in example.traced_rows(worked):
        yield f"  {number:>3}  {line}\n         {value}"


# ---- what pages and lines share ------------------------------------------------------------------


def page_name(thing: Any) -> str:
    """Return the name of the page of a paper's file, or of an algorithm's."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    return str(name).rpartition(".")[2]


def paper_of(tag: str) -> str:
    return tag.split()[0].replace("-", "_")


def location(equation: Equation) -> str:
    """Return where an equation stands, such as fedref/algorithms/per_fedavg.py:63."""
    return source.place(importlib.import_module(equation.module), equation.line)


def equation_text(equation: Equation) -> str:
    """Return the whole equation as text."""
    return f"{equation.left} = {equation.formula}" if equation.left else equation.formula


def words(equation: Equation) -> str:
    """Return what the function of an equation does, in the words of its docstring."""
    function = source.find(importlib.import_module(equation.module), equation.function)
    said = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    return re.sub(r": \(\.\.\.[^)]*\)\.$", ".", said)  # without the shape


def spec_sections() -> dict[str, str]:
    """Return the specification's sections by title, each with its code."""
    _, *parts = re.split(r"^# -+ \d+\. (.*?) -+\n", inspect.getsource(spec), flags=re.M)
    return {
        title: code.partition("# ====")[0].strip("\n")
        for title, code in zip(parts[::2], parts[1::2])
    }


def paper_of_section(title: str) -> str:
    """Return the file of a section: "5. Per-FedAvg: ..." is per_fedavg."""
    return re.findall(r"[\w-]+", title)[0].lower().replace("-", "_")


def spec_code(paper: str) -> str:
    """Return the section of the specification about a paper's file, "" if there is none."""
    codes = (code for title, code in spec_sections().items() if paper_of_section(title) == paper)
    parts = re.split(r"\n\n\n(?=def )", next(codes, "").replace("\n\n\ndef ", "\n\n\ndef "))
    loops = [part for part in parts if ", rounds, " in part.partition("\n")[0] + part[:200]]
    return "\n\n".join([*loops, *(part for part in parts if part not in loops)]).strip()


def spec_lines(tag: str) -> list[tuple[int, str]]:
    """Return (number, text) of the specification's lines that name a tag."""
    lines = source.tag_lines().get(tag, [])
    return [(line.number, line.text) for line in lines if line.module is spec]


def spec_parts(tag: str) -> list[tuple[int, str]]:
    """Return (line, code) of what the specification has of a tag: short functions, or lines of code."""
    lines = inspect.getsource(spec).splitlines()
    nodes = ast.walk(ast.parse("\n".join(lines)))
    functions: list[Any] = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    parts = []
    for number, text in spec_lines(tag):
        around = [node for node in functions if node.lineno <= number <= node.end_lineno]
        first, last = max(((node.lineno, node.end_lineno) for node in around), default=(0, SHORT))
        if last - first < SHORT:
            parts.append((first, textwrap.dedent("\n".join(lines[first - 1 : last]))))
        elif around and text.partition("  # ")[2]:
            parts.append((number, text))
    return parts


def index() -> Iterator[str]:
    """Yield the index of equations: tag, functions by hand, lines of the specification and by hand."""
    by_hand: dict[str, list[Equation]] = {}
    for equation in source.equations():
        by_hand.setdefault(equation.tag, []).append(equation)
    width = max(map(len, source.tag_lines())) + 2
    for tag, lines in source.tag_lines().items():
        places = [f"fedref/spec.py:{number}" for number, _ in spec_lines(tag)]
        places += [f"{location(e)} {e.function}" for e in by_hand.get(tag, [])]
        places = places or [source.place(lines[0].module, lines[0].number)]
        yield f"  {f'[{tag}]':<{width}}  {'  '.join(places)}"


def model_functions(model: str) -> Iterator[tuple[str, str, str, list[Equation]]]:
    """Yield (name, place, code, equations) of the `METHODS` of a model, or of one of its layers."""
    cls: Any = MODELS[model]
    module = vars(inspect.getmodule(cls))
    named = {name: getattr(cls, name, None) for name in METHODS}
    named |= {f"{name}, one layer": module.get(name) for name in METHODS}
    for name, function in named.items():
        home: Any = inspect.getmodule(function)
        if function is None or (name not in METHODS and home is not inspect.getmodule(cls)):
            continue
        function = inspect.unwrap(function)
        equations = [e for e in source.equations_in(home) if e.function == function.__qualname__]
        yield name, *source.place_and_code(function), equations


def algorithm_named(name: str) -> str:
    """Return the name of an algorithm. Raises ConfigError."""
    if name not in ALGORITHMS:
        raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    return name
