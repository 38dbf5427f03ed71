"""Reading and writing at the border: bounded, and with one clear error for whatever is wrong."""

import gzip
import io
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from fedref.errors import DataError, FedrefError

# Real data does not compress a hundredfold; a zip bomb does. Small files may do as they please.
BOMB_FLOOR = 64 << 20
BOMB_RATIO = 100

Content = bytes | Iterable[bytes] | Callable[[IO[bytes]], object]


def bad(path: Path | str, what: object, expected: str) -> DataError:
    """The one line that every parser raises: file, what is wrong, what was expected."""
    lines = str(what).strip().splitlines()
    return DataError(f"{path}: {lines[0] if lines else type(what).__name__}; expected {expected}")


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
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} occurs twice")
    return found


def budget(stored: int) -> int:
    """How many bytes a compressed file of `stored` bytes may grow to."""
    return max(BOMB_FLOOR, BOMB_RATIO * stored)


def size_of(path: Path, expected: str) -> int:
    """The file's size; a DataError if it cannot be read."""
    try:
        if path.is_dir():
            raise bad(path, "is a folder", expected)
        return path.stat().st_size
    except FedrefError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        what = getattr(error, "strerror", None) or error
        raise bad(path, what, expected) from error


@contextmanager
def opened(path: Path, expected: str) -> Iterator[tuple[IO[bytes], int, bool]]:
    """(stream, most bytes it may give, whether that is exact); gzip is seen by its magic number."""
    size = size_of(path, expected)
    with guard(path, expected), path.open("rb") as plain, unzipped(plain, size) as found:
        yield found


@contextmanager
def opened_bytes(data: bytes) -> Iterator[tuple[IO[bytes], int, bool]]:
    """The same for a file that is in memory already."""
    with unzipped(io.BytesIO(data), len(data)) as found:
        yield found


@contextmanager
def unzipped(plain: IO[bytes], size: int) -> Iterator[tuple[IO[bytes], int, bool]]:
    magic = plain.read(2)
    plain.seek(0)
    if magic == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=plain) as stream:
            yield cast(IO[bytes], stream), budget(size), False
    else:
        yield plain, size, True


def read_up_to(stream: IO[bytes], size: int) -> bytes:
    """`size` bytes, or fewer at the end of the stream: memory grows with what really arrives."""
    pieces, left = [], size
    while left and (piece := stream.read(min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def read_all(path: Path, expected: str) -> bytes:
    """A whole file, gzip or plain, within its budget."""
    with opened(path, expected) as (stream, limit, _):
        data = read_up_to(stream, limit + 1)
    if len(data) > limit:
        raise bad(path, f"decompresses to more than {limit} bytes", "a file that is no zip bomb")
    return data


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
