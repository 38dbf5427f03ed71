"""The static site of `fedref explain --html`: no network, no framework, formulae as MathML.

A page is a function that returns a `Sheet`. To add one, put it into `PAGES`; every page leads to it.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from fedref.algorithms import ALGORITHMS
from fedref.boundary.files import claim_folder
from fedref.conformance.mistakes import MISTAKES, PUBLISHED
from fedref.models import MODELS
from fedref.teach import figure, pages, source
from fedref.teach.catalogue import EXERCISES
from fedref.teach.example import Trace
from fedref.teach.formula import mathml, parse
from fedref.teach.guide_pages import (
    backends_page,
    mistake_anchor,
    mistakes_page,
    proofs_page,
    spec_page,
    teachers_page,
)
from fedref.teach.markup import (
    Sheet,
    docstring,
    escape,
    fold,
    highlight,
    picture_block,
    prose,
    shell,
    table,
    table_row,
)
from fedref.teach.pages import Function
from fedref.teach.pictures import PICTURES, draw, svg_text
from fedref.teach.source import Equation


def formula_block(equation: Equation) -> str:
    """Return a tag, and its formula if there is one."""
    tag = f'<span class="tag">[{escape(equation.tag)}]</span>'
    shown = mathml(parse(equation.formula), block=True) if equation.formula else ""
    return f"<div class=formula>{tag}{shown}</div>"


def function_block(function: Function) -> str:
    """Return a function: its equations, its code, its proofs, and its worked example."""
    return (
        f'<section id="{anchor(function.name)}"><h2>{escape(function.name)}</h2>'
        f"<p class=where>{escape(function.place)}</p>"
        f"{''.join(map(formula_block, function.equations))}"
        f"{highlight(function.code, function.symbols, marked_lines(function))}"
        f"{proofs_block(function.proofs)}{example_block(function.trace)}</section>"
    )


def anchor(function: str) -> str:
    """Return a function's place on its page."""
    return function.replace(".", "-").replace(", ", "-").replace(" ", "-")


def marked_lines(function: Function) -> list[int]:
    """Return the lines of a function's code that begin an equation's statement."""
    lines = [line.strip() for line in function.code.splitlines()]
    heads = [equation.code.splitlines()[0].strip() for equation in function.equations]
    first = (next((i for i, x in enumerate(lines) if x.startswith(head)), None) for head in heads)
    return [i for i in first if i is not None]


def proofs_block(claims: Iterable[str]) -> str:
    """Return the claims that `fedref check` proves."""
    rows = "".join(f"<li>{escape(claim)}</li>" for claim in claims)
    return fold("What <code>fedref check</code> proves", f"<ul>{rows}</ul>") if rows else ""


