"""The numbers that a seed gives: a change of them would make every published run another one."""

import numpy as np
import pytest

from fedref.sampling import PADDING, Sampling, make_plan, stream


@pytest.mark.parametrize(
    ("name", "key", "numbers"),
    [
        ("cohort", (5,), [745, 716, 485, 257]),
        ("D", (2, 7), [166, 0, 328, 803]),
        ("init", (), [770, 927, 929, 723]),
    ],
)
def test_a_stream_is_keyed_by_seed_purpose_round_and_client(name, key, numbers):
    assert stream(3, name, *key).integers(0, 1000, 4).tolist() == numbers


def test_an_episode_a_batch_divides_the_batches_that_fedavg_draws():
    """Support and query of a step are disjoint, and together that step's rows of D."""
    config, sizes = Sampling(3, epochs=2, batch_size=4, support=0.5), np.array([7, 12, 1])
    plain = make_plan(config, sizes, 2, 5)
    halves = make_plan(config, sizes, 2, 5, ("S of D", "Q of D"))
    assert halves.steps.tolist() == plain.steps.tolist()
    for k, steps in enumerate(plain.steps):
        for t in range(steps):
            S, Q, D = (
                [row for row in rows[k, t].tolist() if row != PADDING]
                for rows in (halves.rows["S of D"], halves.rows["Q of D"], plain.rows["D"])
            )
            assert sorted(S + Q) == sorted(D)
            assert len(S) == min(max(round(0.5 * len(D)), 1), len(D) - 1)
