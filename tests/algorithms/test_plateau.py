"""The window over the loss: a peak, then a plateau, asks for one renewal."""

import numpy as np
import pytest

from fedref.algorithms.apfl import PlateauDetector


def renewals(losses, **options):
    """The rounds in which the detector asks for a renewal, and the detector at the end."""
    detector, rounds = PlateauDetector(**options), []
    for t, loss in enumerate(losses):
        detector, renew = detector.push(loss)
        if renew:
            rounds.append(t)
    return rounds, detector


def test_apfl_alg_1_line_10_a_plateau_after_a_peak_renews_once():
    """Windows of 3: a peak (mean 4 > 0), then flat and low from round 5 on; once only."""
    losses = [4, 4, 4, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2]
    rounds, end = renewals(losses, delta_mu=1.0, delta_sigma=0.1, length=3)
    assert rounds == [5]
    assert (end.mean_old, end.std_old, end.peak) == (pytest.approx(0.2), pytest.approx(0), False)


def test_apfl_alg_1_line_10_needs_a_low_mean_and_a_small_deviation():
    high = [4, 4, 4, 2, 2, 2, 2]
    assert renewals(high, delta_mu=1.0, delta_sigma=0.1, length=3)[0] == []
    assert renewals(high, delta_mu=2.1, delta_sigma=0.1, length=3)[0] == [5]
    shaky = [4, 4, 4, 0.1, 0.9, 0.1, 0.9]
    assert renewals(shaky, delta_mu=1.0, delta_sigma=0.1, length=3)[0] == []
    assert renewals(shaky, delta_mu=1.0, delta_sigma=0.5, length=3)[0] == [5]


def test_apfl_alg_1_line_14_a_peak_is_a_mean_above_the_old_mean_and_deviation():
    """After a renewal at mean 0.2, deviation 0, only a rise above 0.2 lets F be renewed again."""
    first = [4, 4, 4, 0.2, 0.2, 0.2]
    for tail, expected in (
        ([0.2, 0.2, 0.2, 0.1, 0.1, 0.1], [5]),  # falls on: no peak, no renewal
        ([0.5, 0.2, 0.2, 0.2], [5, 9]),  # 0.3 > 0.2 seen at round 6; flat at round 9
    ):
        got, _ = renewals(first + tail, delta_mu=1.0, delta_sigma=0.1, length=3)
        assert got == expected
    # the old deviation counts: (0.1, 0.4, 0.1) has mean 0.2, deviation 0.141
    wide = PlateauDetector(1.0, 0.2, 3, (9.0, 0.1, 0.4), 0.0, 0.0, True)
    after, renew = wide.push(0.1)
    assert renew
    assert after.mean_old == pytest.approx(0.2)
    assert after.std_old == pytest.approx(np.sqrt(0.02))
    calm, _ = after.push(0.45)  # mean 0.3167 ≤ 0.2 + 0.1414
    assert not calm.peak
    peak, _ = after.push(0.55)  # mean 0.35 > 0.3414
    assert peak.peak


def test_the_window_is_judged_only_when_full():
    detector = PlateauDetector(delta_mu=10.0, delta_sigma=10.0, length=5)
    for _ in range(4):
        detector, renew = detector.push(3.0)
        assert (renew, detector.peak) == (False, False)
    detector, renew = detector.push(3.0)
    assert (renew, detector.peak) == (False, True)  # the peak; a plateau at the next at earliest
    detector, renew = detector.push(3.0)
    assert renew
    assert len(detector.window) == 5


def test_apfl_3_3_the_detector_is_pure():
    """[apfl §3.3] as a value: a push changes nothing of the detector before."""
    before = PlateauDetector(length=1)
    after, _ = before.push(7.0)
    assert before == PlateauDetector(length=1)
    assert after.window == (7.0,)
    assert PlateauDetector().length == 5


def test_apfl_alg_1_thresholds_are_strict():
    """[apfl alg.1 lines 10, 14]: mean < δ_μ, std < δ_σ, mean > old mean + old deviation."""
    seen = PlateauDetector(1.0, 0.5, 2, (0.0,), 0.0, 0.0, True)
    assert not seen.push(1.0)[1]  # std is ½
    assert seen._replace(delta_sigma=0.5 + 1e-9).push(1.0)[1]
    flat = PlateauDetector(1.0, 0.5, 2, (1.0,), 9.0, 0.0, True)
    assert not flat.push(1.0)[1]  # mean is 1
    assert flat._replace(delta_mu=1.0 + 1e-9).push(1.0)[1]
    level = PlateauDetector(0.1, 0.1, 1, (), 0.5, 0.25)
    assert not level.push(0.75)[0].peak
    assert level.push(0.75 + 1e-9)[0].peak


def test_a_new_detector():
    assert PlateauDetector() == (1.0, 0.5, 5, (), 0.0, 0.0, False)
    after, renew = PlateauDetector(length=1).push(0.5)
    assert after == (1.0, 0.5, 1, (0.5,), 0.0, 0.0, True)
    assert renew is False
