"""Quantities that are read off a run: name → a number of every trial. Accuracies are in %."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import Server, State
from fedref.algorithms.fedavg import FedAvg
from fedref.lab.experiments.loading import Loader, load_experiment
from fedref.lab.experiments.results import Run
from fedref.lab.experiments.unit import Record, Unit
from fedref.models.numerics import Array
from fedref.rounds.evaluation import Scores, client_mean, evaluate, evaluate_unseen, sample_mean
from fedref.sampling import stream

Mean = Callable[[Array, Array], float]
SENT = ("bytes_down", "bytes_up")


class Part(NamedTuple):
    """The units of one place. whole : those of every place of the same sweep. loader : of the data."""

    run: Run
    whole: Sequence[Run]
    loader: Loader

    def trials(self, label: str) -> list["Trial"]:
        """Return the units of one method, in the order of seeds."""
        pairs = zip(self.run.units, self.run.records)
        return [Trial(unit, record, self) for unit, record in pairs if unit.label == label]


class Trial(NamedTuple):
    """A unit and what became of it, in its place."""

    unit: Unit
    record: Record
    part: Part

    def curve(self, metric: str, against: str = "round") -> tuple[Array, Array]:
        """Return (rounds (R,), values (R,)) of the rounds that were evaluated; NaN if none was."""
        rows = [row for row in self.record.rows if row.get(metric) is not None] or [{}]
        x, y = (np.array([row.get(c, np.nan) for row in rows], float) for c in (against, metric))
        return x, scale_of(metric) * y

    def last(self, *columns: str) -> float:
        """Return columns of metrics.csv after the last round, added up."""
        return sum(self.record.rows[-1][c] for c in columns)

    def beside(self, label: str) -> "Trial":
        """Return the trial of another method with the same seed."""
        return Trial(*self.part.run.units_of(label, self.unit.seed)[0], self.part)


Quantity = Callable[[Trial], Any]


def measure(quantity: str, trials: Sequence[Trial]) -> Array:
    """Return a quantity of each trial; none where no trial has it."""
    values = np.array([QUANTITIES[quantity](one) for one in trials], float)
    return np.zeros(0) if np.isnan(values).all() else values


def scale_of(metric: str) -> int:
    return 100 if "accuracy" in metric else 1


# ---- of a curve ----------------------------------------------------------------------------------


def over(metric: str, how: Callable[[Array, Array], Any]) -> Quantity:
    """Return what `how` makes of the rounds (R,) and values (R,) of a column."""
    return lambda x: how(*x.curve(metric))


def last(metric: str) -> Quantity:
    return over(metric, lambda t, y: y[-1])


def known_mean(y: Array) -> float:
    """Return the mean of the values that are there."""
    return float(y[~np.isnan(y)].mean()) if not np.isnan(y).all() else np.nan


def later_half(y: Array) -> Array:
    """Return the evaluations in the second half."""
    return y[len(y) // 2 :]


def change(t: Array, y: Array) -> float:
    """Return the mean absolute difference of two evaluations in the second half; 0 of a single one."""
    steps = np.abs(np.diff(later_half(y)))
    return float(steps.mean()) if steps.size else 0.0


def gain_of_last_tenth(t: Array, y: Array) -> float:
    return float(y[-1] - y[max(0, np.searchsorted(t, 0.9 * t[-1], "right") - 1)])


def after_300(t: Array, y: Array) -> Array:
    """Return the values from round 300 on."""
    return y[t >= min(300, t[-1] - 1)]


def rounds_to_loss(goal: str) -> Quantity:
    """Return the first round with the final training loss of `goal`, or the one after the last."""

    def count(x: Trial) -> float:
        t, y = x.curve("train_loss")
        low = y <= x.beside(goal).curve("train_loss")[1][-1]
        return float(t[low.argmax()] if low.any() else t[-1] + 1)

    return count


def cost_until(goal: str, *columns: str, scale: float = 1) -> Quantity:
    """Return a total when `goal`'s final accuracy on new clients is reached; ∞: never."""

    def cost(x: Trial) -> float:
        level = x.beside(goal).last("unseen_accuracy")
        there = (row for row in x.record.rows if row.get("unseen_accuracy", -1) >= level)
        return next((scale * float(sum(row[c] for c in columns)) for row in there), np.inf)

    return cost


