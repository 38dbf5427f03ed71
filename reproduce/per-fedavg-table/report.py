"""Per-FedAvg's table: MNIST, final accuracy after adaptation, four settings of τ and α."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style

from fedref import experiment, plots
from fedref.experiment import Run, Setting
from fedref.reproduce import (
    Number,
    number_table,
    renamed,
    signed,
    spread,
    unadapted,
    write_numbers,
)

TITLE = "Per-FedAvg on MNIST: FO and HF in four settings"
DOCUMENT = (
    "000-per-fedavg, §5, the table of accuracies; the experiment is that of §3.2: an MLP of 80 and "
    "60 ELU units, 50 users, a = 196, β = 0.001, K = 1000 rounds of 10 users, D = 40."
)
QUICK = {"rounds": 8, "eval-every": 4, "seeds": [0]}

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
FLUCTUATES = 300  # rounds after which the document sees the loss fluctuate


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    numbers = []
    data: Setting | None = None
    for stem, (name, told) in SETTINGS.items():
        run = runs[stem]
        data = data or experiment.setting(run.experiment, data_dir)
        for label, method in METHODS.items():
            numbers.append(line(run, label, (name, method), told.get(label), data))
        draw(run, name, told, out / f"{stem}.png")
    summary_picture(numbers, out / "final.png")
    heads = ("setting", "method")
    write_numbers(out / "numbers.csv", heads, numbers)
    pictures = [
        f"![MNIST, {name}: training loss and test accuracy after adaptation]({stem}.png)"
        for stem, (name, _) in SETTINGS.items()
    ]
    return "\n\n".join(
        [
            "Final test accuracy in %, after the user's one step of adaptation (FedAvg: none). "
            "The document has no numbers for the exact form and the two baselines.",
            number_table(heads, numbers, more=("average", "maximum")),
            "![Final test accuracy, ours and the document's](final.png)",
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


# ---- checks of direction ------------------------------------------------------------------------


def hf_is_nearer(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found = []
    for stem, (name, _) in SETTINGS.items():
        fo, hf = (distances(runs[stem], m) for m in ("per-fedavg-fo", "per-fedavg-hf"))
        found.append((bool((hf < fo).all()), f"{name}: {hf.mean():.1e} (HF), {fo.mean():.1e} (FO)"))
    return all(holds for holds, _ in found), "; ".join(text for _, text in found)


CHECKS = {"HF's parameters are nearer to the exact form's than FO's": hf_is_nearer}
