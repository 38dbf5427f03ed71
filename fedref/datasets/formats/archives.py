"""Single members of zip and tar archives, read in memory: nothing is ever unpacked to disk."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path, PurePosixPath
from typing import IO

from fedref.boundary.files import (
    as_data_error,
    data_error,
    open_regular,
    read_bytes,
    unpacked_limit,
)

MEMBERS = 1000  # of a tar archive, each of which takes a thousand bytes
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks others without a limit


def open_members(
    archive: zipfile.ZipFile, where: Path, expected: str
) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, stream) of each member of a zip archive that stays within its limits."""
    members, stream = archive.infolist(), archive.fp
    assert stream is not None
    limit = unpacked_limit(stream.seek(0, 2))
    stream.seek(-12 - len(archive.comment), 2)
    promised = int.from_bytes(stream.read(2), "little")
    if promised != len(members):  # zipfile skips what a wrong length in the directory covers
        raise data_error(where, f"lists {len(members)} members and counts {promised}", expected)
    claimed = sum(member.file_size for member in members)
    if claimed > limit:
        raise data_error(where, f"claims {claimed} bytes when unpacked", f"at most {limit}")
    for member in members:
        check_inside(member.filename, where, expected)
        if member.compress_type not in METHODS:
            what = f"member {member.filename!r} is compressed"
            raise data_error(where, what, "stored or deflated members")
        with archive.open(member) as unpacked:  # gives no more bytes than the member claims
            yield member.filename, unpacked


def check_inside(name: str, where: Path, expected: str) -> None:
    """Refuse a member whose name points outside of its archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise data_error(where, f"member {name!r} points outside the archive", expected)


def from_zip(path: Path, wanted: list[str], expected: str) -> list[bytes]:
    """Return the members of these names, in whichever folder of the archive they are."""
    found = {}
    with (
        open_regular(path, expected) as stream,
        as_data_error(path, expected),
        zipfile.ZipFile(stream) as archive,
    ):
        for member, unpacked in open_members(archive, path, expected):
            if (name := PurePosixPath(member).name) in wanted:
                found[name] = unpacked.read()
    return in_order(path, found, wanted, expected)


def from_tar(path: Path, wanted: list[str], expected: str) -> list[bytes]:
    """Return the same of a tar archive, gzip or plain."""
    found, number = {}, count()
    data = io.BytesIO(read_bytes(path, expected))
    with as_data_error(path, expected), tarfile.open(fileobj=data, mode="r:") as archive:
        while (member := archive.next()) is not None:
            check_inside(member.name, path, expected)
            if next(number) == MEMBERS:
                raise ValueError(f"has more than {MEMBERS} members")
            if member.size < 0 or member.issparse():
                # the next header would stand before this one; holes are as large as they claim
                raise ValueError(f"member {member.name!r} claims {member.size} bytes")
            name = PurePosixPath(member.name).name
            if name in wanted and member.isreg() and (content := archive.extractfile(member)):
                found[name] = content.read()
    return in_order(path, found, wanted, expected)


def in_order(path: Path, found: dict[str, bytes], wanted: list[str], expected: str) -> list[bytes]:
    """Return the contents of the members wanted; a DataError if one is not there."""
    missing = [name for name in wanted if name not in found]
    if missing:
        raise data_error(path, f"has no member {missing[0]!r}", expected)
    return [found[name] for name in wanted]
