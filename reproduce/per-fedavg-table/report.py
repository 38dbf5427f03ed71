"""Per-FedAvg's table: MNIST, final accuracy after adaptation, four settings of τ and α."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style

from fedref import experiment, plots
from fedref.evaluation import plain
from fedref.experiment import Setting
from fedref.reproduce import (
    Number,
    at,
    markdown,
    number_table,
    renamed,
    shown,
    signed,
    spread,
    unadapted,
    write_csv,
    write_numbers,
)
from fedref.results import Run

TITLE = "Per-FedAvg on MNIST: FO and HF in four settings"
DOCUMENT = (
    "000-per-fedavg, §5, the table of accuracies; the experiment is that of §3.2: an MLP of 80 and "
    "60 ELU units, 50 users, a = 196, β = 0.001, K = 1000 rounds of 10 users, D = 40."
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
METHODS = {
    "per-fedavg-fo": "Per-FedAvg (FO)",
    "per-fedavg-hf": "Per-FedAvg (HF)",
    "per-fedavg": "Per-FedAvg (exact)",
    "fedavg": "FedAvg",
    "fedavg-update": "FedAvg with update",
}
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
FLUCTUATES = 300  # rounds after which the document sees the loss fluctuate


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    data = experiment.setting(runs["tau10-alpha0.001"].experiment, data_dir)
    found = alternatives(runs, data_dir)
    numbers = []
    for stem, (name, told) in SETTINGS.items():
        for label, method in METHODS.items():
            made = line(runs[stem], label, (name, method), told.get(label), data)
            if label in told:
                made = made._replace(comment=f"{nearest(stem, label, found)}; {made.comment}")
            numbers.append(made)
        draw(runs[stem], name, told, out / f"{stem}.png")
    summary_picture(numbers, out / "final.png")
    ablation_picture(found, out / "ablation.png")
    heads = ("setting", "method")
    write_numbers(out / "numbers.csv", heads, numbers)
    write_csv(out / "ablation.csv", (*heads, "way", "mean", "each seed"), way_rows(found))
    pictures = [
        f"![MNIST, {name}: training loss and test accuracy after adaptation]({stem}.png)"
        for stem, (name, _) in SETTINGS.items()
    ]
    return "\n\n".join(
        [
            "Final test accuracy in %, after the user's one step of adaptation (FedAvg: none). "
            "The document has no numbers for the exact form and the two baselines. Pixels are "
            "scaled to [0, 1]; the start is uniform, ±1/√fan_in. The document says neither.",
            number_table(heads, numbers, more=("average", "maximum")),
            "![Final test accuracy, ours and the document's](final.png)",
            what_moves_them(runs, found),
            answers(runs),
            "Training loss and test accuracy of each setting; both are after adaptation where a "
            "method adapts.",
            *pictures,
        ]
    )


def finals(run: Run, label: str, metric: str = "accuracy") -> np.ndarray:
    """At the last round, in % for accuracies: (seeds,)."""
    scale = 100 if "accuracy" in metric else 1
    return scale * run.curve(label, metric)[1][:, -1]


def line(run: Run, label: str, what: tuple[str, str], told: float | None, data: Setting) -> Number:
    """One method in one setting, with what was measured besides."""
    t, y = run.curve(label)
    notes = []
    if label != "fedavg":
        before = unadapted(run, label, data)
        notes.append(f"before adaptation {spread(before)}")
    notes.append(f"mean of users {spread(finals(run, label, 'accuracy_mean'))}")
    if (drop := 100 * (y.max(1) - y[:, -1])).mean() > 0.005:
        notes.append(f"{drop.mean():.2f} below its maximum (round {t[y.mean(0).argmax()]})")
    else:
        late = max(0, np.searchsorted(t, 0.9 * t[-1], "right") - 1)
        gain = 100 * (y[:, -1] - y[:, late]).mean()
        notes.append(f"still rising: {signed(gain)} since round {t[late]}")
    average, maximum = 100 * y.mean(1), 100 * y.max(1)
    return Number(what, finals(run, label), told, "; ".join(notes), (average, maximum))


# ---- what the document may have done otherwise --------------------------------------------------

#: (stem, label) → (how it was trained, how it was measured) → final accuracy in %, a seed each
Found = Mapping[tuple[str, str], Mapping[tuple[str, str], np.ndarray]]


def alternatives(runs: Mapping[str, Run], data_dir: Path | None) -> Found:
    """Final accuracy under every way of training and every way of measuring."""
    data = {name: experiment.setting(runs[name].experiment, data_dir) for name in ABLATIONS}
    data[""] = experiment.setting(runs["tau10-alpha0.001"].experiment, data_dir)
    found: dict[tuple[str, str], dict[tuple[str, str], np.ndarray]] = {}
    for stem, (_, told) in SETTINGS.items():
        run = runs[stem]
        for label in told:
            alpha = run.experiment.algorithms[label]["alpha"]
            point = {"steps": run.experiment.steps, "alpha": alpha}
            trained = {"": run} | {name: at(runs[name], **point) for name in ABLATIONS}
            found[stem, label] = {
                (name, how): np.array(values)
                for name, one in trained.items()
                for how, values in zip(MEASURED, measured(one, label, data[name]))
            }
    return found


def measured(run: Run, label: str, data: Setting) -> tuple[Sequence[float], ...]:
    """Final accuracies as MEASURED names them."""
    return (
        finals(run, label),
        finals(run, label, "accuracy_mean"),
        unadapted(run, label, data),
        unadapted(run, label, data, mean=plain),
    )


def name_of(way: tuple[str, str]) -> str:
    training, measure = way
    return ", ".join(filter(None, [ABLATIONS.get(training, ""), MEASURED[measure]]))


def nearest(stem: str, label: str, found: Found) -> str:
    """Which way comes nearest to the document's number, if any comes nearer than we are."""
    told = SETTINGS[stem][1][label]
    left = {way: float(x.mean()) - told for way, x in found[stem, label].items()}
    best = min(left, key=lambda way: abs(left[way]))
    if best == ("", "after"):
        return "nothing tried comes nearer"
    value = spread(found[stem, label][best])
    return f"nearest: {name_of(best)}, {value}, which leaves {signed(left[best])}"


