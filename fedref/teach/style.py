"""The look of the site's pictures; style.css has the same colours, and inverts them on a dark page."""

import io
from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from fedref.plots.style import LINES, MARKERS, STYLE

#: The colours of lines c0 to c3, of text, of thin rules and of the page, as in style.css.
LINE_COLOURS = ("#0072b2", "#d55e00", "#00805c", "#a8508a")
CLIENT_COLOURS, SERVER_COLOUR = LINE_COLOURS[:2], LINE_COLOURS[2]
INK, RULE, PAPER = "#1a1a1a", "#c9c9c4", "#ffffff"
#: Matplotlib's settings for a picture of the site.
PAGE_STYLE: list[Any] = [
    *STYLE,
    {
        "font.size": 10, "axes.titlesize": 10, "figure.facecolor": "none", "axes.facecolor": "none",
        "grid.color": RULE, "grid.linewidth": 0.5, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "patch.edgecolor": INK,
        "legend.handlelength": 2.6, "svg.fonttype": "path", "savefig.facecolor": "none",
        "legend.facecolor": PAPER, "legend.framealpha": 0.85, "legend.frameon": True,
        "legend.edgecolor": PAPER, "svg.hashsalt": "fedref",
    },
]  # fmt: skip


class Picture(NamedTuple):
    """A figure; alt : a description for people who cannot see it; caption : the text below it."""

    figure: Figure
    alt: str
    caption: str


def draw(make: Callable[..., Any], *arguments: Any) -> Any:
    """Make a picture in the site's style."""
    with style.context(PAGE_STYLE):
        return make(*arguments)


def svg_text(figure: Figure) -> str:
    """Return a figure as an SVG file without a date."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with style.context(PAGE_STYLE):
        figure.savefig(buffer, format="svg", metadata=nothing, dpi=72)
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def make_panel(width: float = 4.8, height: float = 3.1, **options: Any) -> tuple[Figure, Any]:
    """Return (figure, axes), inches of 96 pixels."""
    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots()
    axes.set(**options)
    return figure, axes


def line_style(k: int, **more: Any) -> dict[str, Any]:
    """Return the k-th line's colour, dashes and marker: no line is told apart by colour alone."""
    look = {"color": LINE_COLOURS[k], "linestyle": LINES[k], "marker": MARKERS[k]}
    return {"markersize": 4, **look, **more}


def halo() -> dict[str, Any]:
    """Return the option that makes a text stand out from the lines behind it."""
    return {"path_effects": [withStroke(linewidth=3, foreground=PAPER)]}
