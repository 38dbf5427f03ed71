"""The pages, each one text in Markdown: what the terminal prints, and what the site shows.

A page is a function that returns its text. Code stands in fences of kind `python FILE:LINE`, formulae in
those of kind `math`, a mistake beside what is right in those of kind `diff`; a picture is named by its file.
"""

import difflib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib.resources import files
from types import ModuleType
from typing import Any

import numpy as np

from fedref import checks, proofs, spec
from fedref.boundary import docstrings
from fedref.judge.errata import MISTAKES, TEXTS, run, wrong_text
from fedref.models import MODELS
from fedref.teach import example, reference, source
from fedref.teach.exercises import EXERCISES
from fedref.teach.markdown import anchor, fence, items, join, section, table, verbatim
from fedref.teach.source import Equation, algorithms_of, page_name, text_of

#: What one has to know to read an algorithm.
NAMES = (
    "`f(w, D)` is the mean loss on a batch D, `f.grad(w, D)` its gradient, `f.hvp(w, v, D)` its Hessian "
    "times v; a round is a list of clients, each with the batches of its local steps. "
    "[The papers in one file](spec.html) explains every other name."
)

# ---- one paper -----------------------------------------------------------------------------------


def formulae(equations: Iterable[Equation]) -> str:
    return fence("math", "\n".join(f"[{e.tag}] {e.text}" for e in equations if e.formula))


def paper_of(tag: str) -> str:
    return tag.split()[0].replace("-", "_")


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
    rows = [(symbol, f"`{name}`", shape) for symbol, name, shape in docstrings.symbols(module)]
    symbols = table("symbol | name | what it is", rows) if rows else ""
    taught = [name for name, one in EXERCISES.items() if one.function in functions]
    return join(
        f"# {source.title(module)}",
        why.strip(),
        source.introduction(module),
        f"In fedref: {', '.join(f'`{name}`' for name in labels)}." if labels else "",
        section("The algorithm", NAMES, fence("python", loop)) if loop else "",
        section("Derivation", derivation.strip()),
        section("Two clients", picture(page, label)) if label else "",
        section("Equation by equation", symbols, *equation_parts(source.equations_in(module))),
        section("Worked example", example_text(label)) if label else "",
        section("Known mistakes", *mistakes_of(page)),
        section("Decisions", source.decisions(module)),
        section("What `fedref check` proves", items(claims)),
        section("Exercise", *map(exercise_text, taught)),
    )


def why_of(page: str) -> str:
    """Return what why.md says of a paper."""
    return text_of("why.md").partition(f"## {page}\n")[2].partition("\n## ")[0]


def picture(page: str, label: str) -> str:
    """Return a question, the picture of an algorithm's rounds that answers it, and what there is to see."""
    words = tomllib.loads(text_of("pictures.toml"))[page]
    drawn = f"![Two clients' losses as contours, and their local steps](rounds-{label}.svg)"
    if "slider" in words:
        drawn, label = fence(f"slider {page}", "frames"), words["slider"]["algorithm"]
    return join(
        f"**Predict first.** {words['ask']}", drawn, fence("answer", words["answer"]),
        f"{words['see']} Each client's loss is quadratic, that of least squares with four rows.",
        f"`fedref explain {label} --picture {label}.svg --set KEY=VALUE` draws it with other settings.",
    )  # fmt: skip


def equation_parts(equations: Iterable[Equation]) -> Iterator[str]:
    """Yield each function with some of these equations, after the specification's lines."""
    groups: dict[Any, list[Equation]] = {}
    for equation in equations:
        groups.setdefault(equation.function, []).append(equation)
    shown = set[int]()
    for function, group in groups.items():
        parts = dict(part for e in group for part in source.spec_parts(e.tag))
        parts = {number: code for number, code in parts.items() if number not in shown}
        shown |= {*parts}
        place, code = source.place_and_code(function)
        yield join(
            f"### `{function.__qualname__}`", summary_of(function), formulae(group),
            fence(f"python fedref/spec.py:{', '.join(map(str, parts))}", "\n\n".join(parts.values())),
            fence(f"python {place}", code),
        )  # fmt: skip


