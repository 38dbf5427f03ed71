"""Per-FedAvg: the loss after every round, what several inner steps change, and new users."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import plots
from fedref.experiments import config
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from reproduce.catalogue import find
from reproduce.claims import Place, claim_lines, claims_of, judge, report_claims
from reproduce.measures import (
    at_point,
    final,
    rename_methods,
    total,
    unadapted_accuracy,
    unadapted_scores,
)
from reproduce.tables import Number, number_table, write_numbers

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


#: Whose accuracy it is, users that take part in training or that never do: the metric.
USERS = {"that train": "accuracy", "new": "unseen_accuracy"}
HEADS = ("users", "method", "ν")
MORE = ("before adaptation", "above ν = 1", "times its operations")


class Draw(NamedTuple):
    """The run and the data of one seed of the split, which draws the users and who of them is new."""

    run: Run
    data: LoadedExperiment


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    run = runs["inner-steps"]
    steps, methods = run.experiment.sweep["inner-steps"], list(run.experiment.algorithms)
    loader = Loader(data_dir)
    draws = {nu: draws_with(run, nu, loader) for nu in steps}
    found = {
        (users, m, nu): measure(draws[nu], users, m)
        for users in USERS
        for m in methods
        for nu in steps
    }
    spent = {(m, nu): total(draws[nu][0].run, m, "flops") for m in methods for nu in steps}
    numbers = numbers_of(found, spent)
    write_numbers(out / "numbers.csv", HEADS, numbers)
    fluctuation = at_point(runs["fluctuation"], steps=TAU)
    plots.curves(
        rename_methods(fluctuation, METHODS), out / f"fluctuation-tau{TAU}.png", title=TITLE
    )
    tested = [
        unadapted_scores(draw.run, methods[0], draw.data, unseen=True)[0].n_test.tolist()
        for draw in draws[steps[0]]
    ]
    of_new_users: dict[str, Any] = {"kinds": ["new users"], "rows": min(map(sum, tested))}
    late = Place("", f"τ = {TAU}, α = 0.01", fluctuation, METHODS, kinds=["every round"])
    new = [
        Place(
            f"{nu}", f"ν = {nu}", {m: found["new", m, nu] for m in methods}, METHODS, **of_new_users
        )
        for nu in steps
    ]
    claims = claims_of("per-fedavg-steps", globals())
    of_loss, of_users = judge(claims, [late]), judge(claims, new)
    report_claims(of_loss + of_users, out)
    return {
        "fluctuation_claim": claim_lines(of_loss),
        "new_claims": claim_lines(of_users),
        "numbers": number_table(HEADS, numbers, more=MORE),
        "new_rows": "; ".join(", ".join(map(str, n)) for n in tested),
    }


def draws_with(run: Run, nu: int, loader: Loader) -> list[Draw]:
    """Return the run with ν inner steps, one for each seed of the split."""
    draws = []
    for seed in run.experiment.sweep["split.seed"]:
        point = {"split.seed": seed, "inner-steps": nu}
        data = load_experiment(config.at_point(run.experiment, point), loader)
        draws.append(Draw(at_point(run, **point), data))
    return draws


def measure(draws: Sequence[Draw], users: str, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the final accuracy after the steps, and without any, in %: (draws,) each."""
    after = [final(draw.run, label, USERS[users]) for draw in draws]
    before = [
        unadapted_accuracy(draw.run, label, draw.data, unseen=users == "new") for draw in draws
    ]
    return np.concatenate(after), np.concatenate(before)


def numbers_of(
    found: Mapping[tuple[str, str, int], tuple[np.ndarray, np.ndarray]],
    spent: Mapping[tuple[str, int], np.ndarray],
) -> list[Number]:
    """Return the lines of the table. found : as of `measure`. spent : operations, of (method, ν)."""
    one = min(nu for _, nu in spent)
    return [
        Number(
            (users, METHODS[m], f"{nu}"), after,
            more=(before, after - found[users, m, one][0], spent[m, nu] / spent[m, one]),
        )
        for (users, m, nu), (after, before) in found.items()
    ]  # fmt: skip


def gain_of_steps(place: Place, label: str) -> np.ndarray:
    """Return how much the steps raise the accuracy on new users, in points: (draws,)."""
    after, before = place.run[label]
    return np.asarray(after - before)


def accuracy_on_new(place: Place, label: str) -> np.ndarray:
    return np.asarray(place.run[label][0])


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
