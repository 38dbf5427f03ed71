"""Pictures as SVG files in the colours of style.css, which turns them over where the page is dark."""

import io
import re
from collections.abc import Callable
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


class Picture(NamedTuple):
    """figure : as drawn; alt : what it shows, for those who cannot see it; caption : what it says."""

    figure: Figure
    alt: str
    caption: str


@cache
def palettes() -> tuple[dict[str, str], dict[str, str]]:
    """Return (light, dark): name → colour as #rrggbb, from the two `:root` blocks of style.css."""
    sheet = (files("fedref.teach") / "style.css").read_text("utf-8")
    light, dark = (
        dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", block))
        for block in re.findall(r":root\s*\{(.*?)\}", sheet, re.DOTALL)
    )
    return light, dark


def colour(name: str) -> str:
    """A colour of the light page by its name in style.css."""
    return palettes()[0][name]


def line_style(k: int, **more: Any) -> dict[str, Any]:
    """The k-th line: colour, dashes, marker."""
    return {"color": colour(f"c{k}"), "markersize": 4, **LINES[k], **more}


def halo() -> dict[str, Any]:
    """Text that stands out from the lines behind it."""
    return {"path_effects": [withStroke(linewidth=3, foreground=colour("paper"))]}


def page_style() -> list[Any]:
    """Return Matplotlib's settings for a picture of the site."""
    ink, rule, paper = colour("ink"), colour("rule"), colour("paper")
    ours = {
        "font.size": 10, "axes.titlesize": 10, "figure.facecolor": "none", "axes.facecolor": "none",
        "grid.color": rule, "grid.linewidth": 0.5, "text.color": ink, "axes.labelcolor": ink,
        "axes.edgecolor": ink, "xtick.color": ink, "ytick.color": ink, "patch.edgecolor": ink,
        "legend.handlelength": 2.6, "svg.fonttype": "path", "savefig.facecolor": "none",
        "legend.facecolor": paper, "legend.framealpha": 0.85, "legend.frameon": True,
        "legend.edgecolor": paper,
    }  # fmt: skip
    return [*STYLE, ours]


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


def draw(make: Callable[..., Picture], *arguments: Any) -> Picture:
    """Make a picture in the site's style."""
    with style.context(page_style()):
        return make(*arguments)


def svg_text(figure: Figure) -> str:
    """Return the file, without a date."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with style.context(page_style()):
        figure.savefig(buffer, format="svg", metadata=nothing, dpi=72)
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]
