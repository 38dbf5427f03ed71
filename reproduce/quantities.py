"""Quantities that are read off a run: name → (part, label) → a number for every seed.

Accuracies are in %.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedref.models.numerics import Array
from fedref.rounds.evaluation import client_mean, sample_mean
from fedref.sampling import stream
from reproduce.runs import Results, Trial, score_unadapted


class Part(NamedTuple):
    """The trials of one place. whole : those of every point of the same sweep."""

    results: Results
    trials: Sequence[Trial]
    whole: Sequence[Sequence[Trial]]

    def trials_of(self, label: str) -> list[Trial]:
        """Return the trials of one method, in the order of seeds."""
        return [trial for trial in self.trials if trial.label == label]

    def curve(self, label: str, metric: str) -> tuple[Array, Array]:
        """Return (rounds (R,), values (seeds, R)) of the rounds that were evaluated."""
        return curve_of(self.trials_of(label), metric)


Quantity = Callable[[Part, str], Array]


def curve_of(trials: Sequence[Trial], metric: str) -> tuple[Array, Array]:
    scale = 100 if "accuracy" in metric else 1
    each = [{r["round"]: r[metric] for r in t.rows if r.get(metric) is not None} for t in trials]
    rounds = sorted(set.intersection(*map(set, each)))
    return np.array(rounds), scale * np.array([[one[t] for t in rounds] for one in each], float)


# ---- of a curve ----------------------------------------------------------------------------------


def over_rounds(metric: str, how: Callable[[Array], Array]) -> Quantity:
    """Return the quantity that `how` makes of a column, (seeds, R) → (seeds,); none without values."""

    def measure(part: Part, label: str) -> Array:
        y = part.curve(label, metric)[1]
        return how(y) if y.size and not np.isnan(y).all() else np.zeros(0)

    return measure


def last(y: Array) -> Array:
    return y[:, -1]


def later_half(y: Array) -> Array:
    """Return the evaluations in the second half."""
    return y[:, y.shape[1] // 2 :]


def change(y: Array) -> Array:
    """Return the mean absolute difference of two evaluations in the second half; 0 of a single one."""
    steps = np.abs(np.diff(later_half(y)))
    return steps.mean(1) if steps.shape[1] else np.zeros(len(y))


def last_tenth(y: Array) -> Array:
    return np.nanmean(y[:, -max(1, y.shape[1] // 10) :], axis=1)


def first_rounds(first: int) -> Quantity:
    """Return the average accuracy of the rounds `first` to 10."""

    def measure(part: Part, label: str) -> Array:
        t, y = part.curve(label, "accuracy")
        return y[:, (first <= t) & (t <= 10)].mean(1)

    return measure


def since_round_900(part: Part, label: str) -> Array:
    """Return what the accuracy has gained in the last tenth of the rounds."""
    t, y = part.curve(label, "accuracy")
    return y[:, -1] - y[:, max(0, np.searchsorted(t, 0.9 * t[-1], "right") - 1)]


def late_losses(part: Part, label: str) -> Array:
    """Return the training losses from round 300 on: (seeds, R)."""
    t, loss = part.curve(label, "train_loss")
    return loss[:, t >= min(300, t[-1] - 1)]


def rises(part: Part, label: str) -> Array:
    """Return in how many of these rounds the loss rises, in %."""
    return 100 * np.mean(np.diff(late_losses(part, label)) > 0, axis=1)


def largest_rise(part: Part, label: str) -> Array:
    return np.diff(late_losses(part, label)).max(1, initial=0.0)


def rounds_to_loss(goal: str) -> Quantity:
    """Return the first round with the final training loss of `goal`, or the one after the last."""

    def measure(part: Part, label: str) -> Array:
        t, loss = part.curve(label, "train_loss")
        low = loss <= last(part.curve(goal, "train_loss")[1])[:, None]
        return np.where(low.any(1), t[low.argmax(1)], t[-1] + 1).astype(float)

    return measure


# ---- totals and costs ----------------------------------------------------------------------------


def total(*columns: str, scale: float = 1) -> Quantity:
    """Return columns of metrics.csv after the last round, added up."""
    return lambda part, label: np.array(
        [scale * sum(t.rows[-1][c] for c in columns) for t in part.trials_of(label)], float
    )


def cost_until(goal: str, *columns: str, scale: float = 1) -> Quantity:
    """Return such a total when `goal`'s final accuracy on new clients is reached; ∞: never."""

    def cost(part: Part, label: str) -> Array:
        found, least = [], last(part.curve(goal, "unseen_accuracy")[1])
        for trial, level in zip(part.trials_of(label), least):
            there = (r for r in trial.rows if 100 * r.get("unseen_accuracy", -1) >= level)
            row = next(there, None)
            found.append(np.inf if row is None else scale * float(sum(row[c] for c in columns)))
        return np.array(found)

    return cost


