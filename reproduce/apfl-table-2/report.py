"""APFL's Table 2: average accuracy for five values of λ and two of E, on Vehicle and MNIST."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedref.experiments.results import Run
from reproduce.claims import Finding, Place, claims_of, judge, report_claims
from reproduce.measures import at_point, average, count_tested
from reproduce.tables import Number, number_table, write_numbers

QUICK = {
    "seeds": [0],
    "sweep.epochs": [5],
    "sweep.lam": [0.0, 1.0],
    "mnist": {"rounds": 3},
    "vehicle": {"rounds": 6},
}

NAMES = {"vehicle": "Vehicle", "mnist": "MNIST"}
LAMBDAS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: (stem, E) → average accuracy in % for each λ, as [apfl table 2] prints them.
TOLD = {
    ("vehicle", 5): (88.65, 88.69, 88.67, 88.71, 88.59),
    ("vehicle", 20): (88.29, 88.24, 88.22, 88.31, 88.32),
    ("mnist", 5): (84.62, 84.66, 84.78, 84.93, 85.08),
    ("mnist", 20): (84.81, 84.92, 85.16, 85.42, 85.67),
}
#: The mean of the same over λ, as it is printed.
MEANS = {("vehicle", 5): 88.66, ("vehicle", 20): 88.28, ("mnist", 5): 84.81, ("mnist", 20): 85.20}
INITS = {"apfl-paper": "literal", "apfl-continuous": "continuous"}


class Block(NamedTuple):
    """A data set and E: init → λ → average accuracy in %, (seeds,)."""

    stem: str
    E: int
    found: Mapping[str, Mapping[float, np.ndarray]]
    rows: int = 0

    def change(self, label: str) -> np.ndarray:
        return self.found[label][1.0] - self.found[label][0.0]

    def averages_over_lambda(self, label: str) -> np.ndarray:
        """Accuracies over λ: (λ, seeds)."""
        return np.array([self.found[label][lam] for lam in sorted(self.found[label])])


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    blocks = blocks_of(runs)
    heads = ("data", "init", "E", "λ")
    numbers, means = [], []
    for block, m in [
        (b, m) for stem in NAMES for m in INITS for b in blocks if b.stem == stem if m in b.found
    ]:
        what, key = (NAMES[block.stem], INITS[m], str(block.E)), (block.stem, block.E)
        told, values = dict(zip(LAMBDAS, TOLD[key])), block.averages_over_lambda(m)
        numbers += [Number((*what, f"{x:g}"), y, told[x]) for x, y in block.found[m].items()]
        means.append(Number(what, values.mean(0), MEANS[key], more=(values.std(0, ddof=1),)))
    overall = [number._replace(what=(*number.what, "all")) for number in means]
    write_numbers(out / "numbers.csv", heads, numbers + overall)
    return {
        "averages": number_table(heads, numbers),
        "over_lambda": number_table(heads[:3], means, more=("deviation over λ",)),
        "claims": report_claims(findings(blocks), out),
    }


def blocks_of(runs: Mapping[str, Run]) -> list[Block]:
    blocks = []
    for stem in NAMES:
        sweep, there = runs[stem].experiment.sweep, {unit.label for unit in runs[stem].units}
        for E in sorted(sweep["epochs"]):
            found = {
                m: {
                    float(x): average(at_point(runs[stem], epochs=E, lam=x), m)
                    for x in sorted(sweep["lam"])
                }
                for m in INITS
                if m in there
            }
            blocks.append(Block(stem, int(E), found, count_tested(runs[stem])["rows"]))
    return blocks


# ---- the paper's sentences: the literal init decides, the other is beside it ---------------------


def findings(blocks: list[Block]) -> list[Finding]:
    """Judge the claims: of one E, of every E, and of the smallest beside the largest."""
    absent = [m for m in INITS if any(m not in block.found for block in blocks)]
    methods = {m: f"{init} init" for m, init in INITS.items()}
    places = [
        Place(b.stem, f"{NAMES[b.stem]}, E = {b.E}", b, methods, f"E = {b.E}", absent, rows=b.rows)
        for b in blocks
    ]
    by_data = [place._replace(name=NAMES[place.key]) for place in places]
    both = [
        last._replace(run=(first.run, last.run))
        for first, last in pairwise(by_data)
        if first.key == last.key
    ]
    kinds = {"each": places, "data": by_data, "both": both}
    every = [place._replace(kinds=[kind]) for kind, own in kinds.items() for place in own]
    return judge(claims_of("apfl-table-2", globals()), every)


def change_over_lambda(place: Place, label: str) -> np.ndarray:
    return place.run.change(label)


def range_over_lambda(place: Place, label: str) -> np.ndarray:
    return np.ptp(place.run.averages_over_lambda(label), 0)


def change_over_epochs(place: Place, label: str) -> np.ndarray:
    few, many = place.run
    return many.change(label) - few.change(label)