def what_moves_them(runs: Mapping[str, Run], found: Found) -> str:
    """All ways in all settings, and how near to the document each comes."""
    rows = [["setting", "method", "document", "trained", *map(MEASURED.get, MEASURED)]]
    for (stem, label), values in found.items():
        what = [SETTINGS[stem][0], METHODS[label], shown(SETTINGS[stem][1][label])]
        for training in ("", *ABLATIONS):
            cells = [spread(values[training, how]) for how in MEASURED]
            rows.append([*what, ABLATIONS.get(training, "as above"), *cells])
    seeds = sorted({seed for name in ABLATIONS for seed in runs[name].experiment.seeds})
    return "\n\n".join(
        [
            "What moves these numbers? How accuracy is measured: after or before the user's step "
            "of adaptation, over samples or as the plain mean of users. How pixels are scaled: to "
            "[0, 1] above, each to mean 0 and deviation 1 here. How parameters start: uniform "
            "±1/√fan_in above, Glorot's ±√(6/(fan_in + fan_out)) and biases 0 here. What is "
            f"trained anew is so with seed {', '.join(map(str, seeds))} alone.",
            markdown(rows, left=2),
            "![Final test accuracy, trained and measured in other ways](ablation.png)",
            "How far each way is from the document's four numbers for each α, on average, and what "
            "the larger α does to its accuracy, in points:",
            markdown(distances_to_document(found)),
        ]
    )


def distances_to_document(found: Found) -> list[list[str]]:
    """Rows of a table: mean distances for each α, and the change from one α to the other."""
    told = {(stem, label): SETTINGS[stem][1][label] for stem, label in found}
    ways = {
        way: {key: x[way].mean() for key, x in found.items()} for way in found[next(iter(found))]
    }
    steps = [
        (f"{tau}-alpha0.001", f"{tau}-alpha0.01", label)
        for tau in ("tau10", "tau4")
        for label in ("per-fedavg-fo", "per-fedavg-hf")
    ]
    rows = [["", "distance, α = 0.001", "distance, α = 0.01"]]
    rows[0] += [f"{SETTINGS[a][0].split(',')[0]}, {METHODS[label]}" for a, _, label in steps]
    for name, mean in [("document", told), *((name_of(way), x) for way, x in ways.items())]:
        apart = [
            np.mean([abs(mean[key] - told[key]) for key in told if key[0].endswith(alpha)])
            for alpha in ("alpha0.001", "alpha0.01")
        ]
        moves = [float(mean[b, label] - mean[a, label]) for a, b, label in steps]
        rows.append([name, *(shown(float(x)) for x in apart), *map(signed, moves)])
    return rows


