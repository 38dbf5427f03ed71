"""The pages, each one text in Markdown: what the terminal prints, and what the site shows.

A page is a function that returns its text. Code stands in fences of kind `python FILE:LINE`, formulae in
those of kind `math`, a mistake beside what is right in those of kind `diff`; a picture is named by its file.
"""

import difflib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial, reduce
from importlib.resources import files
from types import ModuleType
from typing import Any

from fedref import checks, proofs, spec
from fedref.algorithms import ALGORITHMS
from fedref.conformance.errata import MISTAKES, TEXTS, replace
from fedref.models import MODELS
from fedref.teach import example, source
from fedref.teach.exercises import EXERCISES
from fedref.teach.mistake_runs import RUNS, losses
from fedref.teach.source import Equation, text_of

#: The methods of a model that its page shows: value, forward and backward pass, the R-operator of both.
METHODS = (
    "logits", "loss_of", "forward", "vjp", "backward", "grad", "R_forward", "R_backward", "hvp",
)  # fmt: skip

# ---- pieces of Markdown --------------------------------------------------------------------------


def join(*parts: str) -> str:
    """Return the parts that are not empty, each a paragraph or more."""
    return "\n\n".join(filter(None, parts))


def section(title: str, *parts: str) -> str:
    """Return a section with its heading, or nothing where it is empty."""
    return join(f"## {title}", *parts) if any(parts) else ""


