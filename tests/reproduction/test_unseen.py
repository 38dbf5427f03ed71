"""FedMeta's report: validation clients choose, and what it costs to come as far."""

from dataclasses import replace

import numpy as np
import pytest

from fedref import run
from fedref.experiments.results import Run
from fedref.reproduction import catalogue

UNSEEN = catalogue.find("fedmeta-unseen").module


@pytest.fixture(scope="module")
def found() -> Run:
    table = {
        "data": {"name": "digits"},
        "split": {"rule": "shards", "users": 20, "shards": 2},
        "clients-per-round": 3,
        "epochs": 1,
        "unseen": 0.2,
        "model": {"name": "logistic"},
        "algorithms": {"fedavg": {"lr": 0.1}, "fedavg-meta": {"lr": 0.1}, "fedmeta-maml": {}},
        "sweep": {"alpha": [0.01, 1.0], "beta": [0.1, 0.2]},
    }
    return run(table, rounds=3)


def with_scores(found: Run, validation: list[float], unseen: list[float]) -> Run:
    """The same, with these final accuracies of FedMeta's points."""
    scores = iter(zip(validation, unseen))
    records = []
    for unit, record in zip(found.units, found.records):
        if unit.label == "fedmeta-maml":
            v, u = next(scores)
            last = {**record.rows[-1], "validation_accuracy": v, "unseen_accuracy": u}
            record = record._replace(rows=[*record.rows[:-1], last])
        records.append(record)
    return Run(found.experiment, found.units, records)


def test_validation_clients_choose_and_test_clients_do_not(found: Run) -> None:
    changed = with_scores(found, [0.1, 0.2, 0.9, 0.3], [0.9, 0.8, 0.1, 0.7])
    assert UNSEEN.best_point(changed, "fedmeta-maml") == {"alpha": 1.0, "beta": 0.1}
    best = UNSEEN.chosen(changed)
    assert UNSEEN.final(best, "fedmeta-maml").tolist() == [pytest.approx(10.0)]
    assert [unit.label for unit in best.units] == ["fedavg", "fedavg-meta", "fedmeta-maml"]


def test_what_has_diverged_is_not_chosen(found: Run) -> None:
    changed = with_scores(found, [0.1, 0.2, 0.9, 0.3], [0.5] * 4)
    records = [
        record._replace(status="diverged")
        if unit.point.get("alpha") == 1.0 and unit.label == "fedmeta-maml"
        else record
        for unit, record in zip(changed.units, changed.records)
    ]
    point = UNSEEN.best_point(Run(found.experiment, changed.units, records), "fedmeta-maml")
    assert point == {"alpha": 0.01, "beta": 0.2}


def test_cost_is_that_of_the_first_evaluation_that_is_good_enough(found: Run) -> None:
    best = UNSEEN.chosen(found)
    (goal,) = UNSEEN.final(best, "fedavg-meta")
    (record,) = best.records_of("fedmeta-maml")
    reached = [row for row in record.rows if 100 * row["unseen_accuracy"] >= goal]
    expected = reached[0]["bytes_down"] + reached[0]["bytes_up"] if reached else np.inf
    cost = UNSEEN.cost(best, "fedmeta-maml", "fedavg-meta", "bytes_down", "bytes_up")
    assert cost.tolist() == [expected]
    (own,) = UNSEEN.cost(best, "fedavg-meta", "fedavg-meta", "flops")
    assert own <= best.records_of("fedavg-meta")[0].rows[-1]["flops"]
    assert UNSEEN.reached(np.array([np.inf, 2e6]), 1e-6, 2) == "2.00 (1 of 2 seeds)"
    assert UNSEEN.reached(np.array([np.inf]), 1e-6, 2) == "never"


def with_curves(found: Run, fedavg: list[float], *fedmeta: list[float]) -> Run:
    """Unseen clients' accuracy at rounds 0 to 3: of FedAvg and of the three FedMeta methods."""
    best = UNSEEN.chosen(found)
    (record,) = best.records_of("fedmeta-maml")
    unit = next(unit for unit in best.units if unit.label == "fedmeta-maml")
    units, records = [], []
    for label, curve in zip(("fedavg", *UNSEEN.FEDMETA), (fedavg, *fedmeta), strict=True):
        rows = [{**row, "unseen_accuracy": y} for row, y in zip(record.rows, curve, strict=True)]
        units.append(unit._replace(label=label))
        records.append(record._replace(rows=rows))
    return Run(found.experiment, units, records)


ROUNDS = UNSEEN.COSTS[0]
SLOW, FAST = [0.1, 0.2, 0.3, 0.6], [0.1, 0.6, 0.5, 0.5]


