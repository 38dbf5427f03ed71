"""The static site of `fedref explain --html`: no network, no scripts, formulae as MathML.

A page is a function that returns a `Sheet`. To add one, put it into `PAGES`.
"""

import base64
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from fedref import checks, proofs, spec
from fedref.algorithms import ALGORITHMS
from fedref.boundary.files import claim_folder
from fedref.conformance.errata import MISTAKES
from fedref.models import MODELS
from fedref.teach import example, mistakes, pages, source
from fedref.teach.exercises import EXERCISES
from fedref.teach.formula import mathml, parse
from fedref.teach.markup import (
    Sheet,
    code,
    docstring,
    escape,
    fold,
    html_list,
    lower,
    markdown,
    picture_block,
    prose,
    section,
    shell,
    table,
)  # fmt: skip
from fedref.teach.pages import page_name
from fedref.teach.pictures import PICTURES
from fedref.teach.plane import draw_plane
from fedref.teach.source import Equation, sections_of, text_of
from fedref.teach.style import draw, svg_text

# ---- one paper -----------------------------------------------------------------------------------


def file_sheet(module: ModuleType) -> Sheet:
    """Return a paper's page: why, the loop, its derivation, a picture, each equation, an example."""
    name, title = page_name(module), source.title(module)
    why, _, derivation = sections_of("why.md")[name].partition("### Derivation")
    labels = [label for label, cls in ALGORITHMS.items() if page_name(cls) == name]
    runs = ", ".join(f'<code id="{label}">{label}</code>' for label in labels)
    pictures = {f"rounds-{label}": draw(draw_plane, label) for label in labels[:1]}
    pictures |= {picture: draw(make) for picture, make in PICTURES.get(name, {}).items()}
    blocks = "".join(picture_block(*item) for item in pictures.items())
    claims = dict.fromkeys(
        f"<span class=tag>[{escape(proof.tag)}]</span> {lower(escape(proof.claim))}"
        for proof in proofs.PROOFS
        if pages.paper_of(proof.tag) == name
    )
    taught = [key for key, one in EXERCISES.items() if one.function in vars_of(name)]
    body = f"<h1>{escape(title)}</h1>{markdown(why)}"
    body += "".join(f"<p class=citation>{prose(text)}</p>" for text in source.citation(module))
    body += f"<p>In fedref: {runs}.</p>" if runs else ""
    body += section("The algorithm", code(loop) if (loop := pages.spec_code(name)) else "")
    body += section("Derivation", markdown(derivation))
    body += section("Two clients", blocks)
    body += section("Equation by equation", equations_block(module))
    body += section("Worked example", example_block(labels[0]) if labels else "")
    body += section("Known mistakes", "".join(map(mistake_block, mistakes.names_of(name))))
    decisions = source.entries(source.section(module, "Decisions"))
    body += section("Decisions", html_list(map(prose, decisions)) if decisions else "")
    body += section("What <code>fedref check</code> proves", html_list(claims) if claims else "")
    exercises = "".join(map(exercise_line, taught))
    return Sheet(title, body + section("Exercise", exercises), pictures)


def vars_of(paper: str) -> list[str]:
    """Return the names that a section of the specification defines."""
    return re.findall(r"^def (\w+)", pages.spec_code(paper), flags=re.M)


def exercise_line(name: str) -> str:
    return (
        f"<p><code>fedref exercise start {name} .</code> writes <code>{EXERCISES[name].file}</code>: "
        f"{escape(EXERCISES[name].trains)}. About {EXERCISES[name].minutes} minutes.</p>"
    )


