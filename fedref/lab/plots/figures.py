"""Pictures of a run's tables: curves, bars, histograms over clients.

All take the table of a run (`Run.table()`), or of several (`join_tables`). metrics : the columns to draw.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.style import context
from matplotlib.ticker import MaxNLocator

from fedref.boundary import style
from fedref.boundary.errors import ConfigError, unknown
from fedref.lab.plots.tables import Row, Table, columns_of, extremes, group_rows, mean_and_sd
from fedref.models.numerics import Array
from fedref.rounds.metrics import CLIENTS, COLUMNS, PERCENT, Column

#: Larger values are drawn as this one, whose square is finite and which an axis can show.
LARGEST = 1e30


# ---- what is drawn -------------------------------------------------------------------------------


class Series(NamedTuple):
    """One line or bar: all seeds of one algorithm at one point of a sweep."""

    title: str
    seeds: Mapping[Any, Table]
    look: dict[str, Any]

    @property
    def has_diverged(self) -> bool:
        return any(rows["diverged"].any() for rows in self.seeds.values())

    @property
    def name(self) -> str:
        """The title, with a note if a run has diverged, broken into lines."""
        return style.wrap_label(f"{self.title} (diverged)" if self.has_diverged else self.title)

    def values(self, column: Column) -> tuple[Array, Array]:
        """Return (rounds (R,), values (seeds, R)) of the rounds in which every seed has a finite value."""
        tables = [t for t in self.seeds.values() if set(column.parts) <= t.keys()]
        if len(tables) < len(self.seeds):
            return np.zeros(0), np.zeros((len(self.seeds), 0))
        totals = [column.scale * np.sum([t[part] for part in column.parts], 0) for t in tables]
        known = [t["round"][np.isfinite(x)] for t, x in zip(tables, totals)]
        rounds = np.array(sorted(set.intersection(*(set(k.tolist()) for k in known))))
        y = np.array([x[np.isin(t["round"], rounds)] for t, x in zip(tables, totals)])
        return rounds, y.reshape(len(tables), -1).clip(-LARGEST, LARGEST)


def series_of(table: Table, reference: Iterable[str] = ()) -> list[Series]:
    """Return the series of a table; those of the same algorithm follow each other."""
    groups = group_rows(table)
    algorithms = dict(zip(table["title"].tolist(), table["algorithm"].tolist()))
    order = list(dict.fromkeys(algorithms.values()))
    titles = sorted(groups, key=lambda title: order.index(algorithms[title]))
    for label in reference:
        if label not in groups:
            raise ConfigError(unknown("label of a reference value", label, groups))
    looks = looks_of([(algorithms[t], t.removeprefix(algorithms[t])) for t in titles])
    return [Series(title, groups[title], look) for title, look in zip(titles, looks)]


def looks_of(pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a look for each (algorithm, variant); any two differ, even without colour.

    If all algorithms have the same variants, colour and marker show the algorithm, the line the variant.
    """
    labels, variants = (list(dict.fromkeys(names)) for names in zip(*pairs))
    grid = len(pairs) == len(labels) * len(variants)
    grid = grid and 1 < len(labels) <= len(style.MARKERS) and 1 < len(variants) <= len(style.LINES)
    places = ((labels.index(a), variants.index(v)) for a, v in pairs)
    colours, lines, markers = style.COLOURS, style.LINES, style.MARKERS

    def look(a: int, v: int) -> dict[str, Any]:
        shape = {"linestyle": lines[v % len(lines)], "marker": markers[a % len(markers)]}
        return {"color": colours[a % len(colours)], **shape}

    return [look(a, v) for a, v in (places if grid else ((i, i) for i in range(len(pairs))))]


