"""FedProx with stragglers, and what the paper leaves open: the effect of γ."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style

from fedref import plots
from fedref.experiments.results import Run
from fedref.plots.curves import curve_handles, draw_curves
from fedref.plots.series import all_series, metric_of
from fedref.plots.style import STYLE, frame, save
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import (
    at_point,
    average,
    change,
    count_tested,
    final,
    how_often,
    part_of,
    rename_methods,
    seldom,
)
from reproduce.pictures import Panel, draw_panels
from reproduce.tables import each_seed, markdown, show_pictures, spread, write_csv

QUICK = {"rounds": 10, "eval-every": 5, "seeds": [0], "gamma": {"eval-every": 1}}

SETS = {
    "synthetic-iid": "Synthetic-IID",
    "synthetic-0-0": "Synthetic(0, 0)",
    "synthetic-0.5-0.5": "Synthetic(0.5, 0.5)",
    "synthetic-1-1": "Synthetic(1, 1)",
}
METHODS = {
    "fedavg": "FedAvg (drops stragglers)",
    "fedprox-mu0": "FedProx, μ = 0",
    "fedprox-mu1": "FedProx, μ = 1",
    "fedprox-adaptive": "FedProx, adaptive μ",
}
STRAGGLERS = (0.0, 0.5, 0.9)
#: Column of metrics.csv → (name, digits).
COLUMNS = {
    "train_loss": ("training loss", 3),
    "accuracy": ("accuracy (%)", 2),
    "variance": ("variance", 2),
    "B": ("B", 2),
    "gamma": ("γ", 3),
}


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    heads = ["data", "stragglers", "method"]
    rows: list[list[str]] = [[*heads, *(name for name, _ in COLUMNS.values())]]
    table: list[list[Any]] = []
    places = places_of(runs)
    for place in places:
        for label, method in METHODS.items():
            what = [place.run.name, place.setting, method]
            found = {column: last(place.run.run, label, column) for column in COLUMNS}
            rows.append([*what, *(spread(found[c], d) for c, (_, d) in COLUMNS.items())])
            for column, values in found.items():
                stats = [f(values) if values.size else None for f in (np.mean, np.std)]
                table.append([*what, COLUMNS[column][0], *stats, each_seed(values)])
    for stem, name in SETS.items():
        draw(runs[stem], name, out / f"{stem}.png")
    gamma = runs["gamma"]
    by_gamma = gamma_table(gamma)
    draw_gamma(gamma, out / "gamma.png")
    plots.curves(one_a_gamma(gamma), out / "gamma-curves.png", "accuracy", against="flops")
    write_csv(out / "numbers.csv", [*heads, "quantity", "mean", "sd", "each seed"], table)
    cells = [[row[0], *map(each_seed, row[1:])] for row in by_gamma[1:]]
    write_csv(out / "gamma.csv", by_gamma[0], cells)
    claims = claims_of("fedprox-stragglers", globals())
    adapted = [r.rows[-1]["mu"] for r in runs["synthetic-iid"].records_of("fedprox-adaptive")]
    uneven = [place.run.run for place in places if "heterogeneous" in place.kinds]
    return {
        "claims": report_claims(judge(claims, [*places, place_of_gamma(gamma)]), out),
        "every": how_often(runs[stem] for stem in SETS),
        "differences": differences(places),
        "finals": markdown(rows, left=3),
        "uneven_places": str(len(uneven)),
        "variance_falls": str(sum(proximal_ratio(run, "variance") < 1 for run in uneven)),
        "B_falls": str(sum(proximal_ratio(run, "B") < 1 for run in uneven)),
        "mu_start": f"{runs['synthetic-iid'].experiment.algorithms['fedprox-adaptive']['mu']:g}",
        "mu_end": span(adapted),
        "pictures": show_pictures(
            {
                f"{stem}.png": f"{name}: loss, accuracy and dissimilarity without and with stragglers"
                for stem, name in SETS.items()
            }
        ),
        "by_gamma": markdown(
            [[x if isinstance(x, str) else spread(x) for x in r] for r in by_gamma]
        ),
    }


def last(run: Run, label: str, column: str) -> np.ndarray:
    """Return the last value, in % for accuracies; γ: the mean of the last tenth of the rounds."""
    y = run.curve(label, column)[1]
    if not y.size or np.isnan(y).all():
        return np.zeros(0)
    if column == "gamma":
        return np.nanmean(y[:, -max(1, y.shape[1] // 10) :], axis=1)
    return final(run, label, column)


def proximal_ratio(run: Run, column: str) -> float:
    """Return the mean with μ = 1 over that with μ = 0."""
    on, off = (last(run, label, column).mean() for label in ("fedprox-mu1", "fedprox-mu0"))
    return float(on / off)


# ---- the paper's claims ----------------------------------------------------------------------


Measure = Callable[[Run, str], np.ndarray]


#: What is compared, at one share of stragglers: a method less another, or less itself without any.
#: What stragglers do to two ways to treat them, these two, and the proximal term.
PAIRS = {
    "dropped": ("fedavg", ""),
    "taken": ("fedprox-mu0", ""),
    "taken or dropped": ("fedprox-mu0", "fedavg"),
    "proximal term": ("fedprox-mu1", "fedprox-mu0"),
    "FedProx or dropped": ("fedprox-mu1", "fedavg"),
    "taken with the term": ("fedprox-mu1", ""),
}
PAIR_NAMES = {
    pair: f"{METHODS[one]} − {METHODS[other]}"
    if other
    else f"{METHODS[one]}: with stragglers − without"
    for pair, (one, other) in PAIRS.items()
}
#: Those that the table of differences has; the others are judged alone.
TABLED = ("dropped", "taken", "taken or dropped", "proximal term")


class Comparison(NamedTuple):
    """A run at one share of stragglers, and without any."""

    name: str
    run: Run
    without: Run

    def difference(self, pair: str, measure: Measure) -> np.ndarray:
        """Return the difference of a pair: (seeds,)."""
        one, other = PAIRS[pair]
        base = measure(self.run, other) if other else measure(self.without, one)
        return measure(self.run, one) - base


def kinds_of(stem: str, share: float) -> list[str]:
    """Return what claims call a place."""
    straggling = "stragglers" if share else "no stragglers"
    if stem == "synthetic-iid":
        return [straggling]
    return [straggling, "heterogeneous", *(["slow and heterogeneous"] if share else [])]


def places_of(runs: Mapping[str, Run]) -> list[Place]:
    """Return every data set with every share of stragglers."""
    return [
        Place(
            f"{stem} {share}", f"{name}, {100 * share:.0f} % stragglers",
            Comparison(name, at_point(runs[stem], stragglers=share), at_point(runs[stem], stragglers=0.0)),
            PAIR_NAMES, setting=f"{100 * share:.0f} %", kinds=kinds_of(stem, share),
            seldom=seldom(runs[stem]), **count_tested(runs[stem]),
        )
        for stem, name in SETS.items()
        for share in STRAGGLERS
    ]  # fmt: skip


def place_of_gamma(run: Run) -> Place:
    """Return where γ is varied."""
    return Place("gamma", "Synthetic(1, 1)", run, {"fedprox": "FedProx, μ = 1"})


def difference_in(measure: Measure) -> Callable[[Place, str], np.ndarray]:
    """Return a function that measures the difference of a pair in one quantity."""
    return lambda place, pair: place.run.difference(pair, measure)


def last_loss(run: Run, label: str) -> np.ndarray:
    return last(run, label, "train_loss")


def last_variance(run: Run, label: str) -> np.ndarray:
    return last(run, label, "variance")


in_average, in_final, in_change = map(difference_in, (average, final, change))
in_loss, in_variance = map(difference_in, (last_loss, last_variance))


def columns_that_differ(place: Place, pair: str) -> np.ndarray:
    """Return how many of the last round's quantities are not the same to the bit: (seeds,)."""
    one, other = PAIRS[pair]
    values = [[last(place.run.run, m, column) for m in (one, other)] for column in COMPARED]
    return np.sum([x != y for x, y in values], 0).astype(float)


