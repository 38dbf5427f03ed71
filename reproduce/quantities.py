"""Quantities that are read off a run: name → (part, label) → a number for every seed.

Accuracies are in %.
"""

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


class Part(NamedTuple):
    """The units of one place. whole : those of every place of the same sweep. loader : of the data."""

    run: Run
    whole: Sequence[Run]
    loader: Loader

    def pairs(self, label: str) -> list[tuple[Unit, Record]]:
        """Return the units of one method, in the order of seeds."""
        return [pair for pair in zip(self.run.units, self.run.records) if pair[0].label == label]


Quantity = Callable[[Part, str], Array]
Mean = Callable[[Array, Array], float]
SENT = ("bytes_down", "bytes_up")


def scale_of(metric: str) -> int:
    return 100 if "accuracy" in metric else 1


def curve(record: Record, metric: str, against: str = "round") -> tuple[Array, Array]:
    """Return (rounds (R,), values (R,)) of the rounds that were evaluated."""
    rows = [row for row in record.rows if row.get(metric) is not None]
    x = np.array([row[against] for row in rows])
    return x, scale_of(metric) * np.array([row[metric] for row in rows], float)


def of_each(measure: Callable[[Unit, Record], float]) -> Quantity:
    """Return a number of every unit."""
    return lambda part, label: np.array([measure(*pair) for pair in part.pairs(label)], float)


def of_pairs(other: str, measure: Callable[[Record, Record], float]) -> Quantity:
    """Return a number of every unit's record and that of another method with the same seed."""
    return lambda part, label: np.array(
        [measure(own, base) for (_, own), (_, base) in zip(part.pairs(label), part.pairs(other))],
        float,
    )


# ---- of a curve ----------------------------------------------------------------------------------


def over_rounds(metric: str, how: Callable[[Array, Array], Any]) -> Quantity:
    """Return what `how` makes of a column: (R,), (R,) → a number; NaN without values."""

    def measure(unit: Unit, record: Record) -> float:
        t, y = curve(record, metric)
        return float(how(t, y)) if y.size and not np.isnan(y).all() else np.nan

    return of_each(measure)


def start(t: Array, y: Array) -> float:
    return float(y[0])


def last(t: Array, y: Array) -> float:
    return float(y[-1])


def gain(t: Array, y: Array) -> float:
    return float(y[-1] - y[0])