def after_operations(fraction: float, mean: bool = False) -> Quantity:
    """Return the accuracy when this fraction is spent of what every point has spent in the end.

    mean : over all that was spent until then.
    """

    def accuracy(x: Trial) -> float:
        spent = fraction * min(r.rows[-1]["flops"] for run in x.part.whole for r in run.records)
        grid = np.linspace(0, spent, 200) if mean else np.array([spent])
        return float(np.interp(grid, *x.curve("accuracy", "flops")).mean())

    return accuracy


# ---- of the importance, and of two methods -------------------------------------------------------


def bytes_of_renewals(x: Trial) -> float:
    """Return the bytes of the rounds that renew an F which is there, in times FedAvg's."""
    own, base = x.record.rows, x.beside("fedavg").record.rows
    asked = [t for t, row in enumerate(own[:-1]) if row.get("renewed") == 1][1:]
    ours, theirs = (
        sum(rows[t + 1][c] - rows[t][c] for t in asked for c in SENT) for rows in (own, base)
    )
    return ours / theirs if asked else np.nan


def count_renewals(x: Trial) -> float:
    """Return how often importance is renewed outside the rounds z − 1, z, z + 1.

    The last row does not count: no round follows that would renew it.
    """
    z, rows = getattr(x.unit.algorithm, "z", 2), x.record.rows[:-1]
    return sum(row.get("renewed") == 1 and abs(t - z) > 1 for t, row in enumerate(rows))


def left_high(x: Trial) -> float:
    """Return the share of clients whose final training loss is above half of the start's mean, in %."""
    high = x.record.scores[-1].train_loss > 0.5 * x.record.rows[0]["train_loss"]
    return float(100 * high.mean())


def distance(x: Trial) -> float:
    """Return ‖w − w_exact‖ / ‖w_exact‖ after the last round."""
    trials = (x, x.beside("per-fedavg"))
    w, exact = (np.asarray(one.record.state.server.w, float) for one in trials)
    return float(np.linalg.norm(w - exact) / np.linalg.norm(exact))


def count_different(x: Trial) -> float:
    """Return how many of these quantities are not FedAvg's to the bit after the last round."""
    columns = ("train_loss", "accuracy", "variance", "B")
    return sum(x.last(c) != x.beside("fedavg").last(c) for c in columns)


def largest_difference(x: Trial) -> float:
    """Return the largest difference of accuracies (as fractions) and test losses, in any round."""
    each = [(a, b) for a, b in zip(x.record.rows, x.beside("mean").record.rows) if "accuracy" in a]
    return max(abs(a[c] - b[c]) for a, b in each for c in ("accuracy", "test_loss"))


def share(score: str, than: Callable[[Array, Array], Array]) -> Quantity:
    """Return the share of clients with test rows whose last score compares so with FedAvg's, in %."""

    def measure(x: Trial) -> float:
        own, base = (one.record.scores[-1] for one in (x, x.beside("fedavg")))
        return float(100 * than(getattr(own, score), getattr(base, score))[own.n_test > 0].mean())

    return measure


# ---- of one half of the clients ------------------------------------------------------------------


