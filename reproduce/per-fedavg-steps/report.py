"""Per-FedAvg: the loss after every round, what several inner steps change, and new users."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import plots
from fedref.algorithms.fedavg import FedAvg
from fedref.experiments import config
from fedref.experiments.loading import Loader, load_experiment
from fedref.experiments.results import Run
from fedref.experiments.unit import LoadedExperiment
from fedref.rounds.evaluation import Scores, evaluate_unseen, sample_mean
from reproduce.catalogue import find
from reproduce.claims import Place, claim_lines, claims_of, judge, report_claims
from reproduce.measures import at_point, final, rename_methods, total, unadapted_accuracy
from reproduce.tables import Number, number_table, show_number, spread, write_numbers

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


#: Whose accuracy it is: users that take part in training, and those that never do.
USERS = ("that train", "new")


class Draw(NamedTuple):
    """The run and the data of one seed of the split, which draws the users and who of them is new."""

    run: Run
    data: LoadedExperiment


def report(runs: Mapping[str, Run], out: Path, data_dir: Path | None) -> dict[str, str]:
    run = runs["inner-steps"]
    steps, methods = run.experiment.sweep["inner-steps"], list(run.experiment.algorithms)
    loader = Loader(data_dir)
    draws = {nu: draws_with(run, nu, loader) for nu in steps}
    numbers = [line(draws, users, m, nu) for users in USERS for m in methods for nu in steps]
    heads = ("users", "method", "ν")
    write_numbers(out / "numbers.csv", heads, numbers)
    fluctuation = at_point(runs["fluctuation"], steps=TAU)
    plots.curves(
        rename_methods(fluctuation, METHODS), out / f"fluctuation-tau{TAU}.png", title=TITLE
    )
    tested = [rows_of_new_users(draw) for draw in draws[steps[0]]]
    of_new_users: dict[str, Any] = {"kinds": ["new users"], "rows": min(map(sum, tested))}
    late = Place("", f"τ = {TAU}, α = 0.01", fluctuation, METHODS, kinds=["every round"])
    new = [Place(f"{nu}", f"ν = {nu}", own, METHODS, **of_new_users) for nu, own in draws.items()]
    claims = claims_of("per-fedavg-steps", globals())
    of_loss, of_users = judge(claims, [late]), judge(claims, new)
    report_claims(of_loss + of_users, out)
    return {
        "fluctuation_claim": claim_lines(of_loss),
        "new_claims": claim_lines(of_users),
        "numbers": number_table(heads, numbers, more=("before adaptation", "above ν = 1")),
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


def rows_of_new_users(draw: Draw) -> list[int]:
    """Return how many rows each new user is tested on."""
    assert draw.data.unseen is not None
    label = next(iter(draw.run.experiment.algorithms))
    return unadapted_scores_of_new(draw, label)[0].n_test.tolist()


def unadapted_scores_of_new(draw: Draw, label: str) -> list[Scores]:
    """Return the final test scores of the new users without any step: one a seed."""
    assert draw.data.unseen is not None
    made = draw.run.experiment
    return [
        evaluate_unseen(
            FedAvg(), draw.data.model, record.state, *draw.data.unseen,
            support=made.unseen, seed=unit.seed, dtype=np.dtype(made.dtype),
        )
        for unit, record in draw.run.units_of(label)
    ]  # fmt: skip


def accuracy_after(users: str, draws: Sequence[Draw], label: str) -> np.ndarray:
    """Return the final accuracy after the steps, in %: (draws,)."""
    metric = "unseen_accuracy" if users == "new" else "accuracy"
    return np.concatenate([final(draw.run, label, metric) for draw in draws])


def accuracy_before(users: str, draws: Sequence[Draw], label: str) -> np.ndarray:
    """Return the same without any step: (draws,)."""
    if users != "new":
        each = [unadapted_accuracy(draw.run, label, draw.data) for draw in draws]
        return np.concatenate(each)
    scores = [s for draw in draws for s in unadapted_scores_of_new(draw, label)]
    return np.array([100 * sample_mean(s.accuracy, s.n_test) for s in scores])


def line(draws: Mapping[int, Sequence[Draw]], users: str, label: str, nu: int) -> Number:
    """Return one method with ν inner steps, on users that train or on new ones."""
    own, one = draws[nu], draws[min(draws)]
    y, base = accuracy_after(users, own, label), accuracy_after(users, one, label)
    times = total(own[0].run, label, "flops")[0] / total(one[0].run, label, "flops")[0]
    loss = np.concatenate([final(draw.run, label, "train_loss") for draw in own])
    comment = f"{show_number(times)} times the operations; final training loss {spread(loss, 3)}"
    more = (accuracy_before(users, own, label), y - base)
    return Number(
        (users, METHODS[label], str(nu)), y, None, comment if users != "new" else "", more
    )


def gain_of_steps(place: Place, label: str) -> np.ndarray:
    """Return how much the steps raise the accuracy on new users, in points: (draws,)."""
    return accuracy_after("new", place.run, label) - accuracy_before("new", place.run, label)


def accuracy_on_new(place: Place, label: str) -> np.ndarray:
    return accuracy_after("new", place.run, label)


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
