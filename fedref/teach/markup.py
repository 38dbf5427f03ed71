"""Pieces of a page: prose, highlighted code, pictures, and the shell around them."""

import html
import io
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fedref.teach.svg import Picture

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


#: A single letter, what is on it, and its subscript: θ*_k, w_S,j, Σ_{j ≠ s}.
SUBSCRIPT = re.compile(r"(?<!\w)([^\W\d_][\u0302*′ᵗ]*)_(\{[^{}]*\}|\w(?:,\w)?)(?!\w)")
#: A picture wider than that many pixels scrolls on a phone; others shrink.
SCROLLS = 540


class Sheet(NamedTuple):
    """What a page's function returns: its title, what stands in <main>, and the pictures in it.

    pictures : name → Picture; each becomes NAME.svg beside the page, see `picture_block`.
    """

    title: str
    body: str
    pictures: Mapping[str, "Picture"] = {}


def shell(sheet: Sheet, here: str, links: Mapping[str, str]) -> str:
    """A whole page. here : its own name; links : name → text of those that every page leads to."""
    nav = "".join(
        f'<a href="{name}.html"{" aria-current=page" * (name == here)}>{escape(text)}</a>'
        for name, text in links.items()
    )
    return SHELL.format(title=escape(sheet.title), links=nav, body=sheet.body)


def prose(text: str) -> str:
    """A docstring's paragraph: `code` and *emphasis* marked, θ_k with its subscript."""
    parts = re.split(r"`([^`]+)`", text)
    for i, part in enumerate(parts):
        part = escape(part)
        if i % 2:
            part = f"<code>{part}</code>"
        else:
            part = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<em>\1</em>", part)
            part = SUBSCRIPT.sub(lambda x: f"{x[1]}<sub>{x[2].strip('{}')}</sub>", part)
        parts[i] = part
    return "".join(parts)


def picture_block(name: str, picture: "Picture") -> str:
    """A picture with its words."""
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    image = f'<img src="{name}.svg" width="{width}" height="{height}" alt="{escape(picture.alt)}">'
    if width > SCROLLS:
        image = f'<div class=wide tabindex="0">{image}</div>'
    return (
        f"<figure class=picture>{image}<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def table(head: Iterable[str], *bodies: Iterable[Iterable[str]]) -> str:
    """A table of one or more bodies; cells are HTML already."""
    columns = "".join(f"<th scope=col>{cell}</th>" for cell in head)
    lines = "".join(f"<tbody>{''.join(map(table_row, rows))}</tbody>" for rows in bodies)
    return (
        f'<div class=wide tabindex="0"><table><thead><tr>{columns}</tr></thead>'
        f"{lines}</table></div>"
    )


def table_row(cells: Iterable[str], attributes: str = "") -> str:
    return f"<tr{attributes}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def tokens(code: str) -> Iterator[tokenize.TokenInfo]:
    """Python's tokens; a piece of code may end in the middle of a statement."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(code + "\n").readline)
    except (tokenize.TokenError, IndentationError):
        return


def highlighted(code: str, names: Mapping[str, str], marked: Iterable[int] = ()) -> str:
    """Python as HTML, a line at a time; a name that is a symbol of the paper carries it."""
    lines = code.splitlines()
    pieces: list[list[str]] = [[] for _ in lines]
    column = [0] * len(lines)

    def put(row: int, text: str, before: int, wrapped: str) -> None:
        pieces[row].append(escape(lines[row][column[row] : before]) + wrapped)
        column[row] = before + len(text)

    for token in tokens(code):
        row, at = token.start[0] - 1, token.start[1]
        if row >= len(lines):
            continue
        if token.start[0] != token.end[0]:  # a docstring: line by line
            for r in range(row, min(token.end[0], len(lines))):
                begin = at if r == row else 0
                text = lines[r][begin : token.end[1]] if r == token.end[0] - 1 else lines[r][begin:]
                put(r, text, begin, f"<span class=string>{escape(text)}</span>")
            continue
        text = escape(token.string)
        if token.type == tokenize.COMMENT:
            put(row, token.string, at, f"<span class=comment>{text}</span>")
        elif token.type == tokenize.STRING:
            put(row, token.string, at, f"<span class=string>{text}</span>")
        elif token.type == tokenize.NAME and keyword.iskeyword(token.string):
            put(row, token.string, at, f"<b>{text}</b>")
        elif token.type == tokenize.NAME and token.string in names:
            symbol = escape(names[token.string])
            put(row, token.string, at, f'<span class=name data-symbol="{symbol}">{text}</span>')
    out = []
    for row, line in enumerate(lines):
        text = "".join(pieces[row]) + escape(line[column[row] :])
        out.append(f'<span class="line{" marked" * (row in set(marked))}">{text}</span>')
    return f'<pre class="code" tabindex="0"><code>{"".join(out)}</code></pre>'
