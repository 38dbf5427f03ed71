"""Per-FedAvg: the loss after every round, and what several inner steps change."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from reproduce.catalogue import find
from reproduce.claims import Place, claims_of, judge, report_claims
from reproduce.measures import at_point, final, rename_methods, total, unadapted_accuracy
from reproduce.tables import Number, number_table, show_number, write_numbers

QUICK = {
    "seeds": [0],
    "rounds": 8,
    "fluctuation": {"eval-every": 1},
    "inner-steps": {
        "rounds": 4,
        "eval-every": 2,
        "sweep.inner-steps": [1, 3],
        "sweep.split.seed": [0],
    },
}

METHODS, BOTH = (getattr(find("per-fedavg-table").module, name) for name in ("METHODS", "BOTH"))
TAU = 10  # local steps where the paper sees it
FLUCTUATES = 300  # rounds after which the paper sees the loss fluctuate
TITLE = f"MNIST, τ = {TAU}, α = 0.01, evaluated after every round"


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    run = runs["inner-steps"]
    data = load_experiment(run.experiment, Loader(data_dir))
    steps = run.experiment.sweep["inner-steps"]
    numbers = [line(run, m, nu, data) for m in run.experiment.algorithms for nu in steps]
    heads = ("method", "ν")
    write_numbers(out / "numbers.csv", heads, numbers)
    fluctuation = at_point(runs["fluctuation"], steps=TAU)
    plots.curves(
        rename_methods(fluctuation, METHODS), out / f"fluctuation-tau{TAU}.png", title=TITLE
    )
    place = Place("", f"τ = {TAU}, α = 0.01", fluctuation, METHODS)
    return {
        "claims": report_claims(judge(claims_of("per-fedavg-steps", globals()), [place]), out),
        "numbers": number_table(heads, numbers, more=("before adaptation", "above ν = 1")),
    }


def line(run: Run, label: str, nu: int, data: LoadedExperiment) -> Number:
    """Return one method with ν inner steps."""
    own, one = at_point(run, inner_steps=nu), at_point(run, inner_steps=1)
    y, base = final(own, label), final(one, label)
    times = total(own, label, "flops")[0] / total(one, label, "flops")[0]
    loss = float(final(own, label, "train_loss").mean())
    comment = (
        f"{show_number(times)} times the operations; final training loss {show_number(loss, 3)}"
    )
    more = (unadapted_accuracy(own, label, data), y - base)
    return Number((METHODS[label], str(nu)), y, None, comment, more)


def late_losses(run: Run, label: str) -> np.ndarray:
    """Return the training losses after the paper's round 300: (seeds, R)."""
    t, loss = run.curve(label, "train_loss")
    return loss[:, t >= min(FLUCTUATES, t[-1] - 1)]


def rises(place: Place, label: str) -> np.ndarray:
    """Return how many of those rounds raise the loss, in %: (seeds,)."""
    return 100 * np.mean(np.diff(late_losses(place.run, label), axis=1) > 0, axis=1)


def sizes(place: Place) -> str:
    """Return how much the loss rises, round by round."""
    found = []
    for label in BOTH:
        loss = late_losses(place.run, label)
        found.append(
            f"{METHODS[label]} by {max(float(np.diff(loss, axis=1).max()), 0.0):.4f} at most, while it "
            f"goes from {loss[:, 0].mean():.3f} to {loss[:, -1].mean():.3f}"
        )
    return "it rises " + "; ".join(found)
