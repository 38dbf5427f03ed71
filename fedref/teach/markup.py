"""Pieces of a page: Markdown, code, tables, pictures, and the shell around them."""

import html
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedref.boundary.errors import ConfigError
from fedref.teach.style import Picture

try:
    from markdown_it import MarkdownIt
    from pygments import highlight as pygmentize
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer
except ImportError as error:
    raise ConfigError(
        'the site needs markdown-it-py and Pygments: pip install "fedref[teach]"'
    ) from error

escape = html.escape
SHELL = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · fedref</title><link rel="stylesheet" href="style.css"></head>
<body><a class="skip" href="#main">Skip to the page</a>
<header><nav aria-label="Pages">{links}</nav></header>
<main id="main">
{body}
</main></body></html>
"""
#: A single letter with its marks and its subscript: θ*_k, w_S,j, Σ_{j ≠ s}.
SUBSCRIPT = re.compile(r"(?<![^\WΣ∇])([^\W\d_][\u0302\u0304*′ᵗ]*)_(\{[^{}]*\}|\w(?:,\w)?)(?!\w)")


class Sheet(NamedTuple):
    """A page: its title, what stands in <main>, and name → picture, each NAME.svg beside the page."""

    title: str
    body: str
    pictures: Mapping[str, Picture] = {}


def shell(sheet: Sheet, here: str, links: Mapping[str, str]) -> str:
    """Return a whole page. here : its own name; links : page → text, in the head of every page."""
    nav = "".join(
        f'<a href="{name}.html"{" aria-current=page" * (name == here)}>{escape(text)}</a>'
        for name, text in links.items()
    )
    return SHELL.format(title=escape(sheet.title), links=nav, body=sheet.body)


def markdown(text: str, **parts: str) -> str:
    """Return Markdown as HTML. parts : what stands in the place of a paragraph {name}, as HTML."""
    rendered = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    rendered = re.sub(r"(>[^<]*<)(?!/code)", lambda x: lower(x[1]), rendered)
    rendered = rendered.replace("<pre>", '<pre tabindex="0">')
    for name, part in parts.items():
        rendered = rendered.replace(f"<p>{{{name}}}</p>", part)
    return rendered


def lower(text: str) -> str:
    """Return a text with subscripts: θ_k."""
    return SUBSCRIPT.sub(lambda x: f"{x[1]}<sub>{x[2].strip('{}')}</sub>", text)


def prose(text: str) -> str:
    """Return a docstring's paragraph as HTML: `code`, *emphasis*, θ_k with its subscript."""
    parts = re.split(r"`([^`]+)`", text)
    for i, part in enumerate(map(escape, parts)):
        emphasised = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<em>\1</em>", part)
        parts[i] = f"<code>{part}</code>" if i % 2 else lower(emphasised)
    return "".join(parts)


def docstring(text: str) -> str:
    """Return a docstring as HTML: paragraphs as prose, indented blocks and doctests verbatim."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "".join(
        f'<pre tabindex="0">{escape(block)}</pre>'
        if re.search(r"^(  |>>>)", block, re.MULTILINE) or "  " in block
        else f"<p>{prose(block)}</p>"
        for block in blocks
    )


def code(text: str, marked: Iterable[int] = ()) -> str:
    """Return Python as HTML. marked : the lines, from 0, that stand out."""
    lines = [i + 1 for i in marked]
    formatter: Any = HtmlFormatter(nowrap=True, hl_lines=lines, classprefix="c-")
    return f'<pre class="code" tabindex="0"><code>{pygmentize(text, PythonLexer(), formatter)}</code></pre>'


def picture_block(name: str, picture: Picture) -> str:
    """Return a picture with its caption and its description in words; a wide one scrolls on a phone."""
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    image = f'<img src="{name}.svg" width="{width}" height="{height}" alt="{escape(picture.alt)}">'
    if width > 540:
        image = f'<div class=wide tabindex="0">{image}</div>'
    return (
        f"<figure class=picture>{image}<figcaption>{prose(picture.caption)}</figcaption></figure>"
    )


def table(head: Iterable[str], *bodies: Iterable[Iterable[str]], kind: str = "") -> str:
    """Return a table of one or more bodies; cells are HTML already."""
    columns = "".join(f"<th scope=col>{cell}</th>" for cell in head)
    lines = "".join(f"<tbody>{''.join(map(table_row, rows))}</tbody>" for rows in bodies)
    attributes = f' class="{kind}"' if kind else ""
    return (
        f'<div class=wide tabindex="0"><table{attributes}><thead><tr>{columns}</tr></thead>'
        f"{lines}</table></div>"
    )


def table_row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def html_list(items: Iterable[str], kind: str = "ul") -> str:
    return f"<{kind}>{''.join(f'<li>{item}</li>' for item in items)}</{kind}>"


def section(title: str, body: str) -> str:
    """Return a section with its heading, or nothing where it is empty."""
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def fold(summary: str, inside: str) -> str:
    """Return a part of a page that opens on demand."""
    return f"<details><summary>{summary}</summary>{inside}</details>"
