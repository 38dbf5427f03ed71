"""What is read off runs, on rows and scores made up here."""

from dataclasses import replace

import numpy as np
import pytest
from drawing import pair, run_of

from fedref.lab.experiments.loading import Loader
from reproduce.cells import count_tested, split_run
from reproduce.quantities import Part, at_best, halves, measure


def part_of(*pairs):
    run = run_of(*pairs)
    return Part(run, [run], Loader())


CURVE = [0.1, 0.5, 0.3, 0.6, 0.5]
LOSS = [4.0, 3.0, 2.0, 1.0, 2.0]
NEW = {"unseen_accuracy": [0.1, 0.2, 0.4], "bytes_down": [0, 10, 20], "bytes_up": [0, 0, 0]}
NO_BYTES = {"bytes_up": [0] * 5}


@pytest.mark.parametrize(
    ("quantity", "columns", "expected"),
    [
        ("accuracy", {"accuracy": CURVE}, 50), ("average", {"accuracy": CURVE}, 40),
        ("maximum", {"accuracy": CURVE}, 60), ("untrained", {"accuracy": CURVE}, 10),
        ("gained in training", {"accuracy": CURVE}, 40), ("change", {"accuracy": CURVE}, 20),
        ("change", {"accuracy": [0.1, None, None, None, 0.5]}, 0),
        ("first rounds", {"accuracy": CURVE}, 47.5), ("first rounds and start", {"accuracy": CURVE}, 40),
        ("since round 900", {"accuracy": CURVE}, -10), ("training loss", {"train_loss": LOSS}, 2),
        ("γ measured", {"gamma": [np.nan, 1.0, 2.0, 3.0, 4.0]}, 2.5), ("γ", {"accuracy": CURVE}, None),
        ("rises", {"train_loss": LOSS}, 100), ("largest rise", {"train_loss": LOSS}, 1),
        ("bytes", {"bytes_down": [0, 1, 2, 3, 4], "bytes_up": [0, 1, 1, 1, 3]}, 7),
        ("10⁹ operations", {"flops": [0, 0, 0, 0, 5e9]}, 5),
        ("renewals", {"renewed": [0, 1, 1, 1, 1]}, 0),  # preset ones, and the last row
        ("renewals", {"renewed": [1, 0, 0, 0, 0]}, 1), ("largest F", {"accuracy": CURVE}, None),
        ("new clients", {"unseen_accuracy": CURVE}, 50), ("second half", {"unseen_accuracy": CURVE}, 140 / 3),
    ],
)  # fmt: skip
def test_of_a_curve(quantity, columns, expected):
    part = part_of(pair("m", columns), pair("m", columns, seed=1))
    found = measure(quantity, part.trials("m"))
    assert found == pytest.approx([] if expected is None else [expected] * 2)


@pytest.mark.parametrize(
    ("quantity", "own", "base", "expected"),
    [
        ("MB to FedAvg's", NEW, NEW, 20e-6),
        ("MB to FedAvg's", NEW | {"unseen_accuracy": [0.1, 0.4, 0.3]}, NEW, 10e-6),
        ("MB to FedAvg's", NEW | {"unseen_accuracy": [0.1, 0.2, 0.3]}, NEW, np.inf),
        ("rounds to FedAvg's loss", {"train_loss": [3, 1.0, 2]}, {"train_loss": [3, 2.0, 1.5]}, 1),
        ("rounds to FedAvg's loss", {"train_loss": [3, 2.0, 2]}, {"train_loss": [3, 2.0, 1.5]}, 3),
        ("bytes of renewals", {"bytes_down": [0, 1, 2, 4, 6], "renewed": [0, 1, 1, 1, 0], **NO_BYTES},
         {"bytes_down": [0, 1, 2, 3, 4], **NO_BYTES}, 2),  # without the first renewal
    ],
)  # fmt: skip
def test_beside_fedavg(quantity, own, base, expected):
    part = part_of(pair("m", own), pair("fedavg", base))
    assert measure(quantity, part.trials("m")) == pytest.approx([expected])


def test_of_single_clients():
    a, b = np.array([np.nan, 0.5, 0.5, 1.0]), np.array([np.nan, 0.4, 0.5, 1.0])
    _, tested = halves(4)
    columns, scores = {"accuracy": CURVE}, {"accuracy": a, "test_loss": -a, "train_loss": 4 * b}
    own = pair("m", columns, scores=scores)
    part = part_of(own, pair("fedavg", columns, scores={"accuracy": b, "test_loss": -b}))
    drawn = {int(k) for t in range(4) for k in part.run.plan(t, "m").clients}
    n = own[1].scores[-1].n_test[tested]
    expected = {
        "more accurate": 100 / 3, "less accurate": 0, "as accurate": 200 / 3, "lower loss": 100 / 3,
        "test clients that took part": 100 * len(drawn & {*tested.tolist()}) / 2,
        "test clients": 100 * np.nansum(a[tested] * n) / n.sum(),
    }  # fmt: skip
    found = {quantity: measure(quantity, part.trials("m"))[0] for quantity in expected}
    assert found == pytest.approx(expected)


def test_the_best_point_is_that_of_the_mean_over_seeds_and_not_of_one_that_diverged():
    each = {0.1: (0.5, 0.7), 1.0: (0.65, 0.65), 10.0: (0.9, 0.9)}
    trials = [
        pair("m", {"validation_clients_accuracy": [v]}, seed, point={"lr": lr}, diverged=lr > 1)
        for lr, values in each.items()
        for seed, v in enumerate(values)
    ]
    best, chosen = at_best(run_of(*trials), "validation clients")
    assert chosen == {"m": "η = 1"}
    assert [unit.point for unit in best.units] == [{"lr": 1.0}] * 2
    assert at_best(run_of(*trials[:2]), "validation clients")[1] == {"m": "η = 0.1 (only)"}
    assert at_best(run_of(*trials[:4]), "validation clients")[1] == {"m": "η = 1 (edge)"}


def test_a_sweep_is_split_into_places_and_a_method_without_its_key_is_in_each():
    swept = [pair("m", {"accuracy": [x]}, point={"m.lr": x}) for x in (0.1, 0.5)]
    run = run_of(*swept, pair("fedavg", {"accuracy": [0.0]}), epochs=2, lr=3.0)
    run = run._replace(experiment=replace(run.experiment, sweep={"m.lr": [0.1, 0.5]}))
    found = split_run(run, {"setting": "E = {epochs}, η = {lr:g}, {m_lr:.0%}"})
    assert [setting for setting, *_ in found] == ["E = 2, η = 3, 10 %", "E = 2, η = 3, 50 %"]
    assert [[unit.label for unit in one.units] for _, one, _ in found] == [["m", "fedavg"]] * 2
    part = Part(found[0][1], [], Loader())
    counted = {c.quantity: c.values.mean for c in count_tested(("D", ""), part, {})}
    assert counted == {"rows tested": 40, "clients tested": 3, "rounds apart": 1}
