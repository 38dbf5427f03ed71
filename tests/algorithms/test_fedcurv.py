"""FedCurv: the penalty towards the other clients' last solutions."""

from helpers import (
    MODELS,
    SIZES,
    make_algorithm,
    make_federation,
    play,
)

from fedref.sampling import Sampling

CONFIG = Sampling(3, epochs=1, batch_size=4)


def test_the_penalty_is_never_negative_curvature():
    """u − I_s ≥ 0 in every entry for every client of every round."""
    model, federated = MODELS["mlp"], make_federation(MODELS["mlp"])
    algorithm = make_algorithm("fedcurv")
    states, _ = play(algorithm, model, federated, CONFIG, rounds=8)
    for state in states:
        for k in range(len(SIZES)):
            local = algorithm.start(model, state.server, state.clients.get(k))
            assert (state.server.u - local.own_u >= -1e-15 * state.server.u.max()).all()
