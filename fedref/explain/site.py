"""The same pages as a static site: formulae as MathML beside the code, no network, no framework."""

import html
import inspect
import io
import keyword
import re
import tokenize
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from fedref.algorithms import ALGORITHMS
from fedref.explain import pages, source, worked
from fedref.explain.formula import mathml, parse
from fedref.explain.pages import Page
from fedref.explain.source import Equation
from fedref.models import MODELS

SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · fedref</title><link rel="stylesheet" href="style.css"></head>
<body><a class="skip" href="#main">Skip to the page</a>
<header><nav aria-label="Pages"><a href="index.html">fedref</a> {links}</nav></header>
<main id="main">
{body}
</main>
<script src="site.js" defer></script></body></html>
"""


#: Files whose page has the figure with sliders, and the algorithms that it offers.
FIGURES = {"per_fedavg": "exact fo hf fedprox", "fedprox": "fedprox"}
FIGURE = (
    "<section><h2>Try it</h2><p>Two clients with two parameters: the rings are their losses, the lines "
    'their local steps.</p><figure data-algorithm="{first}" data-offered="{offered}"></figure>'
    '<script src="figure.js" defer></script></section>'
)


def shell(title: str, body: str, here: str) -> str:
    """A whole page."""
    links = " ".join(
        f'<a href="{name}.html"{" aria-current=page" * (name == here)}>{html.escape(text)}</a>'
        for name, text in (("equations", "Equations"), ("proofs", "How derivatives are proved"))
    )
    return SHELL.format(title=html.escape(title), links=links, body=body)


def prose(text: str) -> str:
    """A docstring's paragraph: `code` marked, *emphasis* too, tags linked to nothing."""
    text = html.escape(text)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"(?<![\w*])\*([^*\n]+)\*(?![\w*])", r"<em>\1</em>", text)


def names_of(equation: Equation) -> dict[str, str]:
    """Python name → symbol, in the file of an equation."""
    module = next(m for m in source.modules() if m.__name__ == equation.module)
    table = {row.name: row.symbol for row in source.symbols(module)}
    return {**{name: name for name in "wDuvFI"}, **table, "grad": "g", "hvp": "H", "loss": "f"}


def highlighted(code: str, names: Mapping[str, str], marked: Iterable[int] = ()) -> str:
    """Python as HTML, a line at a time; a name that is a symbol of the paper carries it."""
    lines = code.splitlines()
    pieces: list[list[str]] = [[] for _ in lines]
    column = [0] * len(lines)

    def put(row: int, text: str, before: int, wrapped: str) -> None:
        pieces[row].append(html.escape(lines[row][column[row] : before]) + wrapped)
        column[row] = before + len(text)

    for token in tokenize.generate_tokens(io.StringIO(code + "\n").readline):
        row, at = token.start[0] - 1, token.start[1]
        if token.start[0] != token.end[0] or row >= len(lines):  # a docstring: line by line
            for r in range(row, min(token.end[0], len(lines))):
                begin = at if r == row else 0
                text = lines[r][begin : token.end[1]] if r == token.end[0] - 1 else lines[r][begin:]
                put(r, text, begin, f"<span class=string>{html.escape(text)}</span>")
            continue
        text = html.escape(token.string)
        if token.type == tokenize.COMMENT:
            put(row, token.string, at, f"<span class=comment>{text}</span>")
        elif token.type == tokenize.STRING:
            put(row, token.string, at, f"<span class=string>{text}</span>")
        elif token.type == tokenize.NAME and keyword.iskeyword(token.string):
            put(row, token.string, at, f"<b>{text}</b>")
        elif token.type == tokenize.NAME and token.string in names:
            symbol = html.escape(names[token.string])
            put(row, token.string, at, f'<span class=name data-symbol="{symbol}">{text}</span>')
    out = []
    for row, line in enumerate(lines):
        text = "".join(pieces[row]) + html.escape(line[column[row] :])
        out.append(f'<span class="line{" marked" * (row in set(marked))}">{text}</span>')
    return f'<pre class="code" tabindex="0"><code>{"".join(out)}</code></pre>'


def function_block(group: list[Equation]) -> str:
    """The equations of one function, its code, and its worked example."""
    first = group[0]
    code = source.code_of(first)
    lines = code.splitlines()
    formulae = []
    marked = []
    for equation in group:
        tag = f'<span class="tag">[{html.escape(equation.tag)}]</span>'
        shown = mathml(parse(equation.formula), block=True) if equation.formula else ""
        formulae.append(f"<div class=formula>{tag}{shown}</div>")
        head = equation.code.splitlines()[0].strip()
        marked += [i for i, line in enumerate(lines) if line.strip().startswith(head)][:1]
    where = html.escape(pages.location(first))
    out = f'<section id="{anchor(first)}"><h2>{html.escape(first.function)}</h2>'
    out += f"<p class=where>{where}</p>{''.join(formulae)}"
    out += highlighted(code, names_of(first), marked)
    proved = [claim for e in group for claim in pages.proved_by(e.tag)]
    if proved:
        rows = "".join(f"<li>{html.escape(claim)}</li>" for claim in dict.fromkeys(proved))
        out += f"<details><summary>What <code>fedref check</code> proves</summary><ul>{rows}</ul></details>"
    return out + example(first) + "</section>"