def gamma_gap(place: Place, label: str) -> np.ndarray:
    """Return the measured γ where the largest one is asked for, less where the smallest is."""
    asked = sorted(paths_of(place.run))
    few, many = (
        np.nanmean(place.run.curve(label, "gamma", **{"until-gamma": gamma})[1], axis=1)
        for gamma in (asked[0], asked[-1])
    )
    return np.asarray(many - few)


#: What must be the same to the bit where μ = 0 and nobody straggles.
COMPARED = ("train_loss", "accuracy", "variance", "B")


def differences(places: Sequence[Place]) -> str:
    """Return a table of the differences in accuracy, average accuracy, variance and change."""
    measures: dict[str, Measure] = {
        "accuracy (points)": final,
        "average accuracy (points)": average,
        "variance": last_variance,
        "change (points)": change,
    }
    rows = [["difference", "data", "stragglers", *measures]]
    for key in TABLED:
        for place in places:
            if key == "proximal term" or "stragglers" in place.kinds:
                cells = [spread(place.run.difference(key, m)) for m in measures.values()]
                rows.append([PAIR_NAMES[key], place.run.name, place.setting, *cells])
    return markdown(rows, left=3)


def span(values: Sequence[float]) -> str:
    """Return where these lie, a seed and a share of stragglers each."""
    low, high = (f"{f(values):.1f}" for f in (min, max))
    return f"at {low} in every seed" if low == high else f"between {low} and {high}"