def example_block(trace: Trace | None) -> str:
    """Return the worked example as a table."""
    if trace is None:
        return ""

    def rows(values: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for name, value in values:
            yield f"<code>{escape(name)}</code>", escape(value)

    numbers = table(
        ("given, and below it computed", "value"),
        rows(pages.given_values(trace)),
        rows(pages.computed_values(trace)),
    )
    return fold("Worked example, to redo by hand", numbers)


def symbol_table(module: ModuleType) -> str:
    """Return symbol → name → shape; each row can be pointed at and reached by the Tab key."""
    head = table_row(f"<b>{title}</b>" for title in ("symbol", "name", "shape"))
    rows = "".join(
        table_row(
            (mathml(parse(s)), f"<code>{escape(n)}</code>", prose(shape)),
            f' data-symbol="{escape(s)}" tabindex="0"',
        )
        for s, n, shape in source.symbols(module)
    )
    return f"<div class=wide tabindex=0><table>{head}{rows}</table></div>" if rows else ""


def algorithms_of(module: ModuleType) -> dict[str, type]:
    """Return the algorithms of a file, by the names that `fedref run` knows."""
    return {name: cls for name, cls in ALGORITHMS.items() if cls.__module__ == module.__name__}


def file_sheet(module: ModuleType) -> Sheet:
    """Return the page of one paper's file: equations, algorithms, pictures, decisions."""
    name, page = page_name(module.__name__), pages.file_page(module)
    body = f"<h1>{escape(page.title)}</h1>"
    body += "".join(f"<p class=citation>{prose(text)}</p>" for text in page.citation)
    if page.objective:
        body += f"<p class=objective>{prose(page.objective)}</p>"
    body += symbol_table(module) + "".join(map(function_block, page.functions))
    pictures = {picture: draw(make) for picture, make in PICTURES.get(name, {}).items()}
    if pictures:
        blocks = "".join(picture_block(*item) for item in pictures.items())
        body += f"<section><h2>Pictures</h2><div class=pictures>{blocks}</div></section>"
    if name in figure.FIGURES:
        body += figure_block(name)
    classes = "".join(
        f'<details id="{label}"><summary><code>{label}</code>: {escape(cls.__name__)}</summary>'
        f"{highlight(inspect.getsource(cls), {})}</details>"
        for label, cls in algorithms_of(module).items()
    )
    body += f"<section><h2>As fedref runs it</h2>{classes}</section>" * bool(classes)
    if page.decisions:
        items = "".join(f"<li>{prose(text)}</li>" for text in list_entries(page.decisions))
        body += f"<section><h2>Decisions</h2><ul class=topics>{items}</ul></section>"
    return Sheet(page.title, body, pictures)


def figure_block(name: str) -> str:
    """Return the figure with sliders: every number in it is in the page."""
    data = json.dumps(figure.figure_data(name), ensure_ascii=False, separators=(",", ":"))
    return (
        "<section><h2>Try it</h2><p>Two clients with two parameters: the rings are the contours of their "
        "losses, the lines their local steps in one round. fedref's own functions computed every "
        "position.</p><figure class=try>"
        f'<script type="application/json">{data}</script></figure>'
        '<script src="figure.js" defer></script></section>'
    )


def list_entries(section: str) -> list[str]:
    """Return the entries of a docstring's section; a line indented further belongs to the one before."""
    lines = section.splitlines()[1:]
    least = min(len(line) - len(line.lstrip()) for line in lines)
    entries: list[str] = []
    for line in lines:
        if line[least] == " ":
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line.strip())
    return entries


def model_sheet(name: str) -> Sheet:
    """Return a model's page: its docstring and its functions."""
    title, page = MODELS[name].__name__, pages.page_of(name)
    body = f"<h1>{escape(title)}</h1><p>{prose(page.title)}</p>"
    body += docstring(page.text)
    return Sheet(title, body + "".join(map(function_block, page.functions)))


def topic_links() -> dict[str, str]:
    """Return every topic of `fedref explain`, in alphabetical order, and where it stands in the site."""
    links = {name: f"model-{name}.html" for name in MODELS}
    links |= {name: f"{page_name(cls.__module__)}.html#{name}" for name, cls in ALGORITHMS.items()}
    links |= dict.fromkeys(EXERCISES, "teachers.html")
    links |= dict.fromkeys(MISTAKES, "mistakes.html")
    links |= {name: f"mistakes.html#{mistake_anchor(name)}" for name in PUBLISHED}
    for tag, mention in source.mentions().items():
        links[tag] = f"{page_name(mention.module.__name__)}.html"
    for equation in reversed(source.equations()):
        links[equation.tag] = f"{page_name(equation.module)}.html#{anchor(equation.function)}"
    return {name: links[name] for name in sorted(links, key=str.casefold)}


