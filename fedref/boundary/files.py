"""Reading and writing at the border: bounded, and with one clear error for whatever is wrong."""

import gzip
import json
import os
import secrets
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from fedref.boundary.errors import DataError, FedrefError

FLOOR = 64 << 20  # bytes that a file of any size may become
RATIO = (
    250  # beyond that: LEAF's Shakespeare, a gzip'd text cut into windows of 80, becomes 220-fold
)
MEMBERS = 50_000
PIECE = 1 << 20

Content = bytes | Iterable[bytes] | Callable[[IO[bytes]], object]


def bad(path: Path | str, what: object, expected: str) -> DataError:
    """The one line that every parser raises: file, what is wrong, what was expected."""
    lines = str(what).strip().splitlines()
    text = f"{path}: {lines[0] if lines else type(what).__name__}; expected {expected}"
    # names in a file may hold line breaks, and escape sequences that a terminal would obey
    return DataError("".join(c if c.isprintable() else repr(c)[1:-1] for c in text))


@contextmanager
def guard(path: Path | str, expected: str) -> Iterator[None]:
    """Turn whatever another library's parser raises on a broken file into a DataError.

    Any Exception: json, zipfile, tarfile, gzip and scipy.io raise a dozen different ones between
    them on corrupted input, none of them documented as complete.
    """
    try:
        yield
    except FedrefError:
        raise
    except Exception as error:
        raise bad(path, error if str(error).strip() else type(error).__name__, expected) from error


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; a DataError if that cannot even be asked."""
    try:
        return path.exists()
    except (OSError, ValueError) as error:  # a name too long, a NUL in it, a locked folder
        what = getattr(error, "strerror", None) or error
        raise bad(path, what, "the path of a file or folder") from error


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, refused if it names a key twice (json itself would keep the last)."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{twice[:40]!r} occurs twice")
    return found


class Budget:
    """What reading a file may cost, from its first compressed byte through all layers.

    One is made for each file (or folder, or bytes) that is loaded and handed down to every layer.
    `spend` is called with the bytes that a layer has unpacked, or is about to allocate; `member` for
    each member of an archive; either raises a DataError when there is no more. A stream is `Metered`
    so that nobody forgets.
    """

    def __init__(self, where: Path | str, stored: int = 0) -> None:
        self.where = where
        self.spent = self.members = self.stored = 0
        self.start = time.monotonic()
        self.grow(stored)

    def grow(self, stored: int) -> None:
        """There is one more file of so many bytes to be read."""
        self.stored += stored
        self.limit = max(FLOOR, RATIO * self.stored)
        self.seconds = 60 + self.stored / 1e6

    @property
    def left(self) -> int:
        """Bytes that may still be spent."""
        return self.limit - self.spent

    def spend(self, size: int) -> None:
        """So many bytes are needed."""
        self.spent += size
        if self.spent > self.limit:
            what = f"needs more than {self.limit} bytes to read, far more than its own size"
            raise bad(self.where, what, f"at most {FLOOR >> 20} MB or {RATIO} times its size")
        if time.monotonic() - self.start > self.seconds:
            what = f"takes more than {self.seconds:.0f} s to read"
            raise bad(self.where, what, "less for a file of its size")

    def member(self) -> None:
        """One more member of an archive, or cell of an array."""
        self.members += 1
        if self.members > MEMBERS:
            raise bad(self.where, f"has more than {MEMBERS} members", "fewer")
        self.spend(0)


class Metered:
    """A stream whose bytes are paid for as they are read."""

    def __init__(self, stream: IO[bytes], budget: Budget) -> None:
        self.stream, self.budget = stream, budget

    def read(self, size: int) -> bytes:
        """At most `size` bytes, and at most one piece."""
        piece = self.stream.read(min(size, PIECE))
        self.budget.spend(len(piece))
        return piece


def regular(path: Path, expected: str) -> IO[bytes]:
    """A regular file, open for reading: a pipe or a device would keep its reader waiting."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise bad(path, "is a folder", expected)
        if not stat.S_ISREG(mode):
            raise bad(path, "is no regular file", expected)
        return path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, FedrefError):
            raise
        what = getattr(error, "strerror", None) or error
        raise bad(path, what, expected) from error


@contextmanager
def opened(path: Path, budget: Budget, expected: str) -> Iterator[tuple[Metered, int | None]]:
    """(stream, its length or None if unknown); gzip is seen by its magic number."""
    with regular(path, expected) as plain, guard(path, expected):
        size = os.fstat(plain.fileno()).st_size
        budget.grow(size)
        with unzipped(plain, size, budget) as found:
            yield found


@contextmanager
def unzipped(plain: IO[bytes], size: int, budget: Budget) -> Iterator[tuple[Metered, int | None]]:
    """The same for a stream of `size` bytes, which may be one of the layers of an archive."""
    magic = plain.read(2)
    plain.seek(0)
    if magic == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=plain) as stream:
            yield Metered(cast(IO[bytes], stream), budget), None
    else:
        yield Metered(plain, budget), size


def read_up_to(stream: Metered, size: int) -> bytes:
    """`size` bytes, or fewer at the end of the stream: memory grows with what really arrives."""
    pieces, left = [], size
    while left and (piece := stream.read(left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def read_all(path: Path, budget: Budget, expected: str) -> bytes:
    """A whole file, gzip or plain, within its budget."""
    with opened(path, budget, expected) as (stream, _):
        return read_up_to(stream, budget.left + 1)


def from_json(data: bytes, budget: Budget, **options: Any) -> Any:
    """`json.loads` that is refused if the objects would not fit into the budget.

    An empty list takes 2 bytes of text and a hundred of memory: what the text will become is
    estimated before it is parsed, by counting. Raises what json raises: call it within `guard`.
    """
    text = len(data) * (1 if data.isascii() else 4)
    counts = ((b"[", 96), (b"{", 240), (b",", 40), (b":", 100), (b'"', 30))
    budget.spend(text + sum(size * data.count(mark) for mark, size in counts))
    return json.loads(data, **options)


def write_whole(path: Path, content: Content, before: Path | None = None) -> None:
    """Write a file beside, fsync, rename: `path` holds the old bytes or all of the new ones.

    content : the bytes, pieces of them, or a function that writes to a stream. before : where the
    present file is kept. Raises OSError; `written` turns it into a DataError.
    """
    # nobody can lay a link where this will be written: the name is random, and "x" refuses links
    beside = path.with_name(f".fedref-{secrets.token_hex(8)}.new")
    try:
        with open(beside, "x+b") as stream:
            if callable(content):
                content(stream)
            else:
                for piece in [content] if isinstance(content, bytes) else content:
                    stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())
        if before is not None and path.exists():
            os.replace(path, before)
        os.replace(beside, path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what writes that were killed have left in a folder; nobody may be writing there."""
    for beside in folder.rglob(".fedref-*.new"):
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def written(path: Path, content: Content) -> None:
    """`write_whole` for a file that the user named: its folder is made, an error is a DataError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad(path.parent, error.strerror or error, "a folder that can be written") from error
    try:
        write_whole(path, content)
    except OSError as error:
        raise bad(path, error.strerror or error, "a file that can be written") from error