def test_faster_is_fewer_rounds_to_fedavgs_final_accuracy(found: Run) -> None:
    line = UNSEEN.cheaper(with_curves(found, SLOW, FAST, FAST, FAST), "here", ROUNDS)
    assert line.startswith("- Holds (one seed: above 1): *FedMeta converges faster than FedAvg")
    assert "FedMeta (MAML) 3.00, " in line
    assert line.endswith("times as fast; FedAvg: 3.00 rounds.")


def test_what_never_gets_there_is_not_cheaper(found: Run) -> None:
    never = [0.1, 0.2, 0.2, 0.5]
    for of in UNSEEN.COSTS:
        line = UNSEEN.cheaper(with_curves(found, SLOW, FAST, FAST, never), "here", of)
        assert line.startswith("- Does not hold (one seed: above 1)")
        assert "FedMeta (Meta-SGD) 0.00 times" in line
        assert line.endswith("; 0: never gets there.")


def test_cost_is_not_judged_where_an_untrained_start_is_there(found: Run) -> None:
    line = UNSEEN.cheaper(with_curves(found, SLOW, FAST, [0.7] * 4, FAST), "here", ROUNDS)
    assert line.startswith("- Not judged: *FedMeta converges faster than FedAvg")
    assert line.endswith("above FedAvg's final 60.00 % already: FedMeta (first order) 70.00 %.")


def test_gain_that_is_there_before_training_is_said(found: Run) -> None:
    run = with_curves(found, SLOW, [0.7, 0.7, 0.7, 0.8], FAST, FAST)
    assert "is +10.00 already, and training adds +10.00" in UNSEEN.above_fedavg(run, "here")
    run = with_curves(found, SLOW, FAST, FAST, FAST)
    assert UNSEEN.above_fedavg(run, "here").endswith("adapted by one step: −50.00.")


def test_more_stable_is_less_change_in_the_second_half(found: Run) -> None:
    run = with_curves(found, SLOW, FAST, FAST, FAST)
    assert UNSEEN.unrest(run, "fedavg").tolist() == [[pytest.approx(30.0)]]
    line = UNSEEN.stable(run, "here")
    assert line.startswith("- Not judged: *FedMeta converges more stably than FedAvg, here*")
    assert line.endswith("changes between evaluations in the second half: 1.")
    twice = [
        record._replace(
            rows=[*record.rows, *({**row, "round": row["round"] + 4} for row in record.rows)]
        )
        for record in run.records
    ]
    line = UNSEEN.stable(Run(run.experiment, run.units, twice), "here")  # half: the curves again
    assert line.startswith(
        "- Does not hold (one seed: below 0)"
    )  # FAST: 50, 10, 0 against 10, 10, 30
    assert "FedMeta (MAML) 3.33" in line
    assert "(3 changes), less FedAvg's 16.67" in line


def test_a_choice_at_the_grids_end_is_marked() -> None:
    found = [UNSEEN.edge(value, [0.01, 0.1, 1.0]) for value in (0.01, 0.1, 1.0)]
    assert found == [" (edge)", "", " (edge)"]
    assert UNSEEN.edge(1.0, [1.0]) == " (only)"


def test_a_method_that_stands_still_is_named(found: Run) -> None:
    run = with_curves(found, SLOW, [0.1, 0.5, 0.5, 0.5], FAST, SLOW)
    (text,) = UNSEEN.still({"mnist-20": run}, ["mnist-20"])
    assert text.endswith("after the start: FedMeta (MAML) on MNIST, 20 % support (50.00 %).")
    assert (
        UNSEEN.still({"mnist-20": with_curves(found, SLOW, FAST, FAST, SLOW)}, ["mnist-20"]) == []
    )


def test_thin_grids_and_what_is_not_run_are_said(found: Run) -> None:
    only = replace(found.experiment, sweep={"lr": [1.0], "beta": [1.0], "alpha": [0.1, 1.0]})
    full = replace(found.experiment, sweep={k: [0.1, 1.0] for k in UNSEEN.SYMBOLS})
    runs = {
        "shakespeare-20": Run(only, found.units, found.records),
        "mnist-20": Run(full, found.units, found.records),
    }
    assert UNSEEN.not_run(runs).startswith(" Not run: MNIST, 50 % support; MNIST, 90 % support; ")
    assert "Shakespeare, 20 %" not in UNSEEN.not_run(runs)
    assert "MNIST" not in UNSEEN.thin(runs)
    assert UNSEEN.thin(runs).startswith(
        "Shakespeare's grid has one η and one β, and FedMeta's server"
    )


def test_how_far_alpha_moved(found: Run) -> None:
    (record,) = UNSEEN.chosen(found).records_of("fedmeta-maml")
    server = record.state.server
    learner = server.learner._replace(alpha=np.array([0.1, 0.3, 0.1, 0.0]))
    state = record.state._replace(server=server._replace(learner=learner))
    moved = UNSEEN.alpha_moved(record._replace(state=state), 0.1)
    assert moved == (pytest.approx(0.075), pytest.approx(0.2))