# ---- what the document says in words ------------------------------------------------------------


def answers(runs: Mapping[str, Run]) -> str:
    """The document's sentences beside what was measured."""
    lines = ["What the document says besides, and what was measured:", ""]
    for old, new in (
        ("tau10-alpha0.001", "tau10-alpha0.01"),
        ("tau4-alpha0.001", "tau4-alpha0.01"),
    ):
        change = {m: finals(runs[new], m) - finals(runs[old], m) for m in SETTINGS[old][1]}
        document = {m: SETTINGS[new][1][m] - SETTINGS[old][1][m] for m in change}
        lines.append(
            f"- *A larger α lowers accuracy* ({SETTINGS[old][0]} → {SETTINGS[new][0]}): "
            f"document {both(document)} points; ours "
            + ", ".join(f"{METHODS[m]} {signed(float(x.mean()))}" for m, x in change.items())
            + f", and without any step of adaptation, where α plays no part, FedAvg "
            f"{signed(float((finals(runs[new], 'fedavg') - finals(runs[old], 'fedavg')).mean()))}."
        )
    for stem, (name, told) in SETTINGS.items():
        gap = finals(runs[stem], "per-fedavg-fo") - finals(runs[stem], "per-fedavg-hf")
        fo, hf = (distances(runs[stem], m) for m in ("per-fedavg-fo", "per-fedavg-hf"))
        document = told["per-fedavg-fo"] - told["per-fedavg-hf"]
        lines.append(
            f"- *FO is more accurate than HF* ({name}): document {signed(document)} points; ours "
            f"{signed(float(gap.mean()))} (sd {gap.std():.2f}). The final parameters differ from "
            f"those of the exact form by {fo.mean():.1e} (FO) and {hf.mean():.1e} (HF) of their norm."
        )
    for stem in SETTINGS:
        if "alpha0.01" in stem:
            lines.append(f"- {fluctuation(runs[stem], SETTINGS[stem][0])}")
    return "\n".join(lines)


def both(values: Mapping[str, float]) -> str:
    return ", ".join(f"{METHODS[m]} {signed(x)}" for m, x in values.items())


def distances(run: Run, label: str) -> np.ndarray:
    """‖w − w_exact‖ / ‖w_exact‖ after the last round, for each seed: (seeds,)."""
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


def fluctuation(run: Run, name: str) -> str:
    """How often and how much the training loss rises after the document's round 300."""
    said = f"*The loss fluctuates after about {FLUCTUATES} rounds* ({name}): "
    t = run.curve("per-fedavg-fo")[0]
    late = t >= FLUCTUATES
    if late.sum() < 2:
        return said + f"not seen here, the run ends at round {t[-1]}."
    found = []
    for label in ("per-fedavg-fo", "per-fedavg-hf"):
        loss = run.curve(label, "train_loss")[1][:, late]
        steps = np.diff(loss, axis=1)
        found.append(
            f"{METHODS[label]} rises at {100 * np.mean(steps > 0):.0f} % of the evaluations (every "
            f"{np.diff(t)[0]} rounds), by {max(steps.max(), 0):.4f} at most, while it goes from "
            f"{loss[:, 0].mean():.3f} to {loss[:, -1].mean():.3f}"
        )
    return said + "; ".join(found) + "."


# ---- pictures -----------------------------------------------------------------


def draw(run: Run, name: str, told: Mapping[str, float], path: Path) -> None:
    """Training loss and test accuracy per round, the document's accuracies at the right edge."""
    drawn = plots.all_series(renamed(run, METHODS))
    reference = {METHODS[label]: value / 100 for label, value in told.items()}
    with style.context(plots.STYLE):
        handles = plots.curve_handles(drawn, reference)
        figure, panels = plots.frame((1, 2), (3.7, 3.5), f"MNIST, {name}", handles)
        for axes, metric in zip(panels, ("loss", "accuracy")):
            plots.draw_curves(axes, drawn, plots.metric_of(metric, drawn), None)
        low, high = panels[1].get_ylim()
        panels[1].set_ylim(min(low, *told.values()) - 1, max(high, max(told.values()) + 2))
        plots.draw_reference(panels[1], drawn, reference, 100)
        plots.save(figure, path)


