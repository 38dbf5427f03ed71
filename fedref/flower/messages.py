"""The messages between the server and a node: checkpoints, never pickled, and checked on arrival.

Each side treats the other as hostile. It compares a message with an example of the tree that it asked
for (names, types, shapes, dtypes, finite numbers), then checks what the numbers mean.
"""

import io
from collections.abc import Iterable
from math import isfinite, prod
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np

from fedref.boundary import checkpoint
from fedref.boundary.errors import FedrefError, printable
from fedref.models.numerics import Array

#: Limits for the characters of a word, the rows of a federation, and the numbers in one array.
MOST_TEXT, MOST_ROWS, MOST_NUMBERS = 200, 10**7, 2**27
#: Examples of arrays of any length.
NUMBERS, WORDS = np.zeros(0, np.int64), np.zeros(0, "U1")


class MessageError(FedrefError):
    """A message that is not what was asked for; the reason is short and printable, as it may quote it."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


class Facts(NamedTuple):
    """Sizes and kinds of a node's rows. clients : ascending; labels : those that occur.

    image : height, width and channels, or empty. vocabulary : empty if X holds numbers.
    """

    clients: Array = NUMBERS
    n_train: Array = NUMBERS
    n_test: Array = NUMBERS
    features: int = 0
    labels: Array = NUMBERS
    image: Array = NUMBERS
    vocabulary: Array = WORDS


class Request(NamedTuple):
    """A task for a node and some of its clients (K,).

    run : 16 hexadecimal digits. experiment : its stamp. labels : all of the federation. round : how
    many are done. states : the round after which the state of each client was saved (K,), −1: none.
    sent : what the algorithm sends. work : the clients' part of a round; or, to evaluate, whether on
    training rows, too.
    """

    run: str = ""
    experiment: str = ""
    unit: int = 0
    round: int = 0
    labels: Array = NUMBERS
    clients: Array = NUMBERS
    states: Array = NUMBERS
    sent: Any = None
    work: Any = None


class Work(NamedTuple):
    """The clients' part of a plan: rows, for each role, (K, S, W); steps and per_epoch (K,)."""

    rows: tuple[Array, ...]
    steps: Array
    per_epoch: Array


class ClientAnswer(NamedTuple):
    """A client's result: what it sends, whether it keeps a state, and its log, sorted by name (n,)."""

    upload: Any
    keeps: bool
    log: Array


def read(data: object) -> Any:
    """Decode a message; MessageError if it is none, or if it unpacks to more than its own size."""
    require(isinstance(data, bytes), f"sends a {type(data).__name__}, expected bytes")
    assert isinstance(data, bytes)
    try:
        with ZipFile(io.BytesIO(data.partition(b"\n")[2])) as archive:
            size = sum(member.file_size for member in archive.infolist())
            require(size <= len(data), "sends a packed message, expected arrays as they are")
        return checkpoint.loads(data, "its message")
    except MessageError:
        raise
    except Exception as error:  # hostile bytes can make a reader raise anything
        raise MessageError(error) from error


def require(holds: object, reason: str) -> None:
    """Raise a MessageError with this reason unless it holds."""
    if not holds:
        raise MessageError(reason)


def check(value: Any, like: Any, name: str, vector: Array | None = None) -> None:
    """Raise a MessageError unless a tree has the example's types, names, shapes and finite numbers.

    An axis of length 0 in the example may have any length. vector : an example for arrays that may
    stand in the place of a number or None, as APFL's importance does once it is computed.
    """
    if not isinstance(like, tuple):
        right = is_like(value, like)
        right = right or (vector is not None and not np.ndim(like) and is_like(value, vector))
    else:
        right = type(value) is type(like) and len(value) == len(like)
    if not right:
        raise MessageError(f"{name} is {describe(value)}, expected {describe(like)}")
    if isinstance(like, tuple):
        fields: Iterable[Any] = getattr(like, "_fields", range(len(like)))
        for field, part, example in zip(fields, value, like):
            check(part, example, f"{name}.{field}", vector)


def is_like(value: Any, like: Any) -> bool:
    """Return whether a leaf has the type, dtype and shape of another, and is finite."""
    if isinstance(like, np.ndarray) and like.ndim:
        if not isinstance(value, np.ndarray) or value.ndim != like.ndim:
            return False
        if like.dtype.kind == "U":
            return value.dtype.kind == "U" and value.dtype.itemsize <= 4 * MOST_TEXT
        same = all(n == m or m == 0 for n, m in zip(value.shape, like.shape))
        return value.dtype == like.dtype and same and bool(np.isfinite(value).all())
    if isinstance(value, np.ndarray | np.generic):
        value = value.item() if np.ndim(value) == 0 else value
    if like is None or isinstance(like, str):
        return value is None if like is None else isinstance(value, str) and len(value) <= MOST_TEXT
    same = type(value) is type(np.asarray(like).item())
    return same and (not isinstance(value, float) or isfinite(value))


def describe(value: Any) -> str:
    """Return a value's type and shape as text, for a reason."""
    if isinstance(value, np.ndarray):
        finite = value.dtype.kind not in "fc" or np.isfinite(value).all()
        return f"{value.dtype} {value.shape}{'' if finite else ' with a value that is not finite'}"
    return f"{type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple) else "")


def ascend(values: Array, low: float = -np.inf) -> bool:
    """Return whether there are values, each larger than the one before; none below `low`."""
    return bool(len(values) and (np.diff(values) > 0).all() and values[0] >= low)


def check_facts(facts: Facts) -> None:
    """Refuse rows that are not possible, or too many."""
    check(facts, Facts(), "its announcement")
    clients, n_train, n_test, features, labels, image, _ = facts
    sizes = [*n_train.tolist(), *n_test.tolist()]
    rows, classes = sum(sizes), max([len(labels), *map(abs, labels.tolist())])
    for holds, expected in (
        (ascend(clients, 0), "clients, ascending"),
        (len(clients) == len(n_train) == len(n_test), "one entry a client"),
        (min(n_train.tolist(), default=0) > 0 <= min(sizes, default=-1), "training rows of each"),
        (ascend(labels) and features > 0, "features and labels, ascending"),
        (not len(image) or (len(image) == 3 and prod(image.tolist()) == features), "image sizes"),
        (rows <= MOST_ROWS and rows * features <= 16 * MOST_NUMBERS, "fewer rows"),
        (features * classes <= MOST_NUMBERS, "fewer labels"),
    ):
        require(holds, f"announces rows wrongly, expected {expected}")
