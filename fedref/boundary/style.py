"""The look of pictures: colours, lines, markers, the frame; and how they are written to a file.

Algorithms also differ in line, marker and hatch, for readers who cannot tell their colours apart.
"""

import base64
import io
import warnings
from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.style import context

from fedref.boundary.errors import ConfigError, printable
from fedref.boundary.files import write_or_raise

#: Of each format, the metadata without a date: the same figure always gives the same bytes.
FORMATS: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}

#: Okabe and Ito's palette for all kinds of colour vision, without its yellow (too pale for lines).
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (6, 2, 1, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2, 1, 2)), (0, (2.5, 1.2)),
)  # fmt: skip
MARKERS = "os^DvP<>phd"
MOST_LINES, MOST_COLUMNS = 60, 4  # of the legend; nobody reads a longer one
CROSS: dict[str, Any] = {"marker": "x", "markersize": 9, "linestyle": "none", "markeredgewidth": 2}
TICK: dict[str, Any] = {"marker": "|", "markersize": 12, "markeredgewidth": 2.2, "linestyle": ""}
BARS: tuple[dict[str, Any], ...] = (
    {"label": "average", "facecolor": "#56B4E9"},
    {"label": "maximum", "facecolor": "#F5D9A0", "hatch": "////"},
)

#: matplotlib's defaults instead of the user's own settings, and pictures.mplstyle.
STYLE = ["default", "fedref.boundary.pictures"]


def format_of(path: Path) -> str:
    """Return "png", "svg" or "pdf" by the file's name; a ConfigError for any other."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{path} ends in {path.suffix!r}, expected .png, .svg or .pdf")
    return kind


def as_bytes(figure: Figure, kind: str) -> bytes:
    """Return the picture as a file of this format."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), context(STYLE):
        # a box is drawn in its place
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format=kind, metadata=FORMATS[kind])
    return buffer.getvalue()


def as_html(figure: Figure) -> str:
    """Return the picture as an HTML image that holds its own bytes."""
    data = base64.b64encode(as_bytes(figure, "png")).decode()
    return f'<img width="720" alt="curves" src="data:image/png;base64,{data}">'


def save(figure: Figure, path: Path) -> None:
    """Write the picture in the format of the file's name."""
    kind = format_of(path)
    write_or_raise(path, as_bytes(figure, kind))


def frame(
    shape: tuple[int, int],
    panel: tuple[float, float],
    title: str,
    handles: Sequence[Artist] = (),
    share: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, shape (rows, columns), with the legend to the right of them.

    panel : the (width, height) of a panel in inches. handles : the legend. share : all panels have
    the same axes.
    """
    rows, columns = shape
    ends = [*accumulate(str(handle.get_label()).count("\n") + 1 for handle in handles)]
    if ends and ends[-1] > MOST_LINES * MOST_COLUMNS:
        kept = sum(end < MOST_LINES * MOST_COLUMNS for end in ends)
        more = sign(f"... and {len(handles) - kept} more", linestyle="none")
        handles = [*handles[:kept], more]
    lines = [line for handle in handles for line in str(handle.get_label()).split("\n")]
    beside = max(1, ceil(len(lines) / MOST_LINES))  # columns of the legend
    legend = (0.075 * max(map(len, lines)) + 0.7) * beside if lines else 0
    high = 0.2 * ceil(len(lines) / beside) + 0.3
    size = (panel[0] * columns + legend, max(panel[1] * rows, high))
    figure = Figure(size, layout="constrained")
    if title:
        middle = panel[0] * columns / size[0] / 2 if beside > 1 else 0.5  # not under the legend
        figure.suptitle(plain_text(title), x=middle)
    if lines:
        figure.legend(handles=list(handles), loc="outside right upper", ncols=beside)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    return figure, list(panels.flat)


def plain_text(text: str) -> str:
    """Return a user's text as matplotlib draws it and XML holds it: no mathematics, no control characters."""
    return printable(text).replace("$", r"\$")


def wrap_label(label: str) -> str:
    return fill(plain_text(label), 34, subsequent_indent="  ", break_long_words=False)


def sign(label: str, **look: Any) -> Line2D:
    return Line2D([], [], **{"color": "black", **look}, label=label)
