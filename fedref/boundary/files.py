"""Read files of limited size and write files atomically; what users can cause is a DataError."""

import errno
import gzip
import json
import os
import secrets
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, cast

from fedref.boundary.errors import DataError, FedrefError, printable

#: A file may unpack to 64 MB, or to 250 times its size if that is more. LEAF's Shakespeare, gzipped
#: windows of 80 characters that overlap, unpacks to 220 times its size.
MAX_UNPACKED, MAX_RATIO = 64 << 20, 250
CHUNK_BYTES = 1 << 20

Content = bytes | Callable[[IO[bytes]], object]
#: Is held while a file is written.
WRITING = threading.RLock()


def end_soon(code: int, seconds: float = 2.0) -> None:
    """End this process after so many seconds, whatever its threads do, but not while it writes a file."""

    def end() -> None:
        time.sleep(seconds)
        with WRITING:
            pass
        time.sleep(0.2)  # who has waited for the file has a word to say
        with WRITING:
            os._exit(code)

    threading.Thread(target=end, daemon=True).start()


def data_error(path: Path | str, what: object, expected: str) -> DataError:
    """Return the one-line error that every reader raises: the file, its fault, what was expected."""
    lines = str(what).strip().splitlines()
    wrong = lines[0] if lines else type(what).__name__
    where, right = printable(path, 1000), printable(expected, 1000)
    return DataError(f"{where}: {printable(wrong)}; expected {right}")


@contextmanager
def as_data_error(path: Path | str, expected: str) -> Iterator[None]:
    """Turn any error of another library's reader into a DataError.

    It catches every Exception: on corrupted input json, zipfile, tarfile, gzip and NumPy raise a
    dozen different ones, and none of them documents a complete list.
    """
    try:
        yield
    except FedrefError:
        raise
    except Exception as error:
        wrong = getattr(error, "strerror", None) or error
        raise data_error(path, wrong, expected) from error


def exists(path: Path) -> bool:
    """Return whether a file or folder exists; raise a DataError if the system cannot tell."""
    with as_data_error(path, "the path of a file or folder"):  # a name too long, a locked folder
        return path.exists()


# ---- reading -------------------------------------------------------------------------------------


def open_regular_only(name: str, flags: int) -> int:
    """Open a file for reading as `opener` of `open`; refuse a pipe or a device, and do not wait for it."""
    descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    what = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
    raise OSError(errno.EINVAL, what, name)


def open_regular(path: Path, expected: str) -> BufferedReader:
    """Open a file for reading. Refuse folders and empty files, and pipes and devices, which may not end."""
    with as_data_error(path, expected):
        if path.is_file() and not path.stat().st_size:
            raise OSError("is empty")
        return open(path, "rb", opener=open_regular_only)


def unpacked_limit(size: int) -> int:
    """Return how many bytes a file of `size` bytes may unpack to, so that it cannot fill the memory."""
    return max(MAX_UNPACKED, MAX_RATIO * size)


def gunzip(stream: IO[bytes]) -> IO[bytes]:
    """Return the unpacked stream if this one begins like a gzip file, else the stream itself."""
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if packed else stream


def read_up_to(stream: IO[bytes], limit: int, where: Path | str) -> bytes:
    """Read a stream to its end; a DataError as soon as it holds more than `limit` bytes."""
    data = bytearray()
    while piece := stream.read(CHUNK_BYTES):  # memory grows with what really arrives
        data += piece
        if len(data) > limit:
            raise data_error(where, "becomes too large when unpacked", f"at most {limit} bytes")
    return cast(bytes, data)  # bytes(data) would need the memory twice


def read_bytes(path: Path, expected: str) -> bytes:
    """Read a whole file, gzip or plain."""
    with open_regular(path, expected) as stream, as_data_error(path, expected):
        limit = unpacked_limit(os.fstat(stream.fileno()).st_size)
        data = read_up_to(gunzip(stream), limit, path)
        if not data:
            raise ValueError("is empty")
        return data


def read_text(path: Path, expected: str) -> str:
    """Read a whole file as UTF-8, with or without a byte order mark."""
    data = read_bytes(path, expected)
    with as_data_error(path, expected):
        return data.decode("utf-8-sig")


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """Read a JSON object, gzip or plain. Refuse NaN, Infinity and keys that occur twice."""
    data = read_bytes(path, expected)
    with as_data_error(path, expected):
        value = json.loads(data, object_pairs_hook=unique_keys, parse_constant=refuse_constant)
        if not isinstance(value, dict):
            raise ValueError(f"holds a {type(value).__name__}")
        return value


def refuse_constant(name: str) -> float:
    """Refuse NaN and Infinity, which Python's json would accept."""
    raise ValueError(f"holds {name}")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object of its pairs; a ValueError if a key occurs twice (json keeps the last)."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"{first_repeated(name for name, _ in pairs)!r:.40} occurs twice")
    return values


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once, or None."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


# ---- writing -------------------------------------------------------------------------------------


def write_atomically(path: Path, content: Content) -> None:
    """Write a file so that `path` holds either the old bytes or all of the new ones.

    The bytes go to a temporary file in the same folder, which is synced to the disk and renamed. Then
    the folder is synced, too: after a power cut the new name may else be gone.

    content : the bytes, or a function that writes them to a stream. Raises OSError, also for a link,
    which the user made with a purpose; `write_or_raise` turns it into a DataError.
    """
    if path.is_symlink():
        raise OSError(errno.EINVAL, "is a link, which is neither replaced nor followed", str(path))
    # nobody can place a link at this path in advance: the name is random, and "x" refuses links
    temporary = path.with_name(f".fedref-{secrets.token_hex(8)}.new")
    with WRITING:
        try:
            with open(temporary, "x+b") as stream:
                if callable(content):
                    content(stream)
                else:
                    stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        except OSError as error:
            error.filename = str(path)  # nobody knows the temporary file
            raise
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, on systems that can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system syncs no folders
            error.filename = str(folder)
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that a power cut does not take them."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def claim_folder(folder: Path, marker: str) -> None:
    """Make a folder whose files may be written over; refuse one that holds files of others."""
    if folder.is_dir() and not (folder / marker).exists() and any(folder.iterdir()):
        what = "holds files that fedref did not write"
        raise data_error(folder, what, "a new or an empty folder")
    make_folder(folder)
    (folder / marker).touch()


def write_or_raise(path: Path, content: Content) -> None:
    """Write a file at a path that the user chose. Create its folder; raise a DataError if it fails."""
    try:
        make_folder(path.parent)
        write_atomically(path, content)
    except OSError as error:
        where = error.filename or path
        raise data_error(where, error.strerror or error, "a path that can be written") from error
