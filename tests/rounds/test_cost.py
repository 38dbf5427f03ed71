"""The costs of a round by hand: derivatives, samples in them, floats that travel; rounds in float32."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import MODELS, SIZES, make_batch, make_federation, play

from fedref.algorithm import State
from fedref.algorithms import ALGORITHMS
from fedref.algorithms.fedavg import FedAvg
from fedref.judge.adapter import clients_of
from fedref.models import Logistic
from fedref.proofs import Setting
from fedref.proofs.whole_runs import EPOCHS, World
from fedref.rounds.cost import Counter, Counts, columns, count_floats, total
from fedref.rounds.loop import run_clients, run_round
from fedref.sampling import Sampling, stream


class Bill(NamedTuple):
    """The cost of one client's round, by hand.

    down, up : parameter vectors that travel; scalars : single numbers sent down. grads, hvps : the
    batches of one step on which a gradient, or an HVP, is taken. more : gradients after the steps, on
    "all samples" at once or on "each sample".
    """

    down: int
    up: int
    grads: tuple[str, ...] = ("D",)
    hvps: tuple[str, ...] = ()
    more: str = ""
    scalars: int = 0


BILLS: list[tuple[str, dict[str, Any], Bill]] = [
    ("fedavg", {}, Bill(1, 1)),
    ("fedprox", {}, Bill(1, 1, scalars=1)),  # μ
    ("per-fedavg", {}, Bill(1, 1, ("D", "D1"), ("D2",))),
    ("per-fedavg-fo", {}, Bill(1, 1, ("D", "D1"))),
    ("per-fedavg-hf", {}, Bill(1, 1, ("D", "D1", "D2", "D2"))),
    ("fedmeta-maml", {}, Bill(1, 1, ("S", "Q"), ("S",))),
    ("fedmeta-maml", {"episodes": "epochs"}, Bill(1, 1, ("S of D", "Q of D"), ("S of D",))),
    ("fedmeta-fomaml", {}, Bill(1, 1, ("S", "Q"))),
    ("fedmeta-sgd", {}, Bill(2, 2, ("S", "Q"), ("S",))),
    ("fedmaml", {"inner_steps": 3}, Bill(1, 2, ("S", "S", "S", "Q"), ("S", "S", "S"))),
    ("fedmaml", {"evaluate": "theta1"}, Bill(2, 2, ("S", "Q"), ("S",))),
    ("fedcurv", {}, Bill(3, 2, more="each sample")),
    ("apfl", {"z": 9}, Bill(1, 1)),
    ("apfl", {"z": 0}, Bill(1, 2, more="all samples")),
    ("apfl", {"z": 0, "importance": "fisher"}, Bill(1, 2, more="each sample")),
    ("apfl", {"z": 0, "importance": "mas"}, Bill(1, 2, more="each sample")),
    ("apfl", {"z": 0, "importance": "si"}, Bill(1, 2)),
    ("centralised", {}, Bill(0, 0)),
    ("scaffold", {}, Bill(2, 2)),
    ("scaffold", {"control": "gradient"}, Bill(2, 2, more="all samples")),
    ("apfl-deng", {}, Bill(1, 1, ("D", "D"))),
    *((name, {}, Bill(1, 1)) for name in ("feddyn", "fedadagrad", "fedyogi", "fedadam", "fedavgm")),
    ("fednova", {}, Bill(1, 1)),  # and τ_k, a counter: free
    ("pfedme", {"inner_steps": 3}, Bill(1, 1, ("D", "D", "D"))),
]


@pytest.mark.parametrize(("name", "options", "bill"), BILLS, ids=str)
def test_bytes_derivatives_and_samples_of_a_round_are_those_by_hand(name, options, bill):
    algorithm, c = ALGORITHMS[name](**options), Setting(Logistic(2, 3, l2=0.1), stream(0, "costs"))
    roles, world = tuple(algorithm.roles), World(c, algorithm, EPOCHS, 3)
    part, plan = world.trained.train, world.plans[0]
    data = world.batch(part.rows)._asdict() | {"offsets": part.offsets}
    cohort = clients_of(plan._asdict(), data, algorithm.drop)
    rows = dict.fromkeys(roles, 0)
    for step in (step for one in cohort for step in one.steps):
        for role, D in zip(roles, step):
            rows[role] += len(D.y)
    steps, n = sum(len(one.steps) for one in cohort), sum(len(one.data.y) for one in cohort)
    grads, hvps = len(bill.grads) * steps, len(bill.hvps) * steps
    grad_rows, hvp_rows = (sum(rows[r] for r in which) for which in (bill.grads, bill.hvps))
    if bill.more:
        grads += n if bill.more == "each sample" else len(cohort)
        grad_rows += n
    down = len(plan.clients) * (bill.down * c.model.d + bill.scalars)
    up = len(cohort) * bill.up * c.model.d
    g, h = c.model.work
    late = [int(plan.straggler.sum()), len(plan.clients) - len(cohort), 0]
    for stack in (False, True):
        _, log = run_round(
            algorithm, c.model, State(algorithm.initial(c.model, c.w), {}), plan, world.trained,
            work=partial(run_clients, stack=stack),
        )  # fmt: skip
        assert (log.counts.grad_samples, log.counts.hvp_samples) == (grad_rows, hvp_rows)
        flops = 2 * (g * grad_rows + h * hvp_rows)
        for dtype, size in ((np.float32, 4), (np.float64, 8)):
            got = [*columns(c.model, log, dtype).values()]
            assert got == [down * size, up * size, grads, hvps, flops, *late]


# ---- the counter ----------------------------------------------------------------------------------


def test_the_counter_counts_leading_axes_and_leaves_padding_out():
    model, rng = MODELS["mlp"], np.random.default_rng(0)
    counter, D = Counter(model), make_batch(model, rng, 5, lead=(2,))
    s = np.array([[1.0, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    w = rng.normal(size=(2, model.d))
    counter.grad(w, D._replace(s=s))
    counter.hvp(w, w, D)
    counter.grad(w[0], D)  # one w, two batches
    assert counter.counts == (4, 2, 17, 10)
    r = model.logits(w, D.X)
    np.testing.assert_array_equal(counter.vjp(w, D.X, r), model.vjp(w, D.X, r))
    assert counter.counts == Counts(6, 2, 27, 10)  # a gradient of scores is one
    counter.vjp(w[0], D.X[0], r[0])
    assert counter.counts == Counts(7, 2, 32, 10)
    assert counter.d == model.d  # everything else is the model's
    for s, samples in (([], 0), ([2.0], 1), ([0.0], 0), ([1.0, 0.0, 0.5], 2)):
        counter, D = Counter(model), make_batch(model, rng, len(s))
        counter.grad(w[0], D._replace(s=np.array(s)))
        assert counter.counts == Counts(1, 0, samples, 0)


def test_measurements_are_the_mean_over_clients():
    """A diagnosis is neither counted nor sent."""

    class Measures(FedAvg):
        def client_metrics(self, model, sent, local, data):
            model.grad(sent.w, data())
            return {"n": float(len(data().X))}

    model, everyone = MODELS["mlp"], Sampling(len(SIZES), epochs=2, batch_size=4)
    _, (log,) = play(Measures(), model, make_federation(model), everyone, rounds=1)
    assert log.measured == {"n": sum(SIZES) / len(SIZES)}
    assert log.counts.grads == 2 * sum(-(-n // 4) for n in SIZES)


def test_floats_and_totals():
    message = (np.ones((2, 3)), 1.5, np.float32(2), 3, True, np.arange(4), [np.zeros(2, complex)])
    assert count_floats(message) == 6 + 1 + 1 + 2  # whole numbers and flags are free
    assert total([Counts(1, 2, 3, 4), Counts(10, 20, 30, 40)]) == (11, 22, 33, 44)
    assert total([]) == Counts() == (0, 0, 0, 0)
