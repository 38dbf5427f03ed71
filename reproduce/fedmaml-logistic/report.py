"""FedMAML's worked example, binary logistic regression: what its choices change."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from fedref.reproduction import (
    Number,
    at,
    claim,
    markdown,
    renamed,
    shown,
    spread,
    totals,
    unadapted_scores,
    write_numbers,
)
from fedref.rounds.evaluation import sample_mean

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
    "fedavg": "FedAvg",
}
HEADS = ("data", "what is tested", "s")
#: Field of Line → (what the table calls it, digits).
COLUMNS = {
    "accuracy": ("accuracy", 2),
    "average": ("average accuracy", 2),
    "accuracy_before": ("accuracy before adaptation", 2),
    "loss": ("loss", 4),
    "loss_before": ("loss before adaptation", 4),
    "flops": ("10⁶ operations", 1),
    "sent": ("MB sent", 2),
}


class Line(NamedTuple):
    """One method at one number of steps: at the end, (seeds,) each; accuracies in %."""

    what: tuple[str, str, str]
    accuracy: np.ndarray
    average: np.ndarray  # over all rounds
    accuracy_before: np.ndarray
    loss: np.ndarray
    loss_before: np.ndarray
    flops: np.ndarray  # 10⁶
    sent: np.ndarray  # MB


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    data = {stem: load_experiment(runs[stem].experiment, Loader(data_dir)) for stem in NAMES}
    lines = {
        (stem, label, s): line(runs[stem], stem, label, s, data[stem])
        for stem in NAMES
        for label in METHODS
        for s in (steps(runs[stem]) if label != "fedavg" else [0])
    }
    write_numbers(
        out / "numbers.csv",
        (*HEADS, "quantity"),
        [
            Number((*own.what, name), getattr(own, field))
            for own in lines.values()
            for field, (name, _) in COLUMNS.items()
        ],
    )
    pictures = []
    for stem, name in NAMES.items():
        for s in (steps(runs[stem])[0], steps(runs[stem])[-1]):
            file, title = f"{stem}-s{s}.png", f"{name}, s = {s}"
            drawn = renamed(with_fedavg(runs[stem], s), METHODS)
            plots.curves(drawn, out / file, metric=["test_loss", "accuracy"], title=title)
            pictures.append(f"![{title}: test loss and accuracy per round]({file})")
    rows = [[*HEADS, *(name for name, _ in COLUMNS.values())]]
    for own in lines.values():
        cells = (spread(getattr(own, field), digits) for field, (_, digits) in COLUMNS.items())
        rows.append([*own.what, *cells])
    return "\n\n".join(
        [
            "Final test accuracy in %, and the final test loss. θ is the meta-state, tested after s "
            "steps on 80 % of the client's training rows; θ′ is the mean of the adapted parameters "
            "of the last cohort, tested as it is. *Average* is over all rounds; operations and what "
            "is sent are those of the whole training. The sum is over the K = 10 clients of a round, "
            f"as printed; FedMeta's server takes the mean. {majority(data)}",
            markdown(rows, left=len(HEADS)),
            sum_and_mean(runs),
            *pictures,
            claims(lines),
        ]
    )


def steps(run: Run) -> list[int]:
    return list(run.experiment.sweep["inner-steps"])


def part(run: Run, label: str, s: int) -> Run:
    return run if label == "fedavg" else at(run, inner_steps=s)


def with_fedavg(run: Run, s: int) -> Run:
    """The methods at one number of steps, and FedAvg, which has none."""
    own = at(run, inner_steps=s)
    units, records = map(list, zip(*run.units_of("fedavg")))
    return Run(run.experiment, [*own.units, *units], [*own.records, *records])


def line(run: Run, stem: str, label: str, s: int, data: LoadedExperiment) -> Line:
    run = part(run, label, s)
    _, y = run.curve(label)
    _, loss = run.curve(label, "test_loss")
    before = unadapted_scores(run, label, data)
    return Line(
        (NAMES[stem], METHODS[label], str(s) if s else "–"),
        accuracy=100 * y[:, -1],
        average=100 * y.mean(1),
        accuracy_before=np.array([100 * sample_mean(x.accuracy, x.n_test) for x in before]),
        loss=loss[:, -1],
        loss_before=np.array([sample_mean(x.test_loss, x.n_test) for x in before]),
        flops=totals(run, label, "flops") / 1e6,
        sent=megabytes(run, label),
    )


def megabytes(run: Run, label: str) -> np.ndarray:
    """Sent in all: (seeds,)."""
    return totals(run, label, "bytes_down", "bytes_up") / 1e6


def majority(data: Mapping[str, LoadedExperiment]) -> str:
    """The accuracy of always saying the most frequent label."""
    found = []
    for stem, name in NAMES.items():
        federation = data[stem].federation
        y = federation.source.y[federation.test.rows]
        found.append(f"{100 * np.bincount(y).max() / len(y):.2f} % on {name}")
    return f"Always saying the label that is the most frequent is right for {', '.join(found)}."


def claims(lines: Mapping[tuple[str, str, int], Line]) -> str:
    found = [
        "What the paper says of it, and what was measured (it holds if it does in every seed). "
        "Everything is judged by test loss, for which less is better; accuracies stand beside it:",
        "",
    ]
    of_theta = {key: own for key, own in lines.items() if key[1] == "theta"}
    found += [fits(x) for x in of_theta.values()]
    for (stem, _, _), x in of_theta.items():
        text = f"So the adapted θ fits the clients better than FedAvg's model, {place(x)}"
        fedavg = lines[stem, "fedavg", 0]
        less = {"final test loss, less FedAvg's": x.loss - fedavg.loss}
        detail = f"accuracy {spread(x.accuracy - fedavg.accuracy)} points"
        found.append(claim(text, less, below=0, unit="nats", digits=4, detail=detail))
    return "\n".join(found)


def place(own: Line) -> str:
    return f"{own.what[0]}, s = {own.what[2]}"


def fits(own: Line) -> str:
    """Whether adaptation helps one s on one data set."""
    values = {"test loss after, less before": own.loss - own.loss_before}
    detail = f"accuracy {spread(own.accuracy - own.accuracy_before)} points"
    text = f"A few gradient steps fit θ to each client, {place(own)}"
    return claim(text, values, below=0, unit="nats", digits=4, detail=detail)


def sum_and_mean(runs: Mapping[str, Run]) -> str:
    """The sum with β/K beside the mean, in a sentence."""
    apart = max(sum_is_mean(run) for run in runs.values())
    sent = " and ".join(
        f"{shown(each[0])} MB in place of {shown(each[1])} on {NAMES[stem]}"
        for stem, run in runs.items()
        for each in [[sent_by(run, label) for label in ("sum-over-k", "mean")]]
    )
    return (
        "The sum with β/K and the mean with β are the same method, so that the table has one of "
        f"them: their accuracies and losses differ by {apart:.1e} at most, in any round. The printed "
        "sum therefore moves θ K times as far a round as the mean with the same β. FedMAML sends more "
        f"for it, because adapted parameters travel up beside the gradients: {sent}."
    )


def sent_by(run: Run, label: str) -> float:
    """MB in all, at the fewest steps: a mean over seeds."""
    return float(megabytes(part(run, label, steps(run)[0]), label).mean())


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
