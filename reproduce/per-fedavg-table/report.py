"""Per-FedAvg's table: MNIST, final accuracy after adaptation, four settings of τ and α."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib import style
from matplotlib.lines import Line2D

from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from fedref.plots.curves import curve_handles, draw_curves, draw_reference
from fedref.plots.series import all_series, metric_of
from fedref.plots.style import STYLE, frame, save, sign
from fedref.rounds.evaluation import client_mean
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import (
    at_point,
    average,
    count_tested,
    final,
    maximum,
    rename_methods,
    unadapted_accuracy,
)
from reproduce.pictures import sign_of
from reproduce.tables import (
    Number,
    markdown,
    number_table,
    show_number,
    show_pictures,
    show_signed,
    spread,
    write_numbers,
)

QUICK = {
    "rounds": 8,
    "eval-every": 4,
    "seeds": [0],
    "ablation-standardised": {"rounds": 2},
    "ablation-glorot": {"rounds": 2},
}

#: stem → (what is set, accuracy in % of FO and of HF), as [per-fedavg §5] prints them.
SETTINGS: dict[str, tuple[str, dict[str, float]]] = {
    "tau10-alpha0.001": ("τ = 10, α = 0.001", {"per-fedavg-fo": 89.98, "per-fedavg-hf": 89.35}),
    "tau10-alpha0.01": ("τ = 10, α = 0.01", {"per-fedavg-fo": 70.22, "per-fedavg-hf": 60.12}),
    "tau4-alpha0.001": ("τ = 4, α = 0.001", {"per-fedavg-fo": 87.14, "per-fedavg-hf": 86.38}),
    "tau4-alpha0.01": ("τ = 4, α = 0.01", {"per-fedavg-fo": 73.81, "per-fedavg-hf": 72.17}),
}
METHODS = {  # in the order of the experiment files, so that all pictures have the same signs
    "fedavg": "FedAvg",
    "fedavg-update": "FedAvg with update",
    "per-fedavg-fo": "Per-FedAvg (FO)",
    "per-fedavg-hf": "Per-FedAvg (HF)",
    "per-fedavg": "Per-FedAvg (exact)",
}
BOTH = ("per-fedavg-fo", "per-fedavg-hf")  # the methods that the paper has numbers of
#: How a final accuracy can be measured: what the table says first.
MEASURED = {
    "after": "after adaptation, samples",
    "after users": "after adaptation, users",
    "before": "before adaptation, samples",
    "before users": "before adaptation, users",
}
#: Experiment files that change one thing → what they change.
ABLATIONS = {
    "ablation-standardised": "standardised pixels",
    "ablation-glorot": "Glorot initialisation",
}


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    loader = Loader(data_dir)
    data = load_experiment(runs["tau10-alpha0.001"].experiment, loader)
    found = alternatives(runs, data, loader)
    numbers = [
        line(runs[stem], label, (name, method), told.get(label))
        for stem, (name, told) in SETTINGS.items()
        for label, method in METHODS.items()
    ]
    for stem, (name, told) in SETTINGS.items():
        draw(runs[stem], name, told, out / f"{stem}.png")
    with style.context(STYLE):
        summary_picture(numbers, out / "final.png")
    heads = ("setting", "method")
    write_numbers(out / "numbers.csv", heads, numbers)
    return {
        "numbers": number_table(heads, numbers, more=("average", "maximum")),
        "ways": table_of_ways(found),
        "distances": markdown(distances_to_paper(found)),
        "claims": report_claims(
            judge(claims_of("per-fedavg-table", globals()), places_of(runs)), out
        ),
        "approximations": "\n".join(approximation(runs[stem], stem) for stem in SETTINGS),
        "pictures": show_pictures(
            {
                f"{stem}.png": f"MNIST, {name}: training loss and test accuracy after adaptation"
                for stem, (name, _) in SETTINGS.items()
            }
        ),
    }


def line(run: Run, label: str, what: tuple[str, str], told: float | None) -> Number:
    """Return one method in one setting, and whether it still rises."""
    t, y = run.curve(label)
    mean = 100 * y.mean(0)
    late, top = max(0, np.searchsorted(t, 0.9 * t[-1], "right") - 1), mean.argmax()
    note = f"still rising: {show_signed(float(mean[-1] - mean[late]))} since round {t[late]}"
    if top < len(t) - 1:
        note = f"{mean[top] - mean[-1]:.2f} below its maximum (round {t[top]})"
    return Number(what, final(run, label), told, note, (average(run, label), maximum(run, label)))


# ---- what the paper may have done otherwise --------------------------------------------------

#: (stem, label) → (how it was trained, how it was measured) → final accuracy in %, a seed each
Found = Mapping[tuple[str, str], Mapping[tuple[str, str], np.ndarray]]


def alternatives(runs: Mapping[str, Run], base: LoadedExperiment, loader: Loader) -> Found:
    """Return the final accuracy under every way of training and every way of measuring."""
    data = {name: load_experiment(runs[name].experiment, loader) for name in ABLATIONS} | {"": base}
    found: dict[tuple[str, str], dict[tuple[str, str], np.ndarray]] = {}
    for stem, (_, told) in SETTINGS.items():
        run = runs[stem]
        for label in told:
            alpha = run.experiment.algorithms[label]["alpha"]
            point = {"steps": run.experiment.steps, "alpha": alpha}
            trained = {"": run} | {name: at_point(runs[name], **point) for name in ABLATIONS}
            found[stem, label] = {
                (name, how): values
                for name, one in trained.items()
                for how, values in measure_ways(one, label, data[name]).items()
            }
    return found


def measure_ways(run: Run, label: str, data: LoadedExperiment) -> dict[str, np.ndarray]:
    """Return the final accuracy, measured in each way of MEASURED: a seed each."""
    return {
        "after": final(run, label),
        "after users": final(run, label, "accuracy_mean"),
        "before": unadapted_accuracy(run, label, data),
        "before users": unadapted_accuracy(run, label, data, mean=client_mean),
    }


def name_of(way: tuple[str, str]) -> str:
    training, measure = way
    return ", ".join(filter(None, [ABLATIONS.get(training, ""), MEASURED[measure]]))


def show_change(values: Mapping[tuple[str, str], np.ndarray], way: tuple[str, str]) -> str:
    """Return an accuracy of the first seed, and its distance from the same seed in the table."""
    x, base = float(values[way][0]), float(values["", "after"][0])
    return f"{show_number(x)} ({show_signed(x - base)})"


def table_of_ways(found: Found) -> str:
    """Return all ways in all settings, and how near to the paper each comes."""
    rows = [["setting", "method", "paper", "trained", *MEASURED.values()]]
    for (stem, label), values in found.items():
        what = [SETTINGS[stem][0], METHODS[label], show_number(SETTINGS[stem][1][label])]
        for training in ("", *ABLATIONS):
            cells = [show_change(values, (training, how)) for how in MEASURED]
            rows.append([*what, ABLATIONS.get(training, "as above"), *cells])
    return markdown(rows, left=2)


STEPS = [
    (f"{tau}-alpha0.001", f"{tau}-alpha0.01", label) for tau in ("tau10", "tau4") for label in BOTH
]


def distance(found: Found, way: tuple[str, str], alpha: str = "", label: str = "") -> float:
    """Return the mean distance from the paper's four numbers of one α, or of one method."""
    keys = [key for key in found if key[0].endswith(alpha) and label in ("", key[1])]
    return float(np.mean([abs(found[key][way][0] - SETTINGS[key[0]][1][key[1]]) for key in keys]))