def index_sheet() -> Sheet:
    """Return the first page: where to start, the algorithms and models, and a list of all topics."""
    algorithms = ""
    for module in source.modules():
        page = f"{page_name(module.__name__)}.html"
        names = ", ".join(
            f'<a href="{page}#{label}"><code>{label}</code></a>' for label in algorithms_of(module)
        )
        title = escape(source.title(module))
        algorithms += f'<li><a href="{page}">{title}</a><br>{names or "used by all"}</li>'
    models = "".join(
        f'<li><a href="model-{name}.html">{escape(cls.__name__)}</a></li>'
        for name, cls in MODELS.items()
    )
    starts = "".join(
        f'<li><a href="{name}.html">{LINKS[name]}</a>: {said}</li>' for name, said in START
    )
    topics = "".join(
        f'<li><a href="{link}">{escape(name)}</a></li>' for name, link in topic_links().items()
    )
    body = (
        "<h1>fedref: personalised federated learning, equation by equation</h1>"
        "<p>Five papers on personalised and heterogeneous federated learning, and six algorithms beyond "
        "them, in NumPy. Every formula, line of code, number and picture on these pages is taken from the "
        "code that runs.</p>"
        f"<h2>Where to start</h2><ol class=topics>{starts}</ol>"
        f"<h2>Algorithms</h2><p>Point at a symbol, or move to it with the Tab key: it is marked in "
        f"formula, code and table.</p><ul class=topics>{algorithms}</ul>"
        f"<h2>Models</h2><ul>{models}</ul><h2>All topics</h2><p>Equations, algorithms, models, exercises "
        "and mistakes. <code>fedref explain TOPIC</code> shows the same in a terminal.</p>"
        "<label>Find a topic <input type=search id=find></label>"
        f"<nav class=contents aria-label=Topics><ul id=topics>{topics}</ul></nav>"
    )
    return Sheet("Where to start", body)


def equations_sheet() -> Sheet:
    """Return the index of equations."""
    rows = (
        (
            f'<a href="{page_name(e.module)}.html#{anchor(e.function)}">[{escape(e.tag)}]</a>',
            mathml(parse(e.formula)) if e.formula else "",
            f"<code>{escape(pages.location(e))}</code>",
        )
        for e in source.equations()
    )
    return Sheet("Equations", "<h1>Equations</h1>" + table(("tag", "formula", "line"), rows))


#: Pages that are neither an algorithm's nor a model's, in the order of the links: name → function.
PAGES: dict[str, Callable[[], Sheet]] = {
    "index": index_sheet,
    "spec": spec_page,
    "equations": equations_sheet,
    "proofs": proofs_page,
    "mistakes": mistakes_page,
    "teachers": teachers_page,
    "backends": backends_page,
}
#: Their texts in the links of every page.
LINKS: dict[str, str] = {
    "index": "fedref",
    "spec": "The papers in one file",
    "equations": "Equations",
    "proofs": "How derivatives are proved",
    "mistakes": "Known mistakes",
    "teachers": "For teachers",
    "backends": "For backend authors",
}
#: Where to start, and why.
START: list[tuple[str, str]] = [
    ("spec", "begin here. Each algorithm as its paper prints it, beside the code that runs, with the "
     "proofs that both are equal."),
    ("equations", "you have an equation of a paper, and look for its line of code."),
    ("proofs", "you want to know why the derivatives are right, or to prove your own."),
    ("mistakes", "you have an implementation, and want to know what is often wrong."),
    ("teachers", "a course of four sessions, with exercises that are corrected by a command."),
    ("backends", "test a faster implementation against golden vectors."),
]  # fmt: skip


def page_name(module: str) -> str:
    """Return the name of the page of a paper's file."""
    return module.rpartition(".")[2]


def all_pages() -> Mapping[str, Callable[[], Sheet]]:
    """Return all pages of the site, by name."""
    algorithms = {page_name(m.__name__): partial(file_sheet, m) for m in source.modules()}
    models = {f"model-{name}": partial(model_sheet, name) for name in MODELS}
    return {**PAGES, **algorithms, **models}


def site_files(sheets: Mapping[str, Callable[[], Sheet]]) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of all that a site of these pages is made of."""
    for name, make in sheets.items():
        sheet = make()
        yield f"{name}.html", shell(sheet, name, LINKS)
        for picture, given in sheet.pictures.items():
            yield f"{picture}.svg", svg_text(given.figure)
    for name in ("style.css", "site.js", "figure.js"):
        yield name, (files("fedref.teach") / name).read_text("utf-8")


def build_site(folder: Path) -> list[Path]:
    """Write the site, and return its files."""
    claim_folder(folder)
    paths = []
    for name, text in site_files(all_pages()):
        paths.append(folder / name)
        paths[-1].write_text(text, encoding="utf-8")
    return paths
