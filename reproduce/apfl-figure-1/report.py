"""APFL's Figure 1: average and maximum test accuracy of every method.

What it says is said of those data sets that it is given runs of: apfl-cifar10 uses it as well.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.evaluation import Scores
from fedref.experiments import names
from fedref.experiments import setting as experiment
from fedref.experiments.results import Run
from fedref.experiments.setting import Setting
from fedref.reproduction import (
    ROUNDING,
    Number,
    at,
    claim,
    markdown,
    number_table,
    renamed,
    shown,
    signed,
    spread,
    unadapted,
    write_numbers,
)
from fedref.sampling import cohort

TITLE = "APFL: average and maximum accuracy of every method"
PAPER = (
    "APFL, §4.2.1 and Figure 1 (a), (b) and (c): 10 clients a round, E = 5, B = 10; Vehicle with a "
    "linear SVM, η = 0.03 and 20 rounds; power-law MNIST with logistic regression, η = 0.03 and 150; "
    "FEMNIST's rule with logistic regression, η = 0.003 and 200 – on MNIST's ten digits, which stand "
    "in for the letters a to j: its level is not the paper's. (d), CIFAR-10, has a section of its own."
)
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
#: Where [apfl §4.2.1] says that APFL surpasses IID training, and where FedAvg falls far below it.
SURPASSED = ("vehicle", "cifar10")
FALLEN = ("mnist", "femnist")
METHODS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedcurv": "FedCurv",
    "fedmeta-maml": "FedMeta (MAML)",
    "fedmeta-one": "FedMeta, one episode a round",
    "apfl-paper": "APFL, literal init",
    "apfl-continuous": "APFL, continuous init",
    "centralised": "IID, centralised",
}
APFL = ("apfl-paper", "apfl-continuous")
ABLATED = ("fedmeta-one",)  # not what the paper compares with
COMPARED = ("fedavg", "fedcurv", *APFL)
OTHERS = ("fedprox", "fedcurv", "fedmeta-maml")
#: Columns beside the average: of samples, but for one.
MORE = ("maximum", "final", "average, mean of clients", "average, without the first tenth")
#: How a client fares beside FedAvg: (its last scores, FedAvg's) → whether so.
FARES: Mapping[str, Callable[[Scores, Scores], np.ndarray]] = {
    "a higher accuracy": lambda s, b: s.accuracy > b.accuracy,
    "a lower accuracy": lambda s, b: s.accuracy < b.accuracy,
    "a lower test loss": lambda s, b: s.test_loss < b.test_loss,
}
#: What the paper's words are taken to mean: points, points, times, times.
NEAR, MUCH, HARDLY, LOAD = 2.5, 1, 1.1, 1.5
BYTES = "times FedAvg's bytes"
#: Experiment files that change one thing: (file, data, what they change, which key is swept).
ABLATIONS = (
    ("ablation-vehicle-size", "vehicle", "{} of the rows for training", "split.train-fraction"),
    ("ablation-vehicle-fisher", "vehicle", "empirical Fisher; FedCurv λ = ½", ""),
    ("ablation-split", "mnist", "the split of seed {}", "split.seed"),
    ("ablation-unit-pixels", "mnist", "pixels in [0, 1]", ""),
    ("ablation-uniform", "mnist", "clients weigh the same", ""),
    ("ablation-mnist-fisher", "mnist", "empirical Fisher; FedCurv λ = ½", ""),
)


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    found = named(runs)
    above = [gain(runs, stem, label) for stem in found for label in ran(runs[stem], APFL)]
    data = {stem: experiment.setting(runs[stem].experiment, data_dir) for stem in found}
    levels = [level(runs, stem, label, data[stem]) for stem in found for label in ran(runs[stem])]
    for stem, name in found.items():
        told = {METHODS[m]: (average / 100, np.nan) for m, average in averages_told(stem).items()}
        plots.bars(renamed(runs[stem], METHODS), out / f"{stem}.png", reference=told, title=name)
    heads = ("data", "method")
    both = [
        number._replace(what=(*number.what, what))
        for numbers, what in ((above, "average above FedAvg"), (levels, "average"))
        for number in numbers
    ]
    maxima = [n._replace(what=(*n.what, "maximum"), ours=n.more[0], paper=None) for n in levels]
    write_numbers(out / "numbers.csv", (*heads, "quantity"), both + maxima)
    return "\n\n".join(
        [
            "Points of average test accuracy above FedAvg, seed by seed. The *literal* init is the "
            "paper's M_k = 1, W_k = W_S; the *continuous* one starts the client's own part where "
            "the composite equals the global model.",
            number_table(heads, above),
            "Average and maximum test accuracy in %. FedMeta makes local epochs of episodes, E = 5, B = "
            "10, as the paper compares with: each mini-batch is 80 % support and 20 % query. *One "
            "episode a round*, as FedMeta's own paper has it, is the ablation: all rows in one episode, "
            "one small step a round. The paper prints no numbers for Figure 1; where its Table 2 has "
            "APFL's average (λ = 1, E = 5), FedAvg's follows from it and the difference above.",
            number_table(heads, levels, MORE),
            *(
                f"![{name}: average and maximum test accuracy of every method]({stem}.png)"
                for stem, name in found.items()
            ),
            *([what_moves_them(runs)] if set(runs) > set(found) else []),
            claims(runs, data),
        ]
    )


def named(runs: Mapping[str, Run]) -> dict[str, str]:
    """The data sets that there are runs of, ablations aside."""
    return {stem: name for stem, name in NAMES.items() if stem in runs}


def ran(run: Run, labels: Sequence[str] = tuple(METHODS)) -> list[str]:
    """Those of the methods that a run has: CIFAR-10's takes hours, and may be without some."""
    there = {unit.label for unit in run.units}
    return [label for label in labels if label in there]