def summary_of(function: Any) -> str:
    """Return what a function does, in the words of its docstring, without the shape."""
    return re.sub(r": \(\.\.\.[^)]*\)\.$", ".", source.first_paragraph(function))


def example_text(algorithm: str) -> str:
    """Return the worked example of an algorithm: what is given, and every line that ran."""
    case = example.worked_example(algorithm)
    if case is None:
        return ""
    rows = ((n, f"`{line}`", value) for n, line, value in example.traced_rows(case))
    return join(
        f"The smallest rounds of `{algorithm}` without a zero that Hypothesis finds, through the lines of "
        f"`fedref/spec.py`. The model is {example.ABOUT_MODEL} What a line asks for (…) stands above it.",
        table("given | ", example.given_lines(case)),
        table("line | fedref/spec.py | value", rows),
    )


def exercise_text(name: str) -> str:
    one = EXERCISES[name]
    return (
        f"`fedref exercise start {name} .` writes `{one.file}`: {one.trains}. About {one.minutes} minutes; "
        f"before it: {one.before}. `fedref exercise check {one.file}` tries what you write."
    )


# ---- mistakes ------------------------------------------------------------------------------------


def mistake_text(name: str) -> str:
    """Return one mistake: what is right, the wrong line (-) and the right one (+).

    A mistake in how an algorithm is called has no line of the specification, and is said in words alone.
    """
    one = MISTAKES[name]
    kind = f" ({one.kind})" if one.kind != "wrong" else ""
    return join(f"### {name}{kind}", f"{one.why} [{one.tag}]", fence("diff", correction(name)))


def mistakes_of(page: str) -> list[str]:
    return [mistake_text(name) for name, one in MISTAKES.items() if paper_of(one.tag) == page]


@cache
def correction(name: str) -> str:
    """Return a place that a mistake changes, in its own paper if it can: - its lines, + the right ones."""
    wrong, right = (text.split("\n") for text in (wrong_text(name), TEXTS[spec]))
    changes = difflib.unified_diff(wrong, right, n=0, lineterm="")
    _, *places = re.split(r"^@@.*\n", "\n".join(changes), flags=re.M)
    if not places:
        return ""
    loop = source.spec_code(paper_of(MISTAKES[name].tag))
    of_paper = (text for text in places if text.splitlines()[-1][1:].strip() in loop)
    lines = next(of_paper, places[0]).splitlines()
    code = textwrap.dedent("\n".join(line[1:] for line in lines)).split("\n")
    more = [f"# and at {len(places) - 1} more places"] if len(places) > 1 else []
    return "\n".join([*(f"{line[0]} {text}" for line, text in zip(lines, code)), *more])


#: Mistake → a run of the specification's toy, by the names of `spec.run_toy`: batches D, DDD or SQ are the
#: roles of a local step.
RUNS = {
    "penalty not squared": "fedprox(f, w, D, ETA, 1.0)",
    "gradients add up from step to step": "fedavg(f, w, D, ETA)",
    "the Hessian is applied to g, not to u": "per_fedavg(f, w, DDD, ALPHA, BETA)",
    "HF: divided by δ": "per_fedavg(f, w, DDD, ALPHA, BETA, meta_gradient_hf)",
    "first order: the inner step's graph was cut": "fedmeta(f, w, SQ, BETA, partial(maml, alpha=ALPHA))",
    "FedMAML averages": "fedmaml(f, w, SQ, ALPHA, BETA)",
    "the own term is kept": "fedcurv(f, w, D, ETA, 1.0)",
    "SCAFFOLD's c_i is never kept": "scaffold(f, w, D, ETA, N)",
    "FedDyn's h is divided by |S|": "feddyn(f, w, D, ETA, ALPHA, N)",
    "FedNova's τ_eff is left out": "fednova(f, w, D, ETA)",
}