def column_of(name: str, table: Table, known: Mapping[str, Column] = COLUMNS) -> Column:
    """Return the column of a name; a ConfigError suggests the nearest one that has values here."""
    available = {n for n, x in table.items() if x.dtype.kind in "iuf" and np.isfinite(x).any()}
    available -= {"round", "seed"}
    key = name.replace("-", "_")
    column = {**COLUMNS, **known}.get(key, Column(key.replace("_", " "), ""))
    column = column._replace(title=style.plain_text(column.title), parts=column.parts or (key,))
    if not available.issuperset(column.parts):
        available |= {
            alias for alias, one in COLUMNS.items() if one.parts and available.issuperset(one.parts)
        }
        if key in COLUMNS:
            known_here = ", ".join(sorted(available))
            raise ConfigError(f"there are no values of {name} here: known are {known_here}")
        raise ConfigError(unknown("metric", name, available))
    return column


# ---- curves, in the manner of [apfl fig.2] -------------------------------------------------------


def curves(
    table: Table,
    metrics: str | Sequence[str] | None = None,
    *,
    against: str = "round",
    others: str = "best",
    title: str = "",
) -> Figure:
    """Draw a line for each algorithm: the mean over seeds, with a band of ±1 standard deviation.

    A star marks a round after which APFL renews its importance; it is hollow if only some seeds do. A
    cross marks the last round before the algorithm diverged. against : "round", or the column on the x
    axis: bytes, flops ...; where these are all 0, an algorithm is a horizontal line at its last value. Or a
    key of the sweep: then the points are the values after the last round, and the axis is logarithmic
    if its values spread over more than a factor of 20. others : "best" or "mean" over the values of the
    other swept keys; the best is chosen by validation rows if there are any, else by what is drawn.
    """
    key = f"sweep.{against.removeprefix('sweep.')}"
    swept = key in table
    columns = [column_of(name, table) for name in names_of(metrics) or usual_metrics(table, swept)]
    columns = columns or [COLUMNS["test_loss"]._replace(parts=("test_loss",))]
    label = key.removeprefix("sweep.")
    if swept:
        table, chosen = choose_others(key, table, columns[0], others)
        label = style.plain_text(label) + chosen
    over = None if swept or against == "round" else column_of(against, table)
    drawn = [s for s in series_of(table) if any(s.values(c)[0].size for c in columns)]
    with context(style.STYLE):
        size = (3.7, 3.5) if len(columns) > 1 else (5.2, 3.7)
        figure, panels = style.frame((1, len(columns)), size, title, signs(drawn))
        for axes, column in zip(panels, columns):
            draw_curves(axes, drawn, column, over)
            if swept:
                ends = table["round"]
                wide = ends.min() > 0 and ends.max() > 20 * ends.min()
                axes.set_xscale("log" if wide else "linear")
                axes.set(xlabel=label, ylabel=f"{column.title}, last round")
    return figure


def usual_metrics(table: Table, swept: bool) -> list[str]:
    """Return what is drawn where no metric is named: what has values, a swept key's last one alone."""
    known = has_values(table, "train_loss", "test_loss", "accuracy")
    if "test_loss" not in known and "unseen_accuracy" in table:  # all test rows are unseen clients'
        known.append("unseen_accuracy")
    return known[-1:] if swept else [n for n in known if n != "test_loss" or len(known) < 3]


def has_values(table: Table, *names: str) -> list[str]:
    """Return those of the columns that have a finite value."""
    return [name for name in names if name in table and np.isfinite(table[name]).any()]


def choose_others(key: str, table: Table, drawn: Column, others: str) -> tuple[Table, str]:
    """Return `last_round_over` a swept key, and what the axis says of the other swept keys.

    drawn : what the best of their values is chosen by where there are no validation rows.
    """
    validation = has_values(table, "validation_accuracy", "validation_loss")[:1]
    by = column_of(validation[0], table) if validation else drawn
    rest = [n.removeprefix("sweep.") for n in table if n.startswith("sweep.") and n != key]
    how = f"best{' by validation' if validation else ''}" if others == "best" else others
    chosen = "\n" + style.wrap_label(f"{how} over {', '.join(rest)}") if rest else ""
    return last_round_over(key, table, by, others), chosen