def averages_told(stem: str) -> dict[str, float]:
    """The paper's averages in %, where it has any: label → average."""
    if stem not in AVERAGE:
        return {}
    return {"fedavg": AVERAGE[stem] - ABOVE[stem], **dict.fromkeys(APFL, AVERAGE[stem])}


def averages(run: Run, label: str) -> np.ndarray:
    """Average over all rounds, in %: (seeds,)."""
    return 100 * run.curve(label)[1].mean(1)


def gains(run: Run, label: str) -> np.ndarray:
    """Points of average accuracy above FedAvg: (seeds,)."""
    return averages(run, label) - averages(run, "fedavg")


def gain(runs: Mapping[str, Run], stem: str, label: str) -> Number:
    """APFL above FedAvg, and where that comes from."""
    what, run = (NAMES[stem], METHODS[label]), runs[stem]
    notes = [jump(run, label), who_gains(run, label)]
    return Number(what, gains(run, label), ABOVE[stem], "; ".join(filter(None, notes)))


def jump(run: Run, label: str) -> str:
    """What the start of the decomposition does to the accuracy, beside FedAvg in the same rounds."""
    z = int(run.experiment.algorithms[label].get("z", 2))
    (t, y), (_, base) = run.curve(label), run.curve("fedavg")
    if not {z, z + 1} <= set(t.tolist()):
        return ""  # one of them is not evaluated
    before, after = np.searchsorted(t, [z, z + 1])
    own, other = (100 * (x[:, after] - x[:, before]) for x in (y, base))
    return (
        f"round {z + 1}, the first with the decomposition, changes accuracy by "
        f"{signed(float(own.mean()))} (FedAvg {signed(float(other.mean()))})"
    )


def who_gains(run: Run, label: str) -> str:
    """The gain in the last round of clients that have a model of their own, and of the others."""
    base = {u.seed: r for u, r in zip(run.units, run.records) if u.label == "fedavg"}
    gains: tuple[list[float], list[float]] = ([], [])
    shares = []
    for unit, record in zip(run.units, run.records):
        if unit.label != label:
            continue
        ours, theirs = record.scores[-1], base[unit.seed].scores[-1]
        own = np.isin(np.arange(len(ours.accuracy)), list(record.state.clients))
        shares.append(100 * own.mean())
        for part, found in ((own, gains[0]), (~own, gains[1])):
            n = ours.n_test * part
            if n.sum():
                difference = np.nan_to_num(ours.accuracy - theirs.accuracy)
                found.append(float(100 * np.average(difference, weights=n)))
    text = f"last round: {np.mean(shares):.0f} % of clients have a model of their own and gain "
    text += f"{signed(float(np.mean(gains[0])))} over FedAvg" if gains[0] else "–"
    return text + (f", the others {signed(float(np.mean(gains[1])))}" if gains[1] else "")


