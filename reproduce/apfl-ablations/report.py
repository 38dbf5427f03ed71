"""APFL's numbers with one thing changed at a time, and the claims about such a change."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedref.experiments import names
from fedref.experiments.results import Run
from reproduce.catalogue import find
from reproduce.claims import Place, claim_lines, claims_of, judge, report_claims
from reproduce.measures import at_point, average, change, count_tested, part_of
from reproduce.tables import (
    Number,
    Values,
    markdown,
    number_table,
    show_number,
    spread,
    write_numbers,
)

USES = "apfl-figure-1"

FIGURE_1, FIGURE_2 = find(USES).module, find("apfl-figure-2").module
NAMES, METHODS, APFL, ABOVE = FIGURE_1.NAMES, FIGURE_1.METHODS, FIGURE_1.APFL, FIGURE_1.ABOVE
gains, name_data_sets, EARLY = FIGURE_1.gains, FIGURE_1.name_data_sets, FIGURE_2.EARLY
COMPARED = ("fedavg", "fedcurv", *APFL)
#: Experiment files that change one thing: (file, data, what they change, which key is swept).
ABLATIONS = (
    ("ablation-vehicle-size", "vehicle", "{} of the rows for training", "split.train-fraction"),
    ("ablation-vehicle-fisher", "vehicle", "empirical Fisher; FedCurv λ = ½", ""),
    ("ablation-vehicle-importance", "vehicle", "importance: {}", "importance"),
    ("ablation-vehicle-penalty", "vehicle", "no penalty: μ = 0", ""),
    ("ablation-split", "mnist", "the split of seed {}", "split.seed"),
    ("ablation-unit-pixels", "mnist", "pixels in [0, 1]", ""),
    ("ablation-uniform", "mnist", "clients weigh the same", ""),
    ("ablation-mnist-fisher", "mnist", "empirical Fisher; FedCurv λ = ½", ""),
    ("ablation-mnist-fisher-mu", "mnist", "empirical Fisher; APFL μ = ½", ""),
    ("ablation-mnist-importance", "mnist", "importance: {}", "importance"),
    ("ablation-mnist-penalty", "mnist", "no penalty: μ = 0", ""),
    ("ablation-femnist-importance", "femnist", "importance: {}", "importance"),
    ("ablation-femnist-penalty", "femnist", "no penalty: μ = 0", ""),
)
#: Other estimates of importance than the square of the gradient, by the names that APFL has for them.
KINDS = {"fisher": "the empirical Fisher", "si": "SI", "mas": "MAS"}
#: Where each kind of importance is on MNIST: (file, the point of its sweep, what it is).
IMPORTANCE: tuple[tuple[str, dict[str, str], str], ...] = (
    ("mnist", {}, "the square of the gradient"),
    ("ablation-mnist-fisher", {}, "the empirical Fisher"),
    ("ablation-mnist-fisher-mu", {}, "the empirical Fisher and μ = ½"),
    ("ablation-mnist-importance", {"importance": "si"}, "SI"),
    ("ablation-mnist-importance", {"importance": "mas"}, "MAS"),
)


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    starts, strengths = later_start(runs), penalties(runs)
    numbers = [n._replace(what=(*n.what, "z", what)) for what, each in starts.items() for n in each]
    numbers += [
        n._replace(what=(*n.what, "average")) for n in strengths if not np.isnan(n.ours).any()
    ]
    write_numbers(out / "numbers.csv", ("data", "method", "changed", "quantity"), numbers)
    last = runs["vehicle"].records[0].scores[-1]
    test, train = int(last.n_test.sum()), int(last.n_train.sum())
    seeds = runs["ablation-mnist-fisher"].experiment.seeds  # those that all of IMPORTANCE have
    largest = [
        largest_importance(at_point(runs[file], **point), what, seeds)
        for file, point, what in IMPORTANCE
        if file in runs
    ]
    rows = [["data", "method", "rounds", "z = 0", "z = 2", "z = 2 less z = 0"]]
    rows += [
        [*n.what, what, *map(spread, (n.ours, *n.more))]
        for what, each in starts.items()
        for n in each
    ]
    claims = claims_of("apfl-ablations", globals())
    of_starts = judge(claims, places_of_starts(starts, runs))
    of_strengths = judge(claims, place_of_strengths(strengths, runs))
    of_kinds = judge(claims, places_of_kinds(runs))
    of_penalty = judge(claims, places_of_penalty(runs))
    report_claims(of_kinds + of_starts + of_strengths + of_penalty, out)
    return {
        "rows": str(train + test),
        "tested": str(test),
        "one_row": f"{100 / test:.2f}",
        "changed": what_moves_them(runs),
        "fisher_seeds": ", ".join(map(str, seeds)),
        "largest": ", ".join(largest),
        "kind_claims": claim_lines(of_kinds),
        "starts": markdown(rows, left=3),
        "start_claims": claim_lines(of_starts),
        "strengths": number_table(("data", "method", "penalty"), strengths),
        "strength_claim": claim_lines(of_strengths),
        "penalty_claims": claim_lines(of_penalty),
    }


def with_ablation(runs: Mapping[str, Run], what: str) -> Iterator[tuple[str, Run, Run]]:
    """Yield each data set that has this ablation: (stem, Figure 1's run at its seeds, the ablation)."""
    for stem in name_data_sets(runs):
        if (changed := runs.get(f"ablation-{stem}-{what}")) is not None:
            yield stem, at_seeds(runs[stem], changed.experiment.seeds), changed


def at_seeds(run: Run, seeds: Sequence[int]) -> Run:
    return part_of(run, lambda unit: unit if unit.seed in seeds else None)


# ---- the kind of importance ----------------------------------------------------------------------


def places_of_kinds(runs: Mapping[str, Run]) -> list[Place]:
    """Return every data set, with the average of each kind less that of squared gradients."""
    places = []
    for stem, base, swept in with_ablation(runs, "importance"):
        gain = {
            kind: average(at_point(swept, importance=kind), APFL[0]) - average(base, APFL[0])
            for kind in swept.experiment.sweep["importance"]
        }
        more: dict[str, Any] = {
            "kinds": ["importance"],
            "absent": [kind for kind in KINDS if kind not in gain],
            **count_tested(base),
        }
        places.append(Place(stem, NAMES[stem], gain, KINDS, **more))
    return places


def gain_of_importance(place: Place, kind: str) -> Values:
    return place.run[kind]


# ---- z: rounds of FedAvg before the decomposition ------------------------------------------------


def later_start(runs: Mapping[str, Run]) -> dict[str, list[Number]]:
    """Return average accuracies in % with z = 0, and how far z = 2 is above them.

    Of the first rounds and of all, for every data set and init.
    """
    found: dict[str, list[Number]] = {"the first rounds": [], "all rounds": []}
    for stem, base, other in with_ablation(runs, "z"):
        for label in APFL:
            (t, y), (now, at_once) = base.curve(label), other.curve(label)
            same = np.intersect1d(t, now)  # in a quick run one of them is shorter
            for numbers, (first, last) in zip(found.values(), ((1, EARLY), (0, same[-1]))):
                rounds = same[(first <= same) & (same <= last)]
                late = 100 * y[:, np.isin(t, rounds)].mean(1)
                early = 100 * at_once[:, np.isin(now, rounds)].mean(1)
                what = (NAMES[stem], METHODS[label])
                numbers.append(Number(what, early, more=(late, late - early)))
    return found


def places_of_starts(found: Mapping[str, Sequence[Number]], runs: Mapping[str, Run]) -> list[Place]:
    """Return every data set, for the first rounds and for all."""
    rows = {name: count_tested(runs[stem])["rows"] for stem, name in name_data_sets(runs).items()}
    places = []
    for what, numbers in found.items():
        more = {n.what: n.more[1] for n in numbers}
        data = dict.fromkeys(n for n, _ in more)
        places += [Place(what, n, more, METHODS, rows=rows[n]) for n in data]
    return places


def gain_of_start(place: Place, label: str) -> Values:
    return place.run[place.name, METHODS[label]]


# ---- μ: the strength of the penalty --------------------------------------------------------------


def penalties(runs: Mapping[str, Run]) -> list[Number]:
    """Return the average accuracy in % at every strength of the penalty: APFL's μ, FedCurv's λ."""
    numbers = []
    for file, key, symbol, labels in (
        ("ablation-vehicle-mu", "mu", "μ", APFL),
        ("ablation-vehicle-curv", "lam", "λ", ("fedcurv",)),
    ):
        for label in labels if file in runs else ():
            for value in runs[file].experiment.sweep[key]:
                run, note = at_point(runs[file], **{key: value}), ""
                y = average(run, label)
                ended = [r.round for r in run.records_of(label) if r.status == "diverged"]
                if ended:
                    rounds = " and ".join(map(str, sorted(set(ended))))
                    note = f"diverged in {len(ended)} of {len(y)} seeds, after round {rounds}"
                    y = np.full(len(y), np.nan)
                what = (NAMES["vehicle"], METHODS[label], f"{symbol} = {value:g}")
                numbers.append(Number(what, y, comment=note))
    return numbers


def place_of_strengths(numbers: Sequence[Number], runs: Mapping[str, Run]) -> list[Place]:
    """Return Vehicle, and the range of the averages of each method over μ, where it did not diverge."""
    each: dict[str, list[Any]] = {}
    for n in numbers:
        each.setdefault(n.what[1], []).append(n.ours)
    apart = {m: np.ptp([y for y in ys if not np.isnan(y).any()], 0) for m, ys in each.items()}
    place = Place("strengths", NAMES["vehicle"], apart, METHODS, **count_tested(runs["vehicle"]))
    return [place] if apart else []


def range_over_mu(place: Place, label: str) -> Values:
    return place.run[METHODS[label]]


def places_of_penalty(runs: Mapping[str, Run]) -> list[Place]:
    """Return every data set, with its run of Figure 1 and the same without the penalty."""
    return [
        Place(stem, NAMES[stem], pair, METHODS, kinds=["penalty"], **count_tested(pair[0]))
        for stem, *pair in with_ablation(runs, "penalty")
    ]


def gain_of_penalty(place: Place, label: str) -> Values:
    with_it, without = (average(run, label) for run in place.run)
    return with_it - without


def change_saved_by_penalty(place: Place, label: str) -> Values:
    with_it, without = (change(run, label) for run in place.run)
    return without - with_it


def range_of_fedcurv(place: Place) -> str:
    curv = METHODS["fedcurv"]
    if curv not in place.run:
        return ""
    return f"{curv} {spread(place.run[curv])} over its λ where it did not diverge"


# ---- everything else -----------------------------------------------------------------------------


def what_moves_them(runs: Mapping[str, Run]) -> str:
    """Return a table of average accuracies, and APFL's gain, if one thing is done otherwise."""
    rows = [["data", "seeds", "changed", *(METHODS[m] for m in COMPARED)]]
    rows[0] += [f"{METHODS[m]}, above FedAvg" for m in APFL]
    for stem, name in name_data_sets(runs).items():
        base, changed = runs[stem], alternatives(runs, stem)
        if not changed:
            continue
        paper = [show_number(FIGURE_1.averages_in_paper(stem).get(m)) for m in COMPARED]
        rows.append([name, "–", "(in the paper)", *paper, *[show_number(ABOVE[stem])] * 2])
        lines = [("nothing: as in Figure 1", base, base.experiment.seeds)]
        if len(base.experiment.seeds) > 1:  # what a run of one seed is to be set beside
            lines.append(("nothing: as in Figure 1", base, base.experiment.seeds[:1]))
        lines += [(what, run, run.experiment.seeds) for what, run in changed.items()]
        rows += [
            [name, ", ".join(map(str, seeds)), what, *averages_and_gains(run, seeds)]
            for what, run, seeds in lines
        ]
    return markdown(rows, left=3)


def alternatives(runs: Mapping[str, Run], stem: str) -> dict[str, Run]:
    """Return what is changed → the run."""
    found = {}
    for file, data, what, key in ABLATIONS:
        if data == stem and file in runs:
            values = runs[file].experiment.sweep[key] if key else [None]
            for value in values:
                found[what.format(value)] = at_point(runs[file], **{key: value} if key else {})
    return found


def averages_and_gains(run: Run, seeds: Sequence[int]) -> list[str]:
    """Return those of these seeds alone; – for a method that was not run."""
    own = [run.experiment.seeds.index(seed) for seed in seeds]
    labels = {unit.label for unit in run.units}
    found = [average(run, m)[own] if m in labels else np.zeros(0) for m in COMPARED]
    above = [gains(run, m)[own] if "fedavg" in labels else np.zeros(0) for m in APFL]
    return [spread(x) for x in (*found, *above)]


def largest_importance(run: Run, what: str, seeds: Sequence[int]) -> str:
    """Return what the kind of importance does to the steps along the penalty."""
    label = APFL[0]
    algorithm: Any = names.make_algorithm(label, run.experiment.algorithms[label])
    F = max(
        np.max(record.state.server.F) for unit, record in run.units_of(label) if unit.seed in seeds
    )
    each = average(run, label)[[run.experiment.seeds.index(seed) for seed in seeds]]
    return (
        f"{F:.2f} with {what} (ημF = {algorithm.lr * algorithm.mu * F:.3f}, average accuracy "
        f"{spread(each)})"
    )
