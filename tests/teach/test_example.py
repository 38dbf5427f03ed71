"""Worked examples and the picture of two clients: what they show is what runs."""

from itertools import pairwise

import numpy as np
import pytest

from fedref.algorithms import ALGORITHMS
from fedref.judge import answer
from fedref.teach import example, pictures


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_worked_example_has_no_zero_and_ends_where_the_specification_does(name):
    case = example.worked_example(name)
    assert np.all(case.inputs["data.X"])
    assert np.all(example.first_parameters(case))
    rows = example.traced_rows(case)
    last = example.LENGTHS.get(name, (1, 1))[0] - 1
    outputs = answer(case)
    first = next(x for key, x in outputs.items() if key.startswith(f"{last}.server."))
    assert any(example.show(first) in value for *_, value in rows[-6:])
    assert "j" not in "".join(value for *_, value in rows)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_picture_s_rounds_follow_each_other(name):
    played = pictures.play_rounds(pictures.make_algorithm(name, {}))
    assert len(played) == pictures.PLAYED
    for before, after in pairwise(played):
        np.testing.assert_array_equal(before.after, after.before)
        assert all(len(path) == 6 for path in before.paths)
    assert not np.allclose(played[0].before, played[-1].after)
    fedavg_s = name.startswith(("fedavg", "per", "fedprox", "fedcurv")) and name != "fedavgm"
    assert not fedavg_s or np.allclose(pictures.mean_end(played[0]), played[0].after)


def test_per_fedavg_goes_to_its_own_minimum_and_another_to_all_clients():
    own, shared = pictures.best_point(0.5), pictures.best_point()
    assert np.linalg.norm(own - shared) > 1
    for name, near, far in (("per-fedavg", own, shared), ("scaffold", shared, own)):
        end = pictures.play_rounds(pictures.make_algorithm(name, {}), rounds=60)[-1].after
        assert np.linalg.norm(end - near) < 0.4 < np.linalg.norm(end - far)


def test_the_settings_of_a_picture_are_its_title():
    assert "alpha = 0.25" in pictures.draw_rounds("per-fedavg", {"alpha": 0.25}).get_suptitle()
