"""FedMeta: MAML, its first order, Meta-SGD; the server's SGD and Adam."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import (
    KINDS,
    MODELS,
    make_batch,
    same,
)

from fedref.algorithms.fedmeta import (
    MAML,
    maml_gradient,
    meta_sgd_gradient,
)
from fedref.sampling import Sampling, make_plan

CONFIG = Sampling(4, epochs=1, support=0.6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("steps", [1, 3])
def test_limits_of_alpha_to_the_bit(kind, lead, steps):
    """A constant α makes Meta-SGD MAML; α = 0 leaves the gradient on the query."""
    model, rng = MODELS[kind], np.random.default_rng(0)
    theta = rng.normal(size=(*lead, model.d))
    S, Q = (make_batch(model, rng, n, lead, weights=True) for n in (4, 3))
    g_theta, _ = meta_sgd_gradient(model, theta, np.full(model.d, 0.2), S, Q, steps=steps)
    assert same(g_theta, maml_gradient(model, theta, S, Q, alpha=0.2, steps=steps))
    for second_order in (True, False):
        how = {"alpha": 0.0, "steps": steps, "second_order": second_order}
        got = maml_gradient(model, theta, S, Q, **how)
        np.testing.assert_array_equal(got, model.grad(theta, Q))


# -- the server


def test_stragglers_that_are_not_dropped_do_part_of_the_epochs_and_one_episode_whole():
    sizes, config = (
        np.array([20, 20, 20, 20]),
        replace(CONFIG, epochs=9, batch_size=4, stragglers=1.0),
    )
    one, many = (
        make_plan(config, sizes, 0, 0, MAML(drop=False, episodes=episodes).roles)
        for episodes in ("one", "epochs")
    )
    assert one.steps.tolist() == [1] * 4
    assert many.steps.tolist() == (5 * many.amount).tolist()
    assert many.amount.min() < 9
