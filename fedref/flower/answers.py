"""What the server takes of a node's reply, and what it refuses: pure functions of both.

What a right answer looks like (names, shapes, dtypes) is not guessed: a stand-in client, with one
row of zeros, does the same work on what was sent, and every real answer must look like its.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.algorithm import AnyAlgorithm, ClientResult
from fedref.experiments.setting import MOST_CLASSES
from fedref.flower.messages import Announced, Call, Packet, Refused, read, tree_of, unpacked
from fedref.models.base import Model
from fedref.models.numerics import Array
from fedref.rounds.cost import Counts
from fedref.rounds.local_data import LocalData
from fedref.rounds.loop import run_clients

#: A client's rows, and their features: what a node announces, the server makes room for.
MOST_ROWS = 10**7
#: The first words of the records that answer for one client.
TRAINED, SCORED = ("upload", "log", "work"), ("scores",)


class Worked(NamedTuple):
    """Derivatives that a client computed, and whether it now keeps a state of its own."""

    grads: int
    hvps: int
    grad_samples: int
    hvp_samples: int
    keeps: bool


class Answer(NamedTuple):
    """What one client's training came to; its state stays where it is, here is only its round."""

    result: ClientResult
    counts: Counts


class ClientScores(NamedTuple):
    """One client's row of `Scores`."""

    n_test: int
    accuracy: float
    test_loss: float
    n_train: int
    train_loss: float


class Accepted(NamedTuple):
    """What of a reply is good, by client, and why the rest is not."""

    trained: Mapping[int, Answer]
    scored: Mapping[int, ClientScores]
    refused: Mapping[int, str]  # of those that were to train
    unscored: Mapping[int, str]  # of those that were to be evaluated


def accepted(
    reply: Packet,
    call: Call,
    train: Collection[int],
    evaluate: Collection[int],
    expected: ClientResult | None,
    sizes: Mapping[int, tuple[int, int]],
    with_train: bool,
) -> Accepted:
    """Everything of a reply, client by client.

    train, evaluate : the clients that were asked for. expected : see `expected_result`. sizes :
    client → (training rows, test rows), as announced. with_train : whether the training loss was
    asked for. One record that nobody asked for, and the whole reply is refused: so a node
    that answers for another's client gets nothing in.
    """
    try:
        if "refused" in reply:
            raise Refused(f"its node refuses: {text_of(reply['refused'])}")
        check_echo(reply, call)
        check_names(reply, train, evaluate)
    except Refused as error:
        return Accepted(
            {}, {}, dict.fromkeys(train, str(error)), dict.fromkeys(evaluate, str(error))
        )
    trained, scored, refused, unscored = {}, {}, {}, {}
    for k in train:
        try:
            assert expected is not None
            trained[k] = answer_of(reply, k, expected, call.round)
        except Refused as error:
            refused[k] = str(error)
    for k in evaluate:
        try:
            scored[k] = scores_of(reply, k, *sizes[k], with_train)
        except Refused as error:
            unscored[k] = str(error)
    return Accepted(trained, scored, refused, unscored)


def text_of(record: Any) -> str:
    """The reason in a record, shortened, in one line of printable characters."""
    reason = record.get("reason") if isinstance(record, Mapping) else None
    text = reason if isinstance(reason, str) else "no reason given"
    return "".join(c if c.isprintable() else " " for c in text[:200])


def check_echo(reply: Packet, call: Call) -> None:
    """Refused unless the reply is to this call: an old round's is not."""
    said = read(Call, reply, "call")
    if said.round != call.round:
        raise Refused(f"answers for round {said.round}, expected {call.round}")
    if said != call:
        raise Refused("answers for another run or unit")


def check_names(reply: Packet, train: Collection[int], evaluate: Collection[int]) -> None:
    """Refused if there is a record of anybody who was not asked, or of an unknown name."""
    known = {"call"}
    for k in train:
        known |= {f"{word} {k}" for word in (*TRAINED, "lost")} | {f"upload {k} numbers"}
    for k in evaluate:
        known |= {f"{word} {k}" for word in (*SCORED, "lost")}
    if odd := sorted(set(reply) - known):
        raise Refused(f"its node answers {odd[0][:60]!r}, which it was not asked for")


