"""Per-FedAvg's split: a rows, a/2 and 2a."""

import numpy as np
import pytest
from dataset_files import made
from hypothesis import given
from hypothesis import strategies as st

from fedref import ConfigError
from fedref.datasets import load, split
from fedref.datasets.rules.per_fedavg import pairs
from fedref.rounds.federation import Source


def test_per_fedavg_on_mnist_has_the_papers_numbers(real: object) -> None:
    """[per-fedavg §3.2]: 36 750 training images; a = 34 is the most that fits the test part."""
    source = load("mnist", real)  # type: ignore[arg-type]
    found = split("per-fedavg", source)
    assert dict(found.parameters) | {"scaling": None, "train_fraction": None} == {
        "users": 50,
        "a": 196,
        "a_test": 34,
        "scaling": None,
        "train_fraction": None,
    }
    assert len(found.train.rows) == 36_750
    assert found.train.rows.max() < 60_000 <= found.test.rows.min()


@pytest.mark.parametrize(
    ("users", "a", "classes"), [(50, 4, 10), (20, 2, 10), (8, 6, 4), (2, 2, 2)]
)
def test_per_fedavg_holds_a_half_a_and_two_a(users: int, a: int, classes: int) -> None:
    source = made(np.arange(4000) % classes, test_from=2000)
    found = split("per-fedavg", source, users=users, a=a, a_test=2)
    h = classes // 2
    for part, amount in ((found.train, a), (found.test, 2)):
        for u in range(users):
            counts = np.bincount(source.y[part.rows_of(u)], minlength=classes)
            if u < users // 2:
                assert counts.tolist() == [amount] * h + [0] * h
            else:
                assert sorted(counts[counts > 0]) == [amount // 2, 2 * amount]
                assert counts[:h].sum() == amount // 2
                assert counts[h:].sum() == 2 * amount
    assert found.train.rows.max() < 2000 <= found.test.rows.min()


def test_per_fedavg_has_all_25_pairs() -> None:
    low, high = pairs(10, 50)
    i = np.arange(25)
    np.testing.assert_array_equal(low, i % 5)
    np.testing.assert_array_equal(high, 5 + i // 5)


@given(st.integers(1, 6), st.integers(1, 60))
def test_per_fedavg_pairs_leave_out_no_class_that_can_be_held(half: int, second: int) -> None:
    low, high = pairs(2 * half, 2 * second)
    assert len(set(zip(low, high))) == min(second, half**2)
    assert len(set(high)) == len(set(low)) == min(second, half)


def test_per_fedavg_takes_the_largest_even_a_that_fits(digits: Source) -> None:
    found = split("per-fedavg", digits)
    users, a, a_test = (found.parameters[key] for key in ("users", "a", "a_test"))
    assert len(found.source.labels) == len(np.unique(digits.y[found.train.rows]))
    for name, most in (("a", a), ("a_test", a_test)):
        with pytest.raises(ConfigError, match=f"from 2 to {most}"):
            split("per-fedavg", digits, users=users, **{name: most + 2})
        with pytest.raises(ConfigError, match="an even number"):
            split("per-fedavg", digits, users=users, **{name: 3})


@pytest.mark.parametrize(
    ("y", "given", "message"),
    [
        (np.arange(90) % 3, {}, "an even number of classes"),
        (np.arange(80) % 4, {"users": 5}, "an even number of users"),
        (np.arange(80) % 4, {"users": 80}, "fewer users"),
    ],
)
def test_per_fedavg_says_what_does_not_fit(y: object, given: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split("per-fedavg", made(y), **given)
