"""Evaluation in blocks of clients: every client once, every row once, never more than the limit."""

import numpy as np
import pytest
from helpers import MODELS, make_algorithm, make_federation, same, start

from fedref import evaluation
from fedref.sampling import Sampling

SIZES = (7, 1, 12, 3, 5, 2, 9)


@pytest.fixture
def federated():
    return make_federation(MODELS["mlp"], SIZES)


def by_a_loop(rows: list[int], most: int) -> list[list[int]]:
    """Clients are taken while they fit; one that does not fit alone is alone."""
    found: list[list[int]] = []
    held = 0
    for k, n in enumerate(rows):
        if found and held + n <= most:
            found[-1].append(k)
            held += n
        else:
            found.append([k])
            held = n
    return found


@pytest.mark.parametrize("most", [1, 3, 8, 13, 14, 15, 20, 10_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_are_those_of_a_loop(federated, most, dtype, monkeypatch):
    row = federated.source.X.shape[1] * np.dtype(dtype).itemsize
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", most * row)
    rows = (federated.train.sizes + federated.test.sizes).tolist()
    assert [list(block) for block in evaluation.blocks(federated, dtype)] == by_a_loop(rows, most)


@pytest.mark.parametrize("most", [1, 2, 5, 11, 12, 1000])
def test_a_large_client_comes_piece_by_piece(federated, most, monkeypatch):
    row = federated.source.X.shape[1] * 8
    monkeypatch.setattr(evaluation, "LIMIT", most * row)
    for k, n in enumerate(federated.train.sizes.tolist()):
        (pieces,) = evaluation.client_batches(
            federated, federated.train, range(k, k + 1), np.float64
        )
        pieces = list(pieces)
        whole = federated.batch(federated.train.of(k))
        np.testing.assert_array_equal(np.concatenate([D.X for D in pieces]), whole.X)
        np.testing.assert_array_equal(np.concatenate([D.y for D in pieces]), whole.y)
        assert [len(D.y) for D in pieces] == [min(most, n - i) for i in range(0, n, most)]


def test_a_block_has_each_client_s_rows_in_order(federated):
    found = evaluation.client_batches(federated, federated.train, range(1, 4), np.float64)
    for k, Ds in zip(range(1, 4), found):
        (D,) = Ds
        assert same(tuple(D), tuple(federated.batch(federated.train.of(k))))


@pytest.mark.parametrize("variant", ["fedavg", "per-fedavg", "apfl", "fedmeta-sgd"])
@pytest.mark.parametrize(("block", "limit"), [(1, 1), (200, 1), (1, 100), (700, 1 << 26)])
def test_scores_do_not_depend_on_blocks(federated, variant, block, limit, monkeypatch):
    model, algorithm = MODELS["mlp"], make_algorithm(variant)
    state, sampling = start(algorithm, model), Sampling(2, epochs=1, batch_size=4)

    def scores():
        return evaluation.evaluate(
            algorithm, model, state, federated, sampling, round=2, seed=1, train=True
        )

    expected = scores()
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", block)
    monkeypatch.setattr(evaluation, "LIMIT", limit)
    for got, wanted in zip(scores(), expected):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
