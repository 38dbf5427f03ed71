"""The pictures of a report: of runs, as `fedref plot` draws them, and of cells."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style

from fedref.boundary.style import COLOURS, STYLE, frame, save, sign
from fedref.lab.datasets import load, split
from fedref.lab.experiments.loading import Loader
from fedref.lab.experiments.results import Run
from fedref.lab.plots import holdings
from fedref.lab.plots import runs as plots
from fedref.lab.plots.tables import Table, columns_of
from fedref.models.numerics import Array
from fedref.rounds.evaluation import sample_mean
from reproduce.cells import Cells, Place, data_of, fits, split_run
from reproduce.pages import paper_number
from reproduce.quantities import merge_runs, score_unadapted
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
        if wanted["kind"] == "losses":
            draw_losses(spec, wanted, runs, out / wanted["file"], data_dir)
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
    """Return run → (setting, its units) of every point."""
    return [
        (name, [(setting, part) for setting, part, _ in split_run(merged, wanted)])
        for name, merged in merge_runs(runs, wanted).items()
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


def draw_losses(
    spec: Spec, wanted: Spec, runs: Mapping[str, Run], path: Path, data_dir: Path | None
) -> None:
    """Draw the training loss of the parameters as they are sent, before a user's own step.

    panel, line : the names of panels and lines. A line a seed, of the states that the runs have kept.
    """
    loader, panels_of = Loader(data_dir), dict[str, list[tuple[str, str, Array, Array]]]()
    for run in (runs[name] for name in runs if fits(name, wanted["runs"])):
        for panel, part, _ in split_run(run, {"setting": wanted["panel"]}):
            line = split_run(run, {"setting": wanted["line"]})[0][0]
            for unit, record in zip(part.units, part.records):
                t = np.arange(0, record.round + 1, unit.experiment.keep_parameters or 1)
                how: Look = {"seed": unit.seed, **unit.point}
                states = (run.parameters(unit.label, int(x), **how) for x in t)
                scores = [
                    score_unadapted(unit, state, int(x), loader, train=True)
                    for state, x in zip(states, t)
                ]
                loss = np.array([sample_mean(s.train_loss, s.n_train) for s in scores])
                method = spec["methods"][unit.label]
                panels_of.setdefault(panel, []).append((method, line, t, loss))
    every = [drawn for own in panels_of.values() for drawn in own]
    names = list(dict.fromkeys((method, line) for method, line, *_ in every))
    looks = dict(zip(names, plots.looks_of([(", ".join(name), "") for name in names])))
    with style.context(STYLE):
        handles = [sign(", ".join(name), **{**looks[name], "marker": ""}) for name in names]
        figure, panels = frame((1, max(len(panels_of), 1)), (3.6, 3.2), "", handles)
        for axes, (title, own) in zip(panels, panels_of.items()):
            for method, line, t, loss in own:
                axes.plot(t, loss, **{**looks[method, line], "marker": "", "linewidth": 1})
            axes.set(
                title=title, xlabel="communication round", ylabel="training loss before the step"
            )
        save(figure, path)


DRAWN = {"curves": draw_curves, "bars": draw_bars}
OF_CELLS = {"panels": draw_panels, "dots": draw_dots}
