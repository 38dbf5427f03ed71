"""Pictures of runs: curves in the manner of [apfl fig.2], bars as in [apfl fig.1], histograms over
clients. PNG, SVG or PDF by the name of the file; the same run always gives the same bytes.

Every function takes one `Run`, or several by name: {name: run}. An algorithm that several of them
have is labelled with the run's name as well. Algorithms are told apart without colour too: by line,
marker and hatch. `reference` maps a label of the picture to the value that a document prints, in
the unit of the column (an accuracy is a fraction).
"""

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedref.errors import ConfigError, FedrefError, unknown
from fedref.experiments.results import Run, summaries
from fedref.experiments.unit import Record, Unit
from fedref.files import write_whole
from fedref.numerics import Array

Runs = Run | Mapping[str, Run]

FORMATS = ("png", "svg", "pdf")

#: Okabe and Ito's palette for all kinds of colour vision, without its yellow (too pale for lines).
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (6, 2, 1, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2, 1, 2)), (0, (2.5, 1.2)),
)  # fmt: skip
MARKERS = "os^DvP<>phd"
CROSS: dict[str, Any] = {"marker": "x", "markersize": 9, "linestyle": "none", "markeredgewidth": 2}
DOCUMENT: Any = (0, (1, 3))
TICK: dict[str, Any] = {
    "marker": "|",
    "markersize": 12,
    "markeredgewidth": 2.2,
    "linestyle": "none",
}
BARS: tuple[dict[str, Any], ...] = (
    {"label": "average", "facecolor": "#56B4E9"},
    {"label": "maximum", "facecolor": "#F5D9A0", "hatch": "////"},
)

STYLE: list[Any] = [
    "default",  # whatever the user's own settings are
    {
        "font.size": 10,
        "axes.titlesize": 10,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "legend.handlelength": 3.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": "0.9",
        "grid.linewidth": 0.7,
        "hatch.linewidth": 0.7,
        "lines.linewidth": 1.6,
        "lines.markersize": 5.5,
        "figure.constrained_layout.w_pad": 0.08,
        "savefig.dpi": 200,
        "pdf.fonttype": 42,
        "svg.hashsalt": "fedref",
    },
]


class Metric(NamedTuple):
    """What is drawn: the axis' name with its unit, and scale × the sum of the columns."""

    title: str
    columns: tuple[str, ...]
    scale: float = 1.0


PERCENT = 100
#: What diverges is drawn up to here: its square still is a number, and the axis can be labelled.
LARGEST = 1e30
#: Columns with a unit, and names for sums of columns. Any other column is drawn as it is.
METRICS = {
    "accuracy": Metric("test accuracy (%)", ("accuracy",), PERCENT),
    "accuracy_mean": Metric("test accuracy, mean of clients (%)", ("accuracy_mean",), PERCENT),
    "unseen_accuracy": Metric("accuracy of unseen clients (%)", ("unseen_accuracy",), PERCENT),
    "unseen_accuracy_mean": Metric(
        "accuracy, mean of unseen clients (%)", ("unseen_accuracy_mean",), PERCENT
    ),
    "loss": Metric("training loss", ("train_loss",)),
    "train_loss": Metric("training loss", ("train_loss",)),
    "train_loss_mean": Metric("training loss, mean of clients", ("train_loss_mean",)),
    "test_loss_mean": Metric("test loss, mean of clients", ("test_loss_mean",)),
    "bytes": Metric("data sent up and down (MB)", ("bytes_down", "bytes_up"), 1e-6),
    "bytes_down": Metric("data sent down (MB)", ("bytes_down",), 1e-6),
    "bytes_up": Metric("data sent up (MB)", ("bytes_up",), 1e-6),
    "flops": Metric("computation (10⁹ operations)", ("flops",), 1e-9),
    "grads": Metric("gradients computed", ("grads",)),
    "hvps": Metric("Hessian-vector products computed", ("hvps",)),
    "stragglers": Metric("stragglers since the start", ("stragglers",)),
    "dropped": Metric("clients dropped since the start", ("dropped",)),
    "failed": Metric("clients failed since the start", ("failed",)),
    "gamma": Metric("inexactness γ, mean of the cohort", ("gamma",)),
    "penalty": Metric("penalty, mean of the cohort", ("penalty",)),
    "mu": Metric("proximal weight μ", ("mu",)),
    "B": Metric("dissimilarity B", ("B",)),
    "variance": Metric("variance of the clients' gradients", ("variance",)),
}
#: Average and maximum, as fields of the summary.
BAR_METRICS = {
    "accuracy": ("average", "maximum"),
    "accuracy_mean": ("plain_average", "plain_maximum"),
}
#: What is known of every client.
CLIENT_METRICS = {
    "accuracy": Metric("test accuracy of a client (%)", ("accuracy",), PERCENT),
    "test_loss": Metric("test loss of a client", ("test_loss",)),
    "train_loss": Metric("training loss of a client", ("train_loss",)),
}


