"""Parts of runs."""

from dataclasses import replace

import pytest
from reproducing import small

from fedref import run
from fedref.boundary.errors import ConfigError
from fedref.reproduction import parts


def test_part_of_a_sweep() -> None:
    table = {
        "data": {"name": "digits"},
        "algorithms": {"fedprox": {"lr": 0.1}},
        "sweep": {"until-gamma": [0.5, 0.9], "mu": [0.0, 1.0]},
        "clients-per-round": 2,
    }
    whole = run(table, rounds=1)
    part = parts.at(whole, until_gamma=0.9)
    assert [unit.point for unit in part.units] == [{"mu": 0.0}, {"mu": 1.0}]
    assert part.records == whole.records[2:]
    with pytest.raises(ConfigError, match="nothing at"):
        parts.at(whole, mu=7)


def test_totals_are_those_after_the_last_round_a_seed_each() -> None:
    found = run(small({"fedavg": {"lr": 0.1}, "fedcurv": {"lr": 0.1}}, seeds=[0, 1]), rounds=3)
    last = [record.rows[-1] for record in found.records[1::2]]  # fedcurv's, seed by seed
    expected = [row["bytes_down"] + row["bytes_up"] for row in last]
    assert parts.totals(found, "fedcurv", "bytes_down", "bytes_up").tolist() == expected
    assert parts.totals(found, "fedavg", "grads").tolist() == [6, 6]


def test_how_often_runs_are_evaluated() -> None:
    found = run(small({"fedavg": {"lr": 0.1}}), rounds=1)
    seldom = found._replace(experiment=replace(found.experiment, eval_every=5))
    assert parts.how_often([found, found]) == "every round"
    assert parts.how_often([seldom]) == "every 5 rounds"
    assert parts.how_often([seldom, found]) == "every 1 or 5 rounds"
