"""FedProx with stragglers, and what the paper leaves open: the effect of γ."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.lines import Line2D

from fedref import plots
from fedref.experiments.loading import load_experiment
from fedref.experiments.results import Run
from fedref.plots.curves import curve_handles, draw_curves
from fedref.plots.series import all_series, metric_of
from fedref.plots.style import COLOURS, LINES, MARKERS, STYLE, frame, save, sign
from fedref.reproduction import (
    at,
    claim,
    each_seed,
    how_often,
    late_changes,
    listed,
    markdown,
    not_judged,
    renamed,
    spread,
    write_csv,
)
from fedref.sampling import cohort

TITLE = "FedProx: stragglers, the proximal term, and γ"
PAPER = (
    "FedProx, Experiment and 思考 (the closing section): what dropping stragglers does, what the "
    "proximal term does, and the effect of γ, which the paper calls unknown. It prints neither "
    "numbers nor hyperparameters: data, E = 20, B = 10, η = 0.01 and 30 devices, 10 a round, are those "
    "of the paper it is about (Li et al. 2020); devices are drawn with p_k and averaged with equal "
    "weights (alg.2). 100 rounds instead of 200, for time. The data are drawn once (seed 0)."
)
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
#: Column of metrics.csv → (name, scale, digits).
QUANTITIES = {
    "train_loss": ("training loss", 1, 3),
    "accuracy": ("accuracy (%)", 100, 2),
    "variance": ("variance", 1, 2),
    "B": ("B", 1, 2),
    "gamma": ("γ", 1, 3),
}


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    heads = ["data", "stragglers", "method"]
    rows: list[list[str]] = [[*heads, *(name for name, _, _ in QUANTITIES.values())]]
    table: list[list[Any]] = []
    for stem, name in SETS.items():
        for share in STRAGGLERS:
            for label, method in METHODS.items():
                what = [name, f"{100 * share:.0f} %", method]
                found = {q: finals(runs[stem], label, share, q) for q in QUANTITIES}
                rows.append([*what, *(spread(found[q], d) for q, (_, _, d) in QUANTITIES.items())])
                for q, values in found.items():
                    stats = [f(values) if values.size else None for f in (np.mean, np.std)]
                    table.append([*what, QUANTITIES[q][0], *stats, each_seed(values)])
        draw(runs[stem], name, out / f"{stem}.png")
    answer, equal = gamma_answer(runs["gamma"])
    draw_gamma(runs["gamma"], out / "gamma.png")
    plots.curves(by_gamma(runs["gamma"]), out / "gamma-curves.png", "accuracy", against="flops")
    write_csv(out / "numbers.csv", [*heads, "quantity", "mean", "sd", "each seed"], table)
    write_csv(
        out / "gamma.csv", equal[0], [[row[0], *map(each_seed, row[1:])] for row in equal[1:]]
    )
    return "\n\n".join(
        [
            "What the paper says of it, and what was measured in the last round. It holds if it does "
            "in every seed, however small the difference: the paper gives no size. The paper says "
            "that dropping stragglers and merely aggregating their unfinished models both hurt: each is "
            "set beside the same method without stragglers. Of the proximal term the paper speaks on "
            "heterogeneous data alone: on Synthetic-IID it is not judged.",
            claims(runs),
            "The same differences with more of them. *Change* is the mean absolute change of accuracy "
            f"from one evaluation to the next ({how_often(runs[stem] for stem in SETS)}) in the second "
            "half of the rounds.",
            differences(runs),
            "At the last round. *Variance* is that of the devices' gradients, E‖∇F_k − ∇f‖², and B "
            "= √(E‖∇F_k‖² / ‖∇f‖²): the two measures of dissimilarity. γ is measured after every "
            "local solve, on all of the device's data; the mean of the last tenth of the rounds.",
            markdown(rows, left=3),
            two_measures(runs),
            *(
                f"![{name}: loss, accuracy and dissimilarity without and with stragglers]({stem}.png)"
                for stem, name in SETS.items()
            ),
            "## The effect of γ",
            answer,
            markdown([[show(cell) for cell in row] for row in equal], left=1),
            "![Accuracy over γ: after equal computation, and after equal rounds](gamma.png)",
            "![Accuracy over computation for every γ](gamma-curves.png)",
        ]
    )


def finals(run: Run, label: str, share: float, column: str) -> np.ndarray:
    """At the last evaluated round, for each seed; γ: mean of the last tenth of the rounds."""
    _, scale, _ = QUANTITIES[column]
    _, y = run.curve(label, column, stragglers=share)
    if not y.size or np.isnan(y).all():
        return np.zeros(0)
    last = max(1, y.shape[1] // 10) if column == "gamma" else 1
    return scale * np.nanmean(y[:, -last:], axis=1)


# ---- the paper's claims ----------------------------------------------------------------------


Measure = Callable[[Run, str, float], np.ndarray]


def where(stem: str, share: float) -> str:
    return f"{SETS[stem]}, {100 * share:.0f} % stragglers"


class Pair(NamedTuple):
    """One method less another at the same share of stragglers, or less itself without any."""

    one: str
    other: str
    without: bool  # the other has no stragglers
    shares: tuple[float, ...]

    @property
    def name(self) -> str:
        own = METHODS[self.one]
        return (
            f"{own}: with stragglers − without"
            if self.without
            else f"{own} − {METHODS[self.other]}"
        )

    def of(self, run: Run, share: float, measure: Measure) -> np.ndarray:
        """The difference, a seed each."""
        base = 0.0 if self.without else share
        return measure(run, self.one, share) - measure(run, self.other, base)


DROPPED = Pair("fedavg", "fedavg", True, STRAGGLERS[1:])
TAKEN = Pair("fedprox-mu0", "fedprox-mu0", True, STRAGGLERS[1:])
KEPT = Pair("fedprox-mu0", "fedavg", False, STRAGGLERS[1:])
PROXIMAL = Pair("fedprox-mu1", "fedprox-mu0", False, STRAGGLERS)


def accuracy(run: Run, label: str, share: float) -> np.ndarray:
    return finals(run, label, share, "accuracy")


def average(run: Run, label: str, share: float) -> np.ndarray:
    return 100 * run.curve(label, "accuracy", stragglers=share)[1].mean(1)


def variance(run: Run, label: str, share: float) -> np.ndarray:
    return finals(run, label, share, "variance")


def unrest(run: Run, label: str, share: float) -> np.ndarray:
    """Mean |change| of accuracy from one evaluation to the next, second half, in points: (seeds,)."""
    _, y = run.curve(label, "accuracy", stragglers=share)
    return np.abs(late_changes(100 * y)).mean(1)


def claims(runs: Mapping[str, Run]) -> str:
    """A line for each claim and place. The sign alone is judged: in every seed, whatever the size."""
    uneven = [stem for stem in SETS if stem != "synthetic-iid"]
    lines = []
    for text, pair, measure, rises, stems in (
        ("Dropping stragglers hurts", DROPPED, accuracy, False, SETS),
        ("Aggregating unfinished models hurts", TAKEN, accuracy, False, SETS),
        ("Aggregating unfinished models is better than dropping them", KEPT, accuracy, True, SETS),
        ("The proximal term helps", PROXIMAL, accuracy, True, uneven),
        ("The proximal term makes convergence more stable", PROXIMAL, unrest, False, uneven),
    ):
        limit: dict[str, Any] = {"above": 0} if rises else {"below": 0}
        for stem in stems:
            for share in pair.shares:
                run, said = runs[stem], f"{text}, {where(stem, share)}"
                found = {pair.name: pair.of(run, share, measure)}
                if measure is unrest and run.experiment.eval_every > 1:
                    change = f"{listed(found)} points of change"
                    lines.append(not_judged(said, f"evaluated {how_often([run])} only: {change}"))
                else:
                    lines.append(claim(said, found, **limit))
    return "\n".join(lines)


def differences(runs: Mapping[str, Run]) -> str:
    """Those, in accuracy, variance and unrest."""
    measures = {
        "accuracy (points)": accuracy,
        "average accuracy (points)": average,
        "variance": variance,
        "change (points)": unrest,
    }
    rows = [["difference", "data", "stragglers", *measures]]
    for pair in (DROPPED, TAKEN, KEPT, PROXIMAL):
        for stem, name in SETS.items():
            for share in pair.shares:
                cells = [spread(pair.of(runs[stem], share, m)) for m in measures.values()]
                rows.append([pair.name, name, f"{100 * share:.0f} %", *cells])
    return markdown(rows, left=3)


def two_measures(runs: Mapping[str, Run]) -> str:
    """What the proximal term does to either measure of dissimilarity, and where methods coincide."""
    places = [(stem, share) for stem in SETS if stem != "synthetic-iid" for share in STRAGGLERS]
    falls = {
        column: sum(
            finals(runs[stem], "fedprox-mu1", share, column).mean()
            < finals(runs[stem], "fedprox-mu0", share, column).mean()
            for stem, share in places
        )
        for column in ("variance", "B")
    }
    adapted = [r.rows[-1]["mu"] for r in runs["synthetic-iid"].records_of("fedprox-adaptive")]
    text = (
        f"The proximal term (μ = 1 against μ = 0) lowers the variance in {falls['variance']} of the "
        f"{len(places)} heterogeneous places and B in {falls['B']}: B divides by ‖∇f‖, which "
        "goes to 0 as training succeeds. Without stragglers FedAvg and FedProx with μ = 0 are the "
        "same algorithm, and their lines lie on each other. "
    )
    start = runs["synthetic-iid"].experiment.algorithms["fedprox-adaptive"]["mu"]
    text += (
        f"On IID data the adaptive μ starts at {start:g}, as the paper has it (0 on the others), and "
        f"ends {span(adapted)}. "
    )
    return text + who_straggles(runs["synthetic-1-1"])


def span(values: Sequence[float]) -> str:
    """Where these lie, a seed and a share of stragglers each."""
    low, high = (f"{f(values):.1f}" for f in (min, max))
    return f"at {low} in every seed" if low == high else f"between {low} and {high}"


def who_straggles(run: Run) -> str:
    """What drawing stragglers among the *distinct* devices of a round does to their share."""
    made, data = run.experiment, load_experiment(run.experiment)
    seeds, rounds = made.seeds, range(made.rounds)
    sizes = data.federation.train.sizes
    plan = made.plan
    K = np.array([len(cohort(plan, sizes, t, seed)[0]) for seed in seeds for t in rounds])
    most = max(STRAGGLERS)
    late = np.floor(most * K + 0.5)  # as in a plan
    return (
        f"A device that is drawn twice with p_k does one local solve, so stragglers are drawn among the "
        f"distinct devices: {K.mean():.1f} a round on Synthetic(1, 1); {100 * most:.0f} % then is "
        f"{100 * late.sum() / K.sum():.0f} % of them, and in {int((late == K).sum())} of {len(K)} "
        "rounds every device is a straggler."
    )


# ---- pictures of the curves ---------------------------------------------------------------------


def draw(run: Run, name: str, path: Path) -> None:
    """A row for loss, accuracy and dissimilarity each; a column for each share of stragglers."""
    metrics = ("loss", "accuracy", "variance")
    with style.context(STYLE):
        parts = [renamed(at(run, stragglers=share), METHODS) for share in STRAGGLERS]
        named = [all_series(part) for part in parts]
        handles = curve_handles(named[0], metric_of("accuracy", named[0]), {})
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
    """The same y axis in a row, so that its panels can be compared."""
    scale = "log" if any(axes.get_yscale() == "log" for axes in row) else "linear"
    low = min(axes.get_ylim()[0] for axes in row)
    high = max(axes.get_ylim()[1] for axes in row)
    for axes in row:
        axes.set_yscale(scale)
        axes.set_ylim(low, high)


# ---- γ ------------------------------------------------------------------------------------------


def paths(run: Run) -> dict[float, list[tuple[np.ndarray, np.ndarray]]]:
    """γ → for each seed (operations so far, accuracy in %) at the evaluated rounds."""
    found: dict[float, list[tuple[np.ndarray, np.ndarray]]] = {}
    for unit, record in zip(run.units, run.records):
        rows = [row for row in record.rows if "accuracy" in row]
        spent = np.array([row["flops"] for row in rows], float)
        accuracy = 100 * np.array([row["accuracy"] for row in rows])
        found.setdefault(float(unit.point["until-gamma"]), []).append((spent, accuracy))
    return dict(sorted(found.items(), reverse=True))


def budgets(run: Run) -> list[float]:
    """Operations that every γ and seed has spent in the end, a half and a quarter of them."""
    most = min(spent[-1] for each in paths(run).values() for spent, _ in each)
    return [most / 4, most / 2, most]


def after(each: Sequence[tuple[np.ndarray, np.ndarray]], budget: float) -> np.ndarray:
    """Accuracy when that much has been spent, between evaluations by a straight line: (seeds,)."""
    return np.array([np.interp(budget, spent, accuracy) for spent, accuracy in each])


def until(each: Sequence[tuple[np.ndarray, np.ndarray]], budget: float) -> np.ndarray:
    """Mean accuracy from the start until that much has been spent: (seeds,)."""
    grid = np.linspace(0, budget, 200)
    return np.array([np.interp(grid, spent, accuracy).mean() for spent, accuracy in each])


def by_gamma(run: Run) -> Run:
    """A method for each γ, for the picture's legend."""
    units = [
        unit._replace(label=f"γ = {unit.point['until-gamma']:g}", point={}) for unit in run.units
    ]
    return Run(run.experiment, units, run.records)