@cache
def losses(name: str) -> tuple[float, float]:
    """Return the clients' mean test loss after the toy's rounds, without a mistake and with it.

    Where the method adapts, each client first takes its step on its training rows.
    """
    alpha, ends = 0.0 if "w, D," in RUNS[name] else spec.ALPHA, list[float]()
    roles = {"D": ["D"], "DDD": ["D", "D1", "D2"], "SQ": ["S", "Q"]}
    for text in (TEXTS[spec], wrong_text(name)):
        it: Any = run(text, "fedref.spec")
        f, train, tests = it.make_toy()
        rounds = {k: list(it.drop_stragglers(it.toy_rounds(train, r))) for k, r in roles.items()}
        with np.errstate(all="ignore"):
            w = it.last(eval(RUNS[name], {**vars(it), **rounds, "f": f, "w": np.zeros(12)}))
            w = w[0] if isinstance(w, tuple) else w
            losses = [f(it.adapt(f, w, D, alpha), test) for D, test in zip(train, tests)]
        ends.append(float(np.mean(losses)))
    return ends[0], ends[1]


def runs() -> str:
    """Return what mistakes do to a short run."""
    ends = {name: losses(name) for name in RUNS}
    no_worse = sum(wrong <= right for right, wrong in ends.values())
    rows = ((name, f"{right:.4f}", f"{wrong:.4f}") for name, (right, wrong) in ends.items())
    return join(
        f"Runs of {spec.ROUNDS} rounds on the toy of `fedref/spec.py`, without the mistake and with "
        f"it: {no_worse} of {len(RUNS)} test losses end no worse with the mistake. A golden vector, "
        "which `fedref conformance` compares, finds each of them.",
        table("mistake | test loss without it | with it", rows),
    )


# ---- pages about all papers: texts of text/, with these in the place of {name} ---------------------


def text_page(name: str) -> str:
    """Return text/NAME.md, with what is computed in the place of each {name} on a line of its own."""
    text = re.sub("^<!--.*-->\n", "", text_of(f"{name}.md"), flags=re.M).strip()
    return re.sub(r"^\{(\w+)\}$", lambda x: COMPUTED[x[1]](), text, flags=re.M)


def tour() -> str:
    """Return the notebook's cells, with what they show: text, or a picture with its words."""
    notebook = json.loads((files("fedref.teach") / "tour.ipynb").read_text("utf-8"))
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else fence("python", text))
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            text = "".join(output.get("text") or data["text/plain"])
            png = "".join(data.get("image/png", "")).replace("\n", "")
            picture = f"![{text}](data:image/png;base64,{png})"
            parts.append(picture if png else fence("output", text.rstrip()))
    return join(*parts)


def specification() -> str:
    """Return the specification's docstring and sections, each with a link to its paper's page."""
    names, parts = set(map(page_name, source.modules())), [verbatim(spec.__doc__ or "")]
    for number, (title, text) in enumerate(source.spec_sections().items(), 1):
        paper = source.paper_of_section(title)
        link = f"[The page of this paper]({paper}.html)" if paper in names else ""
        parts.append(section(f"{number}. {title}", link, fence("python", text)))
    return join(*parts)


def equations() -> str:
    """Return each equation with its words and its places."""
    parts = []
    for module in source.modules():
        parts.append(f"## {source.title(module)}")
        for e in source.equations_in(module):
            name = e.function.__qualname__
            link = f"[`{name}`]({page_name(module)}.html#{anchor(name)})"
            code = source.number_lines(e.function)[e.line].strip()
            parts.append(formulae([e]) or fence("python", code))
            parts.append(f"{link} {summary_of(e.function)} {', '.join(places(e.tag))}")
            parts.append(f"In the original paper: {original(e.tag)}.")
    return join(*parts)


CONCORDANCE = tomllib.loads(text_of("concordance.toml"))


def original(tag: str) -> str:
    """Return where the original paper has an equation, or that this was not looked up."""
    paper, _, number = tag.partition(" ")
    return str(CONCORDANCE.get(paper, {}).get(number, "not looked up"))


def places(tag: str) -> list[str]:
    """Return the lines of an equation: the specification's, and those by hand with their function."""
    lines = source.tag_lines()[tag]
    found = [source.place(spec, line.number) for line in lines if line.module is spec]
    by_hand = (e for e in source.equations() if e.tag == tag)
    found += [f"{e.place} `{e.function.__qualname__}`" for e in by_hand]
    return found or [source.place(lines[0].module, lines[0].number)]


def symbols() -> str:
    """Return the specification's table of symbols."""
    rows = ((symbol, f"`{name}`", what) for symbol, name, what in docstrings.symbols(spec))
    return table("symbol | in the code | what it is", rows)


