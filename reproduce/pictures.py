"""The pictures of a report: of runs, as `fedref plot` draws them, and of cells."""

from collections.abc import Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style

from fedref.boundary.style import COLOURS, STYLE, frame, save, sign
from fedref.lab.datasets import load, split
from fedref.lab.experiments.loading import Loader
from fedref.lab.experiments.results import Run
from fedref.lab.experiments.unit import Unit
from fedref.lab.plots import figures as plots
from fedref.lab.plots import holdings
from fedref.lab.plots.tables import Table, columns_of
from fedref.models.numerics import Array
from fedref.rounds.evaluation import sample_mean
from reproduce.cells import Cells, Place, data_of, fits, place_name, split_run
from reproduce.claims import CONTRADICTED, HOLDS, UNDECIDED, Claim, Finding
from reproduce.pages import Headline, paper_number
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
        elif wanted["kind"] == "losses":
            draw_losses(spec, wanted, runs, out / wanted["file"], Loader(data_dir))
        else:
            for name, merged in merge_runs(runs, wanted).items():
                parts = [(setting, part) for setting, part, _ in split_run(merged, wanted)]
                title, file = data_of(spec, name), wanted.get("file", "{run}.png")
                for group in [[part] for part in parts] if "{setting}" in file else [parts]:
                    words = {"run": name, "setting": group[0][0].replace(" = ", "")}
                    DRAWN[wanted["kind"]](spec, wanted, group, title, out / file.format(**words))
    for data, wanted in spec.get("splits", {}).items():
        federation = split(wanted["rule"], load(wanted["load"], data_dir), 0)
        paper = paper_number(spec, (data, "the split"), "", "mean")
        means = {"mean, paper": paper} if paper else {}
        holdings(federation, out / wanted["file"], data, means)


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
    looks = looks_of_lines(names)
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
    open_dot: Look = {**dot, "color": COLOURS[2], "markerfacecolor": "white", "alpha": 1}
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
    spec: Spec, wanted: Spec, runs: Mapping[str, Run], path: Path, loader: Loader
) -> None:
    """Draw the training loss of the parameters as they are sent, before a user's own step.

    panel, line : the names of panels and lines. A line a seed, of the states that the runs have kept.
    """
    panels_of: dict[str, list[tuple[str, Array, Array]]] = {}
    for run in (runs[name] for name in runs if fits(name, wanted["runs"])):
        line = split_run(run, {"setting": wanted["line"]})[0][0]
        for panel, part, _ in split_run(run, {"setting": wanted["panel"]}):
            for unit, record in zip(part.units, part.records):
                t = np.arange(0, record.round + 1, unit.experiment.keep_parameters or 1)
                loss = np.array([unadapted_loss(run, unit, int(x), loader) for x in t])
                name = f"{spec['methods'][unit.label]}, {line}"
                panels_of.setdefault(panel, []).append((name, t, loss))
    names = list(dict.fromkeys(name for own in panels_of.values() for name, *_ in own))
    looks = {name: look | {"marker": ""} for name, look in zip(names, looks_of_lines(names))}
    with style.context(STYLE):
        handles = [sign(name, **look) for name, look in looks.items()]
        figure, panels = frame((1, max(len(panels_of), 1)), (3.6, 3.2), "", handles)
        for axes, (title, own) in zip(panels, panels_of.items()):
            for name, t, loss in own:
                axes.plot(t, loss, **looks[name], linewidth=1)
            axes.set(
                title=title, xlabel="communication round", ylabel="training loss before the step"
            )
        save(figure, path)


def unadapted_loss(run: Run, unit: Unit, t: int, loader: Loader) -> float:
    """Return the training loss of the parameters that the server sends after round t."""
    how: Look = {"seed": unit.seed, **unit.point}
    s = score_unadapted(unit, run.parameters(unit.label, t, **how), t, loader, train=True)
    return sample_mean(s.train_loss, s.n_train)


def looks_of_lines(names: Sequence[str]) -> list[Look]:
    return plots.looks_of([(name, "") for name in names])


DRAWN = {"curves": draw_curves, "bars": draw_bars}
OF_CELLS = {"panels": draw_panels, "dots": draw_dots}


