"""A state that a run can reach is one that it can be resumed from."""

import pytest
from running import CURV, TABLES, document

from fedref.experiments import config, names
from fedref.experiments.setting import setting
from fedref.experiments.unit import problem_in_state, rounds


@pytest.mark.parametrize("label", TABLES)
def test_every_state_of_every_algorithm_can_be_gone_on_from(label):
    own = CURV if label == "fedcurv" else TABLES[label]
    made = config.from_table(document(rounds=6, algorithms={label: own}))
    found, algorithm = setting(made), names.make_algorithm(label, made.algorithms[label])
    reached = [record.state for record in rounds(found, algorithm, seed=0)]
    assert len(reached) == 7
    for state in reached:
        assert problem_in_state(state, algorithm, found.model) == ""
