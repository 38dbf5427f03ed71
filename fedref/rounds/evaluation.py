"""Evaluation: every client's model, personalised, on its own test data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import AnyAlgorithm, State
from fedref.models import base
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part
from fedref.rounds.threads import run_parts, threads_for
from fedref.sampling import Sampling, adaptation_rows, episode, stream

CHUNK = 256  # rows that one model is evaluated on at once: they stay in the cache
#: Bytes of features that are converted to floating point at once: for a block of clients, and for
#: one large client.
BLOCK_BYTES, LIMIT = 1 << 20, 1 << 26


class Scores(NamedTuple):
    """Per client, each (N,): test samples, accuracy and loss on them, training samples and loss.

    Accuracy is a fraction; NaN where a client has no such data (or training was not evaluated).
    """

    n_test: Array
    accuracy: Array
    test_loss: Array
    n_train: Array
    train_loss: Array


def sample_mean(values: Array, n: Array) -> float:
    """Σ n_k x_k / Σ n_k over the clients that have data: the mean over samples."""
    has = n > 0
    return float(np.average(values[has], weights=n[has])) if has.any() else float("nan")


def client_mean(values: Array, n: Array) -> float:
    """Return the mean over the clients that have data."""
    has = n > 0
    return float(values[has].mean()) if has.any() else float("nan")


def score_one_model(
    model: Model, w: Array, federation: Federation, part: Part, dtype: Any
) -> tuple[Array, Array]:
    """Return (loss (N,), accuracy (N,)) of one w for all clients, from chunks of their rows.

    Logits are computed from one client's rows at a time, so that the other clients do not change a
    client's scores, not even in the last bit.
    """
    losses, correct = np.empty(len(part.rows)), np.empty(len(part.rows))

    def score_chunk(ends: list[int]) -> None:
        at, stop = ends[0], ends[-1]
        D = federation.batch(part.rows[at:stop], dtype)
        each = [(w, Batch(D.X[a:b], D.y[a:b])) for a, b in pairwise(np.subtract(ends, at))]
        losses[at:stop], correct[at:stop] = model.sample_scores(each)

    run_parts(score_chunk, [*chunks(part)], evaluation_threads(model, part))
    client = part.owners

    def mean(x: Array) -> Array:
        total = np.bincount(client, x, minlength=federation.clients)
        return total / np.where(part.sizes > 0, part.sizes, np.nan)

    return mean(losses), mean(correct)


def evaluation_threads(model: Model, part: Part) -> int:
    """Return how many threads pay: by the rows of an ordinary client that are scored at once."""
    rows = min(CHUNK, int(np.median(part.sizes)))
    return threads_for(model.work[0] // 2 * rows)  # a forward pass is half of a gradient, or less


def chunks(part: Part) -> Iterator[list[int]]:
    """Yield lists of cuts between the rows: at each client's end, and within it every CHUNK rows.

    Each list spans CHUNK rows or more, but fewer than 2 CHUNK; the last list may span fewer.
    """
    ends = [0]
    for a, b in pairwise(part.offsets.tolist()):
        for end in (*range(a + CHUNK, b, CHUNK), b) if b > a else ():
            ends.append(end)
            if end - ends[0] >= CHUNK:
                yield ends
                ends = [end]
    if len(ends) > 1:
        yield ends


def evaluate(
    algorithm: AnyAlgorithm,
    model: Model,
    state: State,
    federation: Federation,
    sampling: Sampling,
    *,
    round: int,
    seed: int,
    dtype: Any = np.float64,
    train: bool = True,
) -> Scores:
    """Evaluate every client with the parameters that `algorithm.personalised_params` gives it.

    Adaptation uses a fresh batch of the client's *training* rows (from a stream of its own);
    test rows are only ever predicted.
    """
    base.check_labels(model, federation.source.y)
    return evaluate_clients(
        algorithm, model, algorithm.download(state.server), state.clients, federation, sampling,
        clients=range(federation.clients), round=round, seed=seed, dtype=dtype, train=train,
    )  # fmt: skip


def evaluate_clients(
    algorithm: AnyAlgorithm,
    model: Model,
    sent: Any,
    client_states: Mapping[int, Any],
    federation: Federation,
    sampling: Sampling,
    *,
    clients: Sequence[int],
    round: int,
    seed: int,
    dtype: Any = np.float64,
    train: bool = True,
) -> Scores:
    """Evaluate a federation that holds some clients of a run; clients : the index of each there."""
    train_loss, test_loss, accuracy = np.full((3, federation.clients), np.nan)
    if not algorithm.personalised:
        w = algorithm.personalised_params(model, sent, None, None)
        test_loss, accuracy = score_one_model(model, w, federation, federation.test, dtype)
        if train:
            train_loss, _ = score_one_model(model, w, federation, federation.train, dtype)

    def score_block(block: range) -> None:
        tests = client_batches(federation, federation.test, block, dtype)
        trains = client_batches(federation, federation.train, block, dtype) if train else None
        ws = []
        for i, k in enumerate(block):
            D = None
            if algorithm.adapts_on:
                rows = federation.train.rows_of(k)
                chosen = adaptation_rows(
                    sampling, algorithm.adapts_on, len(rows), clients[k], round, seed
                )
                if trains and isinstance(trains[i], list):  # the rows are gathered already
                    (own,) = trains[i]
                    D = Batch(own.X.take(chosen, 0), own.y.take(chosen))
                else:
                    D = federation.batch(rows[chosen], dtype)
            ws.append(algorithm.personalised_params(model, sent, client_states.get(clients[k]), D))
        here = slice(block.start, block.stop)
        test_loss[here], accuracy[here] = mean_scores(model, ws, tests, federation.test.sizes[here])
        if trains:
            sizes = federation.train.sizes[here]
            train_loss[here], _ = mean_scores(model, ws, trains, sizes)

    if algorithm.personalised:
        threads = evaluation_threads(model, federation.train if train else federation.test)
        run_parts(score_block, [*blocks(federation, dtype)], threads)
    return Scores(federation.test.sizes, accuracy, test_loss, federation.train.sizes, train_loss)


def blocks(federation: Federation, dtype: Any) -> Iterator[range]:
    """Yield ranges of clients that have BLOCK_BYTES of features together, or one client with more."""
    ends = np.cumsum(federation.train.sizes + federation.test.sizes) * row_bytes(federation, dtype)
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, "right")))
        yield range(start, stop)
        start = stop


def row_bytes(federation: Federation, dtype: Any) -> int:
    """Return the size of one row of features in dtype."""
    return federation.source.X[:1].size * np.dtype(dtype).itemsize


def client_batches(
    federation: Federation, part: Part, block: range, dtype: Any
) -> list[Iterable[Batch]]:
    """Return the batches of each client of a block: a list of one batch.

    One client with more than LIMIT bytes has a generator, which makes batches piece by piece, once.
    """
    offsets = part.offsets[block.start : block.stop + 1]
    rows = part.rows[offsets[0] : offsets[-1]]
    most = max(LIMIT // max(row_bytes(federation, dtype), 1), 1)
    if len(rows) > most:  # one large client
        return [(federation.batch(rows[i : i + most], dtype) for i in range(0, len(rows), most))]
    D = federation.batch(rows, dtype)
    return [[Batch(D.X[a:b], D.y[a:b])] for a, b in pairwise(offsets - offsets[0])]


def mean_scores(
    model: Model, ws: Sequence[Array], clients: Sequence[Iterable[Batch]], sizes: Array
) -> tuple[Array, Array]:
    """(mean loss without L2, accuracy) of each client's w on its own batches: (K,), NaN if empty."""
    losses, correct = model.sample_scores((w, D) for w, Ds in zip(ws, clients) for D in Ds)
    loss, accuracy = np.full((2, len(ws)), np.nan)
    for k, (a, b) in enumerate(pairwise(np.cumsum([0, *sizes]).tolist())):
        if b > a:
            loss[k], accuracy[k] = losses[a:b].mean(), correct[a:b].mean()
    return loss, accuracy


