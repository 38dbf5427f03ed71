"""APFL's Figure 1: average and maximum test accuracy of every method.

What it says is said of those data sets that it is given runs of: apfl-cifar10 uses it as well.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import (
    average,
    count_tested,
    final,
    maximum,
    rename_methods,
    seldom,
    unadapted_accuracy,
)
from reproduce.tables import (
    Number,
    name_quantities,
    number_table,
    show_pictures,
    show_signed,
    spread,
    write_numbers,
)

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
    "ablation-mnist-penalty": {"rounds": 10},
    "ablation-femnist-penalty": {"rounds": 4},
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


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    found = name_data_sets(runs)
    above = [
        Number((name, METHODS[m]), gains(runs[stem], m), ABOVE[stem])
        for stem, name in found.items()
        for m in methods_of(runs[stem], APFL)
    ]
    levels = [
        Number(
            (name, METHODS[m]), average(run, m), averages_in_paper(stem).get(m),
            more=(maximum(run, m), final(run, m)),
        )
        for stem, name in found.items()
        for run in [runs[stem]]
        for m in methods_of(run)
    ]  # fmt: skip
    data = {stem: load_experiment(runs[stem].experiment, Loader(data_dir)) for stem in found}
    for stem, name in found.items():
        told = {METHODS[m]: (value / 100, np.nan) for m, value in averages_in_paper(stem).items()}
        plots.bars(
            rename_methods(runs[stem], METHODS), out / f"{stem}.png", reference=told, title=name
        )
    heads = ("data", "method")
    maxima = [n._replace(ours=n.more[0], paper=None) for n in levels]
    quantities = {"average above FedAvg": above, "average": levels, "maximum": maxima}
    write_numbers(out / "numbers.csv", (*heads, "quantity"), name_quantities(quantities))
    return {
        "above": number_table(heads, above),
        "levels": number_table(heads, levels, ("maximum", "final")),
        "pictures": show_pictures(
            {
                f"{stem}.png": f"{name}: average and maximum test accuracy of every method"
                for stem, name in found.items()
            }
        ),
        "claims": report_claims(
            judge(claims_of("apfl-figure-1", globals()), places(runs, data)), out
        ),
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


# ---- the paper's sentences -----------------------------------------------------------------------


def share(place: Place, label: str, score: str, than: np.ufunc) -> np.ndarray:
    """Return the share of clients whose last score is greater or less than FedAvg's, in %: (seeds,).

    Of those clients that have test rows.
    """
    pairs = zip(place.run.records_of(label), place.run.records_of("fedavg"))
    scores = [(own.scores[-1], base.scores[-1]) for own, base in pairs]
    shares = [than(getattr(x, score), getattr(y, score))[x.n_test > 0] for x, y in scores]
    return np.array([100 * one.mean() for one in shares])


more_accurate = partial(share, score="accuracy", than=np.greater)
less_accurate = partial(share, score="accuracy", than=np.less)
lower_loss = partial(share, score="test_loss", than=np.less)


def net_gain(place: Place, label: str) -> np.ndarray:
    return more_accurate(place, label) - less_accurate(place, label)


def shared_alone(place: Place, label: str) -> np.ndarray:
    """Return the final accuracy of what the server sends: of APFL the shared parameters alone."""
    return unadapted_accuracy(place.run, label, place.data)


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


def others_share(place: Place) -> str:
    more, less = more_accurate(place, APFL[0]), less_accurate(place, APFL[0])
    return f"{spread(less)} % are less accurate, and {spread(100 - more - less)} % the same"


def apfl_above_fedavg(runs: Mapping[str, Run]) -> tuple[bool, str]:
    found = {m: float(gains(runs["mnist"], m).mean()) for m in APFL}
    return min(found.values()) > 0, ", ".join(
        f"{METHODS[m]} {show_signed(x)} points" for m, x in found.items()
    )


CHECKS = {"APFL's average accuracy on MNIST is above FedAvg's": apfl_above_fedavg}
