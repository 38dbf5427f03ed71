"""Per-FedAvg's report of several steps: users that train and new ones, over draws of users."""

import numpy as np
import pytest
from reproducing import small

from fedref import run
from fedref.experiments.loading import Loader
from fedref.experiments.results import Run
from reproduce import catalogue
from reproduce.claims import Place

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
    tested = [STEPS.rows_of_new_users(draw) for draw in draws]
    assert [len(n) for n in tested] == [1, 1]


@pytest.mark.parametrize("users", STEPS.USERS)
def test_before_is_without_any_step(users: str, swept: Run) -> None:
    """With α = 0 a step changes nothing; the values are those of the two draws, in their order."""
    draws = STEPS.draws_with(swept, 3, Loader(None))
    before, after = (
        STEPS.accuracy_before(users, draws, "fedavg-update"),
        STEPS.accuracy_after(users, draws, "fedavg-update"),
    )
    assert before.shape == (2,)
    assert before == pytest.approx(after)
    column = "unseen_accuracy" if users == "new" else "accuracy"
    found = [100 * draw.run.curve("fedavg-update", column)[1][0, -1] for draw in draws]
    assert after.tolist() == found
    assert found[0] != found[1]


def test_new_users_gain_what_is_after_less_before(swept: Run) -> None:
    draws = {nu: STEPS.draws_with(swept, nu, Loader(None)) for nu in (1, 3)}
    place = Place("3", "ν = 3", draws[3], STEPS.METHODS)
    gain = STEPS.gain_of_steps(place, "per-fedavg-fo")
    number = STEPS.line(draws, "new", "per-fedavg-fo", 3)
    assert gain == pytest.approx(np.subtract(number.ours, number.more[0]))
    assert (gain != 0).any()
    assert STEPS.gain_of_steps(place, "fedavg-update") == pytest.approx([0, 0])
    one = STEPS.accuracy_after("new", draws[1], "per-fedavg-fo")
    assert number.more[1] == pytest.approx(np.subtract(number.ours, one))
