"""The static site of `fedref explain --html`: the pages' Markdown as HTML, no network, no scripts."""

import html
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedref.boundary import style
from fedref.boundary.errors import ConfigError
from fedref.boundary.files import claim_folder
from fedref.teach.formula import mathml
from fedref.teach.pages import PAGES, anchor
from fedref.teach.pictures import PICTURES, draw

try:
    from markdown_it import MarkdownIt
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
except ImportError as error:
    raise ConfigError(
        'the site needs markdown-it-py and Pygments: pip install "fedref[teach]"'
    ) from error

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
#: The links of every page: short, so that they stand on one line.
LINKS = {
    "start": "Start", "index": "Tour", "spec": "Papers", "equations": "Equations", "mistakes": "Mistakes",
    "proofs": "Proofs", "teachers": "Teachers",
}  # fmt: skip
#: A page with more sections than that has a list of them.
MANY = 9
#: A single letter with its marks and its subscript: θ*_k, w_S,j, Σ_{j ≠ s}.
SUBSCRIPT = re.compile(
    r"(?<![^\WΣ∇Δ∂])([^\W_][\u0302\u0304*′ᵗ]*)_(\{[^{}]*\}|\w(?:,\w)?|eff)(?![^\Wᵀᵗ])"
)


def text_html(self: Any, tokens: Any, i: int, options: Any, env: Any) -> str:
    """Render plain text: a letter's subscript is lowered."""
    text = html.escape(tokens[i].content)
    return SUBSCRIPT.sub(lambda x: f"{x[1]}<sub>{x[2].strip('{}')}</sub>", text)


def fence_html(self: Any, tokens: Any, i: int, options: Any, env: Any) -> str:
    """Render a block of formulae, of code (with its place), or of output."""
    (kind, _, place), text = tokens[i].info.partition(" "), tokens[i].content
    if kind == "math":
        return "".join(map(formula_html, text.splitlines()))
    if kind == "output":
        return f"<pre class=output>{html.escape(text)}</pre>"
    tagged = [n for n, line in enumerate(text.splitlines(), 1) if place and "# [" in line]
    look: Any = HtmlFormatter(nowrap=True, classprefix="c-", hl_lines=tagged)
    block = f"<pre><code>{highlight(text, get_lexer_by_name(kind), look)}</code></pre>"
    said = f"<figcaption>{html.escape(place)}</figcaption>"
    return f"<figure class=code>{said}{block}</figure>" if place else block


def formula_html(line: str) -> str:
    """Render one line of a block of formulae: [tag] left = right."""
    tag, _, formula = line.partition("] ")
    return (
        f'<div class=formula tabindex="0"><span class=tag>{html.escape(tag)}]</span>'
        f"{mathml(formula, block=True)}</div>"
    )


MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
MARKDOWN.add_render_rule("text", text_html)
MARKDOWN.add_render_rule("fence", fence_html)


def render(text: str) -> str:
    """Return Markdown as HTML: headings can be linked to, and what is wide scrolls by itself."""
    body: str = MARKDOWN.render(text)
    body = body.replace("<pre", '<pre tabindex="0"').replace("</table>", "</table></div>")
    body = body.replace("<table>", '<div class=wide tabindex="0"><table>')
    body = body.replace("<p><img ", '<p class=picture tabindex="0"><img ')
    heading = re.compile(r"<h([23])>(.*?)</h\1>")
    body = heading.sub(lambda x: f'<h{x[1]} id="{anchor(plain(x[2]))}">{x[2]}</h{x[1]}>', body)
    links = re.findall(r"<h2 id=(\S+)>(.*?)</h2>", body)
    if len(links) <= MANY:
        return body
    entries = "".join(f'<li><a href="#{place[1:-1]}">{title}</a></li>' for place, title in links)
    contents = f'<nav class=contents aria-label="Contents"><ul>{entries}</ul></nav>'
    return body.replace("<h2", f"{contents}<h2", 1)


def plain(markup: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", markup))


def page_html(text: str, here: str) -> str:
    """Return a whole page. here : its own name, which its links mark."""
    nav = "".join(
        f'<a href="{name}.html"{" aria-current=page" * (name == here)}>{html.escape(said)}</a>'
        for name, said in LINKS.items()
    )
    title = html.escape(text.partition("\n")[0].removeprefix("# "))
    return SHELL.format(title=title, links=nav, body=render(text))


def build_site(folder: Path) -> list[Path]:
    """Write the site, and return its files."""
    claim_folder(folder, ".fedref-site")
    made: dict[str, bytes] = {}
    for name, page in PAGES.items():
        text = page()
        made[f"{name}.html"] = page_html(text, name).encode()
        for picture in re.findall(r"\]\(([\w-]+)\.svg\)", text):
            made[f"{picture}.svg"] = style.as_bytes(draw(PICTURES[picture]), "svg")
    made["style.css"] = (files("fedref.teach") / "style.css").read_bytes()
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in made]