def distances_to_paper(found: Found) -> list[list[str]]:
    """Return rows of a table: mean distances for each α, and the change from one α to the other."""
    heads = [f"{SETTINGS[a][0].split(',')[0]}, {METHODS[label]}" for a, _, label in STEPS]
    falls = [SETTINGS[b][1][label] - SETTINGS[a][1][label] for a, b, label in STEPS]
    rows = [
        ["", "distance, α = 0.001", "distance, α = 0.01", *heads],
        ["paper", "–", "–", *map(show_signed, falls)],
    ]
    for way in found[next(iter(found))]:
        near = [show_number(distance(found, way, alpha)) for alpha in ("alpha0.001", "alpha0.01")]
        moves = [float(found[b, m][way][0] - found[a, m][way][0]) for a, b, m in STEPS]
        rows.append([name_of(way), *near, *map(show_signed, moves)])
    return rows


# ---- what the paper says in words ------------------------------------------------------------


BEST = "tau10-alpha0.001"
#: What differs between two settings → (the old one, the new one, the place as a claim has it).
MOVES = {
    "τ, α = 0.001": ("tau10-alpha0.001", "tau4-alpha0.001", "α = 0.001"),
    "τ, α = 0.01": ("tau10-alpha0.01", "tau4-alpha0.01", ""),
    "α, τ = 10": ("tau10-alpha0.001", "tau10-alpha0.01", "τ = 10"),
    "α, τ = 4": ("tau4-alpha0.001", "tau4-alpha0.01", "τ = 4"),
}


