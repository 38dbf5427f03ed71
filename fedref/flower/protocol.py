"""The messages between the server and a node, and all that either side refuses of them.

A packet is records by name, a record is values by name: all of them arrays, or all of them plain
(numbers, text, lists of them). Nothing is pickled. The server asks

    "hello"                                   which clients do you hold?
    "call" (Call), "sent" (arrays), and for each client, e.g. client 7,
    "evaluate 7" (EvaluateRequest), "train 7" (TrainRequest)    one or both

and a node answers

    "announcement" (Announcement)             to hello
    "upload 7" (arrays), "work 7" (Work)      the client's part of the round
    "scores 7" (ClientScores)                 how good its model is
    "lost 7", "refused" (Reason)              why there is nothing of the kind, of client 7 or at all

Both sides take the other for hostile. `read` compares a record with an example of what it must be:
names, types, shapes, finite numbers, lengths. Products of sizes are checked before anything is
computed or allocated. What nobody asked for is not read.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedref import tree
from fedref.boundary.errors import FedrefError, printable
from fedref.models.numerics import Array
from fedref.rounds.cost import Counts

Record = Mapping[str, Any]
Packet = Mapping[str, Record]

#: The round of a state that a client does not have yet.
NONE = -1
#: Characters of a text, entries of a list, and what is beyond every whole number.
MOST_TEXT, MOST_ENTRIES, MOST_INT = 200, 1_000_000, 2**53
#: Rows of a federation, its features (rows × features), and the numbers of any one array.
MOST_ROWS, MOST_FEATURES, MOST_NUMBERS = 10**7, 2**31, 2**27
MOST_CLASSES = 100_000
RUN = re.compile(r"[0-9a-f]{16}")
#: Examples of lists.
INTS, FLOATS, TEXTS = [0], [0.0], [""]


class ProtocolError(FedrefError):
    """A message that breaks the protocol. The reason may quote it, and is made printable here."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


# ---- plain records: the defaults are the examples that `read` compares with ----------------------


class Call(NamedTuple):
    """The run, the unit and the round (so many are done) that a request is for.

    labels : those that occur anywhere in the federation, ascending, from which models are made.
    """

    run: str = ""
    stamp: str = ""
    unit: int = 0
    round: int = 0
    labels: list[int] = INTS


class TrainRequest(NamedTuple):
    """A request for a client's part of a round: so many epochs or steps.

    state : the round of its own state (−1: none). widths : the width W of the cohort's batches, for
    each of the algorithm's roles.
    """

    amount: int = 0
    state: int = NONE
    widths: list[int] = INTS


class EvaluateRequest(NamedTuple):
    """The round of the client's own state; train : also evaluate on the training rows."""

    state: int = NONE
    train: bool = False


class Announcement(NamedTuple):
    """A node's description of its rows: nothing but sizes and kinds."""

    clients: list[int] = INTS  # ascending
    n_train: list[int] = INTS
    n_test: list[int] = INTS
    features: int = 0
    labels: list[int] = INTS
    image: list[int] = INTS  # empty: none
    vocabulary: list[str] = TEXTS  # empty: X holds numbers


class Work(NamedTuple):
    """Derivatives that a client computed, the values of its log, and whether it keeps a state."""

    counts: Counts = Counts()
    keeps: bool = False
    log: list[float] = FLOATS


class ClientScores(NamedTuple):
    """A client's accuracy and test loss, and its training loss; empty without such rows."""

    test: list[float] = FLOATS
    train: list[float] = FLOATS


class Reason(NamedTuple):
    """Why there is no answer."""

    reason: str = ""


def write(values: NamedTuple) -> dict[str, Any]:
    """Return one of the tuples above as a record; an empty list is left out."""
    return {name: value for name, value in tree.flatten(values).items() if value != []}


def write_arrays(value: tree.Tree) -> Record:
    """Return a tree as a record of arrays."""
    return {name: np.asarray(leaf) for name, leaf in tree.flatten(value).items()}


def write_reason(reason: object) -> Record:
    """Return a short and printable reason as a record."""
    return write(Reason(printable(reason)))