def example(equation: Equation) -> str:
    """The worked example as a table, open on demand."""
    if not worked.has_example(equation):
        return ""
    given = "".join(
        f"<tr><th scope=row><code>{html.escape(n)}</code></th><td>{html.escape(v)}</td></tr>"
        for n, v in pages.given(equation)
    )
    made = "".join(
        f"<tr><th scope=row><code>{html.escape(v.name)}</code></th><td>{html.escape(v.value)}</td></tr>"
        for v in pages.intermediates(equation)
    )
    return (
        "<details><summary>Worked example: two parameters, three samples, two clients</summary>"
        f"<div class=wide><table><thead><tr><th scope=col>given</th><th scope=col></th></tr></thead>"
        f"<tbody>{given}</tbody><thead><tr><th scope=col>computed</th><th scope=col></th></tr></thead>"
        f"<tbody>{made}</tbody></table></div></details>"
    )


def anchor(equation: Equation) -> str:
    """A function's place on its page."""
    return equation.function.replace(".", "-")


def page_name(equation: Equation) -> str:
    """The site's page of an equation: that of its file."""
    return equation.module.rpartition(".")[2]


def file_page(module: object) -> tuple[str, str]:
    """(name, HTML) of one algorithms' file."""
    name = str(module.__name__).rpartition(".")[2]  # type: ignore[attr-defined]
    chosen = [e for e in source.equations() if e.module == module.__name__]  # type: ignore[attr-defined]
    page = Page(
        name, source.title(module), source.section(module, "Objective"), chosen,  # type: ignore[arg-type]
        source.symbols(module), source.section(module, "Decisions"), "",  # type: ignore[arg-type]
    )  # fmt: skip
    body = f"<h1>{html.escape(page.title)}</h1><p class=objective>{prose(page.objective)}</p>"
    if page.symbols:
        rows = "".join(
            f'<tr data-symbol="{html.escape(s)}"><td>{mathml(parse(s))}</td>'
            f"<td><code>{html.escape(n)}</code></td><td>{html.escape(shape)}</td></tr>"
            for s, n, shape in page.symbols
        )
        body += (
            "<div class=wide><table><caption>Symbols</caption><thead><tr><th scope=col>symbol</th>"
            f"<th scope=col>name</th><th scope=col>shape</th></tr></thead><tbody>{rows}</tbody></table></div>"
        )
    groups: dict[str, list[Equation]] = {}
    for equation in chosen:
        groups.setdefault(equation.function, []).append(equation)
    body += "".join(function_block(group) for group in groups.values())
    if name in FIGURES:
        body += FIGURE.format(first=FIGURES[name].split()[0], offered=FIGURES[name])
    if page.decisions:
        body += f"<section><h2>Decisions</h2><pre class=text>{html.escape(page.decisions)}</pre></section>"
    return name, shell(page.title, body, name)


def model_page(name: str) -> tuple[str, str]:
    """(name, HTML) of a model: its docstring, its derivatives."""
    cls = MODELS[name]
    title, _, text = (inspect.getdoc(cls) or "").partition("\n\n")
    body = f"<h1>{html.escape(cls.__name__)}</h1><p>{prose(title)}</p>"
    body += f"<pre class=text>{html.escape(text)}</pre>"
    for method in ("grad", "hvp"):
        code = inspect.cleandoc(" \n" + inspect.getsource(getattr(cls, method)))
        body += f"<section><h2>{method}</h2>{highlighted(code, {})}</section>"
    return f"model-{name}", shell(cls.__name__, body, "")


def index_page() -> str:
    """The first page: algorithms and models."""
    files_ = {
        cls.__module__: source.title(m)
        for m in source.modules()
        for cls in ALGORITHMS.values()
        if cls.__module__ == m.__name__
    }
    algorithms = "".join(
        f'<li><a href="{module.rpartition(".")[2]}.html">{html.escape(title)}</a></li>'
        for module, title in files_.items()
    )
    models = "".join(
        f'<li><a href="model-{name}.html">{html.escape(cls.__name__)}</a></li>'
        for name, cls in MODELS.items()
    )
    body = (
        "<h1>From an equation to its line, its numbers and its picture</h1>"
        "<p>Every formula, line and number here is taken from the code that runs. Point at a symbol, "
        "or move to it with the Tab key, to see it in formula, code and table.</p>"
        f"<h2>Algorithms</h2><ul>{algorithms}</ul><h2>Models</h2><ul>{models}</ul>"
    )
    return shell("Explained", body, "index")


def equations_page() -> str:
    """The index of equations."""
    rows = "".join(
        f'<tr><td><a href="{page_name(e)}.html#{anchor(e)}">[{html.escape(e.tag)}]</a></td>'
        f"<td>{mathml(parse(e.formula)) if e.formula else ''}</td>"
        f"<td><code>{html.escape(pages.location(e))}</code></td></tr>"
        for e in source.equations()
    )
    body = (
        "<h1>Equations</h1><div class=wide><table><thead><tr><th scope=col>tag</th><th scope=col>"
        f"formula</th><th scope=col>line</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return shell("Equations", body, "equations")


def proofs_page() -> str:
    """How a derivative is proved, from the docstring of the checks."""
    from fedref import checks

    text = (checks.__doc__ or "").strip()
    title, _, rest = text.partition("\n\n")
    body = f"<h1>How derivatives are proved</h1><p>{prose(title)}</p>"
    body += f"<pre class=text>{html.escape(rest)}</pre>"
    return shell("How derivatives are proved", body, "proofs")


def build(folder: Path) -> list[Path]:
    """Write the site; returns its files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"index": index_page(), "equations": equations_page(), "proofs": proofs_page()}
    made |= dict(file_page(module) for module in source.modules())
    made |= dict(model_page(name) for name in MODELS)
    written = []
    for name, text in made.items():
        path = folder / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    for name in ("style.css", "site.js", "figure.js"):
        path = folder / name
        path.write_text((files("fedref.explain") / name).read_text("utf-8"), encoding="utf-8")
        written.append(path)
    return written
