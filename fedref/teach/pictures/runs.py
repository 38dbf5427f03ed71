"""Short runs on the shipped digits: what a quantity becomes from step to step."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.patches import Rectangle

from fedref.algorithm import State
from fedref.algorithms import apfl, fedmeta, fedprox
from fedref.experiments import config, unit
from fedref.experiments.loading import load_experiment
from fedref.experiments.unit import LoadedExperiment
from fedref.models.numerics import Array, sigmoid
from fedref.rounds.federation import Federation
from fedref.rounds.local_data import gather
from fedref.sampling import Sampling, make_plan
from fedref.teach.svg import Picture, colour, line_style, panel

# ---- the digits ------------------------------------------------------------------------------------


def digits(**changes: Any) -> LoadedExperiment:
    """The shipped digits, 20 clients of two kinds, logistic regression: small and quick."""
    table = {
        "name": "picture", "data": {"name": "digits"}, "model": {"name": "logistic"}, "steps": 10,
        "algorithms": {"fedavg": {}}, "rounds": 1, **changes,
    }  # fmt: skip
    return load_experiment(config.from_table(table))


def run_records(algorithm: Any, **changes: Any) -> list[Any]:
    """The records of a run, round by round."""
    return list(unit.iterate_rounds(digits(**changes), algorithm, seed=0))


def gammas(mu: float, epochs: int = 20, clients: int = 10) -> Array:
    """γ of every client after every local epoch, from the first round's start: (clients, epochs + 1)."""
    found = digits()
    it = fedprox.FedProx(lr=0.05, mu=mu)
    sampling = Sampling(clients, epochs=epochs, batch_size=20)
    plan = make_plan(sampling, found.federation.train.sizes, 0, seed=0)
    data = gather(plan, found.federation, np.float64, np.arange(clients)).materialise()
    sent = it.download(it.initial(found.model, np.zeros(found.model.d)))
    out = []
    for k in range(clients):
        row, local, everything = [], it.start(found.model, sent, None), data.all_rows(k)
        for t in range(int(data.steps[k]) + 1):
            if t % data.per_epoch[k] == 0:
                row.append(fedprox.inexactness(found.model, local, sent.w, everything, mu=mu))
            if t < data.steps[k]:
                local = it.step(found.model, sent, local, data.batch("D", k, t))
        out.append(row)
    return np.array(out)


def inexactness() -> Picture:
    """γ against epochs."""
    figure, axes = panel(xlabel="local epochs", ylabel="γ, mean over ten clients", xlim=(0, 20))
    last = {}
    for k, mu in enumerate((0.0, 0.1, 1.0)):
        mean = gammas(mu).mean(0)
        axes.plot(mean, label=f"μ = {mu:g}", markevery=2, **line_style(k))
        last[mu] = mean
    axes.set_ylim(0, None)
    axes.legend(loc="upper right")
    caption = (
        "How exactly clients solve their problem: γ = ‖∇h(w)‖ / ‖∇h(wᵗ)‖, 1 before any work and 0 where it "
        f"is solved. After 5 epochs γ is {last[0.0][5]:.2f} with μ = 0 and {last[1.0][5]:.2f} with μ = 1, "
        f"after 20 it is {last[0.0][20]:.2f} and {last[1.0][20]:.2f}. The digits, batches of 20."
    )
    alt = "Three falling curves; the larger μ is, the lower the curve."
    return Picture(figure, alt, caption)


# ---- APFL: what the masks become ---------------------------------------------------------------------


class Masks(NamedTuple):
    m: Array  # (clients, 10) each client's mask, one value a class
    has: Array  # (clients, 10) whether the client has rows of that class