def equations_block(module: ModuleType) -> str:
    """Return each tagged equation, the specification's lines beside the function by hand."""
    groups: dict[str, list[Equation]] = {}
    for equation in source.equations_in(module):
        groups.setdefault(equation.function, []).append(equation)
    html, seen = "", set[tuple[int, str]]()
    for name, equations in groups.items():
        place, text = source.place_and_code(source.find(module, name))
        formulae = "".join(map(formula_block, equations))
        tags = dict.fromkeys(equation.tag for equation in equations)
        parts = [part for tag in tags for part in pages.spec_parts(tag) if part not in seen]
        parts, seen = list(dict.fromkeys(parts)), {*seen, *parts}
        ours = "".join(f"<p class=where>fedref/spec.py:{n}</p>{code(part)}" for n, part in parts)
        theirs = f"<p class=where>{escape(place)}</p>{code(text, marked_lines(text, equations))}"
        html += (
            f'<section id="{anchor(name)}"><h3>{prose(pages.words(equations[0]))}</h3>{formulae}'
            f"<div class=beside><div>{ours}</div><div>{theirs}</div></div></section>"
        )
    rows = (
        (mathml(parse(s)), f"<code>{escape(n)}</code>", prose(shape))
        for s, n, shape in source.symbols(module)
    )
    symbols = table(("symbol", "name", "what it is"), rows)
    return (fold("Symbols", symbols) if source.symbols(module) else "") + html


def formula_block(equation: Equation, page: str = "") -> str:
    """Return an equation with its tag, a link to a page; one without a formula is its line of code."""
    tag = f"[{escape(equation.tag)}]"
    linked = f'<a href="{page}">{tag}</a>' if page else tag
    tag = f"<span class=tag>{linked}</span>"
    if not equation.formula:
        first = equation.code.splitlines()[0].strip()
        return f'<div class=formula tabindex="0">{tag}<code>{escape(first)}</code></div>'
    return f'<div class=formula tabindex="0">{tag}{whole_equation(equation, block=True)}</div>'


def whole_equation(equation: Equation, block: bool = False) -> str:
    """Return left = right as MathML."""
    right = mathml(parse(equation.formula), block)
    if not equation.left:
        return right
    left = mathml(parse(equation.left))
    return right.replace("<mrow>", f"{left[6:-7]}<mo>=</mo><mrow>", 1)


def anchor(function: str) -> str:
    """Return a function's place on its page."""
    return re.sub(r"\W+", "-", function)


def marked_lines(text: str, equations: list[Equation]) -> list[int]:
    """Return the lines of a function's code that begin an equation's statement."""
    lines = [line.strip() for line in text.splitlines()]
    heads = [equation.code.splitlines()[0].strip() for equation in equations]
    first = (next((i for i, x in enumerate(lines) if x.startswith(head)), None) for head in heads)
    return [i for i in first if i is not None]


def example_block(algorithm: str) -> str:
    """Return the worked example of an algorithm: what is given, and every line that ran."""
    worked = example.worked_example(algorithm)
    if worked is None:
        return ""
    given = ((escape(key), escape(value)) for key, value in example.given_lines(worked.case))
    rows = (
        (number, f"<code>{escape(line)}</code>", escape(value))
        for number, line, value in example.traced_rows(worked)
    )
    return (
        f"<p>The smallest rounds of <code>{algorithm}</code> without a zero that Hypothesis finds, "
        f"through the lines of <code>fedref/spec.py</code>. The model is {prose(example.ABOUT_MODEL)} "
        "What a line asks for (…) stands above it.</p>"
        f"{table(('given', ''), given)}"
        f"{table(('line', 'fedref/spec.py', 'value'), rows, kind='trace')}"
    )


def mistake_block(name: str) -> str:
    """Return one mistake as a section: what is wrong, the wrong line and the right one.

    A mistake in how an algorithm is called has no line of the specification, and is said in words alone.
    """
    place, *both = mistakes.lines_of(name)
    wrong, right = (code("\n".join(lines)) for lines in both)
    kind = f" ({one.kind})" if (one := MISTAKES[name]).kind != "wrong" else ""
    pair = (
        f"<div class=pair><div class=wrong><b>wrong</b>{wrong}</div>"
        f"<div class=right><b>right</b>{right}</div></div>"
    )
    return (
        f'<section class=mistake id="{mistake_anchor(name)}"><h3>{escape(name + kind)}</h3>'
        f"<p>{lower(escape(one.why))} <span class=tag>[{escape(one.tag)}]</span></p>"
        f"{pair if place == 'fedref/spec.py' else ''}</section>"
    )


def mistake_anchor(name: str) -> str:
    return "mistake-" + "-".join(re.findall(r"[\w′″⁺]+", name.lower()))


# ---- pages about all papers ----------------------------------------------------------------------


