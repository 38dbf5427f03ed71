"""Per-FedAvg: the loss after every round, and what several inner steps change."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedref import plots
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from fedref.reproduction import (
    Number,
    at,
    claim,
    find,
    number_table,
    renamed,
    shown,
    totals,
    unadapted,
    write_numbers,
)

TITLE = "Per-FedAvg: the loss round by round, and several inner steps"
PAPER = (
    "Per-FedAvg, §5: *after about 300 rounds the loss visibly fluctuates*; and §3.1, which says that the "
    "formulation extends to users who take several gradient steps, and has no experiment of it. MNIST, "
    "MLP and users as in its table, τ = 10, α = 0.01, which are where it speaks of overfitting; 600 and "
    "200 rounds, one seed."
)
QUICK = {
    "rounds": 8,
    "fluctuation": {"eval-every": 1},
    "inner-steps": {"rounds": 4, "eval-every": 2, "sweep.inner-steps": [1, 3]},
}

METHODS = find("per-fedavg-table").module.METHODS
BOTH = find("per-fedavg-table").module.BOTH
TAUS = (10,)  # local steps where the paper sees it
OFTEN = 20  # % of the rounds that must be rises
FLUCTUATES = 300  # rounds after which the paper sees the loss fluctuate


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> str:
    run = runs["inner-steps"]
    data = load_experiment(run.experiment, Loader(data_dir))
    numbers = [line(run, m, nu, data) for m in run.experiment.algorithms for nu in steps(run)]
    heads = ("method", "ν")
    write_numbers(out / "numbers.csv", heads, numbers)
    pictures = []
    for tau in TAUS:
        file = f"fluctuation-tau{tau}.png"
        own = renamed(at(runs["fluctuation"], steps=tau), METHODS)
        title = f"MNIST, τ = {tau}, α = 0.01, evaluated after every round"
        plots.curves(own, out / file, title=title)
        pictures.append(f"![{title}: training loss and test accuracy]({file})")
    lines = [
        f"What the paper says of it, and what was measured. It gives no size: that more than {OFTEN} % of "
        "the rounds are rises is our choice of what can be seen in a curve.",
        "",
        *(fluctuation(at(runs["fluctuation"], steps=tau), tau) for tau in TAUS),
    ]
    return "\n\n".join(
        [
            "\n".join(lines),
            *pictures,
            "ν inner steps of size α before the meta-gradient, each on a batch of its own, and ν steps "
            "before a user is tested. Final test accuracy in %, τ = 10; *before* is without any step; the "
            "comment has what a round costs beside one inner step.",
            number_table(heads, numbers, more=("before adaptation", "above ν = 1")),
        ]
    )


def steps(run: Run) -> list[int]:
    return list(run.experiment.sweep["inner-steps"])


def line(run: Run, label: str, nu: int, data: LoadedExperiment) -> Number:
    """One method with ν inner steps."""
    own, one = at(run, inner_steps=nu), at(run, inner_steps=1)
    y, base = (100 * part.curve(label)[1][:, -1] for part in (own, one))
    before = unadapted(own, label, data)
    work = [totals(part, label, "flops")[0] for part in (own, one)]
    loss = own.curve(label, "train_loss")[1][:, -1].mean()
    comment = (
        f"{shown(work[0] / work[1])} times the operations; final training loss {shown(loss, 3)}"
    )
    return Number((METHODS[label], str(nu)), y, None, comment, (before, y - base))


def fluctuation(run: Run, steps: int) -> str:
    """How often and how much the training loss rises, round by round, after the paper's round 300."""
    t = run.curve(BOTH[0])[0]
    late = t >= min(FLUCTUATES, t[-1] - 1)
    shares, sizes = {}, []
    for label in BOTH:
        loss = run.curve(label, "train_loss")[1][:, late]
        moves = np.diff(loss, axis=1)
        shares[METHODS[label]] = 100 * np.mean(moves > 0, axis=1)
        sizes.append(
            f"{METHODS[label]} by {max(float(moves.max()), 0.0):.4f} at most, while it goes from "
            f"{loss[:, 0].mean():.3f} to {loss[:, -1].mean():.3f}"
        )
    text = f"The loss fluctuates after about {FLUCTUATES} rounds, τ = {steps}, α = 0.01"
    detail = "it rises " + "; ".join(sizes)
    return claim(
        text, shares, above=OFTEN, unit="% of the rounds are rises", digits=0, detail=detail
    )
