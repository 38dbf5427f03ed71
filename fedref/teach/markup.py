"""Pieces of a page: prose, highlighted code, pictures, tables, and the shell around them."""

import html
import inspect
import io
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fedref.teach.pictures import Picture

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
</main>
<script src="site.js" defer></script></body></html>
"""


#: A single letter with its marks and its subscript: θ*_k, w_S,j, Σ_{j ≠ s}.
SUBSCRIPT = re.compile(r"(?<![^\WΣ∇])([^\W\d_][\u0302\u0304*′ᵗ]*)_(\{[^{}]*\}|\w(?:,\w)?)(?!\w)")
#: A picture wider than this many pixels scrolls on a phone; others shrink.
SCROLLS = 540


class Sheet(NamedTuple):
    """A page: its title, what stands in <main>, and the pictures in it.

    pictures : name → Picture; each becomes NAME.svg beside the page, see `picture_block`.
    """

    title: str
    body: str
    pictures: Mapping[str, "Picture"] = {}


def shell(sheet: Sheet, here: str, links: Mapping[str, str]) -> str:
    """Return a whole page. here : its own name; links : page → text, in the head of every page."""
    nav = "".join(
        f'<a href="{name}.html"{" aria-current=page" * (name == here)}>{escape(text)}</a>'
        for name, text in links.items()
    )
    return SHELL.format(title=escape(sheet.title), links=nav, body=sheet.body)


def prose(text: str) -> str:
    """Return a docstring's paragraph as HTML: `code`, *emphasis*, **bold**, θ_k with its subscript."""
    parts = re.split(r"`([^`]+)`", text)
    for i, part in enumerate(parts):
        part = escape(part)
        if i % 2:
            part = f"<code>{part}</code>"
        else:
            part = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", part)
            part = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<em>\1</em>", part)
            part = SUBSCRIPT.sub(lambda x: f"{x[1]}<sub>{x[2].strip('{}')}</sub>", part)
        parts[i] = part
    return "".join(parts)


def docstring(text: str) -> str:
    """Return a docstring as HTML: paragraphs as prose, indented blocks and doctests verbatim."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "".join(
        highlight(block, {}, plain=True)
        if re.search(r"^(  |>>>)", block, re.MULTILINE) or "  " in block
        else f"<p>{prose(block)}</p>"
        for block in blocks
    )


def picture_block(name: str, picture: "Picture") -> str:
    """Return a picture with its caption and its description in words."""
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    image = f'<img src="{name}.svg" width="{width}" height="{height}" alt="{escape(picture.alt)}">'
    if width > SCROLLS:
        image = f'<div class=wide tabindex="0">{image}</div>'
    return (
        f"<figure class=picture>{image}<figcaption>{prose(picture.caption)}</figcaption></figure>"
    )


def table(head: Iterable[str], *bodies: Iterable[Iterable[str]]) -> str:
    """Return a table of one or more bodies; cells are HTML already."""
    columns = "".join(f"<th scope=col>{cell}</th>" for cell in head)
    lines = "".join(f"<tbody>{''.join(map(table_row, rows))}</tbody>" for rows in bodies)
    return (
        f'<div class=wide tabindex="0"><table><thead><tr>{columns}</tr></thead>'
        f"{lines}</table></div>"
    )


def table_row(cells: Iterable[str], attributes: str = "") -> str:
    return f"<tr{attributes}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def tokens(code: str) -> Iterator[tokenize.TokenInfo]:
    """Yield Python's tokens; a piece of code may end in the middle of a statement."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(code + "\n").readline)
    except (tokenize.TokenError, IndentationError):
        return


def highlight(
    code: str, names: Mapping[str, str], marked: Iterable[int] = (), plain: bool = False
) -> str:
    """Return Python as HTML, a line at a time. names : name in the code → symbol of the paper.

    marked : rows to mark; plain : whether it is text, without keywords.
    """
    starts = [0, *accumulate(len(line) + 1 for line in code.splitlines())]
    html, done = "", 0
    for kind, token, (row, column), *_ in () if plain else tokens(code):
        if kind == tokenize.COMMENT:
            tag = "span class=comment"
        elif kind == tokenize.STRING:
            tag = "span class=string"
        elif keyword.iskeyword(token):
            tag = "b"
        elif kind == tokenize.NAME and token in names:
            tag = f'span class=name data-symbol="{escape(names[token])}"'
        else:
            continue
        begin = starts[row - 1] + column
        html += escape(code[done:begin])  # and a docstring line by line:
        parts = (f"<{tag}>{escape(line)}</{tag.split()[0]}>" for line in token.split("\n"))
        html += "\n".join(parts)
        done = begin + len(token)
    lines = "".join(
        f'<span class="line{" marked" * (row in set(marked))}">{line}</span>'
        for row, line in enumerate((html + escape(code[done:])).split("\n"))
    )
    return f'<pre class="code" tabindex="0"><code>{lines}</code></pre>'


def fold(summary: str, inside: str) -> str:
    """Return a part of a page that opens on demand."""
    return f"<details><summary>{summary}</summary>{inside}</details>"
