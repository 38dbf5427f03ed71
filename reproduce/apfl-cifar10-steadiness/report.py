"""APFL's Figure 2 (d) with an evaluation in every round, so that steadiness can be judged."""

from collections.abc import Mapping
from pathlib import Path

from fedref import plots
from fedref.experiments.results import Run
from reproduce.catalogue import find
from reproduce.claims import claims_of, judge, report_claims
from reproduce.measures import average, rename_methods
from reproduce.tables import Number, name_quantities, number_table, write_numbers

LARGE = find("apfl-cifar10").module
FIGURE_1, FIGURE_2 = LARGE.FIGURE_1.module, LARGE.FIGURE_2.module
QUICK = LARGE.QUICK
HEADS = ("data", "method")


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    name, run = FIGURE_1.NAMES["cifar10"], runs["cifar10"]
    plots.curves(rename_methods(run, FIGURE_1.METHODS), out / "curves.png", title=name)
    changes = [FIGURE_2.unrest(run, name, label) for label in run.experiment.algorithms]
    levels = [
        Number((name, FIGURE_1.METHODS[label]), average(run, label))
        for label in run.experiment.algorithms
    ]
    measured = {"change of accuracy between evaluations": changes, "average": levels}
    write_numbers(out / "numbers.csv", (*HEADS, "quantity"), name_quantities(measured))
    claims = judge(claims_of("apfl-cifar10-steadiness", vars(FIGURE_2)), FIGURE_1.places(runs))
    return {
        "changes": number_table(HEADS, changes),
        "levels": number_table(HEADS, levels),
        "claims": report_claims(claims, out),
    }