def papers() -> str:
    """Return each paper with its algorithms, in one sentence."""
    lines = []
    for module in source.modules()[1:]:
        page, name = page_name(module), source.title(module).partition(":")[0]
        first = why_of(page).strip().replace("\n", " ").partition(". ")[0].rstrip(".")
        labels = ", ".join(f"`{label}`" for label in algorithms_of(page))
        lines.append(f"[{name}]({page}.html) ({labels}). {first}.")
    return items(lines)


def claims() -> str:
    """Return what `fedref check` proves."""
    tags: dict[str, dict[str, None]] = {}
    for proof in proofs.PROOFS:
        tags.setdefault(proof.claim, {})[proof.tag] = None
    return table("claim | of", ((claim, ", ".join(of)) for claim, of in tags.items()))


ABOUT_CHECKS: list[str] = (checks.__doc__ or "").strip().split("\n\n", 2)
COMPUTED: dict[str, Callable[[], str]] = {
    "tour": tour, "specification": specification, "equations": equations, "symbols": symbols,
    "papers": papers, "claims": claims,
    "models": lambda: items(
        f"[{x.__name__}](model-{key}.html). {source.title(x)}." for key, x in MODELS.items()
    ),
    "exercises": lambda: table(
        "exercise | trains | needs before | minutes",
        ((f"`{x.name}`", x.trains, x.before, x.minutes) for x in EXERCISES.values()),
    ),
    "runs": runs, "reference": reference.contents,
    "mistakes": lambda: join(*(
        section(paper, *mistakes_of(paper.replace("-", "_")))
        for paper in dict.fromkeys(one.tag.split()[0] for one in MISTAKES.values())
    )),
    # how a derivative is proved: the docstring of `fedref.checks` and its code
    "about": lambda: "\n\n".join(ABOUT_CHECKS[:2]),
    "example": lambda: verbatim(ABOUT_CHECKS[2]),
    "complex_step": lambda: fence("python", source.place_and_code(checks.complex_step_derivative)[1]),
    "taylor": lambda: fence("python", source.place_and_code(checks.taylor_remainders)[1]),
}  # fmt: skip


def model_page(name: str) -> str:
    """Return a model's page: its docstring, and the functions with its formulae."""
    cls: Any = MODELS[name]
    title, _, text = (inspect.getdoc(cls) or "").partition("\n\n")
    functions = equation_parts(source.equations_of(cls))
    return join(f"# {cls.__name__}", title, verbatim(text), section("By hand", *functions))


def tag_text(tag: str) -> str:
    """Return an equation: the lines that name it, those that compute it by hand, and what is proved."""
    named = (f"{source.place(x.module, x.number)} {x.text}" for x in source.tag_lines()[tag])
    by_hand = (e for e in source.equations() if e.tag == tag)
    claims = dict.fromkeys(proof.claim for proof in proofs.PROOFS if proof.tag == tag)
    labels = algorithms_of(paper_of(tag))
    return join(
        f"# [{tag}]",
        f"In the original paper: {original(tag)}.",
        section("Where it is named", items(named)),
        section("By hand", *equation_parts(by_hand)),
        section("What `fedref check` proves", items(claims)),
        section("Worked example", example_text(labels[0])) if labels else "",
    )


#: The pages about all papers and their links, short, so that they stand on one line.
LINKS = {
    "index": "Start", "pieces": "Pieces", "algorithms": "Algorithms", "exercises": "Exercises",
    "tour": "Tour", "spec": "Papers",
    "equations": "Equations", "mistakes": "Mistakes", "proofs": "Proofs", "teachers": "Teachers",
    "frameworks": "Frameworks", "reference": "Reference",
}  # fmt: skip
#: The pages of the site: name → function.
PAGES: dict[str, Callable[[], str]] = {
    **{name: partial(text_page, name) for name in LINKS},
    **{page_name(module): partial(paper_page, module) for module in source.modules()},
    **{f"model-{name}": partial(model_page, name) for name in MODELS},
    **{
        reference.page_of(room): partial(reference.room_page, room)
        for room in reference.TEXT["rooms"]
    },
}
