"""Evaluation in blocks of clients: every client once, every row once, never more than the limit."""

import numpy as np
import pytest
from helpers import MODELS, make_algorithm, make_federation, same, start

from fedref.algorithm import State
from fedref.models import MLP
from fedref.rounds import evaluation
from fedref.rounds.federation import Federation, Part, Source
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
        whole = federated.batch(federated.train.rows_of(k))
        np.testing.assert_array_equal(np.concatenate([D.X for D in pieces]), whole.X)
        np.testing.assert_array_equal(np.concatenate([D.y for D in pieces]), whole.y)
        assert [len(D.y) for D in pieces] == [min(most, n - i) for i in range(0, n, most)]


def test_a_block_has_each_client_s_rows_in_order(federated):
    found = evaluation.client_batches(federated, federated.train, range(1, 4), np.float64)
    for k, Ds in zip(range(1, 4), found):
        (D,) = Ds
        assert same(tuple(D), tuple(federated.batch(federated.train.rows_of(k))))


@pytest.mark.parametrize("variant", ["fedavg", "per-fedavg", "apfl", "fedmeta-sgd"])
@pytest.mark.parametrize(
    ("block", "limit", "chunk"),
    # with chunks of 1 every client ends where a chunk does
    [(1, 1, 1), (200, 1, 4), (1, 100, 1), (700, 1 << 26, 4)],
)
def test_scores_do_not_depend_on_blocks(federated, variant, block, limit, chunk, monkeypatch):
    model, algorithm = MODELS["mlp"], make_algorithm(variant)
    state, sampling = start(algorithm, model), Sampling(2, epochs=1, batch_size=4)

    def scores():
        return evaluation.evaluate(
            algorithm, model, state, federated, sampling, round=2, seed=1, train=True
        )

    expected = scores()
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", block)
    monkeypatch.setattr(evaluation, "LIMIT", limit)
    monkeypatch.setattr(evaluation, "CHUNK", chunk)
    for got, wanted in zip(scores(), expected):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("most", [1, 2, 5, 9, 40])
def test_rows_are_cut_at_each_client_s_end_and_nowhere_else_but_in_long_ones(most, monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", most)
    part = Part(np.arange(sum(SIZES)), np.concatenate([[0], np.cumsum(SIZES)]))
    expected = {0}
    for k, n in enumerate(SIZES):
        expected |= {int(part.offsets[k]) + i for i in (*range(0, n, most), n)}
    cuts = list(evaluation.chunks(part))
    assert [a[-1] for a in cuts[:-1]] == [b[0] for b in cuts[1:]]
    assert {end for ends in cuts for end in ends} == expected
    assert all(ends[-1] - ends[0] < 2 * most for ends in cuts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["fedavg", "per-fedavg"])
def test_a_client_s_scores_depend_on_no_other_client(name, dtype):
    """To the bit, so that they are the same wherever it is evaluated, beside whomever."""
    model = MLP(17, (13, 11), 5)  # of many rows BLAS makes the last ones in another way
    rng = np.random.default_rng(0)
    federated = random_federation(model, rng.integers(1, 60, 40), rng)
    algorithm, w = make_algorithm(name), model.init(rng).astype(dtype)
    state = State(algorithm.initial(model, w), {})
    how = {"round": 3, "seed": 1, "dtype": dtype}
    plan = Sampling(5, epochs=1, batch_size=4)
    whole = evaluation.evaluate(algorithm, model, state, federated, plan, **how)
    for some in (np.array([7]), np.arange(11, 40, 3)):
        own = evaluation.evaluate_clients(
            algorithm, model, state.server, {}, federated.subset(some), plan, clients=some, **how
        )
        for part, all_of_it in zip(own, whole):
            np.testing.assert_array_equal(part, all_of_it[some])


def random_federation(model, sizes, rng):
    """Clients with so many rows for training, and as many again for testing."""
    n = int(sizes.sum())
    X, y = rng.normal(size=(2 * n, model.features)), rng.integers(0, model.classes, 2 * n)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Federation(Source(X, y), Part(np.arange(n), offsets), Part(np.arange(n, 2 * n), offsets))
