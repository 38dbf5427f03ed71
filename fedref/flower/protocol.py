"""What travels between the server and a node, and all that either side refuses of it.

A packet is records by name, a record is values by name: all of them arrays, or all of them plain
(numbers, text, lists of them). Nothing is pickled. The server asks

    {"hello": {"fedref": 1}}                                      which clients do you hold?
    {"call": Call, "sent": arrays, "evaluate": Evaluating, "train": Training}     one or both

and a node answers for each of its clients, e.g. client 7, with

    "upload 7" (arrays), "log 7", "work 7"    its part of the round
    "scores 7"                                how good its model is
    "lost 7"                                  why there is nothing of the kind

Trees of arrays travel under the names of their fields ("w", "importance"); a bare array is "w".
Both sides take the other for hostile: names, types, shapes, finite numbers, lengths and products of
sizes are checked here, before anything is computed or allocated. Each refusal is one `Refused`.
"""

import re
from collections.abc import Collection, Mapping
from math import prod
from typing import Any, NamedTuple, get_args

import numpy as np

from fedref import tree
from fedref.algorithm import ClientResult
from fedref.boundary.errors import FedrefError, printable
from fedref.models.numerics import Array
from fedref.rounds.cost import Counts

Record = Mapping[str, Any]
Packet = Mapping[str, Record]

#: In a list of states: the client has none yet.
NONE = -1
#: Characters of a text, entries of a list, and what is beyond every whole number.
MOST_TEXT, MOST_ENTRIES, MOST_INT = 200, 1_000_000, 2**53
#: Rows of a federation, its features (rows × features), and the numbers of any one array.
MOST_ROWS, MOST_FEATURES, MOST_NUMBERS = 10**7, 2**31, 2**27
MOST_CLASSES = 100_000
RUN = re.compile(r"[0-9a-f]{16}")


class Refused(FedrefError):
    """A message that breaks the protocol. The reason may quote it: so it is made printable here."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


# ---- plain records -------------------------------------------------------------------------------


class Call(NamedTuple):
    """The run, the unit and the round (so many are done) that a request is for; echoed by the reply.

    labels : those that occur anywhere in the federation, ascending, from which models are made.
    """

    run: str
    stamp: str
    unit: int
    round: int
    labels: list[int]


class Training(NamedTuple):
    """Who is to train: their epochs or steps, the round that their own state is of (−1: none), and
    the width W of the cohort's batches for each of the algorithm's roles."""

    clients: list[int]
    amounts: list[int]
    states: list[int]
    widths: list[int]


class Evaluating(NamedTuple):
    """Who is to be evaluated; train : also on the training rows."""

    clients: list[int]
    states: list[int]
    train: bool


class Announced(NamedTuple):
    """What a node tells of its rows: nothing but sizes and kinds."""

    clients: list[int]  # ascending
    n_train: list[int]
    n_test: list[int]
    features: int
    labels: list[int]
    image: list[int]  # empty: none
    vocabulary: list[str]  # empty: X holds numbers


class Worked(NamedTuple):
    """Derivatives that a client computed, and whether it now keeps a state of its own."""

    grads: int
    hvps: int
    grad_samples: int
    hvp_samples: int
    keeps: bool


class ClientScores(NamedTuple):
    """One client's row of `Scores`."""

    n_test: int
    accuracy: float
    test_loss: float
    n_train: int
    train_loss: float


#: Fields that have an entry for each of `clients`.
PER_CLIENT = ("n_train", "n_test", "amounts", "states")


def record(values: NamedTuple) -> dict[str, Any]:
    """Return one of the tuples above as a record; an empty list is left out."""
    return {name: value for name, value in values._asdict().items() if value != []}


def has_type(value: Any, kind: Any) -> bool:
    """Whether a field has its type, and no more text, entries or digits than any needs."""
    if get_args(kind):
        (entry,) = get_args(kind)
        few = isinstance(value, list) and len(value) <= MOST_ENTRIES
        return few and all(has_type(x, entry) for x in value)
    if type(value) is not kind:
        return False
    return len(value) <= MOST_TEXT if kind is str else kind is not int or abs(value) < MOST_INT


