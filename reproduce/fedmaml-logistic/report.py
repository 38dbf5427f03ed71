"""FedMAML's worked example, binary logistic regression: what its choices change."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from fedref.rounds.evaluation import sample_mean
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import (
    at_point,
    average,
    bytes_sent,
    count_tested,
    final,
    rename_methods,
    total,
    unadapted_scores,
)
from reproduce.tables import Number, markdown, show_number, show_pictures, spread, write_numbers

QUICK = {"seeds": [0], "rounds": 5, "sweep.inner-steps": [1, 5]}

NAMES = {"landmine": "Landmine", "vehicle": "Vehicle"}
METHODS = {
    "theta": "θ",
    "theta1": "θ′",
    "mean": "θ, mean in place of the sum",
    "fedavg": "FedAvg",
}
HEADS = ("data", "what is tested", "s")
#: What the table has of every method, at the end of the training, and with how many digits.
DIGITS = {
    "accuracy": 2,
    "average accuracy": 2,  # over all rounds
    "accuracy before adaptation": 2,
    "loss": 4,
    "loss before adaptation": 4,
    "10⁶ operations": 1,
    "MB sent": 2,
}
#: (data, method, s) → what is measured → (seeds,); accuracies in %.
Lines = Mapping[tuple[str, str, int], Mapping[str, np.ndarray]]


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    data = {stem: load_experiment(runs[stem].experiment, Loader(data_dir)) for stem in NAMES}
    lines = {
        (stem, label, s): line(part(runs[stem], label, s), label, data[stem])
        for stem in NAMES
        for label in METHODS
        for s in (steps(runs[stem]) if label != "fedavg" else [0])
    }
    rows, numbers = [[*HEADS, *DIGITS]], []
    for (stem, label, s), own in lines.items():
        what = (NAMES[stem], METHODS[label], str(s) if s else "–")
        rows.append([*what, *(spread(own[name], digits) for name, digits in DIGITS.items())])
        numbers += [Number((*what, name), own[name]) for name in DIGITS]
    write_numbers(out / "numbers.csv", (*HEADS, "quantity"), numbers)
    pictures = {}
    for stem, name in NAMES.items():
        for s in (steps(runs[stem])[0], steps(runs[stem])[-1]):
            file, title = f"{stem}-s{s}.png", f"{name}, s = {s}"
            drawn = rename_methods(with_fedavg(runs[stem], s), METHODS)
            plots.curves(drawn, out / file, metric=["test_loss", "accuracy"], title=title)
            pictures[file] = f"{title}: test loss and accuracy per round"
    return {
        "majority": ", ".join(f"{majority(data[stem]):.2f} % on {NAMES[stem]}" for stem in NAMES),
        "lines": markdown(rows, left=len(HEADS)),
        "apart": f"{max(map(sum_from_mean, runs.values())):.1e}",
        "sent": " and ".join(
            f"{megabytes_sent(run, 'sum-over-k')} MB in place of {megabytes_sent(run, 'mean')} on "
            f"{NAMES[stem]}"
            for stem, run in runs.items()
        ),
        "pictures": show_pictures(pictures),
        "claims": report_claims(
            judge(claims_of("fedmaml-logistic", globals()), places_of(lines, runs)), out
        ),
    }


def steps(run: Run) -> list[int]:
    return list(run.experiment.sweep["inner-steps"])


def part(run: Run, label: str, s: int) -> Run:
    return run if label == "fedavg" else at_point(run, inner_steps=s)


def with_fedavg(run: Run, s: int) -> Run:
    """Return the methods at one number of steps, and FedAvg, which has none."""
    own = at_point(run, inner_steps=s)
    units, records = map(list, zip(*run.units_of("fedavg")))
    return Run(run.experiment, [*own.units, *units], [*own.records, *records])


def line(run: Run, label: str, data: LoadedExperiment) -> dict[str, np.ndarray]:
    """Return one method at one number of steps."""
    before = unadapted_scores(run, label, data)
    return {
        "accuracy": final(run, label),
        "average accuracy": average(run, label),
        "accuracy before adaptation": np.array(
            [100 * sample_mean(x.accuracy, x.n_test) for x in before]
        ),
        "loss": final(run, label, "test_loss"),
        "loss before adaptation": np.array([sample_mean(x.test_loss, x.n_test) for x in before]),
        "10⁶ operations": total(run, label, "flops") / 1e6,
        "MB sent": bytes_sent(run, label) / 1e6,
    }


def majority(data: LoadedExperiment) -> float:
    """Return the accuracy of always saying the most frequent label, in %."""
    y = data.federation.source.y[data.federation.test.rows]
    return float(100 * np.bincount(y).max() / len(y))


def megabytes_sent(run: Run, label: str) -> str:
    """Return the MB in all, at the fewest steps: a mean over seeds."""
    return show_number(float((bytes_sent(part(run, label, steps(run)[0]), label) / 1e6).mean()))


def sum_from_mean(run: Run) -> float:
    """Return the largest difference of the sum with β/K from the mean, of all losses and accuracies."""
    apart = [
        np.abs(at_s.curve("mean", metric)[1] - at_s.curve("sum-over-k", metric)[1]).max()
        for at_s in (at_point(run, inner_steps=s) for s in steps(run))
        for metric in ("accuracy", "test_loss")
    ]
    return float(max(apart))


# ---- the paper's sentences -----------------------------------------------------------------------


def places_of(lines: Lines, runs: Mapping[str, Run]) -> list[Place]:
    """Return where the claims are judged, θ beside FedAvg: each data set and number of steps."""
    fewest = {stem: min(s for at, m, s in lines if (at, m) == (stem, "theta")) for stem in runs}
    return [
        Place(
            stem, f"{NAMES[stem]}, s = {s}",
            {"theta": own, "fedavg": lines[stem, "fedavg", 0]}, METHODS,
            kinds=["fewest steps"] if s == fewest[stem] else [], **count_tested(runs[stem]),
        )
        for (stem, label, s), own in lines.items()
        if label == "theta"
    ]  # fmt: skip


def accuracy_gained(place: Place, label: str) -> np.ndarray:
    own = place.run[label]
    return own["accuracy"] - own["accuracy before adaptation"]


def loss_gained(place: Place, label: str) -> np.ndarray:
    own = place.run[label]
    return own["loss"] - own["loss before adaptation"]


def read(name: str) -> Callable[[Place, str], np.ndarray]:
    """Return a function that reads one quantity of a line of the table."""
    return lambda place, label: place.run[label][name]


final_accuracy, final_loss, megabytes = map(read, ("accuracy", "loss", "MB sent"))


def sum_over_k_is_the_mean(runs: Mapping[str, Run]) -> tuple[bool, str]:
    apart = max(map(sum_from_mean, runs.values()))
    return apart < 1e-9, f"{apart:.1e} apart at most"


CHECKS = {"FedMAML's sum with β/K is FedMeta's mean with β": sum_over_k_is_the_mean}