def summary_picture(numbers: list[Number], path: Path) -> None:
    """All final accuracies: ours with ±1 sd, the document's as open signs."""
    settings = list(dict.fromkeys(number.what[0] for number in numbers))
    methods = list(METHODS.values())
    with style.context(plots.STYLE):
        handles: list[Any] = [
            plots.Line2D([], [], color=plots.COLOURS[i], marker=plots.MARKERS[i], linestyle="none",
                         label=method)
            for i, method in enumerate(methods)
        ]  # fmt: skip
        handles.append(
            plots.sign("in the document", linestyle="none", marker="o", markerfacecolor="white")
        )
        figure, (axes,) = plots.frame((1, 1), (6.6, 3.4), "", handles)
        for number in numbers:
            i = methods.index(number.what[1])
            x = settings.index(number.what[0]) + 0.15 * (i - 2)
            look = {"color": plots.COLOURS[i], "marker": plots.MARKERS[i], "linestyle": "none"}
            mean, sd = np.mean(number.ours), np.std(number.ours)
            error = sd if len(number.ours) > 1 else None
            axes.errorbar(x, mean, error, capsize=3, markersize=7, **look)
            if number.document is not None:
                axes.plot([x, x], [mean, number.document], color="0.6", linewidth=0.8, zorder=1)
                axes.plot(x, number.document, markerfacecolor="white", markersize=7, **look)
        axes.set_xticks(range(len(settings)), settings)
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("final test accuracy (%)")
        plots.save(figure, path)


def way_rows(found: Found) -> list[list[object]]:
    return [
        [SETTINGS[stem][0], METHODS[label], name_of(way), x.mean(), " ".join(map(repr, x.tolist()))]
        for (stem, label), values in found.items()
        for way, x in values.items()
    ]


def ablation_picture(found: Found, path: Path) -> None:
    """A panel a method: the document's accuracy as a bar, ours in each way as signs."""
    labels = ("per-fedavg-fo", "per-fedavg-hf")
    trainings = {"": "as in the table", **ABLATIONS}
    looks: dict[str, dict[str, Any]] = {
        training: {"color": plots.COLOURS[i], "marker": plots.MARKERS[i], "linestyle": "none"}
        for i, training in enumerate(trainings)
    }
    bar = {"color": "black", "marker": "_", "linestyle": "none", "markeredgewidth": 1.5}
    with style.context(plots.STYLE):
        handles: list[Any] = [
            plots.Line2D([], [], **look, label=trainings[training])
            for training, look in looks.items()
        ]
        handles += [
            plots.sign("after adaptation", linestyle="none", marker="h"),
            plots.sign("before adaptation", linestyle="none", marker="h", markerfacecolor="white"),
            plots.Line2D([], [], **bar, markersize=14, label="in the document"),
        ]
        figure, panels = plots.frame((1, 2), (4.2, 3.6), "", handles, share=True)
        for axes, label in zip(panels, labels):
            for x, stem in enumerate(SETTINGS):
                axes.plot(x, SETTINGS[stem][1][label], **bar, markersize=40)
                for i, (training, look) in enumerate(looks.items()):
                    for how, fill in (("before", "white"), ("after", look["color"])):
                        y = found[stem, label][training, how].mean()
                        axes.plot(x + 0.2 * (i - 1), y, markerfacecolor=fill, **look)
            names = [name.replace(", ", "\n") for name, _ in SETTINGS.values()]
            axes.set_xticks(range(len(SETTINGS)), names)
            axes.tick_params(axis="x", length=0)
            axes.grid(visible=False, axis="x")
            axes.set_title(METHODS[label])
        panels[0].set_ylabel("final test accuracy (%)")
        plots.save(figure, path)


# ---- checks of direction ------------------------------------------------------------------------


def hf_is_nearer(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found = []
    for stem, (name, _) in SETTINGS.items():
        fo, hf = (distances(runs[stem], m) for m in ("per-fedavg-fo", "per-fedavg-hf"))
        found.append((bool((hf < fo).all()), f"{name}: {hf.mean():.1e} (HF), {fo.mean():.1e} (FO)"))
    return all(holds for holds, _ in found), "; ".join(text for _, text in found)


CHECKS = {"HF's parameters are nearer to the exact form's than FO's": hf_is_nearer}