# ---- pictures of the curves ---------------------------------------------------------------------


def draw(run: Run, name: str, path: Path) -> None:
    """Draw a row for loss, accuracy and dissimilarity each; a column for each share of stragglers."""
    metrics = ("loss", "accuracy", "variance")
    with style.context(STYLE):
        parts = [rename_methods(at_point(run, stragglers=share), METHODS) for share in STRAGGLERS]
        named = [all_series(part) for part in parts]
        handles = curve_handles(named[0], {})
        figure, panels = frame((len(metrics), len(STRAGGLERS)), (2.6, 2.1), name, handles)
        for i, metric in enumerate(metrics):
            row = panels[i * len(STRAGGLERS) : (i + 1) * len(STRAGGLERS)]
            for axes, drawn in zip(row, named):
                draw_curves(axes, drawn, metric_of(metric, drawn), None)
            share_limits(row)
            if metric == "variance":
                row[0].set_ylabel("variance of gradients")
            for axes in row[1:]:
                axes.set_ylabel("")
            if i < len(metrics) - 1:
                for axes in row:
                    axes.set_xlabel("")
        for axes, share in zip(panels, STRAGGLERS):
            axes.set_title(f"{100 * share:.0f} % stragglers")
        save(figure, path)


def share_limits(row: Sequence[Any]) -> None:
    """Give a row the same y axis, so that its panels can be compared."""
    scale = "log" if any(axes.get_yscale() == "log" for axes in row) else "linear"
    low = min(axes.get_ylim()[0] for axes in row)
    high = max(axes.get_ylim()[1] for axes in row)
    for axes in row:
        axes.set_yscale(scale)
        axes.set_ylim(low, high)


# ---- γ ------------------------------------------------------------------------------------------


Path_ = tuple[np.ndarray, np.ndarray]  # operations so far, accuracy in %, at the evaluated rounds


def paths_of(run: Run) -> dict[float, list[Path_]]:
    """Return γ → a path for each seed."""
    found: dict[float, list[Path_]] = {}
    for unit, record in zip(run.units, run.records):
        rows = [row for row in record.rows if "accuracy" in row]
        spent = np.array([row["flops"] for row in rows], float)
        accuracy = 100 * np.array([row["accuracy"] for row in rows])
        found.setdefault(float(unit.point["until-gamma"]), []).append((spent, accuracy))
    return dict(sorted(found.items(), reverse=True))


