"""The pictures of a report: of runs, as `fedref plot` draws them, and of cells."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style

from fedref.boundary.style import COLOURS, STYLE, frame, save, sign
from fedref.lab.datasets import load, split
from fedref.lab.experiments.results import Run
from fedref.lab.plots import holdings
from fedref.lab.plots import runs as plots
from fedref.lab.plots.tables import Table, columns_of
from reproduce.cells import Cells, Place, data_of, fits, split_run
from reproduce.pages import paper_number
from reproduce.quantities import join_runs
from reproduce.runs import Spec

Look = dict[str, Any]
Parts = Sequence[tuple[str, Run]]


def draw_pictures(
    spec: Spec, runs: Mapping[str, Run], cells: Cells, out: Path, data_dir: Path | None
) -> None:
    """Draw what `pictures` ask for: of each run, of each point of its sweep, or of cells."""
    for wanted in spec.get("page", {}).get("pictures", []):
        if wanted["kind"] in OF_CELLS:
            OF_CELLS[wanted["kind"]](spec, wanted, cells, out / wanted["file"])
            continue
        for name, parts in parts_of(runs, wanted):
            title, file = data_of(spec, name), wanted.get("file", "{run}.png")
            groups = [[part] for part in parts] if "{setting}" in file else [parts]
            for group in groups:
                words = {"run": name, "setting": group[0][0].replace(" = ", "")}
                DRAWN[wanted["kind"]](spec, wanted, group, title, out / file.format(**words))
    for data, wanted in spec.get("splits", {}).items():
        federation = split(wanted["rule"], load(wanted["load"], data_dir), 0)
        paper = paper_number(spec, (data, "the split"), "", "mean")
        means = {"mean, paper": paper} if paper else {}
        holdings(federation, out / wanted["file"], data, means)


def parts_of(runs: Mapping[str, Run], wanted: Spec) -> list[tuple[str, Parts]]:
    """Return run → (setting, its units) of every point; merge : runs on the same data are one."""
    groups: dict[str, list[Run]] = {}
    for name in (run for run in runs if fits(run, wanted["runs"])):
        key = name.partition("-")[0] if wanted.get("merge") else name
        groups.setdefault(key, []).append(runs[name])
    return [
        (name, [(setting, part) for setting, part, _ in split_run(join_runs(own), wanted)])
        for name, own in groups.items()
    ]


def table_of(spec: Spec, wanted: Spec, parts: Parts) -> Table:
    """Return the rows of metrics.csv of some points as a table, by the names that methods have here.

    lines : a line for each setting, in place of one for each method. after_start : without round 0.
    """
    rows = [
        {**row, "title": title, "algorithm": title, "seed": unit.seed, "diverged": r.status == "diverged"}
        for setting, run in parts
        for unit, r in zip(run.units, run.records)
        if unit.label in wanted.get("methods", [unit.label])
        for title in [setting if wanted.get("lines") else spec["methods"][unit.label]]
        for row in r.rows[int(wanted.get("after_start", False)) :]
    ]  # fmt: skip
    return columns_of(rows)


def draw_curves(spec: Spec, wanted: Spec, parts: Parts, title: str, path: Path) -> None:
    """Draw a column of panels for each point, a row for each metric, as `fedref plot` does."""
    whole = table_of(spec, wanted, parts)
    metrics = wanted.get("metrics", ["train_loss", "accuracy"])
    against = wanted.get("against", "round")
    over = None if against == "round" else plots.column_of(against, whole)
    drawn = plots.series_of(whole)
    looks = {series.title: series.look for series in drawn}
    groups = [parts] if wanted.get("lines") else [[part] for part in parts]
    shape = (len(metrics), len(groups)) if len(groups) > 1 else (1, len(metrics))
    with style.context(STYLE):
        above = "" if shape == (1, 1) else title  # else it would reach into the legend
        figure, panels = frame(shape, (3.4, 3.0), above, plots.signs(drawn))
        for axes, (metric, group) in zip(panels, product(metrics, groups)):
            own = plots.series_of(table_of(spec, wanted, group))
            own = [series._replace(look=looks[series.title]) for series in own]
            plots.draw_curves(axes, own, plots.column_of(metric, whole), over)
            axes.set_title(title if shape == (1, 1) else group[0][0])
        save(figure, path)


def draw_bars(spec: Spec, wanted: Spec, parts: Parts, title: str, path: Path) -> None:
    """Draw the average and the maximum test accuracy of every method; a tick is the paper's."""
    table = table_of(spec, wanted, parts[:1])
    reference = {}
    for method in dict.fromkeys(table["title"].tolist()):
        printed = [paper_number(spec, (title, ""), method, q) for q in ("average", "maximum")]
        if any(printed):
            average, maximum = np.array(printed, float) / 100
            reference[method] = average, maximum
    save(plots.bars(table, "accuracy", reference=reference, title=title), path)


