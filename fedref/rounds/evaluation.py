"""Evaluation: every client's model, personalised, on its own test data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedref.algorithm import AnyAlgorithm, State
from fedref.models import base
from fedref.models.base import Model
from fedref.models.batch import Batch
from fedref.models.numerics import Array
from fedref.rounds.federation import Federation, Part
from fedref.rounds.stack import stack_shared
from fedref.rounds.threads import run_parts, threads_for
from fedref.sampling import Sampling, adaptation_rows, episode, stream

CHUNK = 256  # rows of a client that one model is evaluated on at once: they stay in the cache
#: Bytes of features and parameters that are gathered at once: for a block of clients, and for one
#: large client.
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
    """Return (loss (N,), accuracy (N,)) of one w for all clients, from pieces of their rows.

    No product spans two clients' rows, so that the other clients do not change a client's scores, not
    even in the last bit.
    """
    losses, correct = np.empty(len(part.rows)), np.empty(len(part.rows))

    def score_block(at: Array) -> None:
        D = federation.batch(part.rows[at], dtype)
        losses[at], correct[at] = model.sample_scores([(np.broadcast_to(w, (len(at), model.d)), D)])

    size = row_bytes(federation, dtype)
    run_parts(score_block, [*blocks_of_pieces(part, size)], evaluation_threads(model, part))
    client = part.owners

    def mean(x: Array) -> Array:
        total = np.bincount(client, x, minlength=federation.clients)
        return total / np.where(part.sizes > 0, part.sizes, np.nan)

    return mean(losses), mean(correct)


def evaluation_threads(model: Model, part: Part) -> int:
    """Return how many threads pay: by the rows of an ordinary client that are scored at once."""
    rows = min(CHUNK, int(np.median(part.sizes)))
    sample = model.work[0] // 2  # a forward pass is half of a gradient, or less
    return threads_for(sample * rows, sample * len(part.rows))


def blocks_of_pieces(part: Part, size: int) -> Iterator[Array]:
    """Yield places in `part.rows`, (K, n): K pieces of clients' rows, all of the same length n.

    Each client's rows are cut every CHUNK rows. size : the bytes of one row.
    """
    count = -(-part.sizes // CHUNK)
    client = np.repeat(np.arange(len(count)), count)
    number = np.arange(len(client)) - np.repeat(np.cumsum(count) - count, count)
    start = part.offsets[client] + CHUNK * number
    length = np.minimum(part.offsets[client + 1] - start, CHUNK)
    for n in np.unique(length).tolist():
        starts, fit = start[length == n], how_many(n * size, n)
        for i in range(0, len(starts), fit):
            yield starts[i : i + fit, None] + np.arange(n)


def how_many(size: int, rows: int) -> int:
    """Return how many clients of this size in bytes, with this many rows, are computed together."""
    return int(max(1, min(BLOCK_BYTES // max(size, 1), 2 * CHUNK // max(rows, 1))))


class Evaluation(NamedTuple):
    """Which clients of a run are evaluated, on which of their rows, and when.

    federation : holds these clients, and perhaps no others; clients : the index of each in the run.
    sampling, round, seed : which rows they adapt to. train, test : which rows are scored.
    """

    federation: Federation
    clients: Sequence[int]
    sampling: Sampling
    round: int
    seed: int
    dtype: Any = np.float64
    train: bool = True
    test: bool = True

    @property
    def parts(self) -> dict[str, Part]:
        """The rows that are scored, by their columns."""
        named = {"train": self.federation.train, "test": self.federation.test}
        return {name: part for name, part in named.items() if getattr(self, name)}

    def draw_batch(self, block: Array, role: str) -> Batch:
        """Return training rows of the clients of a block to adapt to, along a leading axis."""
        train, rows = self.federation.train, []
        for k, n in zip(block, train.sizes[block].tolist()):
            drawn = adaptation_rows(self.sampling, role, n, self.clients[k], self.round, self.seed)
            rows.append(train.rows_of(k)[drawn])
        return self.federation.batch(np.stack(rows), self.dtype)


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
    test: bool = True,
) -> Scores:
    """Evaluate every client with the parameters that `algorithm.personalised_params` gives it.

    Adaptation uses a fresh batch of the client's *training* rows (from a stream of its own);
    test rows are only ever predicted. train, test : which rows; those of the others are NaN.
    """
    base.check_labels(model, federation.source.y)
    every = range(federation.clients)
    how = Evaluation(federation, every, sampling, round, seed, dtype, train, test)
    return evaluate_clients(algorithm, model, algorithm.download(state.server), state.clients, how)


def evaluate_clients(
    algorithm: AnyAlgorithm, model: Model, sent: Any, client_states: Mapping[int, Any], how: Evaluation
) -> Scores:  # fmt: skip
    """Evaluate some clients of a run. sent : what the server sends to all of them."""
    federation, parts, dtype = how.federation, how.parts, how.dtype
    scores = {name: np.full((2, federation.clients), np.nan) for name in ("train", "test")}
    states = [client_states.get(k) for k in how.clients]

    def score_block(block: Array) -> None:
        role = algorithm.adapts_on
        D = how.draw_batch(block, role) if role else None
        w = personalise(algorithm, model, sent, [states[k] for k in block], D)
        for name, part in parts.items():
            scores[name][:, block] = mean_scores(model, w, federation, part, block, dtype)

    threads = evaluation_threads(model, next(iter(parts.values()), federation.test))
    if algorithm.personalised:
        each = np.array([bool(algorithm.adapts_on) or state is not None for state in states])
        run_parts(score_block, [*blocks(model, federation, each, dtype)], threads)
    else:
        w = algorithm.personalised_params(model, sent, None, None)
        for name, part in parts.items():
            scores[name][:] = score_one_model(model, w, federation, part, dtype)
    (train_loss, _), (test_loss, accuracy) = scores.values()
    return Scores(federation.test.sizes, accuracy, test_loss, federation.train.sizes, train_loss)


def personalise(
    algorithm: AnyAlgorithm, model: Model, sent: Any, states: Sequence[Any], D: Batch | None
) -> Array:
    """Return the parameters that clients are tested with: one w for all, (d,), or one for each, (K, d).

    states : of the clients; where the algorithm stacks, all None or none. D : of each a batch to adapt
    on, along a leading axis.
    """
    if D is None and states[0] is None:
        return algorithm.personalised_params(model, sent, None, None)
    if algorithm.stacks:
        state = None if states[0] is None else stack_shared(states)
        return algorithm.personalised_params(model, sent, state, D)
    batches = [None if D is None else Batch(D.X[i], D.y[i]) for i in range(len(states))]
    each = (algorithm.personalised_params(model, sent, *pair) for pair in zip(states, batches))
    return np.stack([*each])


def blocks(model: Model, federation: Federation, each: Array, dtype: Any) -> Iterator[Array]:
    """Yield blocks of clients with equally many training rows, together as large as `how_many` allows.

    each : (N,) whether a client has parameters of its own, or those of all others without.
    """
    n, width = federation.train.sizes, np.dtype(dtype).itemsize
    order = np.lexsort((n, each))
    cuts = np.flatnonzero(np.diff(n[order]) | np.diff(each[order])) + 1
    for group in np.split(order, cuts):
        rows = int(n[group[:1]].sum() + federation.test.sizes[group].max(initial=0))
        size = rows * row_bytes(federation, dtype) + model.d * width * each[group].any()
        fit = how_many(size, rows)
        yield from (group[i : i + fit] for i in range(0, len(group), fit))


def row_bytes(federation: Federation, dtype: Any) -> int:
    """Return the size of one row of features in dtype."""
    return federation.source.X[:1].size * np.dtype(dtype).itemsize


def mean_scores(
    model: Model, w: Array, federation: Federation, part: Part, block: Array, dtype: Any
) -> Array:
    """(mean loss without L2, accuracy) of each client of a block: (2, K), NaN where it has no rows.

    w : (d,) or (K, d). Clients with equally many rows are computed together, along a leading axis; rows
    of more than LIMIT bytes piece by piece.
    """
    found, sizes = np.full((2, len(block)), np.nan), part.sizes[block]
    most = max(LIMIT // max(row_bytes(federation, dtype), 1), 1)
    for n in np.unique(sizes[sizes > 0]).tolist():
        at = np.flatnonzero(sizes == n)
        rows = part.rows[part.offsets[block[at], None] + np.arange(n)]  # (K, n)
        ws = np.broadcast_to(w, (len(at), model.d)) if w.ndim == 1 else w[at]
        step = max(1, most // len(at))
        pieces = [
            model.sample_scores([(ws, federation.batch(rows[:, i : i + step], dtype))])
            for i in range(0, n, step)
        ]
        found[:, at] = [np.concatenate(x, -1).mean(-1) for x in zip(*pieces)]
    return found


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
    alone, so every round and every algorithm is tested on the same rows. With support 0 nobody adapts:
    all rows are tested with the parameters that the server sends.
    """
    sent = algorithm.download(state.server)
    accuracy, test_loss, train_loss = np.full((3, len(clients)), np.nan)
    sizes = np.zeros((2, len(clients)), np.int64)
    for i, k in enumerate(clients):
        rows = np.concatenate([part.rows_of(k) for part in federation.parts.values()])
        S, Q = rows[:0], rows
        if support:
            S, Q = (rows[r] for r in episode(stream(seed, "unseen", int(k)), len(rows), support))
        D = federation.batch(S, dtype)
        adapts = algorithm.adapts_on and support
        w = algorithm.personalised_params(model, sent, None, D if adapts else None)
        sizes[:, i] = len(Q), len(S)
        test_loss[i], accuracy[i] = score(model, w, federation.batch(Q, dtype))
        if len(S):
            train_loss[i], _ = score(model, w, D)
    return Scores(sizes[0], accuracy, test_loss, sizes[1], train_loss)
