"""The static site of `fedref explain --html`: pages as HTML, no network, ten lines of script."""

import html
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedref.boundary import style
from fedref.boundary.errors import ConfigError
from fedref.boundary.files import claim_folder, data_error, write_atomically
from fedref.teach.formula import mathml
from fedref.teach.markdown import anchor
from fedref.teach.pages import LINKS, PAGES
from fedref.teach.pictures import PICTURES, SLIDERS, draw, draw_slider
from fedref.teach.source import text_of

try:
    from markdown_it import MarkdownIt
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
except ImportError as error:
    raise ConfigError(
        'the site needs markdown-it-py and Pygments: pip install "fedref[teach]"'
    ) from error

#: A whole page; and the script that shows the frame of a slider's value. Python drew all of them.
SHELL, SCRIPT = text_of("page.html"), text_of("slider.html")
#: A paragraph that is a drawing; its words are the caption.
PICTURE = re.compile(r'<p>(<img src="[\w-]+\.svg" alt="(.*?)"[^>]*>)</p>')
#: The parts of a picture of three rounds, (x, y, width, height): its rounds, then its legend in two halves.
ROUNDS = *((x, 28, 244.8, 224) for x in (0, 244.8, 489.6)), (106, 283, 332, 31), (440, 283, 332, 31)
#: A page with more sections than that has a list of them.
MANY = 9
#: A single letter with its marks and its subscript: θ*_k, w_S,j, Σ_{j ≠ s}.
SUBSCRIPT = re.compile(
    r"(?<![^\WΣ∇Δ∂])([∇Σ]|[^\W_][\u0302\u0304*′ᵗ]*)_(\{[^{}]*\}|\w(?:,\w)?|eff)(?![^\Wᵀᵗ])"
)


def text_html(self: Any, tokens: Any, i: int, options: Any, env: Any) -> str:
    """Render plain text: a letter's subscript is lowered, an address a link."""
    text = html.escape(tokens[i].content)
    text = re.sub(r"https://[\w./-]*\w", r'<a href="\g<0>">\g<0></a>', text)
    return SUBSCRIPT.sub(lambda x: f"{x[1]}<sub>{x[2].strip('{}')}</sub>", text)


def fence_html(self: Any, tokens: Any, i: int, options: Any, env: Any) -> str:
    """Render a block of formulae, of code (with its place), or of output."""
    (kind, _, place), text = tokens[i].info.partition(" "), tokens[i].content
    if kind == "math":
        return "".join(map(formula_html, text.splitlines()))
    if kind == "slider":
        return slider_html(place)
    if kind == "answer":
        return f"<details><summary>Answer</summary>{MARKDOWN.render(text)}</details>"
    if kind == "output":
        return f"<pre class=output>{html.escape(text)}</pre>"
    lines = text.splitlines()
    tagged = [computing_line(lines, n) for n, line in enumerate(lines) if place and "# [" in line]
    look: Any = HtmlFormatter(nowrap=True, classprefix="c-", hl_lines=tagged)
    block = f"<pre><code>{highlight(text, get_lexer_by_name(kind), look)}</code></pre>"
    caption = f"<figcaption>{html.escape(place)}</figcaption>"
    return f"<figure class=code>{caption}{block}</figure>" if place else block


def svg_of(make: Any, *arguments: Any) -> bytes:
    """Draw a picture as SVG, with coordinates to a hundredth of a point."""
    svg = style.as_bytes(draw(make, *arguments), "svg")
    return re.sub(rb"(\d\d\.\d\d)\d+", rb"\1", svg)


