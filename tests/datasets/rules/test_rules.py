"""What holds for every split rule: seeds, parameters, scaling."""

import numpy as np
import pytest
from dataset_files import made, rows_of, with_clients

from fedref import ConfigError
from fedref.boundary.values import schema
from fedref.datasets import RULES, manifest_of, split
from fedref.rounds.federation import Source


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_explained_and_determined_by_its_seed_and_recorded_parameters(
    rule: str, digits: Source
) -> None:
    source = with_clients(digits) if rule == "natural" else digits
    few = {"users": 20} if hasattr(RULES[rule], "users") else {}  # fits the digits with every rule
    one, other = (split(rule, source, seed, **few) for seed in (1, 2))
    assert manifest_of(split(rule, source, 1, **one.parameters)) == manifest_of(one)
    assert manifest_of(one) != manifest_of(other)
    one.check()
    rows = rows_of(one)
    assert len(np.unique(rows)) == len(rows)  # nobody shares a row
    assert min(one.train.sizes.min(), one.test.sizes.min()) >= 1
    assert RULES[rule].help.endswith(".")
    assert all(entry.meaning for entry in schema(RULES[rule]).values())


@pytest.mark.parametrize(
    ("rule", "given", "message"),
    [
        ("dirichlt", {}, "did you mean 'dirichlet'"),
        ("dirichlet(0.1, users=9)", {}, r"--set split\.alpha=0\.1 --set split\.users=9"),
        ("dirichlt(0.1)", {}, "did you mean 'dirichlet'"),
        ("dirichlet", {"user": 3}, "did you mean 'users'"),
        ("dirichlet", {"users": 0}, "dirichlet users is 0, expected a whole number, at least 1"),
        ("dirichlet", {"users": True}, "a whole number"),
        ("dirichlet", {"alpha": np.inf}, "a finite number"),
        ("dirichlet", {"train_fraction": 1.5}, "at most 1"),
        ("dirichlet", {"scaling": "whiten"}, "unknown scaling"),
        ("dirichlet", {"users": 1000}, "need 2000 rows, digits has 1797"),
        ("dirichlet", {"seed": -1}, "seed is -1"),
        ("iid", {"of": "iid"}, "another rule"),
        ("iid", {"of": "shards", "alpha": 1}, "unknown key of shards"),
        ("fedprox-mnist", {}, "1000 rows of class 0, digits has 178: lower users"),
        ("fedprox-mnist", {"users": 10, "classes": 11}, "only 10"),
        ("fedprox-femnist", {"users": 5000}, "lower users"),
    ],
)
def test_wrong_parameters_are_refused(
    rule: str, given: dict[str, object], message: str, digits: Source
) -> None:
    with pytest.raises(ConfigError, match=message):
        split(rule, digits, **given)  # type: ignore[arg-type]


def test_pixels_are_scaled_to_one_by_their_documented_full_scale(digits: Source) -> None:
    found = split("iid", digits, users=5)
    assert found.parameters["scaling"] == "unit"
    assert found.batch(np.arange(1797)).X.max() == 1.0
    assert split("iid", digits, users=5, scaling="none").batch(np.arange(1797)).X.max() == 16.0
    with pytest.raises(ConfigError, match="largest possible feature value"):
        split("iid", made(np.arange(10) % 2), users=2, scaling="unit")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_standardise_is_mean_zero_deviation_one(dtype: type) -> None:
    X = np.random.default_rng(0).integers(0, 200, (5000, 3)).astype(dtype)
    X[:, 2] = 7  # a constant feature stays finite
    found = split("iid", Source(X, np.arange(5000) % 2), users=2, scaling="standardise")
    Z = found.batch(np.arange(5000)).X
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(Z.std(0), [1, 1, 0], atol=1e-3)