def last_round_over(key: str, table: Table, by: Column, others: str) -> Table:
    """Return a table whose rounds are the values of a swept key: of each unit its last values.

    Of the values of other swept keys, others="best" takes those with the best mean over seeds of the
    column `by`, and "mean" the mean. Units that do not depend on the key are left out.
    """
    if table[key].dtype.kind not in "iuf":
        raise ConfigError(f"{key} holds words, expected numbers for the x axis")
    points: dict[tuple[str, float], list[dict[Any, Row]]] = {}
    for seeds in group_rows(table).values():
        lasts = {seed: last_values(rows) for seed, rows in seeds.items()}
        if all(key in last for last in lasts.values()):
            first = next(iter(lasts.values()))
            title = first["algorithm"] + (f" ({first['run']})" if "run" in first else "")
            points.setdefault((title, float(first[key])), []).append(lasts)
    direction = -1 if "loss" in by.title else 1

    def goodness(lasts: dict[Any, Row]) -> float:
        values = [sum(row.get(part, np.nan) for part in by.parts) for row in lasts.values()]
        return float(np.nan_to_num(direction * np.mean(values), nan=-np.inf))

    rows: list[Row] = []
    for (title, x), chosen in sorted(points.items(), key=lambda item: item[0][1]):
        if others == "best":
            chosen = [max(chosen, key=goodness)]
        for seed, row in chosen[0].items():
            same = [lasts[seed] for lasts in chosen if seed in lasts]
            numbers = [n for n, x in row.items() if isinstance(x, np.floating | np.integer)]
            means = {n: np.mean([other[n] for other in same if n in other]) for n in numbers}
            rows.append(row | means | {"title": title, "round": x, "diverged": False})
    return columns_of(rows)


def last_values(rows: Table) -> Row:
    """Return the last value of each column of a unit that is not empty."""
    known = {name: x[x == x] for name, x in rows.items() if name != "renewed"}
    return {name: x[-1] for name, x in known.items() if x.size}


def draw_curves(
    axes: Axes, drawn: Sequence[Series], column: Column, against: Column | None
) -> None:
    lines = []
    for series in drawn:
        t, y = series.values(column)
        x = t
        if against is not None:
            other, xs = series.values(against)
            t, in_y, in_x = np.intersect1d(t, other, return_indices=True)
            x, y = xs[:, in_x].mean(0), y[:, in_y]
        if t.size:
            lines.append((series, t, x, *mean_and_sd(y)))
    means = np.concatenate([*(mean for *_, mean, _ in lines), np.zeros(0)])
    log = column.scale != PERCENT and bool(means.size and 0 < 1000 * means.min() < means.max())
    axes.set_yscale("log" if log else "linear")
    costly = against is not None and any(x.any() for _, _, x, _, _ in lines)
    for i, (series, t, x, mean, sd) in enumerate(lines):
        if costly and not x.any() and not series.has_diverged:
            look = {key: series.look[key] for key in ("color", "linestyle")}
            axes.axhline(mean[-1], **look, linewidth=1)
        else:
            draw_curve(axes, series, t, x, mean, sd, i / len(lines), column.scale == PERCENT, log)
    axes.set_xlabel("communication round" if against is None else against.title)
    axes.set_ylabel(column.title)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=against is None))
    low, high = axes.get_ylim()
    if column.scale == PERCENT:
        axes.set_ylim(max(low, -2), min(high, 102))
    elif log:
        axes.set_ylim(means.min() / 2, means.max() * 2)