def slider_html(page: str) -> str:
    """Return a picture whose frames a slider shows one by one; without its script, the middle one."""
    slider = SLIDERS[page]
    svg = svg_of(draw_slider, page).decode()
    middle = len(slider.values) // 2

    def as_frame(match: re.Match[str]) -> str:
        on = " on" if int(match[1]) == middle else ""
        return f'<g class="frame{on}" data-frame="{match[1]}"'

    frames = re.sub(r'<g id="f(\d+)-\w+"', as_frame, svg[svg.index("<svg") :])
    label = f"Two clients' losses as contours, and their local steps, for one {slider.symbol} of several"
    frames = frames.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    spoken = [f"{slider.symbol} {x:g}" for x in slider.values]  # not the number of the frame
    knob = (
        f"<input type=range min=0 max={len(slider.values) - 1} value={middle} "
        f'aria-valuetext="{spoken[middle]}" data-spoken="{"|".join(spoken)}">'
    )
    frames = frames.replace('<g id="figure_1"', '<g id="rounds"', 1)
    parts = (
        f'<svg viewBox="{x} {y} {w} {h}" aria-hidden="true"><use href="#rounds"/></svg>'
        for x, y, w, h in ROUNDS
    )
    return (
        f"<figure class=slider><label hidden>{slider.symbol} {knob}</label>"
        f'<div class="picture apart" tabindex="0">{frames}</div>'
        f"<div class=parts>{''.join(parts)}</div></figure>"
    )


def in_parts(figure: re.Match[str]) -> str:
    """Return a drawing with its caption; one of three rounds has them one below the other for a phone."""
    image, caption = figure.groups()
    name = re.findall(r'src="(rounds-[\w-]+\.svg)"', image)
    views = "".join(
        f'<img src="{name[0]}#svgView(viewBox({x},{y},{w},{h}))" alt="a part of it" '
        f'style="aspect-ratio: {w} / {h}">'
        for x, y, w, h in (ROUNDS if name else ())
    )
    return (
        f'<figure><div class="picture{" apart" if name else ""}" tabindex="0">{image}</div>'
        f"{f'<div class=parts>{views}</div>' if name else ''}<figcaption>{caption}</figcaption></figure>"
    )


def computing_line(lines: list[str], n: int) -> int:
    """Return the number, from 1, of the line that a tag in line n belongs to: the first that is code."""
    return 1 + next((i for i, x in enumerate(lines[n:], n) if x.strip()[:1] not in "#"), n)


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
    body = PICTURE.sub(in_parts, body)
    body = body.replace("<p><img ", '<p class=picture tabindex="0"><img ')
    heading = re.compile(r"<h([23])>(.*?)</h\1>")
    body = heading.sub(lambda x: f'<h{x[1]} id="{anchor(plain(x[2]))}">{x[2]}</h{x[1]}>', body)
    links = re.findall(r"<h2 id=([^\s>]+)>(.*?)</h2>", body)
    if len(links) <= MANY:
        return body
    entries = "".join(f'<li><a href="#{place[1:-1]}">{title}</a></li>' for place, title in links)
    contents = f'<nav class=contents aria-label="Contents"><ul>{entries}</ul></nav>'
    return body.replace("<h2", f"{contents}<h2", 1)


def plain(markup: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", markup))


def page_html(text: str, page: str) -> str:
    """Return a whole page. page : its name, which the links mark."""
    nav = "".join(
        f'<a href="{name}.html"{" aria-current=page" if name == page else ""}>{html.escape(title)}</a>'
        for name, title in LINKS.items()
    )
    title = html.escape(text.partition("\n")[0].removeprefix("# "))
    body = render(text)
    script = SCRIPT if "class=slider" in body else ""
    return SHELL.format(title=title, links=nav, body=body + script)


def build_site(folder: Path) -> list[Path]:
    """Write the site, and return its files."""
    claim_folder(folder, ".fedref-site")
    for path in folder.glob("*.html"):
        if path.is_symlink() or b"fedref</title>" not in path.read_bytes()[:1000]:
            raise data_error(path, "is no page that fedref wrote", "another folder")
    made: dict[str, bytes] = {}
    for name, page in PAGES.items():
        text = page()
        made[f"{name}.html"] = page_html(text, name).encode()
        for picture in re.findall(r"\]\(([\w-]+)\.svg\)", text):
            made[f"{picture}.svg"] = svg_of(PICTURES[picture])
    made["style.css"] = (files("fedref.teach") / "style.css").read_bytes()
    for name, content in made.items():
        write_atomically(folder / name, content)
    return [folder / name for name in made]