def budgets(run: Run) -> list[float]:
    """Return the operations that every γ and seed has spent in the end; before, a quarter and a half."""
    most = min(spent[-1] for each in paths_of(run).values() for spent, _ in each)
    return [most / 4, most / 2, most]


def accuracy_after(each: Sequence[Path_], budget: float) -> np.ndarray:
    """Return the accuracy when that much has been spent, on a line between evaluations: (seeds,)."""
    return np.array([np.interp(budget, spent, accuracy) for spent, accuracy in each])


def mean_until(each: Sequence[Path_], budget: float) -> np.ndarray:
    """Return the mean accuracy from the start until that much has been spent: (seeds,)."""
    grid = np.linspace(0, budget, 200)
    return np.array([np.interp(grid, spent, accuracy).mean() for spent, accuracy in each])


def at_the_end(each: Sequence[Path_]) -> np.ndarray:
    return np.array([accuracy[-1] for _, accuracy in each])


def one_a_gamma(run: Run) -> Run:
    """Return a method for each γ, for the picture's legend."""
    return part_of(run, lambda u: u._replace(label=f"γ = {u.point['until-gamma']:g}", point={}))


def gamma_table(run: Run) -> list[list[Any]]:
    """Return the table that the answer is read from: γ, and a value a seed."""
    T, (quarter, half, most) = run.experiment.rounds, budgets(run)
    rows: list[list[Any]] = [
        [
            "γ", "γ measured", "10⁹ operations a round",
            *(f"accuracy (%) after {b / 1e9:.2f}·10⁹ operations" for b in (quarter, half, most)),
            f"mean accuracy (%) until {most / 1e9:.2f}·10⁹", f"accuracy (%) after {T} rounds",
        ]
    ]  # fmt: skip
    for gamma, each in paths_of(run).items():
        measured = run.curve("fedprox", "gamma", **{"until-gamma": gamma})[1]
        spent = np.array([spent[-1] / T / 1e9 for spent, _ in each])
        accuracies = (accuracy_after(each, budget) for budget in (quarter, half, most))
        means = (
            np.nanmean(measured, axis=1),
            spent,
            *accuracies,
            mean_until(each, most),
            at_the_end(each),
        )
        rows.append([f"{gamma:g}", *means])
    return rows


def draw_gamma(run: Run, path: Path) -> None:
    """Draw accuracy over γ, when equally much was computed and after equally many rounds."""
    found = paths_of(run)
    lines = {
        f"after {budget / 1e9:.2g}·10⁹ operations": {
            g: accuracy_after(e, budget) for g, e in found.items()
        }
        for budget in budgets(run)
    }
    lines[f"after {run.experiment.rounds} rounds"] = {g: at_the_end(e) for g, e in found.items()}
    panel = Panel(
        "", "γ at which a local solve ends (left: more exact)", lines, list(found), logarithmic=True
    )
    seeds = len(run.experiment.seeds)
    draw_panels(path, [panel], "test accuracy (%)", size=(5.0, 3.6), bars=seeds)


# ---- checks of direction ------------------------------------------------------------------------


def proximal_lowers_variance(runs: Mapping[str, Run]) -> tuple[bool, str]:
    """Check the ratio in the last round: its geometric mean over heterogeneous sets and stragglers."""
    ratios = {
        f"{place.run.name}, {place.setting}": proximal_ratio(place.run.run, "variance")
        for place in places_of(runs)
        if {"heterogeneous", "stragglers"} <= {*place.kinds}
    }
    mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
    each = ", ".join(f"{ratio:.2f} ({where})" for where, ratio in ratios.items())
    return mean < 1, f"variance with μ = 1 over that with μ = 0: {mean:.3f} on average, {each}"


CHECKS = {
    "the proximal term lowers the variance of gradients under stragglers": proximal_lowers_variance
}
