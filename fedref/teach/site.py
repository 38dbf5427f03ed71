"""The same pages as a static site: formulae as MathML beside the code, no network, no framework.

A page is a function that returns a `Sheet`. To add one, put it into `PAGES`, and into `LINKS` if every
page shall lead to it.
"""

import html
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from fedref.algorithms import ALGORITHMS
from fedref.models import MODELS
from fedref.teach import derivatives, pages, source, worked
from fedref.teach.drawing import drawn, svg
from fedref.teach.formula import mathml, parse
from fedref.teach.html import Sheet, highlighted, prose, shell, shown, table
from fedref.teach.lessons import mistakes_page, proofs_page
from fedref.teach.pictures import PICTURES
from fedref.teach.source import Equation

#: Files whose page has the figure with sliders, and the algorithms that it offers.
FIGURES = {
    "per_fedavg": "exact fo hf fedprox", "fedprox": "fedprox", "apfl": "apfl apfl-continuous",
}  # fmt: skip
FIGURE = (
    "<section><h2>Try it</h2><p>Two clients with two parameters: the rings are their losses, the lines "
    '{lines}.</p><figure class=try data-algorithm="{first}" data-offered="{offered}"></figure>'
    '<script src="figure.js" defer></script></section>'
)
LINES = {"apfl": "the models that they test with, round by round"}


def names_of(equation: Equation) -> dict[str, str]:
    """Python name → symbol, in the file of an equation."""
    module = next(m for m in source.modules() if m.__name__ == equation.module)
    table = {row.name: row.symbol for row in source.symbols(module)}
    return {**{name: name for name in "wDuvFI"}, **table, "grad": "g", "hvp": "H", "loss": "f"}


def formula_block(equation: Equation) -> str:
    """A tag, and its formula if there is one."""
    tag = f'<span class="tag">[{html.escape(equation.tag)}]</span>'
    shown = mathml(parse(equation.formula), block=True) if equation.formula else ""
    return f"<div class=formula>{tag}{shown}</div>"


def function_block(group: list[Equation]) -> str:
    """The equations of one function, its code, and its worked example."""
    first = group[0]
    code = source.code_of(first)
    where = html.escape(pages.location(first))
    out = f'<section id="{anchor(first)}"><h2>{html.escape(first.function)}</h2>'
    out += f"<p class=where>{where}</p>{''.join(map(formula_block, group))}"
    out += highlighted(code, names_of(first), marked(code, group))
    out += proofs_of(claim for e in group for claim in pages.proved_by(e.tag))
    trace = worked.example(first) if worked.has_example(first) else None
    return out + example(trace) + "</section>"


def marked(code: str, equations: Iterable[Equation]) -> list[int]:
    """The lines of a function's code that begin an equation's statement."""
    lines = [line.strip() for line in code.splitlines()]
    heads = [equation.code.splitlines()[0].strip() for equation in equations]
    found = (next((i for i, x in enumerate(lines) if x.startswith(head)), None) for head in heads)
    return [i for i in found if i is not None]


def proofs_of(claims: Iterable[str]) -> str:
    """What `fedref check` proves, open on demand."""
    rows = "".join(f"<li>{html.escape(claim)}</li>" for claim in dict.fromkeys(claims))
    if not rows:
        return ""
    return f"<details><summary>What <code>fedref check</code> proves</summary><ul>{rows}</ul></details>"


def example(trace: worked.Trace | None) -> str:
    """The worked example as a table, open on demand."""
    if trace is None:
        return ""
    given = "".join(
        f"<tr><th scope=row><code>{html.escape(n)}</code></th><td>{html.escape(v)}</td></tr>"
        for n, v in pages.given(trace)
    )
    made = "".join(
        f"<tr><th scope=row><code>{html.escape(v.name)}</code></th><td>{html.escape(v.value)}</td></tr>"
        for v in pages.intermediates(trace)
    )
    return (
        "<details><summary>Worked example, to redo by hand</summary>"
        '<div class=wide tabindex="0"><table><thead><tr><th scope=col>given</th>'
        "<th scope=col>value</th></tr></thead>"
        f"<tbody>{given}</tbody><thead><tr><th scope=col>computed</th><th scope=col>value</th></tr></thead>"
        f"<tbody>{made}</tbody></table></div></details>"
    )