def draw_panels(spec: Spec, wanted: Spec, cells: Cells, path: Path) -> None:
    """Draw a panel for every data set and swept key: quantities, or methods, over its value.

    A place's setting ends in the value, "E = 5"; values stand evenly. Bars are ±1 sd over seeds.
    """
    groups: dict[tuple[str, str], dict[str, Place]] = {}
    for place in cells.places_at(wanted["at"]):
        varied, _, x = place[1].rpartition(" = ")
        groups.setdefault((place[0], varied), {})[x] = place
    there = [place for own in groups.values() for place in own.values()]
    quantities = wanted["quantities"]
    keys = list(dict.fromkeys((m, q) for p, m, q in cells.all if p in there and q in quantities))
    names = [q if len(quantities) > 1 else m for m, q in keys]
    looks = plots.looks_of([(name, "") for name in names])
    with style.context(STYLE):
        handles = [sign(name, **look) for name, look in zip(names, looks)]
        figure, panels = frame((1, max(len(groups), 1)), (3.2, 3.2), "", handles)
        for axes, ((data, varied), own) in zip(panels, groups.items()):
            ticks = sorted((x for x in own if any(cells.get(own[x], *k) for k in keys)), key=float)
            for (method, quantity), look in zip(keys, looks):
                found = [cells.get(own[x], method, quantity) for x in ticks]
                at = [i for i, v in enumerate(found) if v]
                means, sds = ([getattr(v, f) for v in found if v] for f in ("mean", "sd"))
                axes.errorbar(at, means, sds, capsize=3, **look)
            axes.set_xticks(range(len(ticks)), ticks)
            axes.set(title=data, xlabel=varied, ylabel="test accuracy (%)")
        save(figure, path)


def draw_dots(spec: Spec, wanted: Spec, cells: Cells, path: Path) -> None:
    """Draw a panel for every data set, a row for every method: a dot a seed, a bar for the mean.

    A place with a setting is a panel as well. An open dot is the paper's number.
    """
    places, quantity = cells.places_at(wanted["at"]), wanted["quantity"]
    methods = list(dict.fromkeys(spec["methods"].values()))
    names = [m for m in methods if any(cells.get(p, m, quantity) for p in places)]
    dot: Look = {"marker": "o", "linestyle": "none", "color": COLOURS[1], "alpha": 0.6}
    bar: Look = {"marker": "|", "linestyle": "none", "markersize": 13}
    open_dot: Look = {
        "marker": "o",
        "linestyle": "none",
        "color": COLOURS[2],
        "markerfacecolor": "white",
    }
    with style.context(STYLE):
        handles = [sign("a seed", **dot), sign("their mean", **bar)]
        handles += [sign("in the paper", **open_dot)] * ("paper" in spec)
        size = (2.8, 0.27 * len(names) + 1)
        figure, panels = frame((1, max(len(places), 1)), size, "", handles)
        for axes, place in zip(panels, places):
            for y, method in enumerate(names):
                if x := cells.get(place, method, quantity):
                    axes.plot(x.each, np.full(len(x.each), y), **dot)
                    axes.plot(x.mean, y, color="black", **bar)
                if (paper := paper_number(spec, place, method, quantity)) is not None:
                    axes.plot(paper, y, **open_dot)
            axes.set(title=" ".join(place).strip(), xlabel="accuracy in %")
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), names if axes is panels[0] else [""] * len(names))
        save(figure, path)


DRAWN = {"curves": draw_curves, "bars": draw_bars}
OF_CELLS = {"panels": draw_panels, "dots": draw_dots}