def read(example: tree.Tree, packet: Packet, name: str, vector: Array | None = None) -> Any:
    """Return the record `name` as a tree like the example: its names, types and shapes, all finite.

    A list may have any length. vector : what a number or None of the example may have become, as
    APFL's importance does.
    """
    record, expected = packet.get(name, {}), tree.flatten(example)
    leaves = {key: [] for key, like in expected.items() if isinstance(like, list)} | {**record}
    strange = leaves.keys() - expected.keys() if vector is None else ()
    if strange or expected.keys() - leaves.keys():
        holds = ", ".join(sorted(record)[:9]) or "nothing"
        raise ProtocolError(f"sends {name} with {holds}, expected {', '.join(expected)}")
    for key, value in leaves.items():
        like: Any = expected.get(key, vector)
        if (
            vector is not None
            and isinstance(value, np.ndarray)
            and value.ndim
            and not np.ndim(like)
        ):
            like = vector
        if isinstance(value, np.ndarray) and not value.ndim:
            leaves[key] = value = (
                value.item() if isinstance(like, bool | int | float) else value[()]
            )
        if not is_like(value, like):
            words = f"{describe(value)}, expected {describe(like)}"
            raise ProtocolError(f"sends {key} of {name} as {words}")
    try:
        return tree.unflatten(example, leaves)
    except ValueError as error:  # a name for which the example has no place
        raise ProtocolError(f"sends {name} that {error}") from None


def is_like(value: Any, like: Any) -> bool:
    """Whether a value has the type and shape of another, is finite, and no longer than any need be."""
    if isinstance(like, np.ndarray | np.generic):
        same = isinstance(value, np.ndarray | np.generic) and value.dtype == like.dtype
        return same and value.shape == like.shape and bool(np.isfinite(value).all())
    if type(value) is not type(like):
        return False
    if isinstance(value, list):
        return len(value) <= MOST_ENTRIES and all(is_like(entry, like[0]) for entry in value)
    if isinstance(value, str):
        return len(value) <= MOST_TEXT
    return math.isfinite(value) if isinstance(value, float) else abs(value) < MOST_INT


def describe(value: Any) -> str:
    """Return a value's type and shape as they stand in a reason."""
    if isinstance(value, np.ndarray | np.generic):
        finite = value.dtype.kind not in "fc" or np.isfinite(value).all()
        return f"{value.dtype} {value.shape}{'' if finite else ' with a value that is not finite'}"
    return type(value).__name__


def reason_in(packet: Packet, name: str) -> str:
    """Return the reason of a record that says why there is no answer."""
    return read(Reason(), packet, name).reason


# ---- sizes ---------------------------------------------------------------------------------------


def check_size(what: str, *sizes: int, most: int = MOST_NUMBERS) -> None:
    """Refuse sizes whose product nobody should allocate or go through."""
    if math.prod(sizes) > most:
        raise ProtocolError(f"{what}: {' × '.join(map(str, sizes))} is more than {most}")


def check_totals(rows: int, features: int, labels: Collection[int]) -> None:
    """Refuse a federation that a server cannot describe in its tables and models."""
    check_size("rows", rows, most=MOST_ROWS)
    check_size("rows × features", rows, features, most=MOST_FEATURES)
    check_size("classes", max(map(abs, labels), default=0), most=MOST_CLASSES)
    check_size("features × labels", features, len(labels))


def read_announcement(reply: Packet) -> Announcement:
    """Return what a node announces of its rows, if it is possible."""
    if "refused" in reply:
        raise ProtocolError(reason_in(reply, "refused"))
    said: Announcement = read(Announcement(), reply, "announcement")
    for right, expected in (
        (said.clients, "clients"),
        (said.clients == sorted({*said.clients}), "clients that are different, ascending"),
        (min(said.clients, default=0) >= 0, "clients from 0 on"),
        (len(said.clients) == len(said.n_train) == len(said.n_test), "an entry a client"),
        (min(said.n_train, default=0) > 0, "training rows of every client"),
        (min(said.n_test, default=0) >= 0, "test rows, or 0"),
        (said.features > 0 and said.labels, "features and labels"),
        (said.labels == sorted({*said.labels}), "labels that are different, ascending"),
        (not said.image or len(said.image) == 3, "three sizes of an image"),
        (not said.image or math.prod(said.image) == said.features, "as many features as pixels"),
    ):
        if not right:
            raise ProtocolError(f"announces its rows wrongly, expected {expected}")
    check_totals(sum(said.n_train) + sum(said.n_test), said.features, said.labels)
    return said