def anchor(equation: Equation) -> str:
    """A function's place on its page."""
    return equation.function.replace(".", "-")


def page_name(equation: Equation) -> str:
    """The site's page of an equation: that of its file."""
    return equation.module.rpartition(".")[2]


def symbol_table(module: ModuleType) -> str:
    """Symbol → name → shape; each row can be pointed at and reached by the Tab key."""
    rows = "".join(
        f'<tr data-symbol="{html.escape(s)}" tabindex="0"><td>{mathml(parse(s))}</td>'
        f"<td><code>{html.escape(n)}</code></td><td>{prose(shape)}</td></tr>"
        for s, n, shape in source.symbols(module)
    )
    if not rows:
        return ""
    return (
        '<div class=wide tabindex="0"><table><caption>Symbols</caption><thead><tr><th scope=col>symbol</th>'
        f"<th scope=col>name</th><th scope=col>shape</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def offered(module: ModuleType) -> dict[str, type]:
    """The algorithms of a file, by the names that `fedref run` knows."""
    return {name: cls for name, cls in ALGORITHMS.items() if cls.__module__ == module.__name__}


def file_page(module: ModuleType) -> Sheet:
    """The page of one paper's file: equations, algorithms, pictures, decisions."""
    name = module.__name__.rpartition(".")[2]
    title = source.title(module)
    objective = source.section(module, "Objective")
    body = f"<h1>{html.escape(title)}</h1>"
    body += "".join(f"<p class=citation>{prose(text)}</p>" for text in source.citation(module))
    body += f"<p class=objective>{prose(objective)}</p>" * bool(objective) + symbol_table(module)
    groups: dict[str, list[Equation]] = {}
    for equation in source.equations():
        if equation.module == module.__name__:
            groups.setdefault(equation.function, []).append(equation)
    body += "".join(function_block(group) for group in groups.values())
    made = {picture: drawn(draw) for picture, draw in PICTURES.get(name, {}).items()}
    if made:
        body += "<section><h2>Pictures</h2><div class=pictures>"
        body += "".join(shown(picture, given) for picture, given in made.items())
        body += "</div></section>"
    if name in FIGURES:
        body += FIGURE.format(
            first=FIGURES[name].split()[0], offered=FIGURES[name],
            lines=LINES.get(name, "their local steps"),
        )  # fmt: skip
    classes = "".join(
        f'<details id="{label}"><summary><code>{label}</code>: {html.escape(cls.__name__)}</summary>'
        f"{highlighted(inspect.getsource(cls), {})}</details>"
        for label, cls in offered(module).items()
    )
    body += f"<section><h2>As fedref runs it</h2>{classes}</section>" * bool(classes)
    decisions = source.section(module, "Decisions").partition("\n")[2]
    if decisions:
        items = "".join(f"<li>{prose(text)}</li>" for text in entries(decisions))
        body += f"<section><h2>Decisions</h2><ul class=topics>{items}</ul></section>"
    return Sheet(title, body, made)


def entries(text: str) -> list[str]:
    """The entries of a list in a docstring: what is indented further belongs to the one before."""
    lines = text.splitlines()
    least = min(len(line) - len(line.lstrip()) for line in lines)
    out: list[str] = []
    for line in lines:
        if line[least] == " ":
            out[-1] += f" {line.strip()}"
        else:
            out.append(line.strip())
    return out


def text_block(text: str) -> str:
    """A docstring's text as it is laid out."""
    return f'<pre class=text tabindex="0">{html.escape(text)}</pre>'


def model_page(name: str) -> Sheet:
    """A model: its docstring, its derivatives."""
    cls = MODELS[name]
    title, _, text = (inspect.getdoc(cls) or "").partition("\n\n")
    body = f"<h1>{html.escape(cls.__name__)}</h1><p>{prose(title, formulae=False)}</p>"
    body += text_block(text)
    for method in derivatives.methods(name):
        body += (
            f"<section><h2>{method.name}</h2><p class=where>{method.place}</p>"
            f"{''.join(map(formula_block, method.formulae))}"
            f"{highlighted(method.code, derivatives.names(name), marked(method.code, method.formulae))}"
            f"{proofs_of(method.proved)}"
            f"{example(derivatives.example(name, method))}</section>"
        )
    return Sheet(cls.__name__, body)


def index_page() -> Sheet:
    """The first page: algorithms and models."""
    algorithms = shared = ""
    for module in source.modules():
        page = f"{module.__name__.rpartition('.')[2]}.html"
        link = f'<li><a href="{page}">{html.escape(source.title(module))}</a>'
        names = ", ".join(
            f'<a href="{page}#{label}"><code>{label}</code></a>' for label in offered(module)
        )
        algorithms += f"{link}<br>{names}</li>" * bool(names)
        shared += f"{link}</li>" * (not names)
    models = "".join(
        f'<li><a href="model-{name}.html">{html.escape(cls.__name__)}</a></li>'
        for name, cls in MODELS.items()
    )
    body = (
        "<h1>From an equation to its line, its numbers and its picture</h1>"
        "<p>Every formula, line, number and picture here is taken from the code that runs. Point at a "
        "symbol, or move to it with the Tab key, to see it in formula, code and table.</p>"
        f"<h2>Algorithms</h2><ul class=topics>{algorithms}</ul>"
        f"<h2>What they share</h2><ul class=topics>{shared}</ul><h2>Models</h2><ul>{models}</ul>"
        "<h2>Exercises</h2><p><code>fedref exercise list</code>: eight functions with one expression "
        "missing. What is wrong with an answer is told, the answer never; <code>--teacher</code> adds what "
        "each trains, how long it takes, and where the solutions are.</p>"
    )
    return Sheet("Explained", body)


def equations_page() -> Sheet:
    """The index of equations."""
    rows = (
        (
            f'<a href="{page_name(e)}.html#{anchor(e)}">[{html.escape(e.tag)}]</a>',
            mathml(parse(e.formula)) if e.formula else "",
            f"<code>{html.escape(pages.location(e))}</code>",
        )
        for e in source.equations()
    )
    return Sheet("Equations", "<h1>Equations</h1>" + table(("tag", "formula", "line"), rows))


#: Pages that are neither an algorithm's nor a model's: name → function.
PAGES: dict[str, Callable[[], Sheet]] = {
    "index": index_page,
    "equations": equations_page,
    "mistakes": mistakes_page,
    "proofs": proofs_page,
}
#: Those that every page leads to, and what they are called there.
LINKS: dict[str, str] = {
    "index": "fedref",
    "equations": "Equations",
    "mistakes": "Twenty mistakes",
    "proofs": "How derivatives are proved",
}


def every() -> Mapping[str, Callable[[], Sheet]]:
    """All pages of the site, by name."""
    algorithms = {m.__name__.rpartition(".")[2]: partial(file_page, m) for m in source.modules()}
    models = {f"model-{name}": partial(model_page, name) for name in MODELS}
    return {**PAGES, **algorithms, **models}


def contents(made: Mapping[str, Callable[[], Sheet]]) -> Iterator[tuple[str, str]]:
    """(file name, text) of all that a site of these pages is made of."""
    for name, make in made.items():
        sheet = make()
        yield f"{name}.html", shell(sheet, name, LINKS)
        for picture, given in sheet.pictures.items():
            yield f"{picture}.svg", svg(given.figure)
    for name in ("style.css", "site.js", "figure.js"):
        yield name, (files("fedref.teach") / name).read_text("utf-8")


def build(folder: Path) -> list[Path]:
    """Write the site; returns its files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in contents(every()):
        written.append(folder / name)
        written[-1].write_text(text, encoding="utf-8")
    return written