def halves(clients: int) -> tuple[Array, Array]:
    """Return (validation clients, test clients): drawn once, the same for every method and seed."""
    order = stream(0, "validation clients").permutation(clients)
    return np.sort(order[: clients // 2]), np.sort(order[clients // 2 :])


def of_half(half: int, mean: Mean = sample_mean) -> Quantity:
    """Return the last accuracy in % on the own test rows of one half of the clients."""

    def accuracy(x: Trial) -> float:
        s = x.record.scores[-1]
        chosen = halves(len(s.n_test))[half]
        return 100 * mean(s.accuracy[chosen], s.n_test[chosen])

    return accuracy


def took_part(x: Trial) -> Array:
    """Return which of the test clients took part in any round."""
    how: dict[str, Any] = {"label": x.unit.label, "seed": x.unit.seed, **x.unit.point}
    cohorts = [x.part.run.plan(t, **how).clients for t in range(x.record.round)]
    return np.isin(halves(len(x.record.scores[-1].n_test))[1], np.concatenate(cohorts))


def above_fedavg(those: bool) -> Quantity:
    """Return the points above FedAvg of the test clients that took part, or of the others."""

    def points(x: Trial) -> float:
        own, base = (one.record.scores[-1] for one in (x, x.beside("fedavg")))
        kept = halves(len(own.n_test))[1][took_part(x) == those]
        return sample_mean(100 * (own.accuracy - base.accuracy)[kept], own.n_test[kept])

    return points


# ---- of the parameters that the server sends -----------------------------------------------------


def unadapted_score(
    mean: Mean = sample_mean, unseen: bool = False, score: str = "accuracy"
) -> Quantity:
    """Return the final test score of the parameters that the server sends, as they are.

    unseen : on the clients that never trained.
    """

    def measure(x: Trial) -> float:
        s = score_unadapted(x.unit, x.record.state, x.record.round, x.part.loader, unseen)
        return scale_of(score) * mean(getattr(s, score), s.n_test)

    return measure


def score_unadapted(
    unit: Unit, state: State, round: int, loader: Loader, unseen: bool = False, train: bool = False
) -> Scores:
    """Return the scores of the parameters that the server sends, in a state after a round."""
    made, data = unit.experiment, load_experiment(unit.experiment, loader)
    sent = unit.algorithm.download(state.server)
    state = State(Server(unit.algorithm.personalised_params(data.model, sent, None, None)), {})
    how: dict[str, Any] = {"seed": unit.seed}
    if unseen and data.unseen:
        how |= {"support": made.unseen, "dtype": np.dtype(made.dtype)}
        return evaluate_unseen(FedAvg(), data.model, state, *data.unseen, **how)
    how |= {"round": round, "train": train}
    sampling = made.plan_of(data.federation.clients)
    return evaluate(FedAvg(), data.model, state, data.federation, sampling, **how)


QUANTITIES: Mapping[str, Quantity] = {
    "accuracy": last("accuracy"),
    "accuracy, users": last("accuracy_mean"),
    "average": over("accuracy", lambda t, y: y.mean()),
    "maximum": over("accuracy", lambda t, y: y.max()),
    "change": over("accuracy", change),
    "untrained": over("accuracy", lambda t, y: y[0]),
    "gained in training": over("accuracy", lambda t, y: y[-1] - y[0]),
    "training loss": last("train_loss"),
    "test loss": last("test_loss"),
    "variance": last("variance"),
    "B": last("B"),
    "γ": over("gamma", lambda t, y: known_mean(y[-max(1, len(y) // 10) :])),
    "γ measured": over("gamma", lambda t, y: known_mean(y)),
    "μ at the end": last("mu"),
    "bytes": lambda x: x.last(*SENT),
    "MB": lambda x: 1e-6 * x.last(*SENT),
    "operations": lambda x: x.last("flops"),
    "10⁶ operations": lambda x: 1e-6 * x.last("flops"),
    "10⁹ operations": lambda x: 1e-9 * x.last("flops"),
    "gradients": lambda x: x.last("grads"),
    "HVPs": lambda x: x.last("hvps"),
    "first rounds": over("accuracy", lambda t, y: y[(t >= 1) & (t <= 10)].mean()),
    "first rounds and start": over("accuracy", lambda t, y: y[t <= 10].mean()),
    "last tenth, users": over("accuracy_mean", lambda t, y: y[t > 0.9 * t[-1]].mean()),
    "since round 900": over("accuracy", gain_of_last_tenth),
    "rises": over("train_loss", lambda t, y: 100 * (np.diff(after_300(t, y)) > 0).mean()),
    "largest rise": over("train_loss", lambda t, y: np.diff(after_300(t, y)).max(initial=0.0)),
    "loss after round 300": over("train_loss", lambda t, y: after_300(t, y)[0]),
    "renewals": count_renewals,
    "largest F": lambda x: np.max(getattr(x.record.state.server, "F", np.nan)),
    "rounds to FedAvg's loss": rounds_to_loss("fedavg"),
    "rounds to FedProx's loss": rounds_to_loss("fedprox"),
    # clients that never trained
    "new clients": last("unseen_accuracy"),
    "at the start": over("unseen_accuracy", lambda t, y: y[0]),
    "second half": over("unseen_accuracy", lambda t, y: later_half(y).mean()),
    "mean of clients": last("unseen_accuracy_mean"),
    "on validation clients": last("validation_clients_accuracy"),
    "change on new clients": over("unseen_accuracy", change),
    "rounds to FedAvg's": cost_until("fedavg", "round"),
    "MB to FedAvg's": cost_until("fedavg", *SENT, scale=1e-6),
    "10⁹ operations to FedAvg's": cost_until("fedavg", "flops", scale=1e-9),
    "MB to FedAvg(Meta)'s": cost_until("fedavg-meta", *SENT, scale=1e-6),
    "10⁹ operations to FedAvg(Meta)'s": cost_until("fedavg-meta", "flops", scale=1e-9),
    # without adaptation
    "before adaptation": unadapted_score(),
    "before adaptation, users": unadapted_score(client_mean),
    "before adaptation, new clients": unadapted_score(unseen=True),
    "test loss before adaptation": unadapted_score(score="test_loss"),
    "w from the exact form's": distance,
    # clients beside FedAvg's
    "more accurate": share("accuracy", np.greater),
    "less accurate": share("accuracy", np.less),
    "as accurate": share("accuracy", np.equal),
    "lower loss": share("test_loss", np.less),
    "left high": left_high,
    "bytes of renewals": bytes_of_renewals,
    "last round's quantities other than FedAvg's": count_different,
    "apart from the mean": largest_difference,
    # the half of the clients that is tested, and the half that chooses
    "test clients": of_half(1),
    "mean of test clients": of_half(1, client_mean),
    "validation clients": of_half(0),
    "test clients that took part": lambda x: 100 * took_part(x).mean(),
    "they, above FedAvg": above_fedavg(True),
    "the others": above_fedavg(False),
    # γ, after equal computation
    "10⁹ operations a round": lambda x: x.last("flops") / x.unit.experiment.rounds / 1e9,
    "after a quarter of the operations": after_operations(0.25),
    "after half of the operations": after_operations(0.5),
    "after all operations": after_operations(1.0),
    "average until then": after_operations(1.0, mean=True),
}


# ---- the choice of rates -------------------------------------------------------------------------

SYMBOLS = {"lr": "η", "alpha": "α", "beta": "β"}
#: What chooses a method's rates.
CHOICES: Mapping[str, Quantity] = {
    "validation clients": last("validation_clients_accuracy"),
    "half of the clients": of_half(0),
}


def at_best(run: Run, choice: str) -> tuple[Run, dict[str, str]]:
    """Return every method at its best point, mean over seeds, and label → what that is.

    What diverged comes last; (edge): an end of the grid, (only): there is no other value.
    """

    def value(trials: Sequence[Trial]) -> float:
        ended = any(one.record.status == "diverged" for one in trials)
        return -np.inf if ended else float(np.mean([CHOICES[choice](one) for one in trials]))

    part, best, chosen = Part(run, [run], Loader()), list[Trial](), {}
    for label in dict.fromkeys(unit.label for unit in run.units):
        points: dict[str, list[Trial]] = {}
        for one in part.trials(label):
            points.setdefault(one.unit.variant, []).append(one)
        top = max(points.values(), key=value)
        grid = [trials[0].unit.point for trials in points.values()]
        rates = (
            f"{SYMBOLS[key]} = {x:g}{edge(x, {point[key] for point in grid})}"
            for key, x in top[0].unit.point.items()
        )
        best += top
        chosen[label] = ", ".join(rates)
    return run_of(run, [(one.unit, one.record) for one in best]), chosen


def edge(value: float, grid: set[float]) -> str:
    """Say whether a value is at an end of the grid that it was chosen from."""
    if len(grid) == 1:
        return " (only)"
    return " (edge)" if value in (min(grid), max(grid)) else ""


def merge_runs(runs: Mapping[str, Run], wanted: Mapping[str, Any]) -> dict[str, Run]:
    """Return the runs that are asked for; merge : what matches, where runs are one."""
    groups: dict[str, list[Run]] = {}
    for name in (name for name in runs if any(fnmatchcase(name, p) for p in wanted["runs"])):
        found = re.match(wanted.get("merge", ".*"), name)
        groups.setdefault(found[0] if found else name, []).append(runs[name])
    return {name: join_runs(own) for name, own in groups.items()}


def run_of(run: Run, pairs: Sequence[tuple[Unit, Record]]) -> Run:
    """Return a run with these units alone."""
    return run._replace(units=[unit for unit, _ in pairs], records=[record for _, record in pairs])


def join_runs(runs: Sequence[Run]) -> Run:
    """Return the units of several runs as one run, with the seeds of all."""
    pairs = [pair for run in runs for pair in zip(run.units, run.records)]
    seeds = tuple(dict.fromkeys(seed for run in runs for seed in run.experiment.seeds))
    whole = runs[0]._replace(experiment=replace(runs[0].experiment, seeds=seeds))
    return run_of(whole, [(u._replace(number=i), r) for i, (u, r) in enumerate(pairs)])