def tour_sheet() -> Sheet:
    """Return the notebook as a page, and where to go from there."""
    notebook = json.loads((files("fedref.teach") / "tour.ipynb").read_text("utf-8"))
    body = ""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        body += markdown(text) if cell["cell_type"] == "markdown" else code(text)
        body += "".join(map(output_block, cell.get("outputs", ())))
    papers = [
        f'<a href="{page_name(module)}.html">{escape(source.title(module))}</a>'
        for module in source.modules()
    ]
    models = [f'<a href="model-{name}.html">{cls.__name__}</a>' for name, cls in MODELS.items()]
    body += f"<h2>Algorithms</h2>{html_list(papers)}<h2>Models</h2>{html_list(models)}"
    return Sheet("From a gradient to a personalised federation", body)


def output_block(output: Mapping[str, Any]) -> str:
    """Return what a cell of the notebook shows: text, or a picture with its words."""
    data = output.get("data", {})
    if "image/png" not in data:
        text = "".join(output.get("text") or data["text/plain"])
        return f'<pre class=output tabindex="0">{escape(text)}</pre>'
    png = "".join(data["image/png"]).replace("\n", "")
    size = base64.b64decode(png)[16:24]
    width, height = int.from_bytes(size[:4], "big"), int.from_bytes(size[4:], "big")
    return (
        f'<figure class=picture><img src="data:image/png;base64,{png}" width="{width}" '
        f'height="{height}" alt="{escape("".join(data["text/plain"]))}"></figure>'
    )


def spec_sheet() -> Sheet:
    """Return the page of `fedref/spec.py`: its contents, and each section with a link to its paper."""
    papers = {page_name(module) for module in source.modules()}
    entries, body = [], ""
    for number, (title, text) in enumerate(pages.spec_sections().items(), 1):
        paper = pages.paper_of_section(title)
        entries.append(f'<a href="#section-{number}">{prose(title)}</a>')
        link = (
            f'<p><a href="{paper}.html">The page of this paper</a></p>' if paper in papers else ""
        )
        body += (
            f'<section id="section-{number}"><h2>{number}. {prose(title)}</h2>{link}{code(text)}'
        )
        body += "</section>"
    contents = f'<nav class=contents aria-label="Contents">{html_list(entries, "ol")}</nav>'
    head = f"<h1>The papers in one file</h1>{contents}{docstring(spec.__doc__ or '')}"
    return Sheet("The papers in one file", head + body)


def equations_sheet() -> Sheet:
    """Return the index of equations."""
    body = "<h1>Equations</h1><p>Every equation that has a line of code, with its words and its places.</p>"
    for module in source.modules():
        body += f"<h2>{escape(source.title(module))}</h2>"
        for e in source.equations_in(module):
            lines = [f"spec.py:{number}" for number, _ in pages.spec_lines(e.tag)]
            places = ", ".join([*lines, pages.location(e).removeprefix("fedref/")])
            body += formula_block(e, f"{page_name(module)}.html#{anchor(e.function)}")
            body += f"<p class=where>{prose(pages.words(e))} {escape(places)}</p>"
    return Sheet("Equations", body)


def proofs_sheet() -> Sheet:
    """Return how a derivative is proved: the method, its code and pictures, and all claims."""
    title, how, own = (checks.__doc__ or "").strip().split("\n\n", 2)
    pictures = {name: draw(make) for name, make in PICTURES["proofs"].items()}
    calls: tuple[Any, ...] = checks.complex_step_derivative, checks.taylor_remainders
    shown = "".join(
        f"<h2>{call.__name__}</h2>{code(inspect.getsource(call))}{picture_block(name, made)}"
        for call, (name, made) in zip(calls, pictures.items())
    )
    claims: dict[str, dict[str, None]] = {}
    for proof in proofs.PROOFS:
        claims.setdefault(proof.claim, {})[proof.tag] = None
    rows = ((escape(claim), escape(", ".join(tags))) for claim, tags in claims.items())
    body = markdown(
        text_of("proofs.md"), about=f"<p>{prose(title)}</p><p>{prose(how)}</p>", pictures=shown,
        example=docstring(own), claims=table(("claim", "of"), rows),
    )  # fmt: skip
    return Sheet("How derivatives are proved", body, pictures)


