"""APFL's Table 2: average accuracy for five values of λ and two of E, on Vehicle and MNIST."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedref.experiments.results import Run
from fedref.plots.style import IN_PAPER
from reproduce.claims import Finding, Place, claims_of, judge, report_claims
from reproduce.measures import at_point, average, count_tested
from reproduce.pictures import Panel, draw_panels, look_of
from reproduce.tables import Number, number_table, show_signed, spread, write_numbers

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
#: The same over λ: mean and standard deviation (divided by the number less one).
TOLD_OVER = {
    ("vehicle", 5): (88.66, 0.05),
    ("vehicle", 20): (88.28, 0.04),
    ("mnist", 5): (84.81, 0.19),
    ("mnist", 20): (85.20, 0.35),
}
INITS = {"apfl-paper": "literal", "apfl-continuous": "continuous"}


class Block(NamedTuple):
    """A data set and E: init → λ → average accuracy in %, (seeds,)."""

    stem: str
    E: int
    found: Mapping[str, Mapping[float, np.ndarray]]
    rows: int = 0

    @property
    def paper_averages(self) -> tuple[float, ...]:
        return TOLD[self.stem, self.E]

    @property
    def told_change(self) -> float:
        """λ = 1 less λ = 0 in the paper."""
        return self.paper_averages[-1] - self.paper_averages[0]

    def change(self, label: str) -> np.ndarray:
        return self.found[label][1.0] - self.found[label][0.0]

    def averages_over_lambda(self, label: str) -> np.ndarray:
        """Accuracies over λ: (λ, seeds)."""
        return np.array([self.found[label][lam] for lam in sorted(self.found[label])])


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    blocks = blocks_of(runs)
    heads = ("data", "init", "E", "λ")
    each = [
        (b, m) for stem in NAMES for m in INITS for b in blocks if b.stem == stem if m in b.found
    ]
    numbers = [line(block, m, lam) for block, m in each for lam in block.found[m]]
    every = [over_lambda(block, m) for block, m in each]
    means = [number._replace(what=(*number.what, "all")) for number in every]
    write_numbers(out / "numbers.csv", heads, numbers + means)
    draw(blocks, out / "lambda.png")
    return {
        "averages": number_table(heads, numbers),
        "over_lambda": number_table(heads[:3], every, more=("deviation over λ",)),
        "claims": "\n".join([report_claims(findings(blocks), out), *renewals(runs)]),
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


def line(block: Block, label: str, lam: float) -> Number:
    told, comment = block.paper_averages[LAMBDAS.index(lam)], ""
    if lam and (zero := block.found[label].get(0.0)) is not None:
        paper = show_signed(told - block.paper_averages[0])
        comment = f"{spread(block.found[label][lam] - zero)} from λ = 0 (paper {paper})"
    what = (NAMES[block.stem], INITS[label], str(block.E), f"{lam:g}")
    return Number(what, block.found[label][lam], told, comment)


def over_lambda(block: Block, label: str) -> Number:
    """Return the mean over λ, and its deviation."""
    values, (mean, deviation) = block.averages_over_lambda(label), TOLD_OVER[block.stem, block.E]
    what, comment = (
        (NAMES[block.stem], INITS[label], str(block.E)),
        f"deviation in the paper {deviation}",
    )
    return Number(what, values.mean(0), mean, comment, (values.std(0, ddof=1),))


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


def beside_the_seeds(place: Place) -> str:
    over = place.run.averages_over_lambda("apfl-paper")
    return (
        f"paper {show_signed(place.run.told_change)}; the means of all λ lie within "
        f"{np.ptp(over.mean(1)):.2f} points, the seeds of λ = 0 within {np.ptp(over[0]):.2f}"
    )


def paper_of_both(place: Place) -> str:
    few, many = place.run
    return f"paper {show_signed(many.told_change - few.told_change)}"


def renewals(runs: Mapping[str, Run]) -> list[str]:
    """Return a line for each data set and init: how often the importance is sent."""
    lines = []
    for stem in NAMES:
        for label in (m for m in INITS if m in {unit.label for unit in runs[stem].units}):
            counts = [
                sum(row.get("renewed") == 1 for row in record.rows[:-1])
                for record in runs[stem].records_of(label)
            ]
            times = " to ".join(map(str, sorted({min(counts), max(counts)})))
            lines.append(
                f"- λ can only matter from the second renewal of the importance on: a run on "
                f"{NAMES[stem]} ({INITS[label]} init) has {times} renewals, the preset ones included."
            )
    return lines


def draw(blocks: list[Block], path: Path) -> None:
    """Draw a panel for each data set and E: accuracy over λ, the paper's as an open sign."""
    looks = {f"ours, {init} init": look_of(i, 1) for i, init in enumerate(INITS.values())}
    looks["in the paper"] = {
        "color": "black", "marker": "D", "markerfacecolor": "white", "linestyle": IN_PAPER,
    }  # fmt: skip
    panels = []
    for block in blocks:
        lines = {
            f"ours, {INITS[m]} init": {x + apart: y for x, y in block.found[m].items()}
            for m, apart in zip(INITS, (-0.015, 0.015))  # so that both bars are seen
            if m in block.found
        }
        lines["in the paper"] = dict(zip(LAMBDAS, map(np.array, block.paper_averages)))
        title = f"{NAMES[block.stem]}, E = {block.E}"
        panels.append(Panel(title, "forgetting coefficient λ", lines, LAMBDAS, margin=0.15))
    seeds = max(len(y) for block in blocks for each in block.found.values() for y in each.values())
    draw_panels(path, panels, "average test accuracy (%)", looks=looks, bars=seeds)