def draw_curve(
    axes: Axes, series: Series, t: Array, x: Array, mean: Array, sd: Array, offset: float,
    percent: bool, log: bool,
) -> None:  # fmt: skip
    """Draw the mean, its band, the stars and the cross; `offset` in [0, 1) keeps markers apart."""
    colour, step = series.look["color"], max(1, len(t) // 8)
    look = series.look | {"markeredgecolor": "white", "markeredgewidth": 0.5, "zorder": 3}
    axes.plot(x, mean, **look, markevery=(int(offset * step), step))
    if len(series.seeds) > 1:
        low, high = np.maximum(mean - sd, mean / 1e3) if log else mean - sd, mean + sd
        if percent:
            low, high = np.maximum(low, 0), np.minimum(high, 100)
        axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
    to, back = (np.log, np.exp) if log else (np.positive, np.positive)
    for at, share in renewals(series):
        if t[0] <= at <= t[-1]:  # interpolate on the axes' scales, to be on the line
            place = np.interp(at, t, x), back(np.interp(at, t, to(mean)))
            axes.plot(*place, zorder=5, **star(colour, share == 1))
    if series.has_diverged:
        axes.plot(x[-1], mean[-1], color=colour, zorder=6, clip_on=False, **style.CROSS)


def renewals(series: Series) -> list[tuple[int, float]]:
    """Return (round after which F is renewed, share of the seeds that renew it) [apfl §4.1.3]."""
    rounds = [t["round"][t["renewed"] == 1] for t in series.seeds.values() if "renewed" in t]
    at, times = np.unique(np.concatenate([*rounds, np.zeros(0, int)]), return_counts=True)
    return list(zip(at.tolist(), (times / len(series.seeds)).tolist()))


def star(colour: str, filled: bool) -> dict[str, Any]:
    face, edge = (colour, "white") if filled else ("white", colour)
    return {
        "marker": "*", "linestyle": "none", "markersize": 14 if filled else 11,
        "markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": 0.8 if filled else 1.1,
    }  # fmt: skip


def signs(drawn: Sequence[Series]) -> list[Artist]:
    """Return the handles of the legend: a line for each series, then the other signs."""

    handles: list[Artist] = [style.sign(style.wrap_label(s.title), **s.look) for s in drawn]
    shares = {share == 1 for series in drawn for _, share in renewals(series)}
    if True in shares:
        handles.append(style.sign("importance renewed", **star("black", True)))
    if False in shares:
        handles.append(style.sign("renewed in some seeds", **star("black", False)))
    if any(series.has_diverged for series in drawn):
        handles.append(style.sign("diverged", **style.CROSS))
    if label := spread_label(drawn):
        handles.append(Patch(color="black", alpha=0.14, linewidth=0, label=label))
    return handles


# ---- bars, in the manner of [apfl fig.1], and histograms over clients ----------------------------


def bars(
    table: Table,
    metrics: str | Sequence[str] | None = None,
    *,
    reference: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    title: str = "",
) -> Figure:
    """Draw the average over all evaluated rounds and the maximum.

    reference : title → (average, maximum) in the paper, accuracies as fractions.
    """
    drawn, column = series_of(table, reference), one_column(metrics, table)
    each = [np.array([extremes(t, *column.parts) for t in s.seeds.values()]) for s in drawn]
    values = column.scale * np.array([mean_and_sd(x)[:, :2] for x in each])
    in_paper = column.scale * np.array([reference.get(s.title, (np.nan, np.nan)) for s in drawn])
    spread = spread_label(drawn)
    with context(style.STYLE):
        figure, (axes,) = style.frame((1, 1), (6.2, 0.42 * len(drawn) + 1.1), title)
        for i in range(2):
            y, mean = np.arange(len(drawn)) + 0.4 * i - 0.2, values[:, 0, i]
            sd = values[:, 1, i]
            axes.barh(y, mean, 0.4, **style.BARS[i], edgecolor="black", linewidth=0.7)
            axes.errorbar(mean, y, xerr=sd, fmt="none", ecolor="black", capsize=3, elinewidth=1.4)
            axes.plot(in_paper[:, i], y, color="black", **style.TICK)
            ends = np.fmax(np.fmax(mean, mean + sd), in_paper[:, i])
            for at, end, m, s, d in zip(y, ends, mean, sd, in_paper[:, i]):
                text = f"{m:.1f}{f' ± {s:.1f}' if s == s else ''}"
                text += f" [{d:.1f}]" if d == d else ""
                axes.text(end + 1.2, at, text, va="center", fontsize=8)
        axes.set_yticks(range(len(drawn)), [series.name for series in drawn])
        axes.set_ylim(len(drawn) - 0.45, -0.55)
        if column.scale == PERCENT:
            axes.set_xlim(0, 109 + 9 * bool(spread) + 8 * bool(reference))
            axes.set_xticks(range(0, 101, 20))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(", ".join(filter(None, (column.title, spread))))
        handles: list[Artist] = [Patch(**bar, edgecolor="black") for bar in style.BARS]
        if reference:
            handles.append(style.sign("[in the paper]", **style.TICK))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def clients(table: Table, metrics: str | Sequence[str] | None = None, *, title: str = "") -> Figure:
    """Draw a histogram of a column of clients.csv for each algorithm, after the last evaluated round."""
    drawn, column = series_of(table), one_column(metrics, table, CLIENTS)
    values = []
    for series in drawn:
        ends = [t[column.parts[0]][t["round"] == t["round"].max()] for t in series.seeds.values()]
        x = column.scale * np.concatenate(ends)
        values.append(x[np.isfinite(x)].clip(-LARGEST, LARGEST))
    percent = column.scale == PERCENT
    every = np.concatenate(values)
    edges = np.arange(-2.5, 103, 5) if percent else np.histogram_bin_edges(every, 20)
    across = min(len(drawn), 4 if len(drawn) > 6 else 3)
    rows = -(-len(drawn) // across)
    with context(style.STYLE):
        size = (2.4, 1.9 if rows > 1 else 2.5)
        figure, panels = style.frame((rows, across), size, title, share=True)
        for axes, series, x in zip(panels, drawn, values):
            shares = np.full(len(x), 100 / max(len(x), 1))
            face = style.BARS[0]["facecolor"]
            axes.hist(x, list(edges), weights=shares, color=face, edgecolor="black", linewidth=0.7)
            axes.axvline(x.mean(), color="black", linestyle=(0, (4, 2)), linewidth=1.2)
            form = ".1f" if percent else ".3g"
            spread = f"sd, n − 1: {x.std(ddof=len(x) > 1):{form}}"
            axes.set_title(f"{series.name}\nmean {x.mean():{form}}, {spread}", fontsize=9)
            axes.grid(visible=False, axis="x")
        for axes in panels[len(drawn) - across : len(drawn)]:
            axes.tick_params(labelbottom=True)  # panels with no other panel below them
        for axes in panels[len(drawn) :]:
            axes.remove()
        last = {int(t["round"].max()) for s in drawn for t in s.seeds.values()}
        when = f"round {last.pop()}" if len(last) == 1 else "the last round evaluated"
        figure.supxlabel(f"{column.title} after {when}; dashed: mean", fontsize="medium")
        figure.supylabel("share of clients (%)", fontsize="medium")
    return figure


# ---- what all pictures share ---------------------------------------------------------------------


def names_of(metrics: str | Sequence[str] | None) -> list[str]:
    return [metrics] if isinstance(metrics, str) else list(metrics or ())


def one_column(
    metrics: str | Sequence[str] | None, table: Table, known: Mapping[str, Column] = COLUMNS
) -> Column:
    name, *more = names_of(metrics) or ["accuracy"]
    if more:
        raise ConfigError(f"--metric names {1 + len(more)} metrics, this picture can show one")
    return column_of(name, table, known)


def spread_label(drawn: Iterable[Series]) -> str:
    """Return the legend's text for a band or an error bar; "" if there is one seed."""
    counts = {len(series.seeds) for series in drawn}
    number = f"{counts.pop()} " if len(counts) == 1 else ""
    return "" if number == "1 " else f"±1 sd, n − 1, over {number}seeds"
