"""What moves APFL's numbers: one thing changed at a time, and the claims that are about such a change."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedref.experiments import names
from fedref.experiments.results import Run
from fedref.reproduction import (
    Number,
    at,
    claim,
    find,
    listed,
    markdown,
    number_table,
    shown,
    spread,
    write_numbers,
)

TITLE = "APFL: what moves its numbers"
PAPER = (
    "APFL, §3.2, §4.1 and §4.2.2: the runs of Figure 1 (a), (b) and (c) beside the same with one thing "
    "changed – data, split, weights, kind of importance, the round in which the decomposition starts "
    "(z), and the strength of the penalty (μ)."
)
USES = "apfl-figure-1"

FIGURE_1, FIGURE_2 = find(USES).module, find("apfl-figure-2").module
NAMES, METHODS, APFL, ABOVE = FIGURE_1.NAMES, FIGURE_1.METHODS, FIGURE_1.APFL, FIGURE_1.ABOVE
averages, averages_told, gains = FIGURE_1.averages, FIGURE_1.averages_told, FIGURE_1.gains
named, EARLY = FIGURE_1.named, FIGURE_2.EARLY
COMPARED = ("fedavg", "fedcurv", *APFL)
#: Experiment files that change one thing: (file, data, what they change, which key is swept).
ABLATIONS = (
    ("ablation-vehicle-size", "vehicle", "{} of the rows for training", "split.train-fraction"),
    ("ablation-vehicle-fisher", "vehicle", "empirical Fisher; FedCurv λ = ½", ""),
    ("ablation-split", "mnist", "the split of seed {}", "split.seed"),
    ("ablation-unit-pixels", "mnist", "pixels in [0, 1]", ""),
    ("ablation-uniform", "mnist", "clients weigh the same", ""),
    ("ablation-mnist-fisher", "mnist", "empirical Fisher; FedCurv λ = ½", ""),
    ("ablation-mnist-fisher-mu", "mnist", "empirical Fisher; APFL μ = ½", ""),
)
#: The paper's own widest range of average accuracy over a hyperparameter, λ in Table 2, is 0.86 points.
NARROW = find("apfl-table-2").module.NARROW


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    starts, strengths = later_start(runs), penalties(runs)
    heads = ("data", "method", "changed")
    numbers = [n._replace(what=(*n.what, "z", what)) for what, each in starts.items() for n in each]
    numbers += [
        n._replace(what=(*n.what, "average")) for n in strengths if not np.isnan(n.ours).any()
    ]
    write_numbers(out / "numbers.csv", (*heads, "quantity"), numbers)
    parts = [what_moves_them(runs)]
    if starts:
        parts += starts_text(starts)
    if strengths:
        parts += strengths_text(strengths)
    return "\n\n".join(parts)


# ---- z: rounds of FedAvg before the decomposition ------------------------------------------------


def later_start(runs: Mapping[str, Run]) -> dict[str, list[Number]]:
    """Average accuracy in %, of the first rounds and of all: what it is with z = 0, and how many points
    z = 2 is above that, for every data set and init."""
    found: dict[str, list[Number]] = {"the first rounds": [], "all rounds": []}
    for stem, name in named(runs).items():
        if (other := runs.get(f"ablation-{stem}-z")) is None:
            continue
        for label in APFL:
            (t, y), (now, at_once) = runs[stem].curve(label), other.curve(label)
            seeds = [runs[stem].experiment.seeds.index(seed) for seed in other.experiment.seeds]
            same = np.intersect1d(t, now)  # in a quick run one of them is shorter
            for numbers, (first, last) in zip(found.values(), ((1, EARLY), (0, same[-1]))):
                rounds = same[(first <= same) & (same <= last)]
                late = 100 * y[seeds][:, np.isin(t, rounds)].mean(1)
                early = 100 * at_once[:, np.isin(now, rounds)].mean(1)
                numbers.append(Number((name, METHODS[label]), early, more=(late, late - early)))
    return found if any(found.values()) else {}


def starts_text(found: Mapping[str, Sequence[Number]]) -> list[str]:
    rows = [["data", "method", "rounds", "z = 0", "z = 2", "z = 2 less z = 0"]]
    rows += [
        [*n.what, what, *map(spread, (n.ours, *n.more))]
        for what, each in found.items()
        for n in each
    ]
    lines = []
    for what, numbers in found.items():
        more = {n.what: n.more[1] for n in numbers}
        for name in dict.fromkeys(name for name, _ in more):
            lines.append(
                claim(
                    f"Rounds of FedAvg before the decomposition help in {what}, {name}",
                    **FIGURE_1.compared(lambda m: more[name, METHODS[m]], APFL[0], APFL[1:]),  # noqa: B023
                    above=0,
                    unit="points, z = 2 less z = 0",
                )
            )
    return [
        "## Rounds of FedAvg before the decomposition",
        "The paper (§3.2): a simply trained global model is a better start of the decomposition, which "
        "raises accuracy at first. With z = 0 there are no rounds of FedAvg before. Average test accuracy in "
        f"% with the same seeds; *the first rounds* are 1 to {EARLY}, our choice:",
        markdown(rows, left=3),
        "\n".join(lines),
    ]


# ---- μ: the strength of the penalty --------------------------------------------------------------


def penalties(runs: Mapping[str, Run]) -> list[Number]:
    """Average accuracy in % at every strength of the penalty: of APFL's μ, and of FedCurv's λ."""
    numbers = []
    for file, key, symbol, labels in (
        ("ablation-vehicle-mu", "mu", "μ", APFL),
        ("ablation-vehicle-curv", "lam", "λ", ("fedcurv",)),
    ):
        for label in labels if file in runs else ():
            run = runs[file]
            for value in run.experiment.sweep[key]:
                records = run.records_of(label, **{key: value})
                y, note = 100 * run.curve(label, **{key: value})[1].mean(1), ""
                if ended := [record.round for record in records if record.status == "diverged"]:
                    rounds = " and ".join(map(str, sorted(set(ended))))
                    note = f"diverged in {len(ended)} of {len(y)} seeds, after round {rounds}"
                    y = np.full(len(y), np.nan)
                what = (NAMES["vehicle"], METHODS[label], f"{symbol} = {value:g}")
                numbers.append(Number(what, y, comment=note))
    return numbers


def strengths_text(numbers: Sequence[Number]) -> list[str]:
    each: dict[str, list[np.ndarray]] = {}
    for n in numbers:
        each.setdefault(n.what[1], []).append(np.asarray(n.ours))
    apart = {m: np.ptp([y for y in ys if not np.isnan(y).any()], 0) for m, ys in each.items()}
    curv = METHODS["fedcurv"]
    return [
        "## The strength of the penalty",
        "The paper (§4.2.2) infers from FedCurv and APFL in Figure 1, both with μ = 1, that APFL is "
        "robust to μ. Here μ is varied on Vehicle, and FedCurv's λ – λ(θ − θ̂)ᵀF(θ − θ̂) is twice APFL's "
        "(μ/2)(w_S − wᵗ_S)ᵀF(w_S − wᵗ_S) at λ = μ. Average test accuracy in %:",
        number_table(("data", "method", "penalty"), numbers),
        claim(
            f"APFL is robust to μ, {NAMES['vehicle']}",
            **FIGURE_1.compared(lambda m: apart[METHODS[m]], APFL[0], APFL[1:]),
            below=NARROW,
            unit="points, the largest less the smallest average over μ",
            detail=f"{NARROW} point is the paper's own widest range over λ in Table 2, 0.86, rounded up"
            + (
                f"; {listed({curv: apart[curv]})} over its λ where it did not diverge"
                if curv in apart
                else ""
            ),
        ),
    ]


# ---- everything else -----------------------------------------------------------------------------


def alternatives(runs: Mapping[str, Run], stem: str) -> dict[str, Run]:
    """What is changed → the run."""
    found = {}
    for file, data, what, key in ABLATIONS:
        if data != stem or file not in runs:
            continue
        if key:
            for value in runs[file].experiment.sweep[key]:
                found[what.format(value)] = at(runs[file], **{key: value})
        else:
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
        lines = [("nothing: as in Figure 1", base, base.experiment.seeds)]
        if len(base.experiment.seeds) > 1:  # what a run of one seed is to be set beside
            lines.append(("nothing: as in Figure 1", base, base.experiment.seeds[:1]))
        lines += [(what, run, run.experiment.seeds) for what, run in changed.items()]
        rows += [
            [name, ", ".join(map(str, seeds)), what, *averages_and_gains(run, seeds)]
            for what, run, seeds in lines
        ]
    last = runs["vehicle"].records[0].scores[-1]
    test, train = int(last.n_test.sum()), int(last.n_train.sum())
    return "\n\n".join(
        [
            "Average test accuracy in %, and points above FedAvg, with "
            "one thing changed. In Figure 1, the split is drawn with seed 0 (± is over starts, cohorts "
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
    """What the kind of importance does to the steps along the penalty."""
    seeds = runs["ablation-mnist-fisher"].experiment.seeds  # those that all of them have
    parts = []
    for file, what in (
        ("mnist", "the square of the gradient"),
        ("ablation-mnist-fisher", "the empirical Fisher"),
        ("ablation-mnist-fisher-mu", "the empirical Fisher and μ = ½"),
    ):
        if file in runs:
            run, label = runs[file], APFL[0]
            algorithm: Any = names.make_algorithm(label, run.experiment.algorithms[label])
            F = max(
                np.max(record.state.server.F)
                for unit, record in run.units_of(label)
                if unit.seed in seeds
            )
            average = averages(run, label)[[run.experiment.seeds.index(seed) for seed in seeds]]
            parts.append(
                f"{F:.2f} with {what} (ημF = {algorithm.lr * algorithm.mu * F:.3f}, average accuracy "
                f"{spread(average)})"
            )
    return (
        "A step along the penalty multiplies w_S − wᵗ_S by 1 − ημF, which makes it larger where ημF is "
        f"beyond 2. On MNIST (seed {', '.join(map(str, seeds))}, literal init) the largest F at the "
        f"end is {', '.join(parts)}."
    )


def averages_and_gains(run: Run, seeds: Sequence[int]) -> list[str]:
    """Of those seeds alone; – for a method that was not run."""
    own = [run.experiment.seeds.index(seed) for seed in seeds]
    labels = {unit.label for unit in run.units}
    found = [averages(run, m)[own] if m in labels else np.zeros(0) for m in COMPARED]
    above = [gains(run, m)[own] if "fedavg" in labels else np.zeros(0) for m in APFL]
    return [spread(x) for x in (*found, *above)]
