"""The messages between the server and a node: checkpoints, never pickled, and checked on arrival.

Each side treats the other as hostile. It compares a message with the tree that it asked for: names,
dtypes, shapes, and between which numbers each value must lie. One function does so for every message.
"""

import io
from collections.abc import Iterable
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np

from fedref.boundary.errors import FedrefError, printable
from fedref.lab.experiments import checkpoint
from fedref.models.numerics import Array

#: Limits for the characters of a word, the rows of a federation, and the numbers in one array.
MOST_TEXT, MOST_ROWS, MOST_NUMBERS = 200, 10**7, 2**27


class MessageError(FedrefError):
    """A message that is not what was asked for; the reason is short and printable, as it may quote it."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


class Like(NamedTuple):
    """Arrays of one kind. shape : None is any length. low, high : of each value; they broadcast."""

    dtype: Any
    shape: tuple[int | None, ...] = ()
    low: Any = -np.inf
    high: Any = np.inf


class Maybe(NamedTuple):
    """A tree like this one, or None."""

    like: Any


# The types of fields are those of a message; an expected one has a Like in their place.


class Facts(NamedTuple):
    """Sizes and kinds of a node's rows. sizes : clients, training rows, test rows (3, K).

    labels : those of the data set. image : height, width and channels, or zeros. vocabulary : empty if X
    holds numbers.
    """

    sizes: Any
    labels: Any
    features: Any
    image: Any
    vocabulary: Any


class Request(NamedTuple):
    """A task for a node and some of its clients.

    run : a number. unit : its number. round : how many are done. labels : all of the federation.
    clients : numbers, and the round after which the state of each was saved, −1: none (2, K).
    sent : what the algorithm sends. work : the clients' part of a round; or, to evaluate, whether on
    training rows, too.
    """

    run: Any
    unit: Any
    round: Any
    labels: Any
    clients: Any
    sent: Any
    work: Any


class Work(NamedTuple):
    """The clients' part of a plan: rows (K, S, W) for each role; steps, per_epoch (2, K); weights (K,)."""

    rows: tuple[Array, ...]
    steps: Array
    weights: Array


class ClientAnswer(NamedTuple):
    """A client's result: what it sends, whether it keeps a state, and its log, sorted by name (n,)."""

    upload: Any
    keeps: Any
    log: Any


def read(data: object) -> Any:
    """Decode a message. Raises MessageError for other bytes, or if they unpack to more than their size."""
    try:
        if not isinstance(data, bytes):
            raise TypeError(f"sends a {type(data).__name__}, expected bytes")
        with ZipFile(io.BytesIO(data.partition(b"\n")[2])) as archive:
            size = sum(member.file_size for member in archive.infolist())
        require(size <= len(data), "sends a packed message, expected arrays as they are")
        return checkpoint.loads(data, "its message")
    except Exception as error:  # hostile bytes can make a reader raise anything
        raise MessageError(error) from error


def require(holds: object, reason: str) -> None:
    """Raise a MessageError with this reason unless it holds."""
    if not holds:
        raise MessageError(reason)


def check(value: Any, like: Any, name: str, vector: Array | None = None) -> None:
    """Raise a MessageError unless a tree has the names, dtypes, shapes and values of another.

    The leaves of `like` are Likes, or examples: finite arrays and numbers. vector : may stand in the
    place of a number or None, as APFL's importance does once it is computed.
    """
    if isinstance(like, Maybe):
        if value is None:
            return
        like = like.like
    if not isinstance(like, tuple | None):
        like = Like(np.asarray(like).dtype, np.shape(like))
    is_tree = isinstance(like, tuple) and not isinstance(like, Like)
    right = type(value) is type(like) and len(value) == len(like) if is_tree else fits(value, like)
    if not right and vector is not None and not is_tree and (like is None or like.shape == ()):
        right = fits(value, Like(vector.dtype, vector.shape))
    if not right:
        raise MessageError(f"{name} is {describe(value)}, expected {describe(like)}")
    if is_tree:
        fields: Iterable[Any] = getattr(like, "_fields", range(len(like)))
        for field, part, example in zip(fields, value, like):
            check(part, example, f"{name}.{field}", vector)


def fits(value: Any, like: Like | None) -> bool:
    """Return whether a leaf has the dtype and shape of another, and values that may be."""
    if like is None or not isinstance(value, np.ndarray | np.generic | bool | int | float):
        return value is like
    array = np.asarray(value)
    same = array.ndim == len(like.shape)
    same = same and all(m in (n, None) for n, m in zip(array.shape, like.shape))
    if like.dtype is str:
        return same and array.dtype.kind == "U" and array.dtype.itemsize <= 4 * MOST_TEXT
    same = same and array.dtype == like.dtype and bool(np.isfinite(array).all())
    return same and bool(((like.low <= array) & (array <= like.high)).all())


def describe(value: Any) -> str:
    """Return a value's type, shape and range as text, for a reason."""
    if not isinstance(value, Like | np.ndarray | np.generic | bool | int | float):
        return type(value).__name__ + (f" of {len(value)}" if isinstance(value, tuple) else "")
    array = value if isinstance(value, Like) else np.asarray(value)
    kind = f"{np.dtype(array.dtype)} {array.shape}"
    if isinstance(array, Like):
        return f"{kind} from {np.min(array.low)} to {np.max(array.high)}"
    known = array.size and array.dtype.kind in "biuf"
    return f"{kind} from {array.min()} to {array.max()}" if known else kind