def fence(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```" if text else ""


def items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def table(head: str, rows: Iterable[Iterable[Any]]) -> str:
    """Return a table. head : its columns, "a | b"; cells are Markdown."""
    lines = (" | ".join(str(cell).replace("|", r"\|") for cell in row) for row in rows)
    return "\n".join(
        f"| {line} |" for line in (head, re.sub(r"[^|]+", " --- ", head).strip(), *lines)
    )


def formulae(equations: Iterable[Equation]) -> str:
    return fence("math", "\n".join(f"[{e.tag}] {e.text}" for e in equations if e.formula))


def verbatim(docstring: str) -> str:
    """Return a docstring as Markdown: its doctests are blocks of code."""
    blocks = inspect.cleandoc(docstring).split("\n\n")
    return join(*(textwrap.indent(b, "    ") if b.startswith(">>>") else b for b in blocks))


def anchor(heading: str) -> str:
    """Return a heading's place on its page."""
    return re.sub(r"[^\w′″⁺]+", "-", heading.lower()).strip("-")


# ---- one paper -----------------------------------------------------------------------------------


def page_name(thing: Any) -> str:
    """Return the name of the page of a paper's file, or of an algorithm's."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    return str(name).rpartition(".")[2]


def paper_of(tag: str) -> str:
    return tag.split()[0].replace("-", "_")


def algorithms_of(page: str) -> list[str]:
    return [name for name, cls in ALGORITHMS.items() if page_name(cls) == page]


def paper_page(module: ModuleType, label: str = "") -> str:
    """Return a paper's page: why, the loop, its derivation, a picture, each equation, an example.

    label : the algorithm of the picture and of the example, where the file has several.
    """
    page = page_name(module)
    labels = algorithms_of(page)
    label = label or (labels[0] if labels else "")
    why, _, derivation = why_of(page).partition("### Derivation")
    claims = dict.fromkeys(f"[{p.tag}] {p.claim}" for p in proofs.PROOFS if paper_of(p.tag) == page)
    loop = source.spec_code(page)
    functions = re.findall(r"^def (\w+)", loop, flags=re.M)
    taught = [name for name, one in EXERCISES.items() if one.function in functions]
    return join(
        f"# {source.title(module)}", why.strip(), source.introduction(module),
        f"In fedref: {', '.join(f'`{name}`' for name in labels)}." if labels else "",
        section("The algorithm", fence("python", loop)),
        section("Derivation", derivation.strip()),
        section("Two clients", picture(label)) if label else "",
        section("Equation by equation", *equation_parts(module)),
        section("Worked example", example_text(label)) if label else "",
        section("Known mistakes", *(
            mistake_text(name, "###") for name, one in MISTAKES.items() if paper_of(one.tag) == page)),
        section("Decisions", source.decisions(module)),
        section("What `fedref check` proves", items(claims)),
        section("Exercise", *map(exercise_text, taught)),
    )  # fmt: skip


def why_of(page: str) -> str:
    """Return what why.md says of a paper."""
    return text_of("why.md").partition(f"## {page}\n")[2].partition("\n## ")[0]


def picture(label: str) -> str:
    """Return the picture of an algorithm's rounds, and how to draw it otherwise."""
    return join(
        f"![Two clients' losses as contours, and their local steps: rounds 1, 2 and 5](rounds-{label}.svg)",
        f"`fedref explain {label} --picture {label}.svg --set KEY=VALUE` draws it with other settings.",
    )


def equation_parts(module: ModuleType) -> Iterator[str]:
    """Yield the table of symbols; then each function with an equation, after the specification's lines."""
    if source.symbols(module):
        rows = ((s, f"`{name}`", shape) for s, name, shape in source.symbols(module))
        yield table("symbol | name | what it is", rows)
    groups: dict[str, list[Equation]] = {}
    for equation in source.equations_in(module):
        groups.setdefault(equation.function, []).append(equation)
    seen = set[tuple[int, str]]()
    for name, equations in groups.items():
        parts = [part for e in equations for part in source.spec_parts(e.tag) if part not in seen]
        parts, seen = list(dict.fromkeys(parts)), {*seen, *parts}
        place, code = source.place_and_code(source.find(module, name))
        yield f"### `{name}`"
        yield join(words(equations[0]), formulae(equations))
        if parts:
            kind = f"python fedref/spec.py:{', '.join(str(number) for number, _ in parts)}"
            yield fence(kind, "\n\n".join(code for _, code in parts))
        yield fence(f"python {place}", code)


def words(equation: Equation) -> str:
    """Return what the function of an equation does, in the words of its docstring."""
    said = inspect.getdoc(source.find(equation.module, equation.function)) or ""
    return re.sub(r": \(\.\.\.[^)]*\)\.$", ".", said.split("\n\n")[0].replace("\n", " "))


def example_text(algorithm: str) -> str:
    """Return the worked example of an algorithm: what is given, and every line that ran."""
    worked = example.worked_example(algorithm)
    if worked is None:
        return ""
    rows = ((n, f"`{line}`", value) for n, line, value in example.traced_rows(worked))
    return join(
        f"The smallest rounds of `{algorithm}` without a zero that Hypothesis finds, through the lines of "
        f"`fedref/spec.py`. The model is {example.ABOUT_MODEL} What a line asks for (…) stands above it.",
        table("given | ", example.given_lines(worked.case)),
        table("line | fedref/spec.py | value", rows),
    )


def exercise_text(name: str) -> str:
    one = EXERCISES[name]
    return (
        f"`fedref exercise start {name} .` writes `{one.file}`: {one.trains}. About {one.minutes} minutes; "
        f"before it: {one.before}. `fedref exercise check {one.file}` tries what you write."
    )


# ---- mistakes ------------------------------------------------------------------------------------


def mistake_text(name: str, level: str = "##") -> str:
    """Return one mistake: what is right, the wrong line (-) and the right one (+).

    A mistake in how an algorithm is called has no line of the specification, and is said in words alone.
    """
    one = MISTAKES[name]
    kind = f" ({one.kind})" if one.kind != "wrong" else ""
    return join(f"{level} {name}{kind}", f"{one.why} [{one.tag}]", fence("diff", correction(name)))


@cache
def correction(name: str) -> str:
    """Return the first place that a mistake changes: - its lines, + the specification's."""
    wrong = reduce(replace, MISTAKES[name].edits, TEXTS[spec])
    changes = difflib.unified_diff(wrong.split("\n"), TEXTS[spec].split("\n"), n=0, lineterm="")
    _, *places = re.split(r"^@@.*\n", "\n".join(changes), flags=re.M)
    lines = places[0].splitlines() if places else []
    code = textwrap.dedent("\n".join(line[1:] for line in lines)).split("\n")
    more = [f"# and {len(places) - 1} more"] if len(places) > 1 else []
    return "\n".join([*(f"{line[0]} {text}" for line, text in zip(lines, code)), *more])


def mistakes_page() -> str:
    """Return the known mistakes: what some do to a short run, and their lines."""
    rows = [(name, f"`{RUNS[name]}`", *losses(name)) for name in RUNS]
    no_worse = sum(wrong <= right for *_, right, wrong in rows)
    return join(
        "# Known mistakes",
        "Known mistakes in code of these papers, - the wrong line, + the right one. The conformance suite "
        "knows what each computes, and names it when a backend computes the same.",
        section(
            "A learning curve does not find them",
            f"Runs of {spec.ROUNDS} rounds on the toy of `fedref/spec.py`, without the mistake and with "
            f"it: {no_worse} of {len(RUNS)} test losses end no worse with the mistake. A golden vector, "
            "which `fedref conformance` compares, finds each of them.",
            table(
                "mistake | run | test loss without it | with it",
                ((name, run, f"{right:.4f}", f"{wrong:.4f}") for name, run, right, wrong in rows),
            ),
        ),
        *map(mistake_text, MISTAKES),
    )


# ---- pages about all papers ----------------------------------------------------------------------


def tour_page() -> str:
    """Return the notebook, and where to go from there."""
    notebook = json.loads((files("fedref.teach") / "tour.ipynb").read_text("utf-8"))
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else fence("python", text))
        parts += map(output_text, cell.get("outputs", ()))
    papers = [f"[{source.title(module)}]({page_name(module)}.html)" for module in source.modules()]
    models = [f"[{cls.__name__}](model-{name}.html)" for name, cls in MODELS.items()]
    return join(*parts, section("Algorithms", items(papers)), section("Models", items(models)))


def output_text(output: Mapping[str, Any]) -> str:
    """Return what a cell of the notebook shows: text, or a picture with its words."""
    data = output.get("data", {})
    text = "".join(output.get("text") or data["text/plain"])
    png = "".join(data.get("image/png", "")).replace("\n", "")
    return f"![{text}](data:image/png;base64,{png})" if png else fence("output", text.rstrip())


def spec_page() -> str:
    """Return the specification: its sections, each with a link to its paper's page."""
    names = {page_name(module) for module in source.modules()}
    parts = []
    for number, (title, text) in enumerate(source.spec_sections().items(), 1):
        paper = source.paper_of_section(title)
        link = f"[The page of this paper]({paper}.html)" if paper in names else ""
        parts.append(section(f"{number}. {title}", link, fence("python", text)))
    return join("# The papers in one file", verbatim(spec.__doc__ or ""), *parts)


def equations_page() -> str:
    """Return the index of equations, each with its words and its places."""
    parts = [
        "# Equations",
        "Every equation that has a line of code, with its words and its places.",
    ]
    for module in source.modules():
        parts.append(f"## {source.title(module)}")
        for e in source.equations_in(module):
            link = f"[`{e.function}`]({page_name(module)}.html#{anchor(e.function)})"
            code = inspect.getsource(module).splitlines()[e.line - 1].strip()
            shown = formulae([e]) or fence("python", code)
            parts += [shown, f"{link} {words(e)} {', '.join(places(e.tag))}"]
    return join(*parts)


def places(tag: str) -> list[str]:
    """Return the lines of an equation: the specification's, and those by hand with their function."""
    lines = [line for line in source.tag_lines()[tag] if line.module is spec]
    said = [source.place(spec, line.number) for line in lines]
    said += [f"{location(e)} `{e.function}`" for e in source.equations() if e.tag == tag]
    first = source.tag_lines()[tag][0]
    return said or [source.place(first.module, first.number)]


def location(equation: Equation) -> str:
    """Return where an equation stands, such as fedref/algorithms/per_fedavg.py:63."""
    return source.place(equation.module, equation.line)


def proofs_page() -> str:
    """Return how a derivative is proved: the method, its code and pictures, and all claims."""
    title, how, own = (checks.__doc__ or "").strip().split("\n\n", 2)
    claims: dict[str, dict[str, None]] = {}
    for proof in proofs.PROOFS:
        claims.setdefault(proof.claim, {})[proof.tag] = None
    rows = ((claim, ", ".join(tags)) for claim, tags in claims.items())
    return text_of("proofs.md").format(
        about=join(title, how), example=verbatim(own), claims=table("claim | of", rows),
        complex_step=fence("python", inspect.getsource(checks.complex_step_derivative).strip()),
        taylor=fence("python", inspect.getsource(checks.taylor_remainders).strip()),
    )  # fmt: skip


def teachers_page() -> str:
    """Return the guide for teachers: a course, and the exercises."""
    rows = ((f"`{x.name}`", x.trains, x.before, x.minutes) for x in EXERCISES.values())
    exercises = table("exercise | trains | needs before | minutes", rows)
    return text_of("teachers.md").replace("{exercises}", exercises)


def model_page(name: str) -> str:
    """Return a model's page: its docstring and its functions."""
    title, _, text = (inspect.getdoc(MODELS[name]) or "").partition("\n\n")
    functions = (
        section(function, formulae(equations), fence(f"python {place}", code))
        for function, place, code, equations in model_functions(name)
    )
    return join(f"# {MODELS[name].__name__}", title, verbatim(text), *functions)


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


#: The pages of the site, in the order of the links: name → function.
PAGES: dict[str, Callable[[], str]] = {
    "index": tour_page, "spec": spec_page, "equations": equations_page,
    "mistakes": mistakes_page, "proofs": proofs_page, "teachers": teachers_page,
    **{page_name(module): partial(paper_page, module) for module in source.modules()},
    **{f"model-{name}": partial(model_page, name) for name in MODELS},
}  # fmt: skip
