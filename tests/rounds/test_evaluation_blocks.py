"""Evaluation in blocks of clients: every client and every row once, in pieces of limited size."""

import numpy as np
import pytest
from helpers import MODELS, VARIANTS, make_algorithm, make_federation, same, start

from fedref.algorithm import State
from fedref.models import MLP
from fedref.rounds import evaluation
from fedref.rounds.federation import Federation, Part, Source
from fedref.sampling import Sampling

SIZES = (7, 1, 12, 3, 5, 2, 9)


@pytest.fixture
def federated():
    return make_federation(MODELS["mlp"], SIZES)


def blocks_by_a_loop(sizes: list[int], max_rows: int) -> list[list[int]]:
    """Fill each block while the next client fits; a client with too many rows is a block by itself."""
    blocks: list[list[int]] = []
    rows = 0  # in the last block
    for k, n in enumerate(sizes):
        if blocks and rows + n <= max_rows:
            blocks[-1].append(k)
            rows += n
        else:
            blocks.append([k])
            rows = n
    return blocks


@pytest.mark.parametrize("max_rows", [1, 3, 8, 13, 14, 15, 20, 10_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_are_those_of_a_loop(federated, max_rows, dtype, monkeypatch):
    row_bytes = federated.source.X.shape[1] * np.dtype(dtype).itemsize
    monkeypatch.setattr(evaluation, "BLOCK_BYTES", max_rows * row_bytes)
    sizes = (federated.train.sizes + federated.test.sizes).tolist()
    blocks = [list(block) for block in evaluation.blocks(federated, dtype)]
    assert blocks == blocks_by_a_loop(sizes, max_rows)


@pytest.mark.parametrize("max_rows", [1, 2, 5, 11, 12, 1000])
def test_a_large_client_comes_piece_by_piece(federated, max_rows, monkeypatch):
    row_bytes = federated.source.X.shape[1] * 8
    monkeypatch.setattr(evaluation, "LIMIT", max_rows * row_bytes)
    for k, n in enumerate(federated.train.sizes.tolist()):
        (pieces,) = evaluation.client_batches(
            federated, federated.train, range(k, k + 1), np.float64
        )
        pieces = list(pieces)
        whole = federated.batch(federated.train.rows_of(k))
        np.testing.assert_array_equal(np.concatenate([D.X for D in pieces]), whole.X)
        np.testing.assert_array_equal(np.concatenate([D.y for D in pieces]), whole.y)
        lengths = [min(max_rows, n - i) for i in range(0, n, max_rows)]
        assert [len(D.y) for D in pieces] == lengths


def test_a_block_has_each_client_s_rows_in_order(federated):
    batches = evaluation.client_batches(federated, federated.train, range(1, 4), np.float64)
    for k, Ds in zip(range(1, 4), batches):
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_the_same_on_any_number_of_threads(federated, variant, monkeypatch):
    model, algorithm = MODELS["mlp"], make_algorithm(variant)
    for name in ("BLOCK_BYTES", "CHUNK"):  # many small pieces
        monkeypatch.setattr(evaluation, name, 4)
    plan, found = Sampling(2, epochs=1, batch_size=4), []
    for threads in (1, 2, 3):
        monkeypatch.setattr(evaluation, "evaluation_threads", lambda *_, n=threads: n)
        state = start(algorithm, model)
        found.append(evaluation.evaluate(algorithm, model, state, federated, plan, round=2, seed=1))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


@pytest.mark.parametrize("chunk", [1, 2, 5, 9, 40])
def test_rows_are_cut_at_each_client_s_end_and_within_clients_longer_than_a_chunk(
    chunk, monkeypatch
):
    monkeypatch.setattr(evaluation, "CHUNK", chunk)
    part = Part(np.arange(sum(SIZES)), np.concatenate([[0], np.cumsum(SIZES)]))
    expected = {0}
    for k, n in enumerate(SIZES):
        expected |= {int(part.offsets[k]) + i for i in (*range(0, n, chunk), n)}
    cuts = list(evaluation.chunks(part))
    assert [a[-1] for a in cuts[:-1]] == [b[0] for b in cuts[1:]]
    assert {end for ends in cuts for end in ends} == expected
    assert all(ends[-1] - ends[0] < 2 * chunk for ends in cuts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["fedavg", "per-fedavg"])
def test_a_client_s_scores_depend_on_no_other_client(name, dtype):
    """Equal to the bit: a client may be evaluated anywhere, together with any others."""
    model = MLP(17, (13, 11), 5)  # BLAS may compute the last of many rows differently
    rng = np.random.default_rng(0)
    federated = random_federation(model, rng.integers(1, 60, 40), rng)
    algorithm, w = make_algorithm(name), model.init(rng).astype(dtype)
    state = State(algorithm.initial(model, w), {})
    options = {"round": 3, "seed": 1, "dtype": dtype}
    plan = Sampling(5, epochs=1, batch_size=4)
    whole = evaluation.evaluate(algorithm, model, state, federated, plan, **options)
    for clients in (np.array([7]), np.arange(11, 40, 3)):
        subset = federated.subset(clients)
        alone = evaluation.evaluate_clients(
            algorithm, model, state.server, {}, subset, plan, clients=clients, **options
        )
        for scores, scores_of_all in zip(alone, whole):
            np.testing.assert_array_equal(scores, scores_of_all[clients])


def random_federation(model, sizes, rng):
    """A federation whose client k has sizes[k] training rows and as many test rows."""
    n = int(sizes.sum())
    X, y = rng.normal(size=(2 * n, model.features)), rng.integers(0, model.classes, 2 * n)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Federation(Source(X, y), Part(np.arange(n), offsets), Part(np.arange(n, 2 * n), offsets))
