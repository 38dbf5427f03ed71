"""APFL's Figure 1: average and maximum test accuracy of every method.

What it says is said of those data sets that it is given runs of: apfl-cifar10 uses it as well.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from fedref.sampling import cohort
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import (
    average,
    bytes_sent,
    count_tested,
    final,
    maximum,
    rename_methods,
    seldom,
    unadapted_accuracy,
)
from reproduce.tables import Number, list_values, number_table, show_signed, spread, write_numbers

STEMS = ("vehicle", "mnist", "femnist")  # the ablations have a section of their own
QUICK = {
    "seeds": [0],
    "mnist": {"rounds": 10},
    "femnist": {"rounds": 4},
    "ablation-split": {"rounds": 2, "sweep.split.seed": [1]},
    "ablation-unit-pixels": {"rounds": 2},
    "ablation-uniform": {"rounds": 2},
    "ablation-mnist-fisher": {"rounds": 2},
    "ablation-mnist-fisher-mu": {"rounds": 2},
    "ablation-mnist-z": {"rounds": 4},
    "ablation-femnist-z": {"rounds": 4},
    "ablation-mnist-importance": {"rounds": 10},
    "ablation-femnist-importance": {"rounds": 4},
    "ablation-vehicle-mu": {"sweep.mu": [0.1, 1.0]},
    "ablation-vehicle-curv": {"sweep.lam": [0.1, 1.0]},
    "ablation-vehicle-size": {"rounds": 4, "sweep.split.train-fraction": [0.2]},
}

NAMES = {
    "vehicle": "Vehicle",
    "mnist": "MNIST",
    "femnist": "FEMNIST's rule, digits",
    "cifar10": "CIFAR-10, grey",
}
#: Points of average accuracy above FedAvg, as [apfl §4.2.1] prints them.
ABOVE = {"vehicle": 5.41, "mnist": 6.01, "femnist": 30.42, "cifar10": 10.26}
#: APFL's average accuracy at λ = 1, E = 5 in [apfl table 2]; FedAvg's follows by subtraction.
AVERAGE = {"vehicle": 88.59, "mnist": 85.08}
INITS = {"apfl-paper": "literal init", "apfl-continuous": "continuous init"}
METHODS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedcurv": "FedCurv",
    "fedmeta-maml": "FedMeta (MAML)",
    "fedmeta-one": "FedMeta, one episode a round",
    **{label: f"APFL, {init}" for label, init in INITS.items()},
    "centralised": "IID, centralised",
}
APFL = tuple(INITS)
#: APFL whose clients keep F: the numbers of the literal init for fewer bytes, so in no picture.
CACHED = "apfl-cached"
#: Columns beside the average: of samples, but for one.
MORE = ("maximum", "final", "average, mean of clients", "average, without the first tenth")


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    found = name_data_sets(runs)
    above = [gain(runs, stem, label) for stem in found for label in methods_of(runs[stem], APFL)]
    data = {stem: load_experiment(runs[stem].experiment, Loader(data_dir)) for stem in found}
    levels = [
        level(runs, stem, label, data[stem]) for stem in found for label in methods_of(runs[stem])
    ]
    for stem, name in found.items():
        told = {METHODS[m]: (value / 100, np.nan) for m, value in averages_in_paper(stem).items()}
        plots.bars(
            rename_methods(runs[stem], METHODS), out / f"{stem}.png", reference=told, title=name
        )
    heads = ("data", "method")
    both = [
        number._replace(what=(*number.what, what))
        for numbers, what in ((above, "average above FedAvg"), (levels, "average"))
        for number in numbers
    ]
    maxima = [n._replace(what=(*n.what, "maximum"), ours=n.more[0], paper=None) for n in levels]
    write_numbers(out / "numbers.csv", (*heads, "quantity"), both + maxima)
    return {
        "above": number_table(heads, above),
        "levels": number_table(heads, levels, MORE),
        "pictures": "\n\n".join(
            f"![{name}: average and maximum test accuracy of every method]({stem}.png)"
            for stem, name in found.items()
        ),
        "claims": report_claims(
            judge(claims_of("apfl-figure-1", globals()), places(runs, data)), out
        ),
        "cached": cached_equals(runs),
    }


def name_data_sets(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return the data sets that there are runs of, ablations aside."""
    return {stem: name for stem, name in NAMES.items() if stem in runs}


def methods_of(run: Run, labels: Sequence[str] = tuple(METHODS)) -> list[str]:
    """Return those of the methods that a run has: CIFAR-10's takes hours, and may be without some."""
    there = {unit.label for unit in run.units}
    return [label for label in labels if label in there]


