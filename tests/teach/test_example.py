"""Worked examples and the picture of two clients: what they show is what runs."""

from itertools import pairwise

import numpy as np
import pytest

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError
from fedref.checks import complex_step_gradient
from fedref.judge import answer
from fedref.teach import example, plane


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_worked_example_has_no_zero_and_ends_where_the_specification_does(name):
    worked = example.worked_example(name)
    assert np.all(worked.case.inputs["data.X"])
    assert np.all(example.first_parameters(worked.case))
    rows = example.traced_rows(worked)
    last = example.LENGTHS.get(name, (1, 1))[0] - 1
    outputs = answer(worked.case)
    first = next(x for key, x in outputs.items() if key.startswith(f"{last}.server."))
    assert any(example.show(first) in value for *_, value in rows[-6:])
    assert "j" not in "".join(value for *_, value in rows)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_picture_s_rounds_follow_each_other(name):
    played = plane.play_rounds(plane.make_algorithm(name, {}))
    assert len(played) == max(plane.ROUNDS)
    for before, after in pairwise(played):
        np.testing.assert_array_equal(before.after, after.before)
        assert all(len(path) == 6 for path in before.paths)
    assert not np.allclose(played[0].before, played[-1].after)
    fedavg_s = name.startswith(("fedavg", "per", "fedprox", "fedcurv")) and name != "fedavgm"
    assert not fedavg_s or np.allclose(plane.mean_end(played[0]), played[0].after)


def test_fednova_takes_out_what_more_steps_weigh():
    """Its change in a round is that of one step each, times the mean number of steps, 3.5."""
    it = plane.make_algorithm("fednova", {})
    first, *_ = plane.play_rounds(it, 1, plane.UNEQUAL["fednova"])
    each = [(path[-1] - first.before) / (len(path) - 1) for path in first.paths]
    np.testing.assert_allclose(first.after - first.before, 3.5 * np.mean(each, 0), rtol=1e-12)
    assert not np.allclose(plane.mean_end(first), first.after)


def test_local_steps_are_the_paper_s():
    settings = {"lr": 0.1, "mu": 2.0}
    first, second, *_ = plane.play_rounds(plane.make_algorithm("fedprox", settings))
    for path, D in zip(second.paths, plane.DATA):
        objective = lambda w: plane.MODEL.loss(w, D) + np.sum((w - second.before) ** 2)  # noqa: B023, E731
        step = path[1] - 0.1 * complex_step_gradient(objective, path[1])
        np.testing.assert_allclose(path[2], step, rtol=1e-12)
    np.testing.assert_allclose(first.after, np.mean([path[-1] for path in first.paths], 0))


def test_per_fedavg_goes_to_its_own_minimum_and_fedavg_to_another():
    own, shared = plane.best_point(0.5), plane.best_point()
    assert np.linalg.norm(own - shared) > 1
    for name, near, far in (("per-fedavg", own, shared), ("scaffold", shared, own)):
        end = plane.play_rounds(plane.make_algorithm(name, {}), rounds=60)[-1].after
        assert np.linalg.norm(end - near) < 0.4 < np.linalg.norm(end - far)


def test_settings_of_a_picture_are_checked():
    figure = plane.draw_rounds("per-fedavg", {"alpha": 0.25, "beta": 0.1})
    assert "alpha = 0.25" in figure.get_suptitle()
    with pytest.raises(ConfigError):
        plane.draw_rounds("per-fedavg", {"alhpa": 1})