def gamma_answer(run: Run) -> tuple[str, list[list[Any]]]:
    """The answer in words, and the table it is read from."""
    found, (quarter, half, most) = paths(run), budgets(run)
    T = run.experiment.rounds
    table: list[list[Any]] = [
        [
            "γ", "γ measured", "10⁹ operations a round",
            *(f"accuracy (%) after {b / 1e9:.2f}·10⁹ operations" for b in (quarter, half, most)),
            f"mean accuracy (%) until {most / 1e9:.2f}·10⁹", f"accuracy (%) after {T} rounds",
        ]
    ]  # fmt: skip
    at_equal, at_rounds, mean_equal = {}, {}, {}
    for gamma, each in found.items():
        measured = run.curve("fedprox", "gamma", **{"until-gamma": gamma})[1]
        at_equal[gamma], mean_equal[gamma] = after(each, most), until(each, most)
        at_rounds[gamma] = np.array([accuracy[-1] for _, accuracy in each])
        table.append(
            [
                f"{gamma:g}", np.nanmean(measured, axis=1),
                np.array([spent[-1] / T / 1e9 for spent, _ in each]),
                *(after(each, b) for b in (quarter, half)), at_equal[gamma],
                mean_equal[gamma], at_rounds[gamma],
            ]
        )  # fmt: skip
    return (
        "The local solve ends at the first epoch after which its measured inexactness is at most γ, "
        "or after 20 epochs, without stragglers, for μ = 1, on Synthetic(1, 1). Asking costs two "
        "gradients on all of the device's data after every epoch, so that two thirds of what is "
        "computed is asking, whatever γ is: without it all numbers of operations are a third, and "
        "the order stays the same. After one epoch the measured γ is already far below 0.9, and a "
        "small γ is often not reached in 20: the means of what is measured, over all rounds, lie "
        "closer together than what is asked for. "
        + ranked(f"After equal computation ({most / 1e9:.2f}·10⁹ operations)", at_equal)
        + ranked("On average until then", mean_equal)
        + ranked(f"After equal rounds ({T}), whatever they cost,", at_rounds)
        + "The pictures show all of it."
    ), table