def places_of(runs: Mapping[str, Run]) -> list[Place]:
    """Return the best setting, all of them, and the moves from one to another."""
    places = [
        Place("best", "", runs[BEST], METHODS),
        *(Place("all", "", runs[stem], METHODS, name) for stem, (name, _) in SETTINGS.items()),
        Place("runs", "", runs, METHODS),
        *(Place(key, name, runs, METHODS) for key, (_, _, name) in MOVES.items()),
    ]
    return [place._replace(**count_tested(runs[BEST])) for place in places]


def above_the_others(place: Place, label: str) -> np.ndarray:
    """Return how far the best setting is above the best of the others, of both methods: (seeds,)."""
    others = [final(place.run[stem], m) for stem in SETTINGS if stem != BEST for m in BOTH]
    return final(place.run[BEST], label) - np.max(others, 0)


def move(place: Place, label: str) -> np.ndarray:
    old, new, _ = MOVES[place.key]
    return final(place.run[new], label) - final(place.run[old], label)


def approximation(run: Run, stem: str) -> str:
    """Return how far from the exact form the two approximations are in the end."""
    name, told = SETTINGS[stem]
    fo, hf = (distances(run, m) for m in BOTH)
    better = spread(final(run, BOTH[0]) - final(run, BOTH[1]))
    return (
        f"- {name}: ‖w − w_exact‖ / ‖w_exact‖ is {fo.mean():.1e} (FO) and {hf.mean():.1e} (HF); FO's "
        f"accuracy less HF's is {better} points (paper {show_signed(told[BOTH[0]] - told[BOTH[1]])})."
    )


def distances(run: Run, label: str) -> np.ndarray:
    """Return ‖w − w_exact‖ / ‖w_exact‖ after the last round: (seeds,)."""
    w = {
        (unit.label, unit.seed): np.asarray(record.state.server.w, float)
        for unit, record in zip(run.units, run.records)
    }
    seeds = [seed for name, seed in w if name == "per-fedavg"]
    return np.array(
        [
            np.linalg.norm(w[label, s] - w["per-fedavg", s]) / np.linalg.norm(w["per-fedavg", s])
            for s in seeds
        ]
    )


def draw(run: Run, name: str, told: Mapping[str, float], path: Path) -> None:
    """Draw training loss and test accuracy per round, the paper's accuracies at the right edge."""
    drawn = all_series(rename_methods(run, METHODS))
    reference = {METHODS[label]: value / 100 for label, value in told.items()}
    with style.context(STYLE):
        handles = curve_handles(drawn, reference)
        figure, panels = frame((1, 2), (3.7, 3.5), f"MNIST, {name}", handles)
        for axes, metric in zip(panels, ("loss", "accuracy")):
            draw_curves(axes, drawn, metric_of(metric, drawn), None)
        low, high = panels[1].get_ylim()
        panels[1].set_ylim(min(low, *told.values()) - 1, max(high, max(told.values()) + 2))
        draw_reference(panels[1], drawn, reference, 100)
        save(figure, path)


def summary_picture(numbers: list[Number], path: Path) -> None:
    """Draw all final accuracies: ours with ±1 sd, the paper's as open signs."""
    settings, methods = [name for name, _ in SETTINGS.values()], list(METHODS.values())
    handles = [Line2D([], [], **sign_of(i), label=method) for i, method in enumerate(methods)]
    handles.append(sign("in the paper", linestyle="none", marker="o", markerfacecolor="white"))
    if (seeds := max(len(number.ours) for number in numbers)) > 1:
        handles.append(sign(f"bars: ±1 sd over {seeds} seeds", linestyle="none"))
    figure, (axes,) = frame((1, 1), (6.6, 3.4), "", handles)
    for number in numbers:
        i = methods.index(number.what[1])
        x, look = settings.index(number.what[0]) + 0.15 * (i - 2), sign_of(i)
        mean, sd = float(np.mean(number.ours)), float(np.std(number.ours))
        error = sd if len(number.ours) > 1 else None
        axes.errorbar(x, mean, error, capsize=3, markersize=7, **look)
        if number.paper is not None:
            axes.plot([x, x], [mean, number.paper], color="0.6", linewidth=0.8, zorder=1)
            axes.plot(x, number.paper, markerfacecolor="white", markersize=7, **look)
    axes.set_xticks(range(len(settings)), settings)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("final test accuracy (%)")
    save(figure, path)


# ---- checks of direction ------------------------------------------------------------------------


def hf_is_nearer(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found = []
    for stem, (name, _) in SETTINGS.items():
        fo, hf = (distances(runs[stem], m) for m in BOTH)
        found.append((bool((hf < fo).all()), f"{name}: {hf.mean():.1e} (HF), {fo.mean():.1e} (FO)"))
    return all(holds for holds, _ in found), "; ".join(text for _, text in found)


CHECKS = {"HF's parameters are nearer to the exact form's than FO's": hf_is_nearer}
