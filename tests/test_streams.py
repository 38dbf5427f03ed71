"""The numbers that a seed gives: a change of them would make every published run another one."""

import pytest

from fedref.sampling import stream


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