def level(runs: Mapping[str, Run], stem: str, label: str, data: Setting) -> Number:
    """One bar of the figure."""
    told = averages_told(stem)
    run = runs[stem]
    _, y = run.curve(label)
    plain = run.curve(label, "accuracy_mean")[1]
    notes = []
    if label.startswith("fedmeta"):
        notes.append(f"final before adaptation {spread(unadapted(run, label, data))}")
        notes.append(f"at the start, after adaptation, {spread(100 * y[:, 0])}")
    late = 100 * y[:, y.shape[1] // 10 :].mean(1)
    more = 100 * y.max(1), 100 * y[:, -1], 100 * plain.mean(1), late
    what = NAMES[stem], METHODS[label]
    return Number(what, averages(run, label), told.get(label), "; ".join(notes), more)


def alternatives(runs: Mapping[str, Run], stem: str) -> dict[str, Run]:
    """What is changed → the run."""
    found = {}
    for file, data, what, key in ABLATIONS:
        if data == stem and key:
            for value in runs[file].experiment.sweep[key]:
                found[what.format(value)] = at(runs[file], **{key: value})
        elif data == stem:
            found[what] = runs[file]
    return found


def what_moves_them(runs: Mapping[str, Run]) -> str:
    """Average accuracies, and APFL's gain, if one thing is done otherwise."""
    rows = [["data", "seeds", "changed", *(METHODS[m] for m in COMPARED)]]
    rows[0] += [f"{METHODS[m]}, above FedAvg" for m in APFL]
    for stem, name in named(runs).items():
        base, changed = runs[stem], alternatives(runs, stem)
        if not changed:
            continue
        paper = [shown(averages_told(stem).get(m)) for m in COMPARED]
        rows.append([name, "–", "(in the paper)", *paper, *[shown(ABOVE[stem])] * 2])
        lines = [("nothing: as above", base, base.experiment.seeds)]
        if len(base.experiment.seeds) > 1:  # what a run of one seed is to be set beside
            lines.append(("nothing: as above", base, base.experiment.seeds[:1]))
        lines += [(what, run, run.experiment.seeds) for what, run in changed.items()]
        rows += [
            [name, ", ".join(map(str, seeds)), what, *averages_and_gains(run, seeds)]
            for what, run, seeds in lines
        ]
    last = runs["vehicle"].records[0].scores[-1]
    test, train = int(last.n_test.sum()), int(last.n_train.sum())
    return "\n\n".join(
        [
            "What moves these numbers? Average test accuracy in %, and points above FedAvg, with "
            "one thing changed. Above, the split is drawn with seed 0 (± is over starts, cohorts "
            "and batches alone), pixels have mean 0 and deviation 1 (FEMNIST's rule: they are in "
            "[0, 1]), clients weigh by samples, 0.9 "
            "of the rows are for training, the importance is the square of the gradient (eq.5; the "
            "paper calls it an empirical Fisher), and FedCurv's penalty λ(θ − θ̂)ᵀF(θ − θ̂) has "
            f"λ = 1. The subset of Vehicle at hand has {train + test} of the paper's 43 695 "
            f"samples, {test} of them for testing: one is {100 / test:.2f} points. More cannot be "
            "had here, but fewer can.",
            markdown(rows, left=3),
            stability(runs),
        ]
    )


def stability(runs: Mapping[str, Run]) -> str:
    """What the kind of importance does to the steps along the penalty: η μ F must stay below 2."""
    largest = []
    seeds = runs["ablation-mnist-fisher"].experiment.seeds  # those that both runs have
    for file in ("mnist", "ablation-mnist-fisher"):
        run, label = runs[file], APFL[0]
        algorithm = names.make_algorithm(label, run.experiment.algorithms[label])
        F = max(
            np.max(record.state.server.F)
            for unit, record in zip(run.units, run.records)
            if unit.label == label and unit.seed in seeds
        )
        largest.append((float(F), float(algorithm.lr * algorithm.mu * F)))
    (square, step), (fisher, wild) = largest
    same = ", ".join(map(str, seeds))
    text = (
        f"On MNIST (seed {same}) the largest F is {square:.2f} as the square of the gradient "
        f"(ημF = {step:.3f}) and {fisher:.2f} as the empirical Fisher (ημF = {wild:.2f})"
    )
    if wild > 2 > step:
        text += ": beyond 2 the steps along the penalty grow, which is why its accuracy is lost"
    return text + "."


def averages_and_gains(run: Run, seeds: Sequence[int]) -> list[str]:
    """Of those seeds alone; – for a method that was not run."""
    own = [run.experiment.seeds.index(seed) for seed in seeds]
    labels = {unit.label for unit in run.units}
    found = [averages(run, m)[own] if m in labels else np.zeros(0) for m in COMPARED]
    return [spread(x) for x in (*found, *(gains(run, m)[own] for m in APFL))]


def claims(runs: Mapping[str, Run], data: Mapping[str, Setting]) -> str:
    """The paper's sentences on Figure 1, and what was measured."""
    lines = [
        "What the paper says of it, and what was measured. A claim holds if it does in every seed; the "
        f"paper gives no numbers for *near* and *far* (here: within {NEAR} points, or beyond), *much* "
        f"({MUCH} point), *hardly any* ({HARDLY} times), *twice* (1.8 to 2.2 times), *a large load* "
        f"({LOAD} times) and *most* (half).",
        "",
    ]
    found = {name: (runs[stem], stem) for stem, name in named(runs).items()}

    def of(*labels: str) -> list[tuple[str, Run, str]]:
        """Where all of these were run: (data set, run, stem)."""
        return [(name, *it) for name, it in found.items() if len(ran(it[0], labels)) == len(labels)]

    for name, run, _ in of(*(m for m in METHODS if m not in ABLATED)):
        mean = {m: averages(run, m) for m in ran(run)}
        others = [mean[m] for m in ("fedavg", *OTHERS)]
        order = ", ".join(
            f"{METHODS[m]} {mean[m].mean():.2f}"
            for m in sorted(mean, key=lambda m: -mean[m].mean())
        )
        start = 100 * run.curve("fedmeta-maml")[1][:, 0].mean()
        best = {METHODS[m]: mean[m] - np.max(others, 0) for m in APFL}
        lines.append(
            claim(
                f"APFL has the highest average of the federated methods, {name}",
                best,
                above=0,
                unit="points above the best other one",
                detail=f"{order}; FedMeta has {start:.2f} at the start, after one step of adaptation "
                "from untrained parameters",
            )
        )
    for name, run, _ in of(*OTHERS):
        text = f"The other methods do not improve much on FedAvg, {name}"
        lines.append(claim(text, {METHODS[m]: gains(run, m) for m in OTHERS}, below=MUCH))
    for name, run, stem in of(APFL[0], "centralised"):
        iid, where = above_iid(run, ran(run, APFL)), f"IID training in one place, {name}"
        if stem in SURPASSED:
            lines.append(claim(f"APFL comes far above {where}", iid, above=NEAR))
        else:
            lines.append(claim(f"APFL comes very near to {where}", iid, above=-NEAR, below=NEAR))
        if stem in FALLEN:
            low = above_iid(run, ("fedavg",))
            lines.append(claim(f"FedAvg falls far below {where}", low, below=-NEAR))
    for name, run, stem in of(APFL[0]):
        sent = {METHODS[m]: ratio(run, m, "bytes_down", "bytes_up") for m in ran(run, APFL)}
        kept = ", ".join(
            f"{METHODS[m]} {spread(if_kept(run, m, data[stem]))}" for m in ran(run, APFL)
        )
        detail = f"if clients kept F and were sent it only when it was renewed since they took part, {kept}"
        text = f"APFL needs hardly any extra communication, {name}"
        lines.append(claim(text, sent, below=HARDLY, unit=BYTES, detail=detail))
        shares = {
            what: {METHODS[m]: beside_fedavg(run, m, test) for m in ran(run, APFL)}
            for what, test in FARES.items()
        }
        higher, lower, _ = shares.values()
        gain = {m: 100 * x / np.maximum(x + lower[m], ROUNDING) for m, x in higher.items()}
        unit = "% gain, of the clients whose last accuracy differs"
        detail = "; ".join(
            f"{what}: " + ", ".join(f"{m} {spread(x)}" for m, x in of_all.items()) + " % of all"
            for what, of_all in shares.items()
        )
        lines.append(
            claim(f"Most clients gain by APFL, {name}", gain, above=50, unit=unit, detail=detail)
        )
    for name, run, _ in of("fedcurv"):
        text = f"FedCurv sends twice what FedAvg sends, {name}"
        times = {METHODS["fedcurv"]: ratio(run, "fedcurv", "bytes_down", "bytes_up")}
        lines.append(claim(text, times, above=1.8, below=2.2, unit=BYTES))
    for name, run, _ in of("fedmeta-maml"):
        text = f"FedMeta pays for its second derivatives, {name}"
        times = {METHODS["fedmeta-maml"]: ratio(run, "fedmeta-maml", "flops")}
        lines.append(claim(text, times, above=LOAD, unit="times FedAvg's operations"))
    return "\n".join(lines)


def beside_fedavg(run: Run, label: str, test: Callable[[Scores, Scores], np.ndarray]) -> np.ndarray:
    """Of the clients with test rows those that pass the test, of own and FedAvg's last scores, in %:
    (seeds,)."""
    own, base = (
        {unit.seed: r.scores[-1] for unit, r in zip(run.units, run.records) if unit.label == of}
        for of in (label, "fedavg")
    )
    return np.array([100 * test(s, base[seed])[s.n_test > 0].mean() for seed, s in own.items()])


def above_iid(run: Run, labels: Sequence[str]) -> dict[str, np.ndarray]:
    """Points of average accuracy above the centralised baseline, a seed each."""
    return {METHODS[m]: averages(run, m) - averages(run, "centralised") for m in labels}


def ratio(run: Run, label: str, *columns: str) -> np.ndarray:
    """A total after the last round, in times FedAvg's: (seeds,)."""

    def total(of: str) -> np.ndarray:
        rows = [record.rows[-1] for unit, record in zip(run.units, run.records) if unit.label == of]
        return np.array([sum(row[column] for column in columns) for row in rows], float)

    return total(label) / total("fedavg")


def if_kept(run: Run, label: str, data: Setting) -> np.ndarray:
    """Bytes in times FedAvg's, had every client kept the newest F that it was sent: (seeds,)."""
    spent = ratio(run, label, "bytes_down", "bytes_up")
    made, sizes = run.experiment, data.federation.train.sizes
    records = [r for unit, r in zip(run.units, run.records) if unit.label == label]
    for i, (seed, record) in enumerate(zip(made.seeds, records)):
        newest, has, spared, drawn = 0, dict[int, int](), 0, 0
        for t in range(record.round):
            for k in cohort(made.plan, sizes, t, seed)[0].tolist():
                drawn += 1
                spared += 0 < newest == has.get(k, 0)
                has[k] = newest
            if record.rows[t]["renewed"] == 1:
                newest = t + 1
        spent[i] -= spared / (2 * drawn)  # FedAvg sends w down and up: 2 of F's size for each drawn
    return spent


def apfl_above_fedavg(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found = {m: float(gains(runs["mnist"], m).mean()) for m in APFL}
    return min(found.values()) > 0, ", ".join(
        f"{METHODS[m]} {signed(x)} points" for m, x in found.items()
    )


CHECKS = {"APFL's average accuracy on MNIST is above FedAvg's": apfl_above_fedavg}
