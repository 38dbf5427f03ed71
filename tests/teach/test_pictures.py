"""What text/pictures.toml says of each picture is what its rounds are, at both ends of a slider."""

from itertools import pairwise

import numpy as np
import pytest

from fedref.boundary.errors import ConfigError
from fedref.teach import pictures
from fedref.teach.pictures import BOWLS, UNEQUAL, best_point, make_algorithm, play_rounds

MINIMA = [np.array(c) for c, *_ in BOWLS]


def rounds(name, **settings):
    steps = UNEQUAL.get(name, pictures.STEPS)
    return play_rounds(make_algorithm(name, settings), steps=steps, more=pictures.MORE)


def off(point, other):
    return float(np.linalg.norm(point - other))


def test_fedavg_is_nearer_to_the_steep_client_and_rests_beside_the_cross():
    played = rounds("fedavg")
    assert off(played[0].after, MINIMA[0]) < off(played[0].after, MINIMA[1]) - 0.5
    assert off(played[0].rest, best_point()) == pytest.approx(0.394, abs=1e-3)
    assert off(played[4].after, played[0].rest) < 0.1  # the diamond is where the picture ends


def test_fedprox_rests_nearer_to_the_cross_and_is_further_from_it_in_round_5():
    slider, cross = pictures.SLIDERS["fedprox"], best_point()
    played = [rounds("fedprox", mu=float(mu)) for mu in slider.values]
    resting = [off(each[0].rest, cross) for each in played]
    assert all(b < a for a, b in pairwise(resting))
    assert [resting[0], resting[-1]] == pytest.approx([0.394, 0.152], abs=1e-3)
    fifth = [off(each[4].after, cross) for each in played]
    assert [fifth[0], fifth[-1]] == pytest.approx([0.389, 0.966], abs=1e-3)


def test_per_fedavg_rests_beside_the_slanted_cross_by_what_the_answer_says():
    slider = pictures.SLIDERS["per_fedavg"]
    rests = {a: rounds("per-fedavg", alpha=a)[0].rest for a in slider.values}
    beside = {a: off(rest, best_point(a)) for a, rest in rests.items()}
    assert beside[0.05] == pytest.approx(0.46, abs=5e-3)
    assert max(x for a, x in beside.items() if a >= 0.35) < 0.1 < beside[0.3]
    assert off(best_point(0.6), MINIMA[1]) < 0.05
    to_flat = [off(best_point(a), MINIMA[1]) for a in slider.values]
    assert all(b < a for a, b in pairwise(to_flat))


def test_meta_sgd_s_horizontal_step_is_the_larger_one_in_three_rounds_and_then_the_smaller():
    alphas = np.array([r.alpha for r in rounds("fedmeta-sgd")])
    assert (alphas[:3, 0] > alphas[:3, 1]).all()
    assert (alphas[3:, 0] < alphas[3:, 1]).all()
    assert np.abs(alphas[3:, 0] - 0.66).max() < 5e-3
    assert (np.diff(alphas[:, 1]) > 0).all()


def test_feddyn_passes_the_cross_and_comes_to_rest_on_it():
    played, cross = rounds("feddyn"), best_point()
    after = [off(r.after, cross) for r in played]
    assert after[1] < 0.06
    assert after[4] > 0.1
    assert off(played[0].rest, cross) < 1e-3
    assert (played[4].after - cross) @ (
        cross - pictures.START
    ) > 0  # beyond it, seen from the start
    apart = [off(played[t].paths[0][-1], played[t].paths[1][-1]) for t in (0, 1, 4)]
    assert all(b < a for a, b in pairwise(apart))


def test_scaffold_rests_on_the_cross_and_others_where_their_answers_say():
    assert off(rounds("scaffold")[0].rest, best_point()) < 1e-3
    assert off(rounds("fednova")[0].after, MINIMA[1]) < off(
        pictures.mean_end(rounds("fednova")[0]), MINIMA[1]
    )
    deng = play_rounds(make_algorithm("apfl-deng", {}), 40)
    assert off(deng[-1].adapted[1], MINIMA[1]) < 0.01 < 1 < off(deng[4].adapted[1], MINIMA[1])
    assert off(deng[-1].adapted[0], deng[-1].after) < 1e-6


def test_after_a_lost_reply_the_mean_gradient_is_what_c_lacks_of_the_mean_of_the_c_i():
    gradient, difference, c = pictures.play_lost_reply(keeps=True, rounds=60).T
    assert difference[pictures.LOST - 2] < 1e-12 < 1e-2 < difference[-1]
    assert abs(gradient[-1] - difference[-1]) < 1e-12 > c[-1]
    gradient, difference, _ = pictures.play_lost_reply(keeps=False, rounds=60).T
    assert gradient[-1] < 1e-12 > difference.max()


def test_apfl_s_shared_parameters_move_less_with_a_larger_mu():
    values = pictures.SLIDERS["apfl"].values
    ends = [rounds("apfl", mu=float(mu)) for mu in (values[0], values[-1])]
    for t in (1, 2, 4):
        none, most = (off(played[t].after, played[t].before) for played in ends)
        assert most < none


def test_a_server_that_diverges_or_goes_on_has_no_place_of_rest():
    with np.errstate(all="ignore"):
        assert rounds("fedavg", lr=50.0)[0].rest is None
    assert rounds("fedmeta-sgd")[0].rest is None


def test_a_picture_takes_local_steps_and_more_of_them_rest_further_from_the_cross():
    rests = [pictures.play("fedavg", (("steps", n),))[1][0].rest for n in (1, 5, 20)]
    distances = [off(rest, best_point()) for rest in rests]
    assert distances[0] < 1e-3 < distances[1] < distances[2]


@pytest.mark.parametrize(
    ("name", "steps"),
    [("fedavg", 0), ("fedavg", 101), ("fedavg", 2.5), ("fedavg", True), ("fedmaml", 5)],
)
def test_steps_that_are_none_are_told(name, steps):
    with pytest.raises(ConfigError, match="steps"):
        pictures.draw_rounds(name, {"steps": steps})