def mistakes_sheet() -> Sheet:
    """Return the known mistakes: wrong line and right line, and what some do to a short run."""
    entries = (f'<a href="#{mistake_anchor(name)}">{escape(name)}</a>' for name in MISTAKES)
    body = (
        "<h1>Known mistakes</h1><p>Known mistakes in code of these papers. The conformance suite knows "
        "what each computes, and names it when a backend computes the same.</p>"
        f'<nav class=contents aria-label="Mistakes">{html_list(entries, "ol")}</nav>'
    )
    body += section("A learning curve does not find them", runs_block())
    return Sheet("Known mistakes", body + "".join(map(mistake_block, MISTAKES)))


def runs_block() -> str:
    """Return the short runs without a mistake and with it."""
    rows = (
        (escape(name), *(f"{loss:.4f}" for loss in mistakes.losses(name))) for name in mistakes.RUNS
    )
    return (
        f"<p>Runs of {spec.ROUNDS} rounds on the toy of <code>fedref/spec.py</code>, without the mistake "
        f"and with it: {len(mistakes.harmless_mistakes())} of {len(mistakes.RUNS)} test losses end no "
        "worse with the mistake. A golden vector, which <code>fedref conformance</code> compares, finds "
        f"each of them.</p>{table(('mistake', 'test loss without it', 'with it'), rows)}"
    )


def teachers_sheet() -> Sheet:
    """Return the guide for teachers: a course, and the exercises."""
    rows = (
        (f"<code>{name}</code>", escape(one.trains), prose(one.before), str(one.minutes))
        for name, one in EXERCISES.items()
    )
    exercises = table(("exercise", "trains", "needs before", "minutes"), rows)
    return Sheet("For teachers", markdown(text_of("teachers.md"), exercises=exercises))


def model_sheet(name: str) -> Sheet:
    """Return a model's page: its docstring and its functions."""
    title, _, text = (inspect.getdoc(MODELS[name]) or "").partition("\n\n")
    body = f"<h1>{MODELS[name].__name__}</h1><p>{prose(title)}</p>{docstring(text)}"
    for function, place, lines, equations in pages.model_functions(name):
        formulae = "".join(map(formula_block, equations))
        body += (
            f"<section><h2>{escape(function)}</h2><p class=where>{escape(place)}</p>{formulae}"
            f"{code(lines, marked_lines(lines, equations))}</section>"
        )
    return Sheet(MODELS[name].__name__, body)


# ---- the site ------------------------------------------------------------------------------------

#: Pages that are neither an algorithm's nor a model's, in the order of the links: name → function.
PAGES: dict[str, Callable[[], Sheet]] = {
    "index": tour_sheet, "spec": spec_sheet, "equations": equations_sheet,
    "mistakes": mistakes_sheet, "proofs": proofs_sheet, "teachers": teachers_sheet,
}  # fmt: skip
#: Their texts in the links of every page: short, so that they stand on one line.
LINKS: dict[str, str] = {
    "index": "Tour", "spec": "Papers", "equations": "Equations", "mistakes": "Mistakes",
    "proofs": "Proofs", "teachers": "Teachers",
}  # fmt: skip


def all_pages() -> Mapping[str, Callable[[], Sheet]]:
    """Return all pages of the site, by name."""
    algorithms = {page_name(module): partial(file_sheet, module) for module in source.modules()}
    models = {f"model-{name}": partial(model_sheet, name) for name in MODELS}
    return {**PAGES, **algorithms, **models}


def site_files(sheets: Mapping[str, Callable[[], Sheet]]) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of all that a site of these pages is made of."""
    for name, make in sheets.items():
        sheet = make()
        yield f"{name}.html", shell(sheet, name, LINKS)
        for picture, given in sheet.pictures.items():
            yield f"{picture}.svg", svg_text(given.figure)
    yield "style.css", (files("fedref.teach") / "style.css").read_text("utf-8")


def build_site(folder: Path) -> list[Path]:
    """Write the site, and return its files."""
    claim_folder(folder)
    paths = []
    for name, text in site_files(all_pages()):
        paths.append(folder / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths
