"""The messages between the server and a node, and their checks on both sides.

A packet is a mapping of names to records. A record is a mapping of names to values, either all arrays
or all plain (numbers, text, lists of them). Nothing is pickled. The server asks

    "hello"                                   which clients do you hold?
    "call" (Call), "sent" (arrays), and for each client, e.g. client 7,
    "evaluate 7" (EvaluateRequest), "train 7" (TrainRequest)    one or both

and a node answers

    "announcement" (Announcement)             after "hello"
    "upload 7" (arrays), "work 7" (Work)      the client's part of the round
    "scores 7" (ClientScores)                 the scores of its model
    "lost 7" (Reason)                         why it has no answer for client 7
    "refused" (Reason)                        why it does not answer at all

Each side treats the other as hostile. `read` compares a record with an example: names, types, shapes,
finite numbers, lengths. Products of sizes are checked before anything is computed or allocated.
Records that nobody asked for are not read.
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

#: The "round" of the state of a client that has none.
NONE = -1
#: Limits for the characters of a text, the entries of a list, and the size of a whole number.
MOST_TEXT, MOST_ENTRIES, MOST_INT = 200, 1_000_000, 2**53
#: Limits for the rows of a federation, its rows × features, and the numbers in one array.
MOST_ROWS, MOST_FEATURES, MOST_NUMBERS = 10**7, 2**31, 2**27
MOST_CLASSES = 100_000
RUN = re.compile(r"[0-9a-f]{16}")
#: Examples for `read`: the types of a list's entries.
INTS, FLOATS, TEXTS = [0], [0.0], [""]


class ProtocolError(FedrefError):
    """A message that breaks the protocol; the reason is made printable, as it may quote the message."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


# ---- plain records: their defaults are the examples for `read` -----------------------------------


class Call(NamedTuple):
    """The run, the unit and the round of a request.

    stamp : that of the experiment. round : how many rounds are done. labels : all labels of the
    federation, ascending; the node needs them to make the model.
    """

    run: str = ""
    stamp: str = ""
    unit: int = 0
    round: int = 0
    labels: list[int] = INTS


class TrainRequest(NamedTuple):
    """A request for a client's work of a round.

    amount : epochs or steps. state : the round after which its state is meant (−1: none). widths :
    the width W of the cohort's batches, for each of the algorithm's roles.
    """

    amount: int = 0
    state: int = NONE
    widths: list[int] = INTS


class EvaluateRequest(NamedTuple):
    """A request for scores. state : as in TrainRequest. train : also evaluate on the training rows."""

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
    """The derivatives that a client computed, whether it keeps a state, and the values of its log."""

    counts: Counts = Counts()
    keeps: bool = False
    log: list[float] = FLOATS


class ClientScores(NamedTuple):
    """A client's [accuracy, test loss], and its [training loss]; empty if it has no such rows."""

    test: list[float] = FLOATS
    train: list[float] = FLOATS


class Reason(NamedTuple):
    """The reason why there is no answer."""

    reason: str = ""


def write(values: NamedTuple) -> dict[str, Any]:
    """Convert one of the tuples above to a record; an empty list is left out."""
    return {name: value for name, value in tree.flatten(values).items() if value != []}


def write_arrays(value: tree.Tree) -> Record:
    """Convert a tree to a record of arrays."""
    return {name: np.asarray(leaf) for name, leaf in tree.flatten(value).items()}


def write_reason(reason: object) -> Record:
    """Return a short and printable reason as a record."""
    return write(Reason(printable(reason)))


def read(example: tree.Tree, packet: Packet, name: str, vector: Array | None = None) -> Any:
    """Read the record `name` as a tree of the example's names, types and shapes, all numbers finite.

    A list may have any length. vector : an example for arrays that may take the place of a number or
    None, as APFL's importance does when it is computed first.
    """
    record, expected = packet.get(name, {}), tree.flatten(example)
    leaves = {key: [] for key, like in expected.items() if isinstance(like, list)} | {**record}
    strange = leaves.keys() - expected.keys() if vector is None else ()
    if strange or expected.keys() - leaves.keys():
        holds = ", ".join(sorted(record)[:9]) or "nothing"
        raise ProtocolError(f"sends {name} with {holds}, expected {', '.join(expected)}")
    for key, value in leaves.items():
        like: Any = expected.get(key, vector)
        if isinstance(value, np.ndarray):
            if value.ndim and vector is not None and not np.ndim(like):
                like = vector
            elif not value.ndim:
                is_plain = isinstance(like, bool | int | float)
                leaves[key] = value = value.item() if is_plain else value[()]
        if not is_like(value, like):
            words = f"{describe(value)}, expected {describe(like)}"
            raise ProtocolError(f"sends {key} of {name} as {words}")
    try:
        return tree.unflatten(example, leaves)
    except ValueError as error:  # a name for which the example has no place
        raise ProtocolError(f"sends {name} that {error}") from None


def is_like(value: Any, like: Any) -> bool:
    """Return whether a value has the type and shape of another, and is finite and within the limits."""
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
    """Return a value's type and shape as text, for a reason."""
    if isinstance(value, np.ndarray | np.generic):
        finite = value.dtype.kind not in "fc" or np.isfinite(value).all()
        return f"{value.dtype} {value.shape}{'' if finite else ' with a value that is not finite'}"
    return type(value).__name__


def read_reason(packet: Packet, name: str) -> str:
    """Return the text of the record `name`, a Reason."""
    return read(Reason(), packet, name).reason


# ---- sizes ---------------------------------------------------------------------------------------


def check_size(what: str, *sizes: int, most: int = MOST_NUMBERS) -> None:
    """Raise a ProtocolError if the product of the sizes is too large to allocate."""
    if math.prod(sizes) > most:
        raise ProtocolError(f"{what}: {' × '.join(map(str, sizes))} is more than {most}")


def check_totals(rows: int, features: int, labels: Collection[int]) -> None:
    """Raise a ProtocolError if a federation is too large for the server's tables and models."""
    check_size("rows", rows, most=MOST_ROWS)
    check_size("rows × features", rows, features, most=MOST_FEATURES)
    check_size("classes", max(map(abs, labels), default=0), most=MOST_CLASSES)
    check_size("features × labels", features, len(labels))


def read_announcement(reply: Packet) -> Announcement:
    """Read a node's announcement and check that such rows are possible."""
    if "refused" in reply:
        raise ProtocolError(read_reason(reply, "refused"))
    announcement: Announcement = read(Announcement(), reply, "announcement")
    clients, n_train, n_test, features, labels, image, _ = announcement
    for right, expected in (
        (clients, "clients"),
        (clients == sorted({*clients}), "clients that are different, ascending"),
        (min(clients, default=0) >= 0, "clients from 0 on"),
        (len(clients) == len(n_train) == len(n_test), "one entry per client"),
        (min(n_train, default=0) > 0, "training rows of every client"),
        (min(n_test, default=0) >= 0, "test rows, or 0"),
        (features > 0 and labels, "features and labels"),
        (labels == sorted({*labels}), "labels that are different, ascending"),
        (not image or len(image) == 3, "three sizes of an image"),
        (not image or math.prod(image) == features, "as many features as pixels"),
    ):
        if not right:
            raise ProtocolError(f"announces its rows wrongly, expected {expected}")
    check_totals(sum(n_train) + sum(n_test), features, labels)
    return announcement