def ranked(when: str, accuracy: Mapping[float, np.ndarray]) -> str:
    """Best, worst, and whether the difference is more than the seeds' spread."""
    best, worst = (f(accuracy, key=lambda g: accuracy[g].mean()) for f in (max, min))
    gap = accuracy[best] - accuracy[worst]
    text = (
        f"{when} γ = {best:g} is best with {spread(accuracy[best])} % and γ = {worst:g} last with "
        f"{spread(accuracy[worst])} %: "
    )
    if gap.size == 1:
        return text + f"{gap.mean():.2f} points, one seed. "
    sure = "in every seed the same sign" if (gap > 0).all() else "not of one sign in all seeds"
    return text + f"{spread(gap)} points, {sure}. "


def show(cell: Any) -> str:
    return cell if isinstance(cell, str) else spread(cell)


def draw_gamma(run: Run, path: Path) -> None:
    """Left: accuracy over γ when equally much was computed; right: after equally many rounds."""
    found = paths(run)
    gammas = list(found)
    rounds = run.experiment.rounds
    several = len(run.experiment.seeds) > 1
    with style.context(STYLE):
        lines: list[tuple[str, dict[float, np.ndarray]]] = [
            (f"{budget / 1e9:.2g}·10⁹ operations", {g: after(e, budget) for g, e in found.items()})
            for budget in budgets(run)
        ]
        lines.append(
            (f"{rounds} rounds", {g: np.array([a[-1] for _, a in e]) for g, e in found.items()})
        )
        looks: list[dict[str, Any]] = [
            {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": LINES[i]}
            for i in range(len(lines))
        ]
        handles: list[Any] = [
            Line2D([], [], **look, label=f"after {name}") for look, (name, _) in zip(looks, lines)
        ]
        if several:
            text = f"bars: ±1 sd over {len(run.experiment.seeds)} seeds"
            handles.append(sign(text, linestyle="none"))
        figure, (axes,) = frame((1, 1), (5.0, 3.6), "", handles)
        for look, (_, values) in zip(looks, lines):
            sd = [values[g].std() for g in gammas] if several else None
            axes.errorbar(gammas, [values[g].mean() for g in gammas], sd, capsize=3, **look)
        axes.set_xscale("log")
        axes.set_xticks(gammas, [f"{g:g}" for g in gammas])
        axes.minorticks_off()
        axes.set_xlabel("γ at which a local solve ends (left: more exact)")
        axes.set_ylabel("test accuracy (%)")
        save(figure, path)


# ---- checks of direction ------------------------------------------------------------------------


def proximal_lowers_variance(runs: Mapping[str, Run]) -> tuple[bool, str]:
    """At the last round, as a ratio: its geometric mean over heterogeneous sets and stragglers."""
    ratios = {
        f"{SETS[stem]}, {100 * share:.0f} %": float(
            finals(runs[stem], "fedprox-mu1", share, "variance").mean()
            / finals(runs[stem], "fedprox-mu0", share, "variance").mean()
        )
        for stem in SETS
        if stem != "synthetic-iid"
        for share in STRAGGLERS[1:]
    }
    mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
    each = ", ".join(f"{ratio:.2f} ({where})" for where, ratio in ratios.items())
    return mean < 1, f"variance with μ = 1 over that with μ = 0: {mean:.3f} on average, {each}"


CHECKS = {
    "the proximal term lowers the variance of gradients under stragglers": proximal_lowers_variance
}