# ---- what is drawn -----------------------------------------------------------------------------


class Look(NamedTuple):
    colour: str
    line: Any
    marker: str


class Series(NamedTuple):
    """One line or bar: all seeds of one algorithm at one point of a sweep, as a run of its own."""

    label: str
    algorithm: str
    variant: str  # the point of the sweep and the name of the run
    run: Run
    look: Look

    @property
    def seeds(self) -> int:
        return len(self.run.records)

    @property
    def name(self) -> str:
        """The label in lines that are not too long; it tells where a run has diverged."""
        label = f"{self.label} (diverged)" if self.run.diverged else self.label
        return wrapped(label)


class Curve(NamedTuple):
    """Over the rounds t, each (R,): where on the x axis, mean and standard deviation over seeds."""

    t: Array
    x: Array
    mean: Array
    sd: Array


def all_series(runs: Runs) -> list[Series]:
    """Every algorithm of every run; those with the same name stand side by side."""
    experiments = {"": runs} if isinstance(runs, Run) else runs
    groups: dict[tuple[str, str, str], list[tuple[Unit, Record]]] = {}
    for name, run in experiments.items():
        for unit, record in zip(run.units, run.records):
            point = ", ".join(f"{key}={value}" for key, value in unit.point.items())
            groups.setdefault((unit.label, point, name), []).append((unit, record))
    algorithms = list(dict.fromkeys(algorithm for algorithm, _, _ in groups))
    keys = sorted(groups, key=lambda key: algorithms.index(key[0]))
    times = Counter((algorithm, point) for algorithm, point, _ in keys)
    variants = [
        ", ".join(filter(None, (point, name if times[algorithm, point] > 1 else "")))
        for algorithm, point, name in keys
    ]
    made = []
    for key, variant, look in zip(keys, variants, looks([key[0] for key in keys], variants)):
        label = f"{key[0]} ({variant})" if variant else key[0]
        units, records = map(list, zip(*groups[key]))
        own = Run(experiments[key[2]].experiment, units, records)
        made.append(Series(label, key[0], variant, own, look))
    return made


def looks(algorithms: Sequence[str], variants: Sequence[str]) -> list[Look]:
    """One for each series, different without colour too. Where all algorithms have the same
    variants, the marker tells the algorithm, the line the variant, and the colour whichever there
    are more of."""
    each, ways = list(dict.fromkeys(algorithms)), list(dict.fromkeys(variants))
    grid = len(algorithms) == len(each) * len(ways)
    grid = grid and 1 < len(each) <= len(MARKERS) and 1 < len(ways) <= len(LINES)
    made = []
    for i, (algorithm, variant) in enumerate(zip(algorithms, variants)):
        a, v, c = i, i, i
        if grid:
            a, v = each.index(algorithm), ways.index(variant)
            c = v if len(ways) > len(each) else a
        made.append(
            Look(COLOURS[c % len(COLOURS)], LINES[v % len(LINES)], MARKERS[a % len(MARKERS)])
        )
    return made


def metric_of(name: str, drawn: Sequence[Series]) -> Metric:
    """The metric of that name, or a ConfigError with the nearest one that these runs have."""
    rows = (row for series in drawn for record in series.run.records for row in record.rows)
    columns = {column for row in rows for column, value in row.items() if value == value}
    columns.discard("round")
    key = name.replace("-", "_")
    metric = METRICS.get(key, Metric(key.replace("_", " "), (key,)))
    if columns.issuperset(metric.columns):
        return metric
    known = columns | {alias for alias, m in METRICS.items() if columns.issuperset(m.columns)}
    if key in METRICS:
        raise ConfigError(
            f"there are no values of {name} here: known are {', '.join(sorted(known))}"
        )
    raise ConfigError(unknown("metric", name, known | METRICS.keys()))


