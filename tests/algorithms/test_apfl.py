"""APFL: when importance is renewed, its estimate along the path, the output units.

The detector's windows and thresholds are the specification's (`fedref check --only "apfl alg.1"`).
"""

import numpy as np
from helpers import MODELS, make_federation, play, same

from fedref.algorithms.apfl import APFL, expand_units, sum_over_units
from fedref.models import CNN, BinaryLogistic, LinearSVM, Logistic
from fedref.sampling import Sampling


def test_apfl_alg_1_lines_9_16_the_flag_asks_for_one_renewal_in_the_next_round():
    """z far away: only the detector renews. Its flag is raised after a round, used in the next."""
    model, federated = MODELS["logistic"], make_federation(MODELS["logistic"])
    losses, sampling = [4.0, 4.0, 0.2, 0.2, 0.2, 0.2], Sampling(3, epochs=2, batch_size=4)
    algorithm = APFL(lr=0.1, z=100, delta_mu=1.0, delta_sigma=0.1, window=2)
    states, logs = play(algorithm, model, federated, sampling, rounds=6, loss=losses.__getitem__)
    assert [s.server.renew for s in states] == [False] * 4 + [True] + [False] * 2
    assert [log.floats_up // model.d for log in logs] == [3, 3, 3, 3, 6, 3]
    assert [bool(np.any(s.server.F)) for s in states] == [False] * 5 + [True] * 2
    assert same(states[6].server.F, states[5].server.F)  # kept while it is not renewed
    assert [algorithm.server_metrics(s.server)["renewed"] for s in states] == [0, 0, 0, 0, 1, 0, 0]


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
