"""Parts of runs."""

import pytest

from fedref import run
from fedref.errors import ConfigError
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