def bytes_of_renewals(part: Part, label: str) -> Array:
    """Return the bytes of the rounds that renew an F which is there, in times FedAvg's."""
    found = []
    for own, base in zip(part.trials_of(label), part.trials_of("fedavg")):
        asked = [t for t, row in enumerate(own.rows[:-1]) if row.get("renewed") == 1][1:]
        spent = [
            sum(rows[t + 1][c] - rows[t][c] for t in asked for c in ("bytes_down", "bytes_up"))
            for rows in (own.rows, base.rows)
        ]
        found.append(spent[0] / spent[1] if asked else np.nan)
    return np.array(found)


def count_renewals(part: Part, label: str) -> Array:
    """Return how often importance is renewed outside the rounds z − 1, z, z + 1.

    The last row does not count: no round follows that would renew it.
    """
    z = part.results.table["algorithms"][label].get("z", 2)
    flags = [[row.get("renewed") == 1 for row in t.rows[:-1]] for t in part.trials_of(label)]
    return np.array([float(sum(abs(t - z) > 1 for t in np.flatnonzero(own))) for own in flags])


def paths_of(trials: Sequence[Trial]) -> list[Array]:
    """Return (operations so far, accuracy) at the evaluated rounds, for every seed."""
    rows = [[row for row in t.rows if "accuracy" in row] for t in trials]
    return [np.array([(row["flops"], 100 * row["accuracy"]) for row in own]).T for own in rows]


def operations_a_round(part: Part, label: str) -> Array:
    spent = [x[-1] for x, _ in paths_of(part.trials_of(label))]
    return np.array(spent) / part.results.table["rounds"] / 1e9


def after_operations(fraction: float, mean: bool = False) -> Quantity:
    """Return the accuracy when this fraction is spent of what every point has spent in the end.

    mean : over all that was spent until then.
    """

    def measure(part: Part, label: str) -> Array:
        spent = fraction * min(x[-1] for trials in part.whole for x, _ in paths_of(trials))
        grid = np.linspace(0, spent, 200) if mean else np.array([spent])
        return np.array([np.interp(grid, *path).mean() for path in paths_of(part.trials_of(label))])

    return measure


# ---- of single clients ---------------------------------------------------------------------------


