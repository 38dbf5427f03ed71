"""APFL's Figure 2: training loss and test accuracy per round, with the importance updates."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.experiments.results import Run
from reproduce.catalogue import find
from reproduce.claims import Finding, Place, claim_lines, claims_of, judge, report_claims
from reproduce.measures import change, final, how_often, rename_methods
from reproduce.tables import (
    Number,
    name_quantities,
    number_table,
    show_pictures,
    spread,
    write_numbers,
)

USES = "apfl-figure-1"

FIGURE_1 = find(USES).module
STEMS, METHODS, APFL = FIGURE_1.STEMS, FIGURE_1.METHODS, FIGURE_1.APFL
name_data_sets, methods_of = FIGURE_1.name_data_sets, FIGURE_1.methods_of
#: The last round that counts as early training.
EARLY = 10
#: The paper's number of importance updates, without the three preset ones [apfl §4.2.1].
RENEWALS = 1
#: A training loss is high above this fraction of the mean loss of the untrained parameters.
HIGH = 0.5
HEADS = ("data", "method")


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    pictures = {}
    for stem, name in name_data_sets(runs).items():
        plots.curves(rename_methods(runs[stem], METHODS), out / f"{stem}.png", title=name)
        pictures[f"{stem}.png"] = f"{name}: training loss and test accuracy per round"
    write_numbers(out / "numbers.csv", (*HEADS, "quantity"), name_quantities(measure_all(runs)))
    claims = report_claims(findings(runs), out)
    return {"pictures": show_pictures(pictures), **parts(runs), "claims": claims}


def findings(runs: Mapping[str, Run]) -> list[Finding]:
    return judge(claims_of("apfl-figure-2", globals()), FIGURE_1.places(runs))


def measure_all(runs: Mapping[str, Run]) -> dict[str, list[Number]]:
    """Return renewals, changes of accuracy and final losses, for every data set and method."""
    each = [
        ((name, METHODS[m]), runs[stem], m)
        for stem, name in name_data_sets(runs).items()
        for m in methods_of(runs[stem])
    ]
    return {
        "triggered renewals": [
            Number(what, count_renewals(run, m), RENEWALS) for what, run, m in each if m in APFL
        ],
        "change of accuracy between evaluations": [
            Number(what, change(run, m)) for what, run, m in each
        ],
        "final training loss": [
            Number(what, final(run, m, "train_loss"), digits=4) for what, run, m in each
        ],
    }


def parts(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return the tables and claims of report.md; apfl-cifar10 uses them, too."""
    tables = (number_table(HEADS, numbers) for numbers in measure_all(runs).values())
    return {
        **dict(zip(("renewals", "changes", "losses"), tables)),
        "every": how_often(runs.values()),
        "claims": claim_lines(findings(runs)),
    }


# ---- what is read off the curves -----------------------------------------------------------------


def count_renewals(run: Run, label: str) -> np.ndarray:
    """Return how often importance is renewed outside the preset rounds z−1, z, z+1: (seeds,)."""
    z = int(run.experiment.algorithms[label].get("z", 2))
    flags = [
        [row.get("renewed") == 1 for row in record.rows[:-1]] for record in run.records_of(label)
    ]  # not the last row: no round follows that would renew it
    return np.array([float(sum(abs(t - z) > 1 for t in np.flatnonzero(f))) for f in flags])


def first_round_at_loss_of(run: Run, label: str, other: str = "fedavg") -> np.ndarray:
    """Return the first round of `label` with at most the final training loss of `other`: (seeds,).

    Where no round has so low a loss, it is the round after the last one.
    """
    t, loss = run.curve(label, "train_loss")
    low = loss <= final(run, other, "train_loss")[:, None]
    return np.where(low.any(1), t[low.argmax(1)], t[-1] + 1).astype(float)


# ---- quantities of claims ------------------------------------------------------------------------


def times_triggered(place: Place, label: str) -> np.ndarray:
    return count_renewals(place.run, label)


def rounds_to_fedavg(place: Place, label: str) -> np.ndarray:
    return first_round_at_loss_of(place.run, label)


def rounds_behind_apfl(place: Place, label: str) -> np.ndarray:
    """Return how many rounds before a method APFL reaches the method's final loss: (seeds,)."""
    run = place.run
    return first_round_at_loss_of(run, label, label) - first_round_at_loss_of(run, APFL[0], label)


def left_high(place: Place, label: str) -> np.ndarray:
    """Return the share of clients whose final training loss is high, in %: (seeds,)."""
    start = place.run.curve(label, "train_loss")[1][:, 0]
    scores = [record.scores[-1] for record in place.run.records_of(label)]
    return np.array([100 * np.mean(s.train_loss > HIGH * x) for s, x in zip(scores, start)])


def early(place: Place, label: str, first: int = 1) -> np.ndarray:
    """Return the lead over FedAvg in mean accuracy of rounds `first` to EARLY, in points: (seeds,)."""
    (t, y), (_, base) = place.run.curve(label), place.run.curve("fedavg")
    return 100 * (y - base)[:, (first <= t) & (t <= EARLY)].mean(1)


def start_above_fedavg(place: Place) -> str:
    """Return why FedMeta's training cannot be judged (its start is too good); "" if it can."""
    start, end = place.run.curve("fedmeta-maml")[1][:, 0].mean(), final(place.run, "fedavg").mean()
    if 100 * start <= end:
        return ""
    return (
        f"FedMeta's untrained start, adapted by one step, has {100 * start:.2f} %, which is above "
        f"FedAvg's final {end:.2f} %"
    )


def with_the_start(place: Place) -> str:
    return (
        "FedMeta adapts before it is tested, untrained in round 0: with that round "
        f"{spread(early(place, 'fedmeta-maml', 0))}"
    )
