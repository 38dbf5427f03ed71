"""Per-FedAvg's report of several steps: users that train and new ones, over draws of users."""

import numpy as np
import pytest
from reproducing import small

from fedref import run
from fedref.experiments.loading import Loader
from fedref.experiments.results import Run
from reproduce import catalogue
from reproduce.claims import Place
from reproduce.measures import unadapted_scores

STEPS = catalogue.find("per-fedavg-steps").module


@pytest.fixture(scope="module")
def swept() -> Run:
    """FedAvg with update and Per-FedAvg, on two draws of ten users of whom one is new."""
    algorithms = {
        "fedavg-update": {"alpha": 0.0},
        "per-fedavg-fo": {"alpha": 0.5},
    }
    sweep = {"split.seed": [0, 1], "inner-steps": [1, 3]}
    return run(small(algorithms, users=10, unseen=0.2, sweep=sweep), rounds=2)


def test_each_draw_has_users_of_its_own(swept: Run) -> None:
    draws = STEPS.draws_with(swept, 3, Loader(None))
    rows = [draw.data.federation.train.rows_of(0).tolist() for draw in draws]
    assert rows[0] != rows[1]
    assert all([unit.point for unit in draw.run.units] == [{}, {}] for draw in draws)
    tested = [unadapted_scores(d.run, "per-fedavg-fo", d.data, unseen=True) for d in draws]
    assert [len(scores[0].n_test) for scores in tested] == [1, 1]


@pytest.mark.parametrize("users", STEPS.USERS)
def test_before_is_without_any_step(users: str, swept: Run) -> None:
    """With α = 0 a step changes nothing; the values are those of the two draws, in their order."""
    draws = STEPS.draws_with(swept, 3, Loader(None))
    after, before = STEPS.measure(draws, users, "fedavg-update")
    assert before.shape == (2,)
    assert before == pytest.approx(after)
    column = STEPS.USERS[users]
    found = [100 * draw.run.curve("fedavg-update", column)[1][0, -1] for draw in draws]
    assert after.tolist() == found
    assert found[0] != found[1]


def test_new_users_gain_what_is_after_less_before(swept: Run) -> None:
    draws = STEPS.draws_with(swept, 3, Loader(None))
    found = {m: STEPS.measure(draws, "new", m) for m in swept.experiment.algorithms}
    place = Place("3", "ν = 3", found, STEPS.METHODS)
    gain = STEPS.gain_of_steps(place, "per-fedavg-fo")
    assert gain == pytest.approx(np.subtract(*found["per-fedavg-fo"]))
    assert (gain != 0).any()
    assert STEPS.gain_of_steps(place, "fedavg-update") == pytest.approx([0, 0])


def test_a_line_has_what_more_steps_give_and_cost() -> None:
    values = {1: (np.array([70.0]), np.array([60.0])), 3: (np.array([75.0]), np.array([61.0]))}
    found = {("new", "per-fedavg-fo", nu): both for nu, both in values.items()}
    spent = {("per-fedavg-fo", nu): np.array([nu + 1.0]) for nu in values}
    one, three = STEPS.numbers_of(found, spent)
    assert np.ravel(one.more).tolist() == [60, 0, 1]
    assert (three.what, three.ours.tolist()) == (("new", "Per-FedAvg (FO)", "3"), [75])
    assert np.ravel(three.more).tolist() == [61, 5, 2]
