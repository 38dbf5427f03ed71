"""FedMeta's report: validation clients choose, and what it costs to come as far."""

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
