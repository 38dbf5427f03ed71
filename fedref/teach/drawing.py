"""Pictures as small SVG files whose colours are those of style.css, in the light and in the dark."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from fedref.plots import STYLE

#: A line of its own for each, so that no picture is told apart by colour alone.
LINES: tuple[dict[str, Any], ...] = (
    {"linestyle": "-", "marker": "o"},
    {"linestyle": (0, (5, 2)), "marker": "s"},
    {"linestyle": (0, (6, 2, 1, 2)), "marker": "^"},
    {"linestyle": (0, (1, 1.2)), "marker": "D"},
)


#: What pictures that are not made for the page take for ink, and for what is faint.
GREYS = {"#000000": "ink", "#595959": "comment", "#737373": "comment"}


class Picture(NamedTuple):
    """figure : as drawn; alt : what it shows, for those who cannot see it; caption : what it says."""

    figure: Figure
    alt: str
    caption: str


@cache
def stylesheet() -> str:
    """The site's style.css."""
    return (files("fedref.teach") / "style.css").read_text("utf-8")


def palettes() -> tuple[dict[str, str], dict[str, str]]:
    """(light, dark): name → colour as #rrggbb, from the two `:root` blocks."""
    blocks = re.findall(r":root\s*\{(.*?)\}", stylesheet(), re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", block)) for block in blocks)
    return light, dark


def colour(name: str) -> str:
    """A colour by its name in style.css; it becomes that name again in the file."""
    return palettes()[0][name]


def look(k: int, **more: Any) -> dict[str, Any]:
    """The k-th line: colour, dashes, marker."""
    return {"color": colour(f"c{k}"), "markersize": 4, **LINES[k], **more}


def halo() -> dict[str, Any]:
    """Text that stands out from the lines behind it."""
    return {"path_effects": [withStroke(linewidth=3, foreground=colour("paper"))]}


@contextmanager
def page() -> Iterator[None]:
    """Figures made within have the site's inks."""
    ink, rule, paper = colour("ink"), colour("rule"), colour("paper")
    ours = {
        "font.size": 10, "axes.titlesize": 10, "figure.facecolor": "none", "axes.facecolor": "none",
        "grid.color": rule, "grid.linewidth": 0.5, "text.color": ink, "axes.labelcolor": ink,
        "axes.edgecolor": ink, "xtick.color": ink, "ytick.color": ink, "patch.edgecolor": ink,
        "legend.handlelength": 2.6, "svg.fonttype": "path", "savefig.facecolor": "none",
        "legend.facecolor": paper, "legend.framealpha": 0.85, "legend.frameon": True,
        "legend.edgecolor": paper,
    }  # fmt: skip
    with style.context([*STYLE, ours]):
        yield


def panel(width: float = 4.8, height: float = 3.1, **options: Any) -> tuple[Figure, Any]:
    """(figure, axes), inches of 96 pixels."""
    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots()
    axes.set(**options)
    return figure, axes


def plane(reach: tuple[float, float, float, float], **options: Any) -> tuple[Figure, Any]:
    """Two parameters, as long one way as the other: reach is (left, right, bottom, top)."""
    left, right, bottom, top = reach
    height = min(4.6 * (top - bottom) / (right - left), 4.6)
    figure, axes = panel(4.8, height, xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.set(xlabel="$w_1$", ylabel="$w_2$", **options)
    return figure, axes


def svg(figure: Figure) -> str:
    """The file: colours by name, no date, numbers as long as a pixel asks for."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with page():
        figure.savefig(buffer, format="svg", metadata=nothing, dpi=72)
    text = buffer.getvalue()[buffer.getvalue().index("<svg") :]
    light, dark = palettes()
    for value, name in {**{value: name for name, value in light.items()}, **GREYS}.items():
        text = re.sub(rf"{value}\b", f"var(--{name})", text)
    text = re.sub(r' d="[^"]+"', rounded, text)
    declared = [
        "".join(f"--{name}:{value};" for name, value in palette.items() if f"--{name})" in text)
        for palette in (light, dark)
    ]
    rules = (
        f":root{{{declared[0]}}}@media screen and (prefers-color-scheme:dark)"
        f"{{:root{{{declared[1]}}}}}"
    )
    return text.replace("<defs>", f"<style>{rules}</style>\n <defs>", 1)


def rounded(path: re.Match[str]) -> str:
    """A path's coordinates to a tenth of a point."""
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", path[0])


def pixels(figure: Figure) -> tuple[int, int]:
    """(width, height) as a page lays it out."""
    width, height = figure.get_size_inches() * 96
    return round(width), round(height)


def drawn(make: Callable[..., Picture], *arguments: Any) -> Picture:
    """A picture made with the site's inks."""
    with page():
        return make(*arguments)