def score(model: Model, w: Array, D: Batch) -> tuple[float, float]:
    """(mean loss without L2, accuracy) of w on D."""
    base.check_labels(model, D.y)
    losses, correct = model.sample_scores([(w, D)])
    return float(losses.mean()), float(correct.mean())


def evaluate_unseen(
    algorithm: AnyAlgorithm,
    model: Model,
    state: State,
    federation: Federation,
    clients: Array,
    *,
    support: float,
    seed: int,
    dtype: Any = np.float64,
) -> Scores:
    """Evaluate clients that never trained [fedmeta §experiments]: adapt on a part, test on the rest.

    Of all rows of each of `clients`, the fraction `support` is adapted to and the others (disjoint)
    are tested on; n_train and train_loss are those of the support. The division depends on the seed
    alone, so every round and every algorithm is tested on the same rows.
    """
    sent = algorithm.download(state.server)
    accuracy, test_loss, train_loss = np.full((3, len(clients)), np.nan)
    sizes = np.zeros((2, len(clients)), np.int64)
    for i, k in enumerate(clients):
        rows = np.concatenate([federation.train.rows_of(k), federation.test.rows_of(k)])
        S, Q = (rows[r] for r in episode(stream(seed, "unseen", int(k)), len(rows), support))
        D = federation.batch(S, dtype)
        w = algorithm.personalised_params(model, sent, None, D if algorithm.adapts_on else None)
        sizes[:, i] = len(Q), len(S)
        test_loss[i], accuracy[i] = score(model, w, federation.batch(Q, dtype))
        if len(S):
            train_loss[i], _ = score(model, w, D)
    return Scores(sizes[0], accuracy, test_loss, sizes[1], train_loss)
