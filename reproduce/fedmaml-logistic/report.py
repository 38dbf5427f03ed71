"""FedMAML's worked example, binary logistic regression: what its choices change."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from fedref.rounds.evaluation import sample_mean
from reproduce.claims import Claim, Place, judge
from reproduce.measures import at, average, bytes_sent, final, renamed, total, unadapted_scores
from reproduce.tables import Number, markdown, shown, spread, write_numbers

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


Lines = Mapping[tuple[str, str, int], Line]


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    data = {stem: load_experiment(runs[stem].experiment, Loader(data_dir)) for stem in NAMES}
    lines = {
        (stem, label, s): line(runs[stem], stem, label, s, data[stem])
        for stem in NAMES
        for label in METHODS
        for s in (steps(runs[stem]) if label != "fedavg" else [0])
    }
    numbers = [
        Number((*own.what, name), getattr(own, field))
        for own in lines.values()
        for field, (name, _) in COLUMNS.items()
    ]
    write_numbers(out / "numbers.csv", (*HEADS, "quantity"), numbers)
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
    return {
        "majority": ", ".join(f"{majority(data[stem]):.2f} % on {NAMES[stem]}" for stem in NAMES),
        "lines": markdown(rows, left=len(HEADS)),
        "apart": f"{max(map(sum_from_mean, runs.values())):.1e}",
        "sent": " and ".join(
            f"{sent(run, 'sum-over-k')} MB in place of {sent(run, 'mean')} on {NAMES[stem]}"
            for stem, run in runs.items()
        ),
        "pictures": "\n\n".join(pictures),
        "claims": judge(CLAIMS, places_of(lines)),
    }


def steps(run: Run) -> list[int]:
    return list(run.experiment.sweep["inner-steps"])


def part(run: Run, label: str, s: int) -> Run:
    return run if label == "fedavg" else at(run, inner_steps=s)


def with_fedavg(run: Run, s: int) -> Run:
    """Return the methods at one number of steps, and FedAvg, which has none."""
    own = at(run, inner_steps=s)
    units, records = map(list, zip(*run.units_of("fedavg")))
    return Run(run.experiment, [*own.units, *units], [*own.records, *records])


def line(run: Run, stem: str, label: str, s: int, data: LoadedExperiment) -> Line:
    run = part(run, label, s)
    before = unadapted_scores(run, label, data)
    return Line(
        (NAMES[stem], METHODS[label], str(s) if s else "–"),
        accuracy=final(run, label),
        average=average(run, label),
        accuracy_before=np.array([100 * sample_mean(x.accuracy, x.n_test) for x in before]),
        loss=final(run, label, "test_loss"),
        loss_before=np.array([sample_mean(x.test_loss, x.n_test) for x in before]),
        flops=total(run, label, "flops") / 1e6,
        sent=bytes_sent(run, label) / 1e6,
    )


def majority(data: LoadedExperiment) -> float:
    """Return the accuracy of always saying the most frequent label, in %."""
    y = data.federation.source.y[data.federation.test.rows]
    return float(100 * np.bincount(y).max() / len(y))


def sent(run: Run, label: str) -> str:
    """Return the MB in all, at the fewest steps: a mean over seeds."""
    return shown(float((bytes_sent(part(run, label, steps(run)[0]), label) / 1e6).mean()))


def sum_from_mean(run: Run) -> float:
    """Return the largest difference of the sum with β/K from the mean, of all losses and accuracies."""
    apart = [
        np.abs(at_s.curve("mean", metric)[1] - at_s.curve("sum-over-k", metric)[1]).max()
        for at_s in (at(run, inner_steps=s) for s in steps(run))
        for metric in ("accuracy", "test_loss")
    ]
    return float(max(apart))


# ---- the paper's sentences -----------------------------------------------------------------------


def places_of(lines: Lines) -> list[Place]:
    """Return where the claims are judged, θ beside FedAvg: each data set and number of steps."""
    return [
        Place(
            stem, f"{NAMES[stem]}, s = {own.what[2]}",
            {"theta": own, "fedavg": lines[stem, "fedavg", 0]}, METHODS,
        )
        for (stem, label, _), own in lines.items()
        if label == "theta"
    ]  # fmt: skip


def gain_by_adaptation(place: Place) -> str:
    own = place.run["theta"]
    return f"accuracy {spread(own.accuracy - own.accuracy_before)} points"


def gain_over_fedavg(place: Place) -> str:
    own, base = place.run["theta"], place.run["fedavg"]
    return f"accuracy {spread(own.accuracy - base.accuracy)} points"


CLAIMS = (
    Claim(
        "A few gradient steps fit θ to each client",
        lambda place, m: place.run[m].loss - place.run[m].loss_before, ("theta",), below=0,
        unit="nats", digits=4, called="test loss after, less before", note=gain_by_adaptation,
    ),
    Claim(
        "So the adapted θ fits the clients better than FedAvg's model",
        lambda place, m: place.run[m].loss, ("theta",), ("fedavg",), below=0,
        unit="nats", digits=4, called="final test loss, less FedAvg's", note=gain_over_fedavg,
    ),
)  # fmt: skip


def sum_over_k_is_the_mean(runs: Mapping[str, Run]) -> tuple[bool, str]:
    apart = max(map(sum_from_mean, runs.values()))
    return apart < 1e-9, f"{apart:.1e} apart at most"


CHECKS = {"FedMAML's sum with β/K is FedMeta's mean with β": sum_over_k_is_the_mean}