def later_half(y: Array) -> Array:
    """Return the evaluations in the second half."""
    return y[len(y) // 2 :]


def change(t: Array, y: Array) -> float:
    """Return the mean absolute difference of two evaluations in the second half; 0 of a single one."""
    steps = np.abs(np.diff(later_half(y)))
    return float(steps.mean()) if steps.size else 0.0


def until_10(first: int) -> Callable[[Array, Array], float]:
    """Return the average over the rounds `first` to 10."""
    return lambda t, y: y[(first <= t) & (t <= 10)].mean()


def gain_of_last_tenth(t: Array, y: Array) -> float:
    """Return what was gained in the last tenth of the rounds."""
    return float(y[-1] - y[max(0, np.searchsorted(t, 0.9 * t[-1], "right") - 1)])


def after_300(t: Array, y: Array) -> Array:
    """Return the values from round 300 on."""
    return y[t >= min(300, t[-1] - 1)]


def rounds_to_loss(goal: str) -> Quantity:
    """Return the first round with the final training loss of `goal`, or the one after the last."""

    def count(own: Record, base: Record) -> float:
        t, y = curve(own, "train_loss")
        low = y <= curve(base, "train_loss")[1][-1]
        return float(t[low.argmax()] if low.any() else t[-1] + 1)

    return of_pairs(goal, count)


# ---- of single units -----------------------------------------------------------------------------


def total(*columns: str, scale: float = 1) -> Quantity:
    """Return columns of metrics.csv after the last round, added up."""
    return of_each(lambda unit, record: scale * sum(record.rows[-1][c] for c in columns))


def cost_until(goal: str, *columns: str, scale: float = 1) -> Quantity:
    """Return such a total when `goal`'s final accuracy on new clients is reached; ∞: never."""

    def cost(own: Record, base: Record) -> float:
        level = base.rows[-1]["unseen_accuracy"]
        there = (row for row in own.rows if row.get("unseen_accuracy", -1) >= level)
        row = next(there, None)
        return np.inf if row is None else scale * float(sum(row[c] for c in columns))

    return of_pairs(goal, cost)


def bytes_of_renewals(own: Record, base: Record) -> float:
    """Return the bytes of the rounds that renew an F which is there, in times FedAvg's."""
    asked = [t for t, row in enumerate(own.rows[:-1]) if row.get("renewed") == 1][1:]
    ours, theirs = (
        sum(rows[t + 1][c] - rows[t][c] for t in asked for c in SENT)
        for rows in (own.rows, base.rows)
    )
    return ours / theirs if asked else np.nan


def count_renewals(unit: Unit, record: Record) -> float:
    """Return how often importance is renewed outside the rounds z − 1, z, z + 1.

    The last row does not count: no round follows that would renew it.
    """
    z = getattr(unit.algorithm, "z", 2)
    return float(
        sum(row.get("renewed") == 1 and abs(t - z) > 1 for t, row in enumerate(record.rows[:-1]))
    )


def largest_importance(unit: Unit, record: Record) -> float:
    """Return the largest F after the last round; NaN of a server that has no F."""
    return float(np.max(getattr(record.state.server, "F", np.nan)))


def left_high(unit: Unit, record: Record) -> float:
    """Return the share of clients whose final training loss is above half of the start's mean, in %."""
    return float(100 * np.mean(record.scores[-1].train_loss > 0.5 * record.rows[0]["train_loss"]))


def distance(own: Record, base: Record) -> float:
    """Return ‖w − w_base‖ / ‖w_base‖ after the last round."""
    w, exact = (np.asarray(record.state.server.w, float) for record in (own, base))
    return float(np.linalg.norm(w - exact) / np.linalg.norm(exact))


def count_different(own: Record, base: Record) -> float:
    """Return how many of these quantities are not the same to the bit after the last round."""
    columns = ("train_loss", "accuracy", "variance", "B")
    return float(sum(own.rows[-1][c] != base.rows[-1][c] for c in columns))


def largest_difference(own: Record, base: Record) -> float:
    """Return the largest difference of accuracies (as fractions) and test losses, in any round."""
    each = [(x, y) for x, y in zip(own.rows, base.rows) if "accuracy" in x]
    return max(abs(x[c] - y[c]) for x, y in each for c in ("accuracy", "test_loss"))


def share(score: str, than: Callable[[Array, Array], Array]) -> Quantity:
    """Return the share of clients with test rows whose last score compares so with FedAvg's, in %."""

    def measure(own: Record, base: Record) -> float:
        x, y = own.scores[-1], base.scores[-1]
        return float(100 * than(getattr(x, score), getattr(y, score))[x.n_test > 0].mean())

    return of_pairs("fedavg", measure)


# ---- of operations -------------------------------------------------------------------------------


def operations_a_round(unit: Unit, record: Record) -> float:
    return record.rows[-1]["flops"] / unit.experiment.rounds / 1e9


def after_operations(fraction: float, mean: bool = False) -> Quantity:
    """Return the accuracy when this fraction is spent of what every point has spent in the end.

    mean : over all that was spent until then.
    """

    def measure(part: Part, label: str) -> Array:
        spent = fraction * min(r.rows[-1]["flops"] for run in part.whole for r in run.records)
        grid = np.linspace(0, spent, 200) if mean else np.array([spent])

        def accuracy(unit: Unit, record: Record) -> float:
            return float(np.interp(grid, *curve(record, "accuracy", "flops")).mean())

        return of_each(accuracy)(part, label)

    return measure


# ---- of one half of the clients ------------------------------------------------------------------


def halves(clients: int) -> tuple[Array, Array]:
    """Return (validation clients, test clients): drawn once, the same for every method and seed."""
    order = stream(0, "validation clients").permutation(clients)
    return np.sort(order[: clients // 2]), np.sort(order[clients // 2 :])


def mean_of_half(record: Record, half: int, mean: Mean = sample_mean) -> float:
    """Return the last accuracy in % on the own test rows of one half of the clients."""
    s = record.scores[-1]
    chosen = halves(len(s.n_test))[half]
    return 100 * mean(s.accuracy[chosen], s.n_test[chosen])


def of_half(half: int, mean: Mean = sample_mean) -> Quantity:
    return of_each(lambda unit, record: mean_of_half(record, half, mean))


def took_part(which: str) -> Quantity:
    """Return, of the test clients, the share that took part in %, or the points above FedAvg.

    which : "share", or whose points: of "those" that took part or of the "others".
    """

    def measure(part: Part, label: str) -> Array:
        found = []
        for (unit, own), (_, base) in zip(part.pairs(label), part.pairs("fedavg")):
            how: dict[str, Any] = {"label": label, "seed": unit.seed, **unit.point}
            cohorts = [part.run.plan(t, **how).clients for t in range(own.round)]
            scores, n = own.scores[-1], own.scores[-1].n_test
            _, tested = halves(len(n))
            there = np.isin(tested, np.concatenate(cohorts))
            gained = 100 * (scores.accuracy - base.scores[-1].accuracy)
            kept = tested[there if which == "those" else ~there]
            points = sample_mean(gained[kept], n[kept])
            found.append(100 * there.mean() if which == "share" else points)
        return np.array(found)

    return measure


# ---- of the parameters that the server sends -----------------------------------------------------


def unadapted_score(
    mean: Mean = sample_mean, unseen: bool = False, score: str = "accuracy"
) -> Quantity:
    """Return the final test score of the parameters that the server sends, as they are.

    unseen : on the clients that never trained.
    """

    def measure(part: Part, label: str) -> Array:
        pairs = part.pairs(label)
        each = [score_unadapted(u, r.state, r.round, part.loader, unseen) for u, r in pairs]
        return np.array([scale_of(score) * mean(getattr(s, score), s.n_test) for s in each])

    return measure


def score_unadapted(
    unit: Unit, state: State, round: int, loader: Loader, unseen: bool = False, train: bool = False
) -> Scores:
    """Return the scores of the parameters that the server sends, in a state after a round."""
    made, data, algorithm = (
        unit.experiment,
        load_experiment(unit.experiment, loader),
        unit.algorithm,
    )
    sent = algorithm.download(state.server)
    state = State(Server(algorithm.personalised_params(data.model, sent, None, None)), {})
    how: dict[str, Any] = {"seed": unit.seed}
    if unseen and data.unseen:
        how |= {"support": made.unseen, "dtype": np.dtype(made.dtype)}
        return evaluate_unseen(FedAvg(), data.model, state, *data.unseen, **how)
    how |= {"round": round, "train": train}
    sampling = made.plan_of(data.federation.clients)
    return evaluate(FedAvg(), data.model, state, data.federation, sampling, **how)


QUANTITIES: Mapping[str, Quantity] = {
    "accuracy": over_rounds("accuracy", last),
    "accuracy, users": over_rounds("accuracy_mean", last),
    "average": over_rounds("accuracy", lambda t, y: y.mean()),
    "maximum": over_rounds("accuracy", lambda t, y: y.max()),
    "change": over_rounds("accuracy", change),
    "untrained": over_rounds("accuracy", start),
    "gained in training": over_rounds("accuracy", gain),
    "training loss": over_rounds("train_loss", last),
    "test loss": over_rounds("test_loss", last),
    "variance": over_rounds("variance", last),
    "B": over_rounds("B", last),
    "γ": over_rounds("gamma", lambda t, y: np.nanmean(y[-max(1, len(y) // 10) :])),
    "γ measured": over_rounds("gamma", lambda t, y: np.nanmean(y)),
    "μ at the end": over_rounds("mu", last),
    "bytes": total(*SENT),
    "MB": total(*SENT, scale=1e-6),
    "operations": total("flops"),
    "10⁶ operations": total("flops", scale=1e-6),
    "10⁹ operations": total("flops", scale=1e-9),
    "gradients": total("grads"),
    "HVPs": total("hvps"),
    "first rounds": over_rounds("accuracy", until_10(1)),
    "first rounds and start": over_rounds("accuracy", until_10(0)),
    "last tenth, users": over_rounds("accuracy_mean", lambda t, y: y[t > 0.9 * t[-1]].mean()),
    "since round 900": over_rounds("accuracy", gain_of_last_tenth),
    "rises": over_rounds("train_loss", lambda t, y: 100 * (np.diff(after_300(t, y)) > 0).mean()),
    "largest rise": over_rounds(
        "train_loss", lambda t, y: np.diff(after_300(t, y)).max(initial=0.0)
    ),
    "loss after round 300": over_rounds("train_loss", lambda t, y: after_300(t, y)[0]),
    "renewals": of_each(count_renewals),
    "largest F": of_each(largest_importance),
    "rounds to FedAvg's loss": rounds_to_loss("fedavg"),
    "rounds to FedProx's loss": rounds_to_loss("fedprox"),
    # clients that never trained
    "new clients": over_rounds("unseen_accuracy", last),
    "at the start": over_rounds("unseen_accuracy", start),
    "second half": over_rounds("unseen_accuracy", lambda t, y: later_half(y).mean()),
    "mean of clients": over_rounds("unseen_accuracy_mean", last),
    "on validation clients": over_rounds("validation_clients_accuracy", last),
    "change on new clients": over_rounds("unseen_accuracy", change),
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
    "w from the exact form's": of_pairs("per-fedavg", distance),
    # clients beside FedAvg's
    "more accurate": share("accuracy", np.greater),
    "less accurate": share("accuracy", np.less),
    "as accurate": share("accuracy", np.equal),
    "lower loss": share("test_loss", np.less),
    "left high": of_each(left_high),
    "bytes of renewals": of_pairs("fedavg", bytes_of_renewals),
    "last round's quantities other than FedAvg's": of_pairs("fedavg", count_different),
    "apart from the mean": of_pairs("mean", largest_difference),
    # the half of the clients that is tested, and the half that chooses
    "test clients": of_half(1),
    "mean of test clients": of_half(1, client_mean),
    "validation clients": of_half(0),
    "test clients that took part": took_part("share"),
    "they, above FedAvg": took_part("those"),
    "the others": took_part("others"),
    # γ, after equal computation
    "10⁹ operations a round": of_each(operations_a_round),
    "after a quarter of the operations": after_operations(0.25),
    "after half of the operations": after_operations(0.5),
    "after all operations": after_operations(1.0),
    "average until then": after_operations(1.0, mean=True),
}


# ---- the choice of rates -------------------------------------------------------------------------

SYMBOLS = {"lr": "η", "alpha": "α", "beta": "β"}
#: What chooses a method's rates.
CHOICES: Mapping[str, Callable[[Record], float]] = {
    "validation clients": lambda record: float(record.rows[-1]["validation_clients_accuracy"]),
    "half of the clients": lambda record: mean_of_half(record, 0),
}


def at_best(run: Run, choice: str) -> tuple[Run, dict[str, str]]:
    """Return every method at its best point, mean over seeds, and label → what that is.

    What diverged comes last; (edge): an end of the grid, (only): there is no other value.
    """
    places: dict[str, dict[str, list[tuple[Unit, Record]]]] = {}
    for unit, record in zip(run.units, run.records):
        places.setdefault(unit.label, {}).setdefault(unit.variant, []).append((unit, record))

    def value(pairs: Sequence[tuple[Unit, Record]]) -> float:
        records = [record for _, record in pairs]
        ended = any(record.status == "diverged" for record in records)
        return -np.inf if ended else float(np.mean([CHOICES[choice](r) for r in records]))

    best, chosen = [], {}
    for label, points in places.items():
        top = max(points.values(), key=value)
        grid = [pairs[0][0].point for pairs in points.values()]
        rates = (
            f"{SYMBOLS[key]} = {x:g}{edge(x, {point[key] for point in grid})}"
            for key, x in top[0][0].point.items()
        )
        best += top
        chosen[label] = ", ".join(rates)
    return run_of(run, best), chosen


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


def edge(value: float, grid: set[float]) -> str:
    """Say whether a value is at an end of the grid that it was chosen from."""
    if len(grid) == 1:
        return " (only)"
    return " (edge)" if value in (min(grid), max(grid)) else ""
