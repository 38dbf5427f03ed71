"""The pictures of a report: curves, bars and paths off runs; panels and dots off cells."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedref.datasets import load, split
from fedref.plots import holdings
from fedref.plots.style import COLOURS, LINES, MARKERS, STYLE, frame, save
from reproduce.cells import Cells, fits, split_run
from reproduce.pages import paper_number
from reproduce.quantities import QUANTITIES, Part, curve_of
from reproduce.runs import Results

#: Metric → (title of its axis, whether the axis is logarithmic).
AXES = {
    "train_loss": ("training loss", True), "test_loss": ("test loss", True),
    "accuracy": ("test accuracy (%)", False), "variance": ("variance of gradients", True),
    "unseen_accuracy": ("accuracy of new clients (%)", False),
}  # fmt: skip
#: What a curve is drawn against → (columns of metrics.csv, their scale, the title of the axis).
AGAINST = {
    "round": (("round",), 1, "round"), "bytes": (("bytes_down", "bytes_up"), 1e-6, "data sent (MB)"),
    "flops": (("flops",), 1e-9, "10⁹ operations"),
}  # fmt: skip
Spec = Mapping[str, Any]
Look = dict[str, Any]


def draw_pictures(
    spec: Spec, runs: Mapping[str, Results], cells: Cells, out: Path, data_dir: Path | None
) -> None:
    """Draw what [[pictures]] ask for: of each run, of each point of its sweep, or of cells."""
    for wanted in spec.get("pictures", []):
        if wanted["kind"] in OF_CELLS:
            OF_CELLS[wanted["kind"]](spec, wanted, cells, out / wanted["file"])
            continue
        for name, parts in parts_of(runs, wanted):
            title = next(x for pattern, x in spec["data"].items() if fits(name, [pattern]))
            file = wanted.get("file", "{run}.png")
            groups = [[part] for part in parts] if "{setting}" in file else [parts]
            for group in groups:
                words = {"run": name, "setting": group[0][0].replace(" = ", "")}
                if wanted.get("merge"):
                    words["run"] = name.partition("-")[0]
                DRAWN[wanted["kind"]](spec, wanted, group, title, out / file.format(**words))
    for wanted in spec.get("splits", []):
        federation = split(wanted["rule"], load(wanted["load"], data_dir), 0)
        paper = paper_number(spec, (wanted["data"], "the split"), "", "mean")
        means = {"mean, paper": paper} if paper else {}
        holdings(federation, out / wanted["file"], wanted["data"], means)


def parts_of(runs: Mapping[str, Results], wanted: Spec) -> list[tuple[str, list[tuple[str, Part]]]]:
    """Return run → (setting, its trials) of every point; merge : runs on the same data are one."""
    found = [
        (name, [(setting, part) for setting, part, _ in split_run(runs[name], wanted)])
        for name in runs
        if fits(name, wanted["runs"])
    ]
    if not wanted.get("merge"):
        return found
    merged: dict[str, tuple[str, list[tuple[str, Part]]]] = {}
    for name, ((setting, part), *_) in found:
        first, ((_, before), *_) = merged.setdefault(
            name.partition("-")[0], (name, [(setting, part)])
        )
        if before is not part:
            both = before._replace(trials=[*before.trials, *part.trials])
            merged[name.partition("-")[0]] = first, [(setting, both)]
    return list(merged.values())


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Return name → how its lines look: no two alike among the first seven."""
    return {
        name: {
            "color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i % len(LINES)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        for i, name in enumerate(names)
    }  # fmt: skip


def handles_of(looks: Mapping[str, Look], *more: Line2D) -> list[Line2D]:
    return [*(Line2D([], [], label=name, **look) for name, look in looks.items()), *more]


Parts = Sequence[tuple[str, Part]]


def draw_curves(spec: Spec, wanted: Spec, parts: Parts, title: str, path: Path) -> None:
    """Draw a column of panels for each point, a row for each metric: means over seeds, ±1 sd.

    A star is a renewal of APFL's importance, of the first seed. after_start : without round 0.
    """
    labels = dict.fromkeys(trial.label for _, part in parts for trial in part.trials)
    kept = [m for m in labels if m in wanted.get("methods", labels)]
    looks = looks_of(list(dict.fromkeys(spec["methods"][m] for m in kept)))
    metrics = wanted.get("metrics", ["train_loss", "accuracy"])
    columns, scale, xlabel = AGAINST[wanted.get("against", "round")]
    shape = (len(metrics), len(parts)) if len(parts) > 1 else (1, len(metrics))
    with style.context(STYLE):
        star = Line2D(
            [], [], color="black", marker="*", linestyle="none", label="importance renewed"
        )
        renewed = any(row.get("renewed") for _, p in parts for t in p.trials for row in t.rows)
        figure, panels = frame(shape, (3.4, 3.0), title, handles_of(looks, *[star] * renewed))
        pairs = [(m, setting, part) for m in metrics for setting, part in parts]
        for axes, (metric, setting, part) in zip(panels, pairs):
            for label in kept:
                trials = part.trials_of(label)
                t, y = curve_of(trials, metric)
                if not y.size:
                    continue
                spent = [
                    {r["round"]: scale * sum(r[c] for c in columns) for r in one.rows}
                    for one in trials
                ]
                x = np.mean([[one[round] for round in t] for one in spent], 0)
                first = int(wanted.get("after_start", False))
                look = looks[spec["methods"][label]] | {"markevery": max(1, len(t) // 8)}
                draw_line(axes, x[first:], y[:, first:], look)
                for row in trials[0].rows[:-1]:
                    if row.get("renewed") and row["round"] in t:
                        i = int(np.searchsorted(t, row["round"]))
                        axes.plot(x[i], y[:, i].mean(), "*", color=look["color"], markersize=11)
            ylabel, logarithmic = AXES[metric]
            axes.set(title=setting, xlabel=xlabel, ylabel=ylabel)
            if logarithmic and axes.dataLim.y0 > 0 and axes.dataLim.y1 > 10 * axes.dataLim.y0:
                axes.set_yscale("log")
        save(figure, path)


def draw_line(axes: Axes, x: Any, y: Any, look: Look) -> None:
    axes.plot(x, y.mean(0), **look)
    if len(y) > 1:
        low, high = y.mean(0) - y.std(0), y.mean(0) + y.std(0)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def draw_bars(spec: Spec, wanted: Spec, parts: Parts, title: str, path: Path) -> None:
    """Draw the average and the maximum test accuracy of every method, ±1 sd over seeds."""
    (_, part), *_ = parts
    labels = list(dict.fromkeys(trial.label for trial in part.trials))
    with style.context(STYLE):
        figure, (axes,) = frame((1, 1), (0.8 * len(labels) + 1, 3.6), title, [])
        for i, what in enumerate(("average", "maximum")):
            values = [QUANTITIES[what](part, label) for label in labels]
            x = np.arange(len(labels)) + 0.38 * (i - 0.5)
            means, sds = ([f(v) for v in values] for f in (np.mean, np.std))
            axes.bar(x, means, 0.38, yerr=sds, label=what, color=COLOURS[6 - i], capsize=3)
        axes.set_xticks(
            range(len(labels)), [spec["methods"][m] for m in labels], rotation=20, ha="right"
        )
        axes.set_ylabel("test accuracy (%)")
        axes.set_ylim(bottom=max(0.0, axes.dataLim.y0), top=100)
        axes.legend(loc="lower right")
        save(figure, path)


def draw_paths(spec: Spec, wanted: Spec, parts: Parts, title: str, path: Path) -> None:
    """Draw accuracy over operations: a line for each point of the sweep."""
    looks = looks_of([setting for setting, _ in parts])
    with style.context(STYLE):
        figure, (axes,) = frame((1, 1), (5.0, 3.6), title, handles_of(looks))
        for setting, part in parts:
            trials = part.trials
            x = np.mean([[r["flops"] / 1e9 for r in t.rows if "accuracy" in r] for t in trials], 0)
            draw_line(axes, x, curve_of(trials, "accuracy")[1], looks[setting] | {"markevery": 8})
        axes.set(xlabel="10⁹ operations", ylabel="test accuracy (%)")
        save(figure, path)


def draw_panels(spec: Spec, wanted: Spec, cells: Cells, path: Path) -> None:
    """Draw a panel for every data set and swept key: quantities, or methods, over its value.

    A place's setting ends in the value, "E = 5"; ±1 sd over seeds. With `paper`, its number beside.
    """
    places = cells.places_at(wanted["at"])
    groups = dict.fromkeys((p[0], p[1].rpartition(" = ")[0]) for p in places)
    quantities = wanted["quantities"]
    keys = dict.fromkeys((m, q) for p, m, q in cells.all if p in places and q in quantities)
    several = len(quantities) > 1
    looks = looks_of([q if several else m for m, q in keys])
    with style.context(STYLE):
        handles = handles_of(looks)
        figure, panels = frame((1, max(len(groups), 1)), (3.2, 3.2), "", handles)
        for axes, (data, varied) in zip(panels, groups):
            own = [p for p in places if (p[0], p[1].rpartition(" = ")[0]) == (data, varied)]
            for (method, quantity), look in zip(keys, looks.values()):
                found = [(p, cells.get(p, method, quantity)) for p in own]
                there = [(float(p[1].rpartition(" = ")[2]), x) for p, x in found if x]
                if there:
                    x, y = zip(*there)
                    axes.errorbar(x, [v.mean for v in y], [v.sd for v in y], capsize=3, **look)
            axes.set(title=data, xlabel=varied, ylabel="test accuracy (%)", xscale="log")
        save(figure, path)


def draw_dots(spec: Spec, wanted: Spec, cells: Cells, path: Path) -> None:
    """Draw a panel for every data set, a row for every method: a dot a seed, a bar for the mean.

    A place with a setting is a panel as well. An open dot is the paper's number.
    """
    places, quantity = cells.places_at(wanted["at"]), wanted["quantity"]
    methods = list(dict.fromkeys(spec["methods"].values()))
    names = [m for m in methods if any(cells.get(p, m, quantity) for p in places)]
    with style.context(STYLE):
        figure, panels = frame((1, max(len(places), 1)), (2.8, 0.27 * len(names) + 1), "", [])
        for axes, place in zip(panels, places):
            for y, method in enumerate(names):
                if x := cells.get(place, method, quantity):
                    axes.plot(x.each, np.full(len(x.each), y), "o", color=COLOURS[1], alpha=0.6)
                    axes.plot(x.mean, y, "|", color="black", markersize=13)
                if (paper := paper_number(spec, place, method, quantity)) is not None:
                    axes.plot(paper, y, "o", color=COLOURS[2], markerfacecolor="white")
            axes.set(title=" ".join(place).strip(), xlabel="accuracy in %")
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), names if axes is panels[0] else [""] * len(names))
        save(figure, path)


DRAWN = {"curves": draw_curves, "bars": draw_bars, "paths": draw_paths}
OF_CELLS = {"panels": draw_panels, "dots": draw_dots}
