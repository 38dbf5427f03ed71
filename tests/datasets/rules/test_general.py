"""Natural clients, Dirichlet, shards, quantity and IID."""

import numpy as np
import pytest
from dataset_files import made, rows_of, with_clients
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from fedref import ConfigError
from fedref.datasets import manifest_of, reshuffle, split
from fedref.datasets.describe import histogram, statistics
from fedref.rounds.federation import Source


def test_natural_clients_keep_names_and_published_test_rows(digits: Source) -> None:
    client, names = np.array([0, 0, 1, 2, 0, 1, 3]), ("ann", "bob", "cy", "dee")
    source = made(np.arange(7) % 2, client=client, client_names=names, test_from=4)
    found = split("natural", source)
    assert found.names == ("ann", "bob", "cy")  # dee has no training row
    assert [found.train.rows_of(k).tolist() for k in range(3)] == [[0, 1], [2], [3]]
    assert [found.test.rows_of(k).tolist() for k in range(3)] == [[4], [5], []]
    assert split("natural", source, min_rows=2).names == ("ann", "bob")
    alone = split("natural", made([0, 1, 0], client=np.array([0, 1, 1])))
    assert alone.train.sizes.tolist() == [1, 1]  # a client of one row trains on it
    assert alone.test.sizes.tolist() == [0, 1]
    with pytest.raises(ConfigError, match="no natural clients"):
        split("natural", digits)
    with pytest.raises(ConfigError, match="no client of made has 9 rows"):
        split("natural", source, min_rows=9)


@pytest.mark.parametrize("rule", ["dirichlet", "shards", "per-fedavg", "power-law"])
def test_rules_that_need_classes_refuse_real_targets(rule: str) -> None:
    source = Source(np.zeros((300, 2)), np.arange(300) / 8, np.arange(300) // 10, "mine")
    with pytest.raises(ConfigError, match=r"mine has real targets .* natural, iid or quantity"):
        split(rule, source)
    for fits in ({"rule": "natural"}, *({"rule": r, "users": 3} for r in ("iid", "quantity"))):
        assert split(source=source, **fits).clients


def test_dirichlet_skew_falls_with_alpha(digits: Source) -> None:
    splits = [split("dirichlet", digits, alpha=a, users=20) for a in (0.01, 0.3, 1, 1000)]
    purity = [float((n.max(0) / n.sum(0)).mean()) for n in map(histogram, splits)]
    assert purity == sorted(purity, reverse=True)
    assert purity[0] > 0.6
    assert purity[-1] < 0.2


@pytest.mark.parametrize("rule", ["dirichlet", "quantity"])
@settings(max_examples=25)
@given(seed=st.integers(0, 99), alpha=st.sampled_from([0.001, 0.1, 1e6]), least=st.integers(1, 4))
def test_everybody_gets_min_rows_and_nothing_is_lost(
    rule: str, seed: int, alpha: float, least: int
) -> None:
    source = made(np.arange(60) % 3)
    found = split(rule, source, seed, alpha=alpha, users=15, min_rows=least)
    assert (found.train.sizes + found.test.sizes).min() >= least
    assert sorted(rows_of(found)) == list(range(60))


@pytest.mark.parametrize("rule", ["iid", "dirichlet", "shards", "quantity"])
def test_rows_are_dealt_to_as_many_clients_as_the_data_have(rule: str, digits: Source) -> None:
    source = with_clients(digits)
    found = split(rule, source)
    assert found.clients == found.parameters["users"] == split("natural", source).clients == 45
    assert manifest_of(split(rule, source, users=45)) == manifest_of(found)
    assert split(rule, digits).clients == 100
    assert split(rule, source, users=7).clients == 7


def test_shards_are_runs_of_labels_and_iid_clients_are_alike(digits: Source) -> None:
    found = split("shards", digits, users=20, shards=1)
    assert (histogram(found) > 0).sum(0).max() <= 2
    assert statistics(found)["samples"] == len(digits.y)
    found = split("iid", digits, users=7)
    sizes = found.train.sizes + found.test.sizes
    assert sizes.max() - sizes.min() <= 1
    assert sizes.sum() == len(digits.y)
    assert chi2_contingency(histogram(found)).pvalue > 0.001  # a fixed seed: no chance of failing


@pytest.mark.parametrize(
    ("rule", "given", "scaling"),
    [("fedprox-mnist", {"users": 30, "sigma": 1}, "standardise"), ("per-fedavg", {}, "unit")],
)
def test_iid_of_another_rule_keeps_its_sizes_rows_and_scaling(
    rule: str, given: dict[str, int], scaling: str, digits: Source
) -> None:
    sharp = split(rule, digits, 5, **given)
    twin = split("iid", digits, 5, of=rule, **given)
    assert twin.parameters == sharp.parameters | {"of": rule}
    assert twin.parameters["scaling"] == scaling
    assert statistics(twin)["labels a client"] > 2 * statistics(sharp)["labels a client"]
    mixed = reshuffle((sharp.train, sharp.test), np.random.default_rng(0))
    for before, after in zip((sharp.train, sharp.test), mixed):
        np.testing.assert_array_equal(before.sizes, after.sizes)
        np.testing.assert_array_equal(np.sort(before.rows), np.sort(after.rows))
    assert manifest_of(split("iid", digits, 5, **twin.parameters)) == manifest_of(twin)