def read_record(kind: Any, packet: Packet, name: str) -> Any:
    """Return the record `name` as a tuple of that kind, with its fields and no other."""
    if name not in packet:
        raise Refused(f"has no record {name}")
    types, fields = kind.__annotations__, dict(packet[name])
    for field, expected in types.items():
        if get_args(expected):
            fields.setdefault(field, [])
    wrong = [field for field in types if not has_type(fields.get(field), types[field])]
    if wrong or fields.keys() != types.keys():
        wrong += sorted(fields.keys() - types.keys())
        raise Refused(f"{name} has missing, unknown or misshapen fields: {', '.join(wrong)}")
    values = kind(**fields)
    for field in ("clients", "labels"):
        if fields.get(field, []) != sorted(set(fields.get(field, []))):
            raise Refused(f"{name} has {field} that are not different numbers, ascending")
    if "clients" in types:
        if min(values.clients, default=0) < 0:
            raise Refused(f"{name} has client {values.clients[0]}, expected numbers from 0 on")
        if {len(fields[f]) for f in PER_CLIENT if f in types} != {len(values.clients)}:
            raise Refused(f"{name} has lists of different lengths, expected an entry a client")
    return values


def check_size(what: str, *sizes: int, most: int = MOST_NUMBERS) -> None:
    """Refuse sizes whose product nobody should allocate or go through."""
    if prod(sizes) > most:
        raise Refused(f"{what}: {' × '.join(map(str, sizes))} is more than {most}")


def refusal(reason: object) -> Packet:
    """Return the reply that refuses a whole request."""
    return {"refused": {"reason": printable(reason)}}


def reason_in(record: Any) -> str:
    """Return the reason in a record that somebody sent."""
    reason = record.get("reason") if isinstance(record, Mapping) else None
    return reason if isinstance(reason, str) else "no reason given"


# ---- trees of arrays -----------------------------------------------------------------------------


def pack(value: tree.Tree) -> Record:
    """Return a tree as a record of arrays."""
    return {name: np.asarray(leaf) for name, leaf in tree.flatten(value).items()}


def unpack(
    template: tree.Tree, packet: Packet, name: str, vector: Array | None = None
) -> tree.Tree:
    """Return the record `name` as a tree with the template's names, shapes and types, all finite.

    vector : what a number or None of the template may have become, as APFL's importance does.
    """
    record, expected = packet.get(name, {}), tree.flatten(template)
    missing = expected.keys() - record.keys()
    if missing or (vector is None and record.keys() != expected.keys()):
        sends = ", ".join(sorted(record)[:9]) or "nothing"
        raise Refused(f"sends {sends}, expected {', '.join(expected)}")
    leaves = {}
    for key, leaf in record.items():
        if not isinstance(leaf, np.ndarray):
            raise Refused(f"{name} holds plain values, expected arrays")
        form: Any = np.asarray(expected.get(key, vector))
        if vector is not None and not form.ndim and leaf.ndim:
            form = vector
        if leaf.shape != form.shape:
            raise Refused(f"sends {key} of shape {leaf.shape}, expected {form.shape}")
        if leaf.dtype != form.dtype:
            raise Refused(f"sends {key} as {leaf.dtype}, expected {form.dtype}")
        if not np.isfinite(leaf).all():
            raise Refused(f"sends {key} with a value that is not finite")
        plain = isinstance(expected.get(key), bool | int | float)
        leaves[key] = leaf if leaf.ndim else leaf.item() if plain else leaf[()]
    try:
        return tree.unflatten(template, leaves)
    except ValueError as error:  # a name for which the template has no place
        raise Refused(f"sends what {error}") from None


# ---- what a node announces -----------------------------------------------------------------------


