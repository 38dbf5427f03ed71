"""APFL's Figures 1 (d) and 2 (d): CIFAR-10 with the CNN, apart from the others as it takes hours."""

from collections.abc import Mapping
from pathlib import Path

from fedref import plots
from fedref.experiments.results import Run
from reproduce.catalogue import find
from reproduce.claims import Place, claim_lines, claims_of, judge, read_claims, report_claims
from reproduce.measures import average, rename_methods
from reproduce.tables import Number, markdown, spread, write_numbers
from reproduce.writing import fill

QUICK = {  # a few rows and a small network: all of CIFAR-10 is a minute's evaluation
    "rounds": 2,
    "eval-every": 1,
    "clients-per-round": 2,
    "model.channels": [2, 3],
    "model.hidden": 8,
    "split.rule": "per-fedavg",
    "split.users": 10,
    "split.a": 10,
    "split.a-test": 4,
}

FIGURE_1, FIGURE_2, FIGURE_3 = (find(f"apfl-figure-{i}") for i in (1, 2, 3))
METHODS, RIVALS = FIGURE_1.module.METHODS, FIGURE_3.module.RIVALS
#: Its own claims: those of Figures 1 and 2 are judged with these figures' quantities.
FIGURES = {**vars(FIGURE_1.module), **vars(FIGURE_2.module)}
CLAIMS = [claim for claim in claims_of("apfl-cifar10", FIGURES) if "epochs" in claim.places]


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    found = {"cifar10": runs["cifar10"]}
    title, drawn = FIGURE_1.module.NAMES["cifar10"], rename_methods(runs["cifar10"], METHODS)
    plots.curves(drawn, out / "curves.png", title=title)
    figure_1 = fill(FIGURE_1, FIGURE_1.module.report(found, out, data_dir))
    figure_2 = fill(FIGURE_2, {"pictures": "", **FIGURE_2.module.parts(found)})
    own = judge(CLAIMS, places_of_epochs(runs))
    others = [*read_claims(out / "claims.csv"), *FIGURE_2.module.findings(found)]
    report_claims([*others, *own], out)
    return {
        "figure_1": figure_1.split("\n\n", 2)[2],
        "figure_2": figure_2.split("\n\n", 2)[2],
        "claims": claim_lines(own),
        **epochs(runs, out),
    }


def sort_by_epochs(runs: Mapping[str, Run]) -> list[Run]:
    return sorted(runs.values(), key=lambda run: run.experiment.epochs or 0)


def epochs(runs: Mapping[str, Run], out: Path) -> dict[str, str]:
    """Return what there is of Figure 3 (a), for those E that were run."""
    each = {f"E = {run.experiment.epochs}": run for run in sort_by_epochs(runs)}
    numbers = [
        Number((E, METHODS[m]), average(run, m))
        for E, run in each.items()
        for m in FIGURE_1.module.methods_of(run, FIGURE_3.module.METHODS)
    ]
    write_numbers(out / "epochs.csv", ("setting", "method"), numbers)
    rows = [["setting", "method", "average"], *([*n.what, spread(n.ours)] for n in numbers)]
    return {"each": " and ".join(each), "epochs": markdown(rows, left=2)}


def places_of_epochs(runs: Mapping[str, Run]) -> list[Place]:
    """Return those E of Figure 3 (a) that were run."""
    return [
        place._replace(key="epochs", name=f"{place.name}, E = {run.experiment.epochs}")
        for run in sort_by_epochs(runs)
        for place in FIGURE_1.module.places({"cifar10": run})
    ]