def values(series: Series, metric: Metric) -> tuple[Array, Array]:
    """(rounds (R,), values (seeds, R)): the rounds in which every seed has a finite value."""
    rows = [row for record in series.run.records for row in record.rows]
    if not all(any(column in row for row in rows) for column in metric.columns):
        return np.zeros(0), np.zeros((series.seeds, 0))
    parts = [series.run.curve(series.algorithm, column) for column in metric.columns]
    t, total = parts[0][0], metric.scale * np.sum([part[1] for part in parts], 0)
    whole = np.isfinite(total).all(0)
    return t[whole], np.clip(total[:, whole], -LARGEST, LARGEST)


def curve(series: Series, metric: Metric, against: Metric | None) -> Curve:
    """The metric over rounds, or over the mean of another metric in the same rounds."""
    t, y = values(series, metric)
    x = t
    if against is not None:
        other, xs = values(series, against)
        t, in_y, in_x = np.intersect1d(t, other, return_indices=True)
        x, y = xs[:, in_x].mean(0), y[:, in_y]
    return Curve(t, x, y.mean(0), y.std(0))


def renewals(series: Series) -> list[tuple[int, float]]:
    """(round after which F is renewed, in which share of the seeds) [apfl §4.1.3]."""
    rounds = Counter(
        row["round"]
        for record in series.run.records
        for row in record.rows
        if row.get("renewed") == 1
    )
    return [(t, times / series.seeds) for t, times in sorted(rounds.items())]


# ---- the frame ---------------------------------------------------------------------------------


def format_of(path: Path) -> str:
    """png, svg or pdf."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{path} ends in {path.suffix!r}, expected .png, .svg or .pdf")
    return kind


def save(figure: Figure, path: Path) -> None:
    """Write the picture, whole or not at all, without a date."""
    kind = format_of(path)
    metadata: dict[str, dict[str, Any]] = {
        "png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}
    }  # fmt: skip
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, metadata=metadata[kind])
    try:
        write_whole(path, buffer.getvalue())
    except OSError as error:
        raise FedrefError(f"{path}: cannot write ({error.strerror or error})") from None


def frame(
    shape: tuple[int, int],
    panel: tuple[float, float],
    title: str,
    handles: Sequence[Artist] = (),
    share: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Panels of that many inches in rows and columns; right of them the legend, never over data."""
    rows, columns = shape
    lines = [line for handle in handles for line in str(handle.get_label()).split("\n")]
    legend = 0.075 * max(map(len, lines)) + 0.7 if lines else 0
    size = (panel[0] * columns + legend, max(panel[1] * rows, 0.2 * len(lines) + 0.3))
    figure = Figure(size, layout="constrained")
    if title:
        figure.suptitle(title)
    if lines:
        figure.legend(handles=list(handles), loc="outside right upper")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    return figure, list(panels.flat)


def wrapped(label: str) -> str:
    return fill(label, 34, subsequent_indent="  ", break_long_words=False)


def over_seeds(drawn: Iterable[Series]) -> str:
    """What is said of a band or an error bar; nothing where there is one seed."""
    counts = {series.seeds for series in drawn}
    number = f"{counts.pop()} " if len(counts) == 1 else ""
    return "" if number == "1 " else f"±1 sd over {number}seeds"


def check_reference(reference: Mapping[str, Any], drawn: Sequence[Series]) -> None:
    labels = [series.label for series in drawn]
    for label in reference:
        if label not in labels:
            raise ConfigError(unknown("label of a reference value", label, labels))


# ---- curves ------------------------------------------------------------------------------------