def places(
    runs: Mapping[str, Run], data: Mapping[str, LoadedExperiment] | None = None
) -> list[Place]:
    """Return where the claims are judged: every data set that there is a run of."""
    methods = {**METHODS, CACHED: f"{METHODS[APFL[0]]}, clients keep F"}
    return [
        Place(
            stem, name, runs[stem], methods, seldom=seldom(runs[stem]), data=(data or {}).get(stem),
            absent=[m for m in methods if m not in methods_of(runs[stem], [*methods])],
            **count_tested(runs[stem]),
        )
        for stem, name in name_data_sets(runs).items()
    ]  # fmt: skip


def averages_in_paper(stem: str) -> dict[str, float]:
    """Return the paper's averages in %, where it has any: label → average."""
    if stem not in AVERAGE:
        return {}
    return {"fedavg": AVERAGE[stem] - ABOVE[stem], **dict.fromkeys(APFL, AVERAGE[stem])}


def gains(run: Run, label: str) -> np.ndarray:
    """Return the points of average accuracy above FedAvg: (seeds,)."""
    return average(run, label) - average(run, "fedavg")


def gain(runs: Mapping[str, Run], stem: str, label: str) -> Number:
    """Return APFL above FedAvg, and where that comes from."""
    what, run = (NAMES[stem], METHODS[label]), runs[stem]
    notes = [jump(run, label), who_gains(run, label)]
    return Number(what, gains(run, label), ABOVE[stem], "; ".join(filter(None, notes)))


def jump(run: Run, label: str) -> str:
    """Return what the start of the decomposition does to the accuracy, beside FedAvg then."""
    z = int(run.experiment.algorithms[label].get("z", 2))
    (t, y), (_, base) = run.curve(label), run.curve("fedavg")
    if not {z, z + 1} <= set(t.tolist()):
        return ""  # one of them is not evaluated
    before, after = np.searchsorted(t, [z, z + 1])
    own, other = (100 * (x[:, after] - x[:, before]) for x in (y, base))
    return (
        f"round {z + 1}, the first with the decomposition, changes accuracy by "
        f"{show_signed(float(own.mean()))} (FedAvg {show_signed(float(other.mean()))})"
    )


def who_gains(run: Run, label: str) -> str:
    """Return the gain in the last round of clients that have a model of their own, and of others."""
    base = {unit.seed: record for unit, record in run.units_of("fedavg")}
    gains: tuple[list[float], list[float]] = ([], [])
    shares = []
    for unit, record in run.units_of(label):
        ours, theirs = record.scores[-1], base[unit.seed].scores[-1]
        own = np.isin(np.arange(len(ours.accuracy)), list(record.state.clients))
        shares.append(100 * own.mean())
        for part, found in ((own, gains[0]), (~own, gains[1])):
            n = ours.n_test * part
            if n.sum():
                difference = np.nan_to_num(ours.accuracy - theirs.accuracy)
                found.append(float(100 * np.average(difference, weights=n)))
    text = f"last round: {np.mean(shares):.0f} % of clients have a model of their own and gain "
    text += f"{show_signed(float(np.mean(gains[0])))} over FedAvg" if gains[0] else "–"
    return text + (f", the others {show_signed(float(np.mean(gains[1])))}" if gains[1] else "")


