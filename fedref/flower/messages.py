"""The messages between the server and a node: checkpoints, never pickled, and checked on arrival.

Each side treats the other as hostile. A message is compared with an example of the tree that was
asked for: names, types, shapes, dtypes, finite numbers, lengths. Its reader then checks what
the numbers mean.
"""

import io
import math
from collections.abc import Mapping
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np

from fedref.boundary import checkpoint
from fedref.boundary.errors import FedrefError, printable
from fedref.models.numerics import Array

#: Limits for the characters of a text, the entries of a list, and the size of a whole number.
MOST_TEXT, MOST_ENTRIES, MOST_INT = 200, 1_000_000, 2**53
#: Limits for the rows of a federation, its rows × features, and the numbers in one array.
MOST_ROWS, MOST_FEATURES, MOST_NUMBERS = 10**7, 2**31, 2**27


class MessageError(FedrefError):
    """A message that is not what was asked for; the reason is short and printable, as it may quote it."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


class Facts(NamedTuple):
    """Sizes and kinds of a node's rows. clients : ascending; labels : those that occur."""

    clients: list[int] = [0]  # noqa: RUF012 (an example for `check`, as below)
    n_train: list[int] = [0]  # noqa: RUF012
    n_test: list[int] = [0]  # noqa: RUF012
    features: int = 0
    labels: list[int] = [0]  # noqa: RUF012
    image: list[int] = [0]  # noqa: RUF012 (empty: none)
    vocabulary: list[str] = [""]  # noqa: RUF012 (empty: X holds numbers)


class Call(NamedTuple):
    """The head of every request for work.

    run : 16 hexadecimal digits. experiment : its stamp. labels : all of the federation. round : how
    many are done. clients : the node's clients that are meant (K,). states : the round after which
    the state of each was saved (K,), −1: none.
    """

    run: str = ""
    experiment: str = ""
    unit: int = 0
    round: int = 0
    labels: list[int] = [0]  # noqa: RUF012
    clients: list[int] = [0]  # noqa: RUF012
    states: list[int] = [0]  # noqa: RUF012


class Train(NamedTuple):
    """A request for the clients' part of a round: rows, for each role, (K, S, W); steps (K,)."""

    call: Call
    sent: Any
    rows: tuple[Array, ...]
    steps: Array
    per_epoch: Array


class Evaluate(NamedTuple):
    """A request for scores. train : also on the training rows."""

    call: Call
    sent: Any
    train: bool


class ClientAnswer(NamedTuple):
    """A client's result: what it sends, whether it keeps a state, and its log."""

    upload: Any
    keeps: bool
    log: dict[str, float]


def read(data: object) -> Any:
    """Decode a message; MessageError if it is none, or if it unpacks to more than its own size."""
    if not isinstance(data, bytes):
        raise MessageError(f"sends a {type(data).__name__}, expected bytes")
    try:
        with ZipFile(io.BytesIO(data.partition(b"\n")[2])) as archive:
            if sum(member.file_size for member in archive.infolist()) > len(data):
                raise MessageError("sends a packed message, expected arrays as they are")
        return checkpoint.loads(data, "its message")
    except MessageError:
        raise
    except Exception as error:  # hostile bytes can make a reader raise anything
        raise MessageError(error) from error


def check(value: Any, like: Any, name: str, vector: Array | None = None) -> None:
    """Raise a MessageError unless a tree has the example's types, names, shapes and finite numbers.

    A list may have any length; its first entry is the example for all. vector : an example for arrays
    that may stand in the place of a number or None, as APFL's importance does once it is computed.
    """
    if isinstance(like, tuple | Mapping):
        same = type(value) is type(like) and len(value) == len(like)
        if isinstance(like, Mapping):
            same = same and value.keys() == like.keys()
        if not same:
            raise MessageError(f"{name} is {describe(value)}, expected {describe(like)}")
        fields = like if isinstance(like, Mapping) else getattr(like, "_fields", range(len(like)))
        for i, field in enumerate(fields):
            at = field if isinstance(like, Mapping) else i
            check(value[at], like[at], f"{name}.{field}", vector)
    elif isinstance(like, list):
        if not isinstance(value, list) or len(value) > MOST_ENTRIES:
            raise MessageError(f"{name} is {describe(value)}, expected a list")
        for entry in value:
            check(entry, like[0], f"an entry of {name}")
    elif not is_like(value, like) and (
        vector is None or np.ndim(like) or not is_like(value, vector)
    ):
        raise MessageError(f"{name} is {describe(value)}, expected {describe(like)}")


def is_like(value: Any, like: Any) -> bool:
    """Return whether a leaf has the type and shape of another, and is finite and within the limits."""
    if isinstance(like, np.ndarray) and like.ndim:
        same = isinstance(value, np.ndarray) and value.dtype == like.dtype
        return same and value.shape == like.shape and bool(np.isfinite(value).all())
    if like is None or isinstance(like, str):
        return value is None if like is None else isinstance(value, str) and len(value) <= MOST_TEXT
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if np.ndim(value) == 0 else value
    like = np.asarray(like).item()
    if type(value) is not type(like):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < MOST_INT


def describe(value: Any) -> str:
    """Return a value's type and shape as text, for a reason."""
    if isinstance(value, np.ndarray):
        finite = value.dtype.kind not in "fc" or np.isfinite(value).all()
        return f"{value.dtype} {value.shape}{'' if finite else ' with a value that is not finite'}"
    if isinstance(value, Mapping):
        return f"a table of {', '.join(sorted(map(str, value))) or 'nothing'}"
    return f"{type(value).__name__}" + (
        f" of {len(value)}" if isinstance(value, tuple | list) else ""
    )


def require(holds: object, reason: str) -> None:
    """Raise a MessageError with this reason unless it holds."""
    if not holds:
        raise MessageError(reason)


def check_facts(facts: Facts) -> None:
    """Refuse rows that are not possible, or too many."""
    check(facts, Facts(), "its announcement")
    clients, n_train, n_test, features, labels, image, _ = facts
    rows = sum(n_train) + sum(n_test)
    for holds, expected in (
        (clients and clients == sorted({*clients}) and clients[0] >= 0, "clients, ascending"),
        (len(clients) == len(n_train) == len(n_test), "one entry a client"),
        (min(n_train, default=0) > 0 and min(n_test, default=0) >= 0, "training rows of each"),
        (labels and labels == sorted({*labels}) and features > 0, "features and labels, ascending"),
        (not image or (len(image) == 3 and math.prod(image) == features), "an image's sizes"),
        (rows <= MOST_ROWS and rows * features <= MOST_FEATURES, "fewer rows"),
        (features * max(len(labels), *map(abs, labels)) <= MOST_NUMBERS, "fewer labels"),
    ):
        require(holds, f"announces rows wrongly, expected {expected}")