def curves(
    runs: Runs,
    path: str | Path,
    metric: str | Sequence[str] | None = None,
    *,
    against: str = "round",
    reference: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """One line an algorithm, mean over seeds, with a band of ±1 standard deviation.

    metric : a column, or several: a panel for each; by default loss and accuracy, as [apfl fig.2].
    against : "round", or the column on the x axis: bytes, flops, grads ... What costs nothing of
        that kind is a level line: where it ends.
    reference : label → value of the document, in the last panel: a thin line, and the series'
        marker on the right edge.

    A star: F is renewed after this round, hollow where only some seeds do so. A cross: the last
    round before the algorithm diverged.
    """
    drawn, reference = all_series(runs), reference or {}
    check_reference(reference, drawn)
    if metric is None:
        metric = [default_loss(drawn), "accuracy"]
    metrics = [metric_of(m, drawn) for m in ([metric] if isinstance(metric, str) else metric)]
    over = None if against == "round" else metric_of(against, drawn)
    drawn = [series for series in drawn if any(values(series, m)[0].size for m in metrics)]
    size = (3.7, 3.5) if len(metrics) > 1 else (5.2, 3.7)
    with style.context(STYLE):
        handles = curve_handles(drawn, reference)
        figure, panels = frame((1, len(metrics)), size, title, handles)
        for axes, shown in zip(panels, metrics):
            draw_curves(axes, drawn, shown, over)
        draw_reference(panels[-1], drawn, reference, metrics[-1].scale)
        save(figure, Path(path))


def default_loss(drawn: Sequence[Series]) -> str:
    """The training loss if a run has evaluated it."""
    loss = METRICS["loss"]
    return "loss" if any(values(series, loss)[0].size for series in drawn) else "test_loss"


def draw_curves(
    axes: Axes, drawn: Sequence[Series], metric: Metric, against: Metric | None
) -> None:
    lines = [(series, curve(series, metric, against)) for series in drawn]
    lines = [(series, line) for series, line in lines if line.t.size]
    costly = against is not None and any(line.x.any() for _, line in lines)
    y = np.concatenate([*(line.mean for _, line in lines), np.zeros(0)])
    if logarithmic(metric, y):
        axes.set_yscale("log")
    for i, (series, line) in enumerate(lines):
        if costly and not line.x.any() and not series.run.diverged:
            colour, dashes, _ = series.look
            axes.axhline(line.mean[-1], color=colour, linestyle=dashes, linewidth=1)
        else:
            draw_curve(axes, series, line, i / len(lines))
    axes.set_xlabel("communication round" if against is None else against.title)
    axes.set_ylabel(metric.title)
    ticks = MaxNLocator("auto", steps=[1, 2, 5, 10], integer=against is None)
    axes.xaxis.set_major_locator(ticks)
    limit_y(axes, metric, y)


def draw_curve(axes: Axes, series: Series, line: Curve, offset: float) -> None:
    """The mean, its band, the stars and the cross; `offset` in [0, 1) keeps markers apart."""
    colour, dashes, marker = series.look
    step = max(1, len(line.t) // 8)
    axes.plot(
        line.x, line.mean, color=colour, linestyle=dashes, marker=marker, zorder=3,
        markevery=(int(offset * step), step), markeredgecolor="white", markeredgewidth=0.5,
    )  # fmt: skip
    if series.seeds > 1:
        low, high = line.mean - line.sd, line.mean + line.sd
        if axes.get_yscale() == "log":  # where a band down to 0 has no place
            low = np.maximum(low, line.mean / 1e3)
        axes.fill_between(line.x, low, high, color=colour, alpha=0.14, linewidth=0)
    for t, share in renewals(series):
        if line.t[0] <= t <= line.t[-1]:
            x, y = np.interp(t, line.t, line.x), np.interp(t, line.t, line.mean)
            axes.plot(x, y, zorder=5, **star(colour, share))
    if series.run.diverged:
        axes.plot(line.x[-1], line.mean[-1], color=colour, zorder=6, clip_on=False, **CROSS)


def star(colour: str, share: float) -> dict[str, Any]:
    """Filled if F is renewed in all the seeds."""
    filled = share == 1
    return {
        "marker": "*",
        "linestyle": "none",
        "markersize": 14 if filled else 11,
        "markerfacecolor": colour if filled else "white",
        "markeredgecolor": "white" if filled else colour,
        "markeredgewidth": 0.8 if filled else 1.1,
    }


def logarithmic(metric: Metric, y: Array) -> bool:
    """Whether the values cover three decades; per cent never do."""
    return metric.scale != PERCENT and bool(y.size and 0 < 1000 * y.min() < y.max())


def limit_y(axes: Axes, metric: Metric, y: Array) -> None:
    """Per cent stay within 0 and 100, a logarithmic axis near its curves."""
    low, high = axes.get_ylim()
    if metric.scale == PERCENT:
        axes.set_ylim(max(low, -2), min(high, 102))
    elif axes.get_yscale() == "log":
        axes.set_ylim(y.min() / 2, y.max() * 2)


def draw_reference(
    axes: Axes, drawn: Sequence[Series], reference: Mapping[str, float], scale: float
) -> None:
    told = [series for series in drawn if series.label in reference]
    for i, series in enumerate(told):
        y, (colour, _, marker) = scale * reference[series.label], series.look
        reach_y(axes, y)
        axes.axhline(y, color=colour, linewidth=0.9, linestyle=DOCUMENT)
        axes.plot(  # side by side, as two values may be almost the same
            1 + 0.035 * (i + 1 - len(told)), y, marker, color=colour, markerfacecolor="white",
            zorder=6, transform=axes.get_yaxis_transform(), clip_on=False,
        )  # fmt: skip


def reach_y(axes: Axes, y: float) -> None:
    """Make room for a value outside of the curves' range; its sign would be outside of the panel."""
    low, high = axes.get_ylim()
    room = 0.03 * (high - low)
    if axes.get_yscale() == "log":
        axes.set_ylim(min(low, y / 2 if y > 0 else low), max(high, 2 * y))
    elif not low <= y <= high:
        axes.set_ylim(min(low, y - room), max(high, y + room))


def curve_handles(drawn: Sequence[Series], reference: Mapping[str, float]) -> list[Artist]:
    """The legend: a line for each series, then what the other signs mean."""
    handles: list[Artist] = []
    for series in drawn:
        colour, dashes, marker = series.look
        look = {"color": colour, "linestyle": dashes, "marker": marker}
        handles.append(Line2D([], [], **look, label=wrapped(series.label)))
    shares = {share == 1 for series in drawn for _, share in renewals(series)}
    if True in shares:
        handles.append(sign("importance renewed", **star("black", 1)))
    if False in shares:
        handles.append(sign("renewed in some seeds", **star("black", 0)))
    if any(series.run.diverged for series in drawn):
        handles.append(sign("diverged", **CROSS))
    if band := over_seeds(drawn):
        handles.append(Patch(color="black", alpha=0.14, linewidth=0, label=band))
    if reference:
        handles.append(
            sign("in the document", linestyle=DOCUMENT, marker="o", markerfacecolor="white")
        )
    return handles


def sign(label: str, **look: Any) -> Line2D:
    return Line2D([], [], color="black", label=label, **look)


# ---- bars --------------------------------------------------------------------------------------


def bars(
    runs: Runs,
    path: str | Path,
    metric: str = "accuracy",
    *,
    reference: Mapping[str, tuple[float, float]] | None = None,
    title: str = "",
) -> None:
    """Average over all evaluated rounds (0 included) and maximum test accuracy, as [apfl fig.1].

    metric : accuracy (weighted by samples) or accuracy_mean (plain mean of the clients).
    reference : label → (average, maximum) in the document, NaN where it has none.
    """
    drawn, reference = all_series(runs), reference or {}
    check_reference(reference, drawn)
    key = metric.replace("-", "_")
    if key not in BAR_METRICS:
        raise ConfigError(unknown("metric of bars", metric, BAR_METRICS))
    table = [summaries(series.run)[0] for series in drawn]
    told = 100 * np.array([reference.get(s.label, (np.nan, np.nan)) for s in drawn])
    spread = over_seeds(drawn)
    with style.context(STYLE):
        figure, (axes,) = frame((1, 1), (6.2, 0.42 * len(drawn) + 1.1), title)
        for i, field in enumerate(BAR_METRICS[key]):
            draw_bars(axes, i, drawn, [getattr(line, field) for line in table], told[:, i])
        axes.set_yticks(range(len(drawn)), [series.name for series in drawn])
        axes.set_ylim(len(drawn) - 0.45, -0.55)
        axes.set_xlim(0, 109 + 9 * bool(spread) + 8 * bool(reference))
        axes.set_xticks(range(0, 101, 20))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(", ".join(filter(None, (METRICS[key].title, spread))))
        handles: list[Artist] = [Patch(**bar, edgecolor="black") for bar in BARS]
        if reference:
            handles.append(sign("[in the document]", **TICK))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        save(figure, Path(path))


def draw_bars(
    axes: Axes, i: int, drawn: Sequence[Series], pairs: Sequence[tuple[float, float]], told: Array
) -> None:
    """The i-th bar of every series, its error bar, the document's tick, and the value beside it."""
    y = np.arange(len(drawn)) + 0.4 * i - 0.2
    mean, sd = 100 * np.array(pairs).T
    sd = np.where([series.seeds > 1 for series in drawn], sd, np.nan)
    axes.barh(y, mean, 0.4, **BARS[i], edgecolor="black", linewidth=0.7)
    axes.errorbar(mean, y, xerr=sd, fmt="none", ecolor="black", capsize=3, elinewidth=1.4)
    axes.plot(told, y, color="black", **TICK)
    ends = np.fmax(np.fmax(mean, mean + sd), told)
    for at, end, m, s, d in zip(y, ends, mean, sd, told):
        text = f"{m:.1f}" if np.isnan(s) else f"{m:.1f} ± {s:.1f}"
        text += "" if np.isnan(d) else f" [{d:.1f}]"
        axes.text(end + 1.2, at, text, va="center", fontsize=8)


# ---- clients -----------------------------------------------------------------------------------


def clients(
    runs: Runs,
    path: str | Path,
    metric: str = "accuracy",
    *,
    reference: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """How a metric is spread over the clients at the last evaluated round: a panel an algorithm.

    metric : accuracy, test_loss, or train_loss (loss). All seeds together.
    reference : label → value of the document: a solid line.
    """
    drawn, reference = all_series(runs), reference or {}
    check_reference(reference, drawn)
    key = {"loss": "train_loss"}.get(metric, metric.replace("-", "_"))
    if key not in CLIENT_METRICS:
        raise ConfigError(unknown("metric of clients", metric, {*CLIENT_METRICS, "loss"}))
    shown = CLIENT_METRICS[key]
    found = [client_values(series, shown) for series in drawn]
    edges = bin_edges(np.concatenate(found), shown)
    columns = min(len(drawn), 4 if len(drawn) > 6 else 3)
    rows = -(-len(drawn) // columns)
    with style.context(STYLE):
        figure, panels = frame((rows, columns), (2.4, 1.9 if rows > 1 else 2.5), title, share=True)
        for axes, series, x in zip(panels, drawn, found):
            draw_clients(axes, series, x, edges, shown)
            if series.label in reference:
                axes.axvline(shown.scale * reference[series.label], color="black", linewidth=1.2)
        for axes in panels[len(drawn) - columns : len(drawn)]:
            axes.tick_params(labelbottom=True)  # those with no panel below
        for axes in panels[len(drawn) :]:
            axes.remove()
        lines = "dashed: mean" + (", solid: in the document" if reference else "")
        figure.supxlabel(f"{shown.title} {last_round(drawn)}; {lines}", fontsize="medium")
        figure.supylabel("share of clients (%)", fontsize="medium")
        save(figure, Path(path))


def last_round(drawn: Sequence[Series]) -> str:
    rounds = {record.rounds[-1] for series in drawn for record in series.run.records}
    return f"after round {rounds.pop()}" if len(rounds) == 1 else "after the last round evaluated"


def client_values(series: Series, metric: Metric) -> Array:
    """The last scores of every client and seed that has such data."""
    (column,) = metric.columns
    scores = [record.scores[-1] for record in series.run.records if record.scores]
    x = np.concatenate([getattr(s, column) for s in scores] or [np.zeros(0)])
    return np.asarray(metric.scale * x[np.isfinite(x)].clip(-LARGEST, LARGEST))


def bin_edges(x: Array, metric: Metric) -> Array:
    """For per cent, bins around 0, 5, ..., 100: 100 is a bar of its own; else 20 equal ones."""
    if not x.size:
        raise ConfigError(
            f"there are no values of {metric.columns[0]} here: no client has such data"
        )
    if metric.scale == PERCENT:
        return np.arange(-2.5, 103, 5)
    return np.asarray(np.histogram_bin_edges(x, 20))


def draw_clients(axes: Axes, series: Series, x: Array, edges: Array, metric: Metric) -> None:
    digits = ".1f" if metric.scale == PERCENT else ".3g"
    heading = series.name
    if x.size:
        axes.hist(
            x, list(edges), weights=np.full(len(x), 100 / len(x)),
            color=BARS[0]["facecolor"], edgecolor="black", linewidth=0.7,
        )  # fmt: skip
        axes.axvline(x.mean(), color="black", linestyle=(0, (4, 2)), linewidth=1.2)
        heading += f"\nmean {x.mean():{digits}}, sd {x.std():{digits}}"
    axes.set_title(heading, fontsize=9)
    axes.grid(visible=False, axis="x")
