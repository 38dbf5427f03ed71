"""Single members of zip and tar archives, read in memory: nothing is ever unpacked to disk.

The reader of tar files is our own: `tarfile` reads a long name or a PAX header of any length into
memory before its caller sees it.
"""

import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from fedref.boundary.files import (
    MEMBERS,
    PIECE,
    Budget,
    Metered,
    bad,
    guard,
    opened,
    read_up_to,
    regular,
)

# ---- zip ----------------------------------------------------------------------------------------

END = b"PK\5\6"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks others without a limit


def safe(name: str) -> bool:
    """Whether an archive member stays inside its archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in name


def promised(stream: IO[bytes]) -> int:
    """How many members the record at the end of a zip archive counts."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - 22 - 0xFFFF))
    tail = stream.read()
    at = tail.rfind(END)
    if not 0 <= at <= len(tail) - 22:
        raise ValueError("has no end record")
    return int(struct.unpack_from("<H", tail, at + 10)[0])


def zip_members(
    stream: IO[bytes], budget: Budget, where: Path | str, expected: str
) -> Iterator[tuple[str, int, Metered]]:
    """(name, size, stream) of each member. Raises what zipfile raises: use it within `guard`."""
    count = promised(stream)
    if count > MEMBERS:
        raise bad(where, f"has {count} members", f"at most {MEMBERS}")
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if len(members) != count:  # zipfile skips what a wrong length in the directory covers
            raise bad(where, f"lists {len(members)} members and counts {count}", expected)
        claimed = sum(member.file_size for member in members)
        if claimed > budget.left:
            raise bad(where, f"claims {claimed} bytes when unpacked", f"at most {budget.left}")
        for member in members:
            budget.member()
            if not safe(member.filename):
                raise bad(where, f"member {member.filename!r} points outside the archive", expected)
            if member.compress_type not in METHODS:
                raise bad(where, f"member {member.filename!r} is compressed", "stored or deflated")
        for member in members:
            with archive.open(member) as unpacked:
                yield member.filename, member.file_size, Metered(unpacked, budget)


def from_zip(path: Path, wanted: list[str], budget: Budget, expected: str) -> list[bytes]:
    """The members of these names, in their order, in whichever folder of the archive they are."""
    found = {}
    with regular(path, expected) as stream, guard(path, expected):
        budget.grow(size_of(stream))
        for member, size, unpacked in zip_members(stream, budget, path, expected):
            name = PurePosixPath(member).name
            if name in wanted:
                found[name] = read_up_to(unpacked, size)
    return in_order(path, found, wanted, expected)


def size_of(stream: IO[bytes]) -> int:
    """Bytes in a stream, which is left at its beginning."""
    size = stream.seek(0, 2)
    stream.seek(0)
    return size


# ---- tar ----------------------------------------------------------------------------------------

BLOCK = 512
FILES = (b"0", b"\0", b"7")
LINKS = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices and folders: nothing follows them
TEXTS = (b"x", b"g", b"L", b"K")  # PAX headers and GNU's long names of the member that follows
LONGEST = 1 << 16  # bytes of such a text


def field(block: bytes) -> bytes:
    """A text of a header: up to its first zero."""
    return block.partition(b"\0")[0]


def number(block: bytes) -> int:
    """A number of a header: octal digits, or base 256 if its first bit is set."""
    if block[0] & 0x80:
        return int.from_bytes(block, "big") - (0x80 << 8 * (len(block) - 1))
    return int(field(block).strip() or b"0", 8)


def pax_path(text: bytes, name: bytes) -> bytes:
    """The path of a PAX header, made of records like "20 path=somewhere\\n", if it has one."""
    place = 0
    while place < len(text):
        digits, _, _ = text[place : place + 8].partition(b" ")
        end = place + int(digits)
        if not place + len(digits) < end <= len(text):
            raise ValueError("has a damaged header")
        key, _, value = text[place + len(digits) + 1 : end].rstrip(b"\n").partition(b"=")
        name = value if key == b"path" else name
        place = end
    return name


def tar_members(stream: Metered, wanted: list[str], budget: Budget) -> dict[str, bytes]:
    """The regular files of these names, up to the end of the archive."""
    found, long = {}, b""
    while (head := read_up_to(stream, BLOCK)).strip(b"\0"):
        if len(head) < BLOCK or number(head[148:156]) != sum(head) - sum(head[148:156]) + 256:
            raise ValueError("has a damaged header")
        budget.member()
        kind, size = head[156:157], number(head[124:136])
        size = 0 if kind in LINKS else size
        path = (long or field(head[:100])).decode("utf-8", "backslashreplace")
        if not safe(path):
            raise ValueError(f"member {path[:80]!r} points outside the archive")
        if not 0 <= size <= budget.left or (kind in TEXTS and size > LONGEST):
            raise ValueError(f"member {path[:80]!r} claims {size} bytes")
        if kind in TEXTS:
            text = read_up_to(stream, size)
            if kind == b"x":
                long = pax_path(text, long)
            elif kind == b"L":
                long = field(text)
        else:
            long = b""
            name = PurePosixPath(path).name
            keep = kind in FILES and name in wanted
            content = read_up_to(stream, size) if keep else skip(stream, size)
            if keep and len(content) == size:
                found[name] = content
        skip(stream, -size % BLOCK)
    return found


def skip(stream: Metered, size: int) -> bytes:
    """Read on without keeping anything."""
    while size > 0 and (piece := stream.read(size)):
        size -= len(piece)
    return b""


def from_tar(path: Path, wanted: list[str], budget: Budget, expected: str) -> list[bytes]:
    """The same for a tar archive, gzip or plain, in one pass."""
    with opened(path, budget, expected) as (stream, _):
        found = tar_members(stream, wanted, budget)
        while stream.read(PIECE):  # gzip checks its checksum only where the stream ends
            pass
    return in_order(path, found, wanted, expected)


def in_order(path: Path, found: dict[str, bytes], wanted: list[str], expected: str) -> list[bytes]:
    """The contents of the members wanted; a DataError if one is not there."""
    missing = [name for name in wanted if name not in found]
    if missing:
        raise bad(path, f"has no member {missing[0]!r}", expected)
    return [found[name] for name in wanted]
