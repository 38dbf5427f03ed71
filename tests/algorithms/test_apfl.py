"""APFL: when importance is renewed, and the output units."""

import numpy as np
import pytest
from helpers import (
    MODELS,
    make_federation,
    play,
    same,
)

from fedref.algorithms.apfl import (
    APFL,
    PlateauDetector,
    expand_units,
    sum_over_units,
)
from fedref.models import CNN, BinaryLogistic, LinearSVM, Logistic
from fedref.proofs.apfl import units_of
from fedref.proofs.models import MODELS as PROOF_MODELS
from fedref.sampling import Sampling

CONFIG = Sampling(3, epochs=2, batch_size=4)


# -- when F is renewed


def importance_of(server):
    """F as an array; the server keeps the number 0 while it is 0."""
    return np.broadcast_to(server.F, server.w.shape)


def test_apfl_alg_1_lines_9_16_the_flag_asks_for_one_renewal_in_the_next_round():
    """z far away: only the detector renews. Its flag is raised after a round, used in the next."""
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    losses = [4.0, 4.0, 0.2, 0.2, 0.2, 0.2]
    algorithm = APFL(lr=0.1, z=100, delta_mu=1.0, delta_sigma=0.1, window=2)
    states, logs = play(algorithm, model, federated, CONFIG, rounds=6, loss=losses.__getitem__)
    assert [s.server.renew for s in states] == [False] * 4 + [True] + [False] * 2
    assert [log.floats_up // model.d for log in logs] == [3, 3, 3, 3, 6, 3]
    assert [bool(importance_of(s.server).any()) for s in states] == [False] * 5 + [True] * 2
    assert same(states[6].server.F, states[5].server.F)  # kept while it is not renewed
    assert [algorithm.server_metrics(s.server)["renewed"] for s in states] == [0, 0, 0, 0, 1, 0, 0]


def test_the_detector_gets_the_thresholds_that_were_set():
    algorithm = APFL(delta_mu=0.7, delta_sigma=0.2, window=3)
    server = algorithm.initial(MODELS["svm"], np.zeros(4))
    assert server.detector == PlateauDetector(0.7, 0.2, 3)
    assert APFL().initial(MODELS["svm"], np.zeros(4)).detector == PlateauDetector(1.0, 0.5, 5)


# -- when: a peak of the loss, then a plateau


@pytest.mark.parametrize(
    ("losses", "options", "expected"),
    [
        ([4, 4, 4, 0.2, 0.2, 0.2, 0.2, 0.2], {}, [5]),  # once only
        ([4, 4, 4, 2, 2, 2, 2], {}, []),  # the mean is not low
        ([4, 4, 4, 2, 2, 2, 2], {"delta_mu": 2.1}, [5]),
        ([4, 4, 4, 0.1, 0.9, 0.1, 0.9], {}, []),  # nor is the deviation small
        ([4, 4, 4, 0.1, 0.9, 0.1, 0.9], {"delta_sigma": 0.5}, [5]),
        ([4, 4, 4, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1], {}, [5]),  # no peak again
        ([4, 4, 4, 0.2, 0.2, 0.2, 0.5, 0.2, 0.2, 0.2], {}, [5, 9]),  # 0.3 > 0.2 is one
    ],
)
def test_the_rounds_in_which_a_renewal_is_asked_for(losses, options, expected):
    detector = PlateauDetector(**{"delta_mu": 1.0, "delta_sigma": 0.1, "length": 3, **options})
    asked = []
    for t, loss in enumerate(losses):
        detector, renew = detector.push(loss)
        asked += [t] * renew
    assert asked == expected


def test_the_window_is_judged_only_when_full_and_a_push_changes_no_detector():
    detectors = [PlateauDetector(delta_mu=10.0, delta_sigma=10.0, length=3)]
    for expected in ((False, False), (False, False), (False, True), (True, False)):
        after, renew = detectors[-1].push(3.0)
        assert (renew, after.peak) == expected  # the peak; a plateau at the next at earliest
        detectors.append(after)
    assert [len(detector.window) for detector in detectors] == [0, 1, 2, 3, 3]
    assert PlateauDetector() == (1.0, 0.5, 5, (), 0.0, 0.0, False)


# -- output units


def unit_of_parameter(model):
    """The output unit of each of the d parameters, counted through all layers: (d,)."""
    return expand_units(model, np.arange(len(sum_over_units(model, np.zeros(model.d)))))


def test_units_by_hand():
    assert unit_of_parameter(Logistic(2, 3)).tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert unit_of_parameter(LinearSVM(2)).tolist() == [0, 0, 0]
    assert unit_of_parameter(BinaryLogistic(2, bias=False)).tolist() == [0, 0]
    cnn = CNN((3, 3), (2,), 2, 1, 2)  # kernel 2·2·1·2, bias 2; (1·1·2) × 1, bias 1; 1 × 2, bias 2
    assert unit_of_parameter(cnn).tolist() == [0, 1] * 4 + [0, 1] + [2] * 2 + [2] + [3, 4] + [3, 4]


@pytest.mark.parametrize("name", PROOF_MODELS)
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_expand_and_sum_over_units_are_transposes(name, lead):
    """⟨expand(m), x⟩ = ⟨m, sum(x)⟩, exactly: with whole numbers nothing is rounded."""
    model = PROOF_MODELS[name]
    rng, units = np.random.default_rng(0), units_of(model).tolist()
    assert unit_of_parameter(model).tolist() == units
    m = rng.integers(-50, 50, (*lead, max(units) + 1)).astype(float)
    x = rng.integers(-50, 50, (*lead, model.d)).astype(float)
    np.testing.assert_array_equal(expand_units(model, m), m[..., units])
    left, right = (expand_units(model, m) * x).sum(-1), (m * sum_over_units(model, x)).sum(-1)
    np.testing.assert_array_equal(left, right)