def level(runs: Mapping[str, Run], stem: str, label: str, data: LoadedExperiment) -> Number:
    """Return one bar of the figure."""
    run, notes = runs[stem], []
    _, y = run.curve(label)
    if label.startswith("fedmeta"):
        notes.append(f"final before adaptation {spread(unadapted_accuracy(run, label, data))}")
        notes.append(f"at the start, after adaptation, {spread(100 * y[:, 0])}")
    of_clients = 100 * run.curve(label, "accuracy_mean")[1].mean(1)
    late = 100 * y[:, y.shape[1] // 10 :].mean(1)
    more = maximum(run, label), final(run, label), of_clients, late
    told = averages_in_paper(stem).get(label)
    return Number((NAMES[stem], METHODS[label]), average(run, label), told, "; ".join(notes), more)


# ---- the paper's sentences -----------------------------------------------------------------------


def more_accurate(place: Place, label: str) -> np.ndarray:
    return share(place.run, label, "accuracy", np.greater)


def less_accurate(place: Place, label: str) -> np.ndarray:
    return share(place.run, label, "accuracy", np.less)


def net_gain(place: Place, label: str) -> np.ndarray:
    return more_accurate(place, label) - less_accurate(place, label)


def lower_loss(place: Place, label: str) -> np.ndarray:
    return share(place.run, label, "test_loss", np.less)


def share(run: Run, label: str, score: str, than: np.ufunc) -> np.ndarray:
    """Return the share of clients whose last score is greater or less than FedAvg's, in %: (seeds,).

    Of those clients that have test rows.
    """
    own, base = (
        {unit.seed: record.scores[-1] for unit, record in run.units_of(of)}
        for of in (label, "fedavg")
    )
    return np.array(
        [
            100 * than(getattr(s, score), getattr(base[seed], score))[s.n_test > 0].mean()
            for seed, s in own.items()
        ]
    )


def shared_alone(place: Place, label: str) -> np.ndarray:
    """Return the final accuracy of what the server sends: of APFL the shared parameters alone."""
    return unadapted_accuracy(place.run, label, place.data)


def if_kept(run: Run, label: str) -> np.ndarray:
    """Return the bytes in times FedAvg's, had every client kept the newest F that it was sent."""
    spent = bytes_sent(run, label) / bytes_sent(run, "fedavg")
    made = run.experiment
    for i, (seed, record) in enumerate(zip(made.seeds, run.records_of(label))):
        newest, has, spared, drawn = 0, dict[int, int](), 0, 0
        for t in range(record.round):
            for k in cohort(made.plan, record.scores[-1].n_train, t, seed)[0].tolist():
                drawn += 1
                spared += 0 < newest == has.get(k, 0)
                has[k] = newest
            if record.rows[t]["renewed"] == 1:
                newest = t + 1
        spent[i] -= spared / (2 * drawn)  # FedAvg sends w down and up: 2 of F's size for each drawn
    return spent


def bytes_of_renewals(place: Place, label: str) -> np.ndarray:
    """Return the bytes of the rounds that renew an F which is there, in times FedAvg's: (seeds,).

    In those rounds w_S and F travel down and up, as in every round if F were renewed in each.
    """
    found = []
    both = zip(place.run.records_of(label), place.run.records_of("fedavg"))
    for own, base in both:
        asked = [t for t, row in enumerate(own.rows[:-1]) if row["renewed"] == 1]
        spent = [
            sum(rows[t + 1][c] - rows[t][c] for t in asked[1:] for c in ("bytes_down", "bytes_up"))
            for rows in (own.rows, base.rows)
        ]
        found.append(spent[0] / spent[1])
    return np.array(found)


def differing_numbers(run: Run) -> int:
    """Return how many losses and accuracies differ in any bit if clients keep F."""
    metrics = ("accuracy", "accuracy_mean", "test_loss", "train_loss")
    curves = [[run.curve(label, m)[1] for m in metrics] for label in (APFL[0], CACHED)]
    return int(sum(np.sum(x != y) for x, y in zip(*curves)))


def cached_equals(runs: Mapping[str, Run]) -> str:
    """Say whether what clients keep changes anything but bytes; "" where that was not run."""
    found = {
        name: differing_numbers(runs[stem])
        for stem, name in name_data_sets(runs).items()
        if methods_of(runs[stem], [CACHED])
    }
    each = ", ".join(f"{name} {n}" for name, n in found.items())
    if not found:
        return ""
    return (
        "As its algorithm is printed, APFL sends F to every client in every round. In the runs in which "
        "*clients keep F*, a client is sent it only where it was renewed since the client last took "
        f"part. Losses and accuracies of all evaluations that this changes in any bit: {each}."
    )


def ranking(place: Place) -> str:
    """Return every method's average, and where FedMeta is before any training."""
    mean = {m: float(average(place.run, m).mean()) for m in methods_of(place.run)}
    order = sorted(mean, key=lambda m: -mean[m])
    start = 100 * place.run.curve("fedmeta-maml")[1][:, 0].mean()
    return (
        ", ".join(f"{METHODS[m]} {mean[m]:.2f}" for m in order)
        + f"; FedMeta has {start:.2f} at the start, after one step of adaptation from untrained "
        "parameters"
    )


def bytes_if_kept(place: Place) -> str:
    kept = {METHODS[m]: if_kept(place.run, m) for m in methods_of(place.run, APFL)}
    return (
        "if clients kept F and were sent it only when it was renewed since they took part, "
        f"{list_values(kept)}"
    )


def others_share(place: Place) -> str:
    more, less = more_accurate(place, APFL[0]), less_accurate(place, APFL[0])
    return f"{spread(less)} % are less accurate, and {spread(100 - more - less)} % the same"


def apfl_above_fedavg(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found = {m: float(gains(runs["mnist"], m).mean()) for m in APFL}
    return min(found.values()) > 0, ", ".join(
        f"{METHODS[m]} {show_signed(x)} points" for m, x in found.items()
    )


def cached_is_the_same(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found = [differing_numbers(runs[stem]) for stem in name_data_sets(runs)]
    return not any(found), f"{sum(found)} losses and accuracies differ"


CHECKS = {
    "APFL's average accuracy on MNIST is above FedAvg's": apfl_above_fedavg,
    "APFL has the same numbers if clients keep F": cached_is_the_same,
}
