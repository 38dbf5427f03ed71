"""Pictures of numbers over what was varied, and over settings that have names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.lines import Line2D

from fedref.plots.style import COLOURS, LINES, MARKERS, STYLE, frame, save, sign
from reproduce.tables import Values


class Panel(NamedTuple):
    """Lines over one quantity: name in the legend → its value → ours, a seed each."""

    title: str
    xlabel: str
    lines: Mapping[str, Mapping[float, Values]]
    ticks: Sequence[float]
    logarithmic: bool = False
    margin: float | None = None


def draw_panels(
    path: Path,
    panels: Sequence[Panel],
    ylabel: str,
    *,
    size: tuple[float, float] = (2.5, 3.2),
    looks: Mapping[str, Mapping[str, Any]] | None = None,
    bars: int = 0,
) -> None:
    """Draw the means of each panel's lines.

    bars : over how many seeds ±1 sd is drawn (none for one). looks : of lines that do not look as their
    place in the legend gives.
    """
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    look: dict[str, Any] = {name: look_of(i) for i, name in enumerate(names)}
    look |= looks or {}
    with style.context(STYLE):
        handles: list[Any] = [Line2D([], [], **look[name], label=name) for name in names]
        if bars > 1:
            handles.append(sign(f"bars: ±1 sd over {bars} seeds", linestyle="none"))
        figure, drawn = frame((1, len(panels)), size, "", handles)
        for axes, panel in zip(drawn, panels):
            for name, values in panel.lines.items():
                each = [np.atleast_1d(x) for x in values.values()]
                sd = [x.std() for x in each] if bars > 1 and len(each[0]) > 1 else None
                axes.errorbar(list(values), [x.mean() for x in each], sd, capsize=3, **look[name])
            axes.set_title(panel.title)
            if panel.logarithmic:
                axes.set_xscale("log")
            axes.set_xticks(panel.ticks, [f"{x:g}" for x in panel.ticks])
            if panel.logarithmic:
                axes.minorticks_off()
            axes.set_xlabel(panel.xlabel)
            if panel.margin is not None:
                axes.margins(y=panel.margin)
        drawn[0].set_ylabel(ylabel)
        save(figure, path)


def look_of(i: int, colour: int = 0) -> dict[str, Any]:
    """Return how the i-th line looks; colour : how many colours it leaves out."""
    return {"color": COLOURS[i + colour], "marker": MARKERS[i], "linestyle": LINES[i]}


@contextmanager
def named_settings(
    path: Path, names: Sequence[str], ylabel: str, handles: Sequence[Any], size: tuple[float, float]
) -> Iterator[Any]:
    """Give a panel to draw on, in the caller's style: its x axis is the settings' names."""
    figure, (axes,) = frame((1, 1), size, "", handles)
    yield axes
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(ylabel)
    save(figure, path)


def sign_of(i: int) -> dict[str, Any]:
    """Return how the i-th sign looks, where no line joins them."""
    return {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": "none"}
