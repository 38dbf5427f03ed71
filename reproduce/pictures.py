"""Plots of results over a varied quantity, and as dots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.lines import Line2D

from fedref.plots.style import COLOURS, LINES, MARKERS, STYLE, frame, save, sign
from reproduce.tables import Values


class Panel(NamedTuple):
    """Lines over one quantity: name in the legend → x → our results, one for each seed."""

    title: str
    xlabel: str
    lines: Mapping[str, Mapping[float, Values]]
    ticks: Sequence[float]
    logarithmic: bool = False


def draw_panels(
    path: Path,
    panels: Sequence[Panel],
    ylabel: str,
    *,
    size: tuple[float, float] = (2.5, 3.2),
    bars: int = 0,
) -> None:
    """Draw the means of each panel's lines.

    bars : the number of seeds; with several, error bars of ±1 sd.
    """
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    look: dict[str, dict[str, Any]] = {
        name: sign_of(i) | {"linestyle": LINES[i]} for i, name in enumerate(names)
    }
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
        drawn[0].set_ylabel(ylabel)
        save(figure, path)


def draw_dots(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[str, Values]]],
    xlabel: str,
    bar: str,
) -> None:
    """Draw one panel for each title. Every name has a row there: a dot for each seed, and their mean.

    panels : title → name → (kind, one number for each seed); a kind has its colour and marker.
    bar : the name whose mean is a vertical line.
    """
    names = list(next(iter(panels.values())))
    kinds = dict.fromkeys(kind for lines in panels.values() for kind, _ in lines.values())
    looks = {kind: sign_of(i) for i, kind in enumerate(kinds)}
    with style.context(STYLE):
        handles: list[Any] = [Line2D([], [], **look, label=kind) for kind, look in looks.items()]
        handles.append(sign("mean over seeds", marker="|", markersize=13, linestyle="none"))
        handles.append(Line2D([], [], color="0.6", linestyle=":", label=f"mean of {bar}"))
        figure, drawn = frame((1, len(panels)), (2.8, 0.27 * len(names) + 1), "", handles)
        for axes, (title, lines) in zip(drawn, panels.items()):
            axes.axvline(np.mean(lines[bar][1]), color="0.6", linestyle=":")
            for y, (kind, x) in enumerate(lines.values()):
                axes.plot(x, np.full(len(x), y), alpha=0.6, **looks[kind])
                axes.plot(np.mean(x), y, **looks[kind] | {"marker": "|", "markersize": 13})
            axes.set_title(title)
            axes.set_xlabel(xlabel)
            axes.margins(x=0.1)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), names if axes is drawn[0] else [""] * len(names))
        save(figure, path)


def sign_of(i: int) -> dict[str, Any]:
    """Return the look of the i-th kind of marker, without a line between markers."""
    return {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": "none"}