def read_announced(reply: Packet) -> Announced:
    """Return what a node tells of its rows, if it can be so."""
    if "refused" in reply:
        raise Refused(reason_in(reply["refused"]))
    if set(reply) != {"announced"}:
        raise Refused(f"answers {', '.join(sorted(reply)[:9])}, expected announced")
    said: Announced = read_record(Announced, reply, "announced")
    sizes = [*said.n_train, *said.n_test]
    if not said.clients or min(said.n_train) < 1 or min(sizes) < 0:
        raise Refused("announces no client, or one without training rows")
    if said.features < 1 or not said.labels:
        raise Refused("announces rows without features or labels")
    if said.image and (len(said.image) != 3 or prod(said.image) != said.features):
        raise Refused(f"announces images of {said.image[:9]}, and {said.features} features")
    check_totals(sum(sizes), said.features, said.labels)
    return said


def check_totals(rows: int, features: int, labels: Collection[int]) -> None:
    """Refuse a federation that a server cannot describe in its tables and models."""
    check_size("rows", rows, most=MOST_ROWS)
    check_size("rows × features", rows, features, most=MOST_FEATURES)
    check_size("classes", max(map(abs, labels), default=0), most=MOST_CLASSES)
    check_size("features × labels", features, len(labels))


# ---- what a node answers -------------------------------------------------------------------------


def check_reply(reply: Packet, request: Packet) -> None:
    """Refuse a reply to another request (an old round's, for one), or with records of anybody who
    was not asked: a node that answers for another's client gets nothing in."""
    if "refused" in reply:
        raise Refused(f"its node refuses: {reason_in(reply['refused'])}")
    said, call = (read_record(Call, packet, "call") for packet in (reply, request))
    if said.round != call.round:
        raise Refused(f"answers for round {said.round}, expected {call.round}")
    if said != call:
        raise Refused("answers for another run or unit")
    known = {"call"}
    for phase, words in (
        ("train", ("upload", "log", "work", "lost")),
        ("evaluate", ("scores", "lost")),
    ):
        clients = request.get(phase, {}).get("clients", [])
        known |= {f"{word} {k}" for word in words for k in clients}
    if unknown := set(reply) - known:
        raise Refused(f"its node answers {min(unknown)!r}, which it was not asked for")


def read_result(
    reply: Packet, k: int, expected: ClientResult, round: int
) -> tuple[ClientResult, Counts]:
    """Return one client's part of a round, if it looks like the expected one and is finite.

    Its state stays where it is: the server keeps the round that it is of.
    """
    if f"lost {k}" in reply:
        raise Refused(reason_in(reply[f"lost {k}"]))
    upload = unpack(expected.upload, reply, f"upload {k}")
    log = reply.get(f"log {k}", {})
    if log.keys() != expected.log.keys() or not all(type(x) is float for x in log.values()):
        names = ", ".join(sorted(log)[:9]) or "nothing"
        raise Refused(f"logs {names}, expected {', '.join(expected.log)}")
    if wrong := [name for name, value in log.items() if np.isnan(value)]:
        raise Refused(f"logs a {wrong[0]} that is not a number")
    *counts, keeps = read_record(Worked, reply, f"work {k}")
    if min(counts) < 0:
        raise Refused("says that it did less than no work")
    ordered = {name: log[name] for name in expected.log}
    return ClientResult(upload, round if keeps else None, ordered), Counts(*counts)


def read_scores(reply: Packet, k: int, n_train: int, n_test: int, train: bool) -> ClientScores:
    """Return one client's evaluation, if its numbers can be right.

    n_train, n_test : as announced. train : whether the training loss was asked for.
    """
    if f"lost {k}" in reply:
        raise Refused(reason_in(reply[f"lost {k}"]))
    scores: ClientScores = read_record(ClientScores, reply, f"scores {k}")
    if (scores.n_train, scores.n_test) != (n_train, n_test):
        raise Refused(
            f"was evaluated on {scores.n_test} test and {scores.n_train} training rows, expected "
            f"{n_test} and {n_train}"
        )
    if n_test and not 0 <= scores.accuracy <= 1:
        raise Refused(f"has an accuracy of {scores.accuracy}, expected 0 to 1")
    losses = [scores.test_loss] * bool(n_test) + [scores.train_loss] * train
    if not np.isfinite(losses).all():
        raise Refused("has a loss that is not finite")
    return scores