@cache
def masks(rounds: int = 60) -> Masks:
    """APFL on the digits, two classes a client."""
    changes = {
        "rounds": rounds, "clients_per_round": 10, "eval_every": rounds,
        "split": {"rule": "shards", "users": 10, "shards": 2},
    }  # fmt: skip
    it = apfl.APFL(lr=0.5, mu=0.1, init="continuous")
    state: State = run_records(it, **changes)[-1].state
    found: Federation = digits(**changes).federation
    clients = sorted(state.clients)
    y = found.source.y
    has = [[bool(np.any(y[found.train.rows_of(k)] == c)) for c in range(10)] for k in clients]
    return Masks(sigmoid(np.array([state.clients[k].a for k in clients])), np.array(has))


def masks_per_client() -> Picture:
    """Masks per client."""
    m, has = masks()
    figure, axes = panel(
        5.2, 0.34 * len(m) + 0.7, xlim=(0, 10), ylim=(len(m), 0),
        xlabel="output unit (class)", ylabel="client",
        xticks=np.arange(10) + 0.5, xticklabels=range(10),
        yticks=np.arange(len(m)) + 0.5, yticklabels=range(1, len(m) + 1),
    )  # fmt: skip
    axes.grid(visible=False)
    low, high = float(m.min()), float(m.max())
    for (k, c), value in np.ndenumerate(m):
        strength = 0.6 * (value - low) / (high - low)
        axes.add_patch(Rectangle((c, k), 1, 1, facecolor=colour("c0"), alpha=strength, linewidth=0))
        weight = "bold" if has[k, c] else "normal"
        text = f"{value:.2f}".removeprefix("0")
        axes.text(c + 0.5, k + 0.5, text, ha="center", va="center", fontsize=8.5, fontweight=weight)
    own, others = float(m[has].mean()), float(m[~has].mean())
    caption = (
        "m_k = σ(a) after 60 rounds, one value a class; bold where the client has that class. All began "
        f"at σ(1) = {sigmoid(np.ones(())):.2f}. The mean is {own:.2f} over classes that a client has and "
        f"{others:.2f} over the others."
    )
    alt = f"A table of {len(m)} clients by 10 classes, values from {low:.2f} to {high:.2f}."
    return Picture(figure, alt, caption)


# ---- Meta-SGD: what α becomes -------------------------------------------------------------------------

QUANTILES = (0.5, 0.75, 0.9, 0.99)
META = {"rounds": 100, "clients_per_round": 10, "eval_every": 100}
META_ALPHA = 0.1


@cache
def alphas() -> Array:
    """Meta-SGD's α on the digits after every round: (rounds + 1, d)."""
    records = run_records(fedmeta.MetaSGD(alpha=META_ALPHA, beta=0.5), **META)
    return np.array([record.state.server.learner.alpha for record in records])


def learnt_rates() -> Picture:
    """What Meta-SGD's α becomes."""
    alpha = alphas()
    figure, axes = panel(xlabel="round", ylabel="α of a parameter", xlim=(0, len(alpha) - 1))
    rows = np.quantile(alpha, QUANTILES, axis=1)
    for q, row, k in zip(QUANTILES, rows, (0, 1, 3, 2)):
        axes.plot(row, **line_style(k, marker="none"))
        axes.annotate(
            f"{100 * q:.0f} %", (len(alpha) - 1, row[-1]), (3, 0), textcoords="offset points",
            fontsize=9, va="center",
        )  # fmt: skip
    last = alpha[-1]
    still = float(np.mean(last == META_ALPHA))
    caption = (
        f"A learning rate for each of {alpha.shape[1]} parameters, all {META_ALPHA} at first: quantiles "
        f"over the parameters. After {len(alpha) - 1} rounds they run from {last.min():.2f} to "
        f"{last.max():.2f}, {100 * np.mean(last < 0):.1f} % are negative, and {100 * still:.0f} % have not "
        "moved at all: the gradient there was 0 in support or query. The digits, logistic regression."
    )
    alt = (
        f"Quantiles that fan out from {META_ALPHA}: the 99 % quantile ends at {rows[-1, -1]:.2f}, "
        f"the median at {rows[0, -1]:.2f}."
    )
    return Picture(figure, alt, caption)
