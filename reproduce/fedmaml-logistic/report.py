"""FedMAML's worked example, binary logistic regression: what its choices change."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.experiments import setting as experiment
from fedref.experiments.results import Run
from fedref.experiments.setting import Setting
from fedref.reproduction import Number, at, claim, number_table, renamed, unadapted, write_numbers

TITLE = "FedMAML: the worked example"
PAPER = (
    "FedMAML, §4.2: binary logistic regression with the cross-entropy. The paper prints no number and "
    "no data set: this is what its two server steps and its *few* gradient steps change on two "
    "federations of natural clients, landmine detection (29 fields) and Vehicle (23 sensors)."
)
QUICK = {"seeds": [0], "rounds": 5, "sweep.inner-steps": [1, 5]}

NAMES = {"landmine": "Landmine", "vehicle": "Vehicle"}
METHODS = {
    "theta": "θ",
    "theta1": "θ′",
    "mean": "θ, mean in place of the sum",
    "sum-over-k": "θ, the sum with β/K",
    "fedavg": "FedAvg",
}
MEASURES = ("accuracy", "average accuracy", "accuracy before adaptation", "loss")


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    data = {stem: experiment.setting(runs[stem].experiment, data_dir) for stem in NAMES}
    numbers = [
        line(runs[stem], stem, label, s, data[stem])
        for stem in NAMES
        for label in METHODS
        for s in (steps(runs[stem]) if label != "fedavg" else [0])
    ]
    heads = ("data", "what is tested", "s")
    write_numbers(
        out / "numbers.csv",
        (*heads, "quantity"),
        [
            number._replace(what=(*number.what, what), ours=values, paper=None)
            for number in numbers
            for what, values in zip(MEASURES, (number.ours, *number.more))
        ],
    )
    pictures = []
    for stem, name in NAMES.items():
        for s in (steps(runs[stem])[0], steps(runs[stem])[-1]):
            file, title = f"{stem}-s{s}.png", f"{name}, s = {s}"
            shown = renamed(with_fedavg(runs[stem], s), METHODS)
            plots.curves(shown, out / file, metric=["test_loss", "accuracy"], title=title)
            pictures.append(f"![{title}: test loss and accuracy per round]({file})")
    return "\n\n".join(
        [
            "Final test accuracy in %, and the final test loss. θ is the meta-state, tested after s "
            "steps on 80 % of the client's training rows; θ′ is the mean of the adapted parameters "
            "of the last cohort, tested as it is. *Average* is over all rounds. The sum is over the "
            "K = 10 clients of a round, as printed; FedMeta's server takes the mean. "
            f"{majority(data)}",
            number_table(heads, numbers, more=MEASURES[1:]),
            *pictures,
            claims(runs, data),
        ]
    )


def steps(run: Run) -> list[int]:
    return list(run.experiment.sweep["inner-steps"])


def part(run: Run, label: str, s: int) -> Run:
    return run if label == "fedavg" else at(run, inner_steps=s)


def with_fedavg(run: Run, s: int) -> Run:
    """The methods at one number of steps, and FedAvg, which has none."""
    own = at(run, inner_steps=s)
    base = [(u, r) for u, r in zip(run.units, run.records) if u.label == "fedavg"]
    units, records = [unit for unit, _ in base], [record for _, record in base]
    return Run(run.experiment, [*own.units, *units], [*own.records, *records])


def line(run: Run, stem: str, label: str, s: int, data: Setting) -> Number:
    """One method at one number of steps."""
    run = part(run, label, s)
    _, y = run.curve(label)
    _, loss = run.curve(label, "test_loss")
    before = unadapted(run, label, data)
    work = np.mean([r.rows[-1]["flops"] for r in run.records_of(label)])
    sent = np.mean(
        [r.rows[-1]["bytes_down"] + r.rows[-1]["bytes_up"] for r in run.records_of(label)]
    )
    comment = f"{work / 1e6:.1f} million operations and {sent / 1e6:.2f} MB in all"
    what = (NAMES[stem], METHODS[label], str(s) if s else "–")
    return Number(what, 100 * y[:, -1], None, comment, (100 * y.mean(1), before, loss[:, -1]))


def majority(data: Mapping[str, Setting]) -> str:
    """The accuracy of always saying the most frequent label."""
    found = []
    for stem, name in NAMES.items():
        federation = data[stem].federation
        y = federation.source.y[federation.test.rows]
        found.append(f"{100 * np.bincount(y).max() / len(y):.2f} % on {name}")
    return f"Always saying the label that is the most frequent is right for {', '.join(found)}."


def claims(runs: Mapping[str, Run], data: Mapping[str, Setting]) -> str:
    lines = [
        "What the paper says of it, and what was measured (it holds if it does in every seed):",
        "",
    ]
    for stem, name in NAMES.items():
        found = {
            f"s = {s}": 100 * part(runs[stem], "theta", s).curve("theta")[1][:, -1]
            - np.array(unadapted(part(runs[stem], "theta", s), "theta", data[stem]))
            for s in steps(runs[stem])
        }
        text = f"A few gradient steps fit θ to each client, {name}"
        lines.append(claim(text, found, above=0, detail="final accuracy, after less before"))
    for stem, name in NAMES.items():
        base = runs[stem].curve("fedavg", "test_loss")[1][:, -1]
        found = {
            f"s = {s}": part(runs[stem], "theta", s).curve("theta", "test_loss")[1][:, -1] - base
            for s in steps(runs[stem])
        }
        text = f"So the adapted θ fits the clients better than FedAvg's model, {name}"
        lines.append(
            claim(
                text, found, below=0, unit="nats", digits=4, detail="final test loss, less FedAvg's"
            )
        )
    apart = max(sum_is_mean(run) for run in runs.values())
    lines += [
        "",
        "The sum with β/K and the mean with β are the same method: their accuracies and losses differ "
        f"by {apart:.1e} at most, in any round. The printed sum therefore moves θ K times as far a "
        "round as the mean with the same β.",
    ]
    return "\n".join(lines)


def sum_is_mean(run: Run) -> float:
    """The largest difference between them, of all losses and accuracies."""
    apart = [
        np.abs(
            part(run, "mean", s).curve("mean", metric)[1]
            - part(run, "mean", s).curve("sum-over-k", metric)[1]
        ).max()
        for s in steps(run)
        for metric in ("accuracy", "test_loss")
    ]
    return float(max(apart))


def sum_over_k_is_the_mean(runs: Mapping[str, Run]) -> tuple[bool, str]:
    apart = max(sum_is_mean(run) for run in runs.values())
    return apart < 1e-9, f"{apart:.1e} apart at most"


CHECKS = {"FedMAML's sum with β/K is FedMeta's mean with β": sum_over_k_is_the_mean}