def halves(clients: int) -> tuple[Array, Array]:
    """Return (validation clients, test clients): drawn once, the same for every method and seed."""
    order = stream(0, "validation clients").permutation(clients)
    return np.sort(order[: clients // 2]), np.sort(order[clients // 2 :])


def mean_of_half(
    trial: Trial, half: int, mean: Callable[[Array, Array], float] = sample_mean
) -> float:
    """Return the last accuracy in % on the own test rows of one half of the clients."""
    chosen, s = halves(len(trial.scores.n_test))[half], trial.scores
    return 100 * mean(s.accuracy[chosen], s.n_test[chosen])


def of_half(half: int, mean: Callable[[Array, Array], float] = sample_mean) -> Quantity:
    return lambda part, label: np.array(
        [mean_of_half(t, half, mean) for t in part.trials_of(label)]
    )


def share(score: str, than: Callable[[Array, Array], Array]) -> Quantity:
    """Return the share of clients with test rows whose last score compares so with FedAvg's, in %."""

    def measure(part: Part, label: str) -> Array:
        pairs = [
            (own.scores, base.scores)
            for own, base in zip(part.trials_of(label), part.trials_of("fedavg"))
        ]
        found = [than(getattr(x, score), getattr(y, score))[x.n_test > 0] for x, y in pairs]
        return np.array([100 * one.mean() for one in found])

    return measure


def left_high(part: Part, label: str) -> Array:
    """Return the share of clients whose final training loss is above half of the start's mean, in %."""
    start = part.curve(label, "train_loss")[1][:, 0]
    each = [t.scores.train_loss > 0.5 * x for t, x in zip(part.trials_of(label), start)]
    return np.array([100 * np.mean(one) for one in each])


def took_part(which: str) -> Quantity:
    """Return, of the test clients, the share that took part in %, or the points above FedAvg.

    which : "share", or whose points: of "those" that took part or of the "others".
    """

    def measure(part: Part, label: str) -> Array:
        found = []
        for own, base in zip(part.trials_of(label), part.trials_of("fedavg")):
            n = own.scores.n_test
            _, tested = halves(len(n))
            there = np.isin(tested, np.concatenate(own.cohorts()))
            gain = 100 * (own.scores.accuracy - base.scores.accuracy)
            kept = tested[there if which == "those" else ~there]
            found.append(
                100 * there.mean() if which == "share" else sample_mean(gain[kept], n[kept])
            )
        return np.array(found)

    return measure


# ---- of parameters -------------------------------------------------------------------------------


def unadapted_score(
    mean: Callable[[Array, Array], float] = sample_mean,
    unseen: bool = False,
    score: str = "accuracy",
) -> Quantity:
    """Return the final test score of the parameters that the server sends, as they are."""

    def measure(part: Part, label: str) -> Array:
        each = [score_unadapted(part.results, trial, unseen) for trial in part.trials_of(label)]
        scale = 100 if score == "accuracy" else 1
        return np.array([scale * mean(getattr(s, score), s.n_test) for s in each])

    return measure


def distance_from_exact(part: Part, label: str) -> Array:
    """Return ‖w − w_exact‖ / ‖w_exact‖ after the last round."""
    both = zip(part.trials_of(label), part.trials_of("per-fedavg"))
    pairs = [(np.asarray(x.server.w, float), np.asarray(y.server.w, float)) for x, y in both]
    return np.array([np.linalg.norm(w - exact) / np.linalg.norm(exact) for w, exact in pairs])


def largest_importance(part: Part, label: str) -> Array:
    """Return the largest F after the last round; none of a server that has no F."""
    found = [getattr(trial.server, "F", None) for trial in part.trials_of(label)]
    return np.array([float(np.max(F)) for F in found if F is not None])


def other_than_fedavg(part: Part, label: str) -> Array:
    """Return how many of these quantities are not the same to the bit after the last round."""
    columns = ("train_loss", "accuracy", "variance", "B")
    both = [[last(part.curve(m, c)[1]) for m in (label, "fedavg")] for c in columns]
    return np.sum([x != y for x, y in both], 0).astype(float)


def apart_from(other: str) -> Quantity:
    """Return the largest difference from another method's accuracies and test losses, in any round."""

    def measure(part: Part, label: str) -> Array:
        scales = {"accuracy": 100, "test_loss": 1}
        both = [(part.curve(label, m)[1] - part.curve(other, m)[1]) / s for m, s in scales.items()]
        return np.max([np.abs(x).max(1) for x in both], 0)

    return measure


SENT = ("bytes_down", "bytes_up")
QUANTITIES: Mapping[str, Quantity] = {
    "accuracy": over_rounds("accuracy", last),
    "accuracy, users": over_rounds("accuracy_mean", last),
    "average": over_rounds("accuracy", lambda y: y.mean(1)),
    "maximum": over_rounds("accuracy", lambda y: y.max(1)),
    "change": over_rounds("accuracy", change),
    "untrained": over_rounds("accuracy", lambda y: y[:, 0]),
    "gained in training": over_rounds("accuracy", lambda y: y[:, -1] - y[:, 0]),
    "training loss": over_rounds("train_loss", last),
    "test loss": over_rounds("test_loss", last),
    "variance": over_rounds("variance", last),
    "B": over_rounds("B", last),
    "γ": over_rounds("gamma", last_tenth),
    "γ measured": over_rounds("gamma", lambda y: np.nanmean(y, axis=1)),
    "μ at the end": over_rounds("mu", last),
    "bytes": total(*SENT),
    "MB": total(*SENT, scale=1e-6),
    "operations": total("flops"),
    "10⁶ operations": total("flops", scale=1e-6),
    "10⁹ operations": total("flops", scale=1e-9),
    "gradients": total("grads"),
    "HVPs": total("hvps"),
    "first rounds": first_rounds(1),
    "first rounds and start": first_rounds(0),
    "since round 900": since_round_900,
    "rises": rises,
    "largest rise": largest_rise,
    "loss after round 300": lambda part, label: late_losses(part, label)[:, 0],
    "renewals": count_renewals,
    "largest F": largest_importance,
    "rounds to FedAvg's loss": rounds_to_loss("fedavg"),
    "rounds to FedProx's loss": rounds_to_loss("fedprox"),
    # clients that never trained
    "new clients": over_rounds("unseen_accuracy", last),
    "at the start": over_rounds("unseen_accuracy", lambda y: y[:, 0]),
    "second half": over_rounds("unseen_accuracy", lambda y: later_half(y).mean(1)),
    "mean of clients": over_rounds("unseen_accuracy_mean", last),
    "on validation clients": over_rounds("validation_accuracy", last),
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
    "w from the exact form's": distance_from_exact,
    # clients beside FedAvg's
    "more accurate": share("accuracy", np.greater),
    "less accurate": share("accuracy", np.less),
    "as accurate": share("accuracy", np.equal),
    "lower loss": share("test_loss", np.less),
    "left high": left_high,
    "bytes of renewals": bytes_of_renewals,
    "last round's quantities other than FedAvg's": other_than_fedavg,
    "apart from the mean": apart_from("mean"),
    # the half of the clients that is tested, and the half that chooses
    "test clients": of_half(1),
    "mean of test clients": of_half(1, client_mean),
    "validation clients": of_half(0),
    "test clients that took part": took_part("share"),
    "they, above FedAvg": took_part("those"),
    "the others": took_part("others"),
    # γ, after equal computation
    "10⁹ operations a round": operations_a_round,
    "after a quarter of the operations": after_operations(0.25),
    "after half of the operations": after_operations(0.5),
    "after all operations": after_operations(1.0),
    "average until then": after_operations(1.0, mean=True),
}


# ---- the choice of rates -------------------------------------------------------------------------

SYMBOLS = {"lr": "η", "alpha": "α", "beta": "β"}
#: What chooses a method's rates.
CHOICES: Mapping[str, Callable[[Trial], float]] = {
    "validation clients": lambda trial: float(trial.rows[-1]["validation_accuracy"]),
    "half of the clients": lambda trial: mean_of_half(trial, 0),
}


def at_best(results: Results, choice: str) -> tuple[list[Trial], dict[str, str]]:
    """Return every method's trials at its best point, mean over seeds, and label → what it is.

    What diverged comes last; (edge): an end of the grid, (only): there is no other value.
    """
    best, chosen, grid = [], {}, results.table.get("sweep", {})
    for label in dict.fromkeys(trial.label for trial in results.trials):
        at: dict[str, list[Trial]] = {}
        for trial in results.trials:
            if trial.label == label:
                at.setdefault(repr(trial.point), []).append(trial)

        def value(trials: Sequence[Trial]) -> float:
            ended = [t.diverged is not None for t in trials]
            return float(
                np.mean([-np.inf if e else CHOICES[choice](t) for e, t in zip(ended, trials)])
            )

        top = max(at.values(), key=value)
        rates = [f"{SYMBOLS[k]} = {x:g}{edge(x, grid[k])}" for k, x in top[0].point.items()]
        chosen[label] = ", ".join(rates)
        best += top
    return best, chosen


def edge(value: float, grid: Sequence[float]) -> str:
    """Say whether a value is at an end of the grid that it was chosen from."""
    if len(grid) == 1:
        return " (only)"
    return " (edge)" if value in (min(grid), max(grid)) else ""