def answer_of(reply: Packet, k: int, expected: ClientResult, round: int) -> Answer:
    """One client's part of a round, if it looks like the expected one and is finite."""
    if f"lost {k}" in reply:
        raise Refused(text_of(reply[f"lost {k}"]))
    leaves = unpacked(reply, f"upload {k}")
    check_leaves(leaves, tree.flatten(expected.upload))
    log = reply.get(f"log {k}", {})
    if log.keys() != expected.log.keys() or not all(type(x) is float for x in log.values()):
        raise Refused(f"logs {', '.join(log) or 'nothing'}, expected {', '.join(expected.log)}")
    if odd := [name for name, value in log.items() if np.isnan(value)]:
        raise Refused(f"logs a {odd[0]} that is not a number")
    *counts, keeps = read(Worked, reply, f"work {k}")
    if min(counts) < 0:
        raise Refused("says that it did less than no work")
    upload = tree_of(expected.upload, leaves)
    ordered = {name: log[name] for name in expected.log}
    return Answer(ClientResult(upload, round if keeps else None, ordered), Counts(*counts))


def check_leaves(leaves: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refused unless names, shapes and dtypes are those expected, and all numbers finite."""
    if leaves.keys() != expected.keys():
        raise Refused(
            f"sends {', '.join(sorted(leaves)) or 'nothing'}, expected {', '.join(sorted(expected))}"
        )
    for name, leaf in leaves.items():
        got, right = np.asarray(leaf), np.asarray(expected[name])
        if got.shape != right.shape:
            raise Refused(f"sends {name} of shape {got.shape}, expected {right.shape}")
        if got.dtype != right.dtype:
            raise Refused(f"sends {name} as {got.dtype}, expected {right.dtype}")
        if not np.isfinite(got).all():
            raise Refused(f"sends {name} with a value that is not finite")


def scores_of(reply: Packet, k: int, n_train: int, n_test: int, with_train: bool) -> ClientScores:
    """One client's evaluation, if its numbers can be right."""
    if f"lost {k}" in reply:
        raise Refused(text_of(reply[f"lost {k}"]))
    found: ClientScores = read(ClientScores, reply, f"scores {k}")
    if (found.n_train, found.n_test) != (n_train, n_test):
        raise Refused(
            f"was evaluated on {found.n_test} test and {found.n_train} training rows, expected "
            f"{n_test} and {n_train}"
        )
    if n_test and not 0 <= found.accuracy <= 1:
        raise Refused(f"has an accuracy of {found.accuracy}, expected 0 to 1")
    losses = [found.test_loss] * bool(n_test) + [found.train_loss] * with_train
    if not np.isfinite(losses).all():
        raise Refused("has a loss that is not finite")
    return found


def expected_result(
    algorithm: AnyAlgorithm, model: Model, sent: Any, X: Array, y: Array, dtype: Any, codes: bool
) -> ClientResult:
    """What a client's result looks like: that of a stand-in with one row, X (1, p) and y (1,)."""
    zero = np.zeros((1, 1, 1), np.int32)
    data = LocalData(
        np.zeros(1, np.int64), 0, X, y, np.zeros(1, np.int64), np.array([0, 1]),
        dict.fromkeys(algorithm.roles, zero), np.ones(1, np.int64), np.ones(1, np.int64),
        None, None, np.dtype(dtype), codes,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        (result,), _ = run_clients(algorithm, model, sent, [None], data)
    assert result is not None
    return result


def announced(reply: Packet) -> Announced:
    """What a node says of its rows, if it can be so."""
    if "refused" in reply:
        raise Refused(text_of(reply["refused"]))
    if set(reply) != {"announced"}:
        raise Refused(f"answers {', '.join(sorted(reply))[:60]}, expected announced")
    found: Announced = read(Announced, reply, "announced")
    M = len(found.clients)
    if not M or found.clients != sorted(set(found.clients)) or found.clients[0] < 0:
        raise Refused("announces clients that are not different numbers from 0 on, ascending")
    if len(found.n_train) != M or len(found.n_test) != M:
        raise Refused("announces other than one number of rows for each client")
    if min(found.n_train) < 1 or min(found.n_test) < 0 or found.features < 1 or not found.labels:
        raise Refused(
            "announces a client without training rows, or rows without features or labels"
        )
    largest = max(*found.n_train, *found.n_test, found.features)
    if largest > MOST_ROWS or max(map(abs, found.labels)) >= MOST_CLASSES:
        raise Refused(
            f"announces more than {MOST_ROWS} rows or features, or {MOST_CLASSES} classes"
        )
    return found