# ---- the first screen ----------------------------------------------------------------------------

#: Margins beyond which a dot is drawn at the edge.
CLIP = 8.0
BY_OUR_SIZE = "contradicted by our size alone"
GREY = "#909090"
COLOUR = {HOLDS: COLOURS[1], CONTRADICTED: COLOURS[2], BY_OUR_SIZE: COLOURS[5], UNDECIDED: GREY}
DARK = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "#0d1117"),
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), "#e6edf3"),
    **dict.fromkeys(("xtick.color", "ytick.color"), "#e6edf3"),
    "grid.color": "#30363d",
}


def draw_forest(found: Sequence[Headline], path: Path, look: Mapping[str, Any]) -> None:
    """Draw a row for each claim: how many margins each place is beyond the limit; right is as claimed."""
    ink, y = look.get("text.color", "black"), 0.0
    labels, rows = list[tuple[float, str, str]](), list[tuple[float, Headline]]()
    for title, group in groupby(found, key=lambda one: one.spec["headline"]):
        labels.append((y, title.partition(" (")[0].strip("*"), "bold"))
        for one in group:
            y += 1
            labels.append((y, one.row["text"].partition(":")[0].replace("¹", ""), "normal"))
            rows.append((y, one))
        y += 1.4
    printed = "the paper's number"
    with style.context([*STYLE, dict(look)]):
        handles = [sign(verdict, **dot(colour)) for verdict, colour in COLOUR.items()]
        handles.append(sign("ring: other data", **dot(ink, ring=True)))
        figure, (axes,) = frame((1, 1), (9.2, 0.24 * y + 0.6), "", ())
        handles.append(sign(printed, **diamond(ink)))
        figure.legend(handles=handles, loc="outside lower center", ncols=6, handlelength=1)
        for edge in (-1, 1):
            axes.axvline(edge, color=ink, linewidth=0.8, linestyle=":")
        axes.axvline(0, color=ink, linewidth=0.8)
        for at, one in rows:
            for f in one.findings:
                x = margins_beyond(one.claim, f, f.values.mean)
                axes.plot(x, at, **dot(colour_of(one, f), stands_in(one, f)))
            if one.row["number"]:
                x = margins_beyond(one.claim, one.printed, float(one.row["number"]))
                axes.plot(x, at, **diamond(ink))
        axes.set(xlim=(-CLIP - 0.5, CLIP + 0.5), ylim=(y - 1, -0.6))
        axes.set_xlabel("margins beyond the limit (right: as claimed)")
        ticks = np.arange(-CLIP, CLIP + 1, 2)
        axes.set_xticks(ticks, [f"{x:+.0f}".replace("-", "−") if x else "0" for x in ticks])
        axes.set_yticks([at for at, *_ in labels], [text for _, text, _ in labels])
        for label, (*_, weight) in zip(axes.get_yticklabels(), labels):
            label.set_fontweight(weight)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        save(figure, path)


def margins_beyond(claim: Claim, f: Finding, x: float) -> float:
    """Return how many margins x is inside the nearer limit, no more than CLIP; below 0: outside."""
    return float(np.clip(min(x - claim.above, claim.below - x) / f.margin, -CLIP, CLIP))


def colour_of(one: Headline, f: Finding) -> str:
    """Return the colour of a number's verdict."""
    return COLOUR.get(f.decide(one.claim), COLOUR[BY_OUR_SIZE])


def stands_in(one: Headline, f: Finding) -> bool:
    """Return whether other data stand in for the paper's."""
    return fits(place_name(f.place), [*one.spec.get("data-notes", {})])


def dot(colour: str, ring: bool = False) -> dict[str, Any]:
    look = {"marker": "o", "markersize": 6.5, "linestyle": "none", "color": colour, "alpha": 0.85}
    return look | {"markerfacecolor": "none", "markeredgewidth": 1.5} if ring else look


def diamond(ink: str) -> dict[str, Any]:
    look = {"marker": "D", "markersize": 7, "linestyle": "none"}
    return {**look, "color": ink, "markerfacecolor": "none", "zorder": 3, "clip_on": False}
