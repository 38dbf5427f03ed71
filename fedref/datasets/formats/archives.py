"""Single members of zip and tar archives, read in memory: nothing is ever unpacked to disk."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
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


def open_members(archive: zipfile.ZipFile, where: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, stream) of each member of a zip archive, whose sizes stay within the limit."""
    assert archive.fp is not None
    limit = unpacked_limit(archive.fp.seek(0, io.SEEK_END))
    claimed = sum(member.file_size for member in archive.infolist())
    if claimed > limit:
        raise data_error(where, f"claims {claimed} bytes when unpacked", f"at most {limit}")
    for member in archive.infolist():
        with archive.open(member) as unpacked:  # gives no more bytes than the member claims
            yield member.filename, unpacked


def from_zip(path: Path, wanted: list[str], expected: str) -> list[bytes]:
    """Return the members of these names, in whichever folder of the archive they are."""
    with (
        open_regular(path, expected) as stream,
        as_data_error(path, expected),
        zipfile.ZipFile(stream) as archive,
    ):
        members = (
            (PurePosixPath(name).name, unpacked) for name, unpacked in open_members(archive, path)
        )
        return in_order(
            {name: unpacked.read() for name, unpacked in members if name in wanted}, wanted
        )


def from_tar(path: Path, wanted: list[str], expected: str) -> list[bytes]:
    """Return the same of a tar archive, gzip or plain."""
    data, found = read_bytes(path, expected), {}
    with (
        as_data_error(path, expected),
        tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive,
    ):
        for number, member in enumerate(iter(archive.next, None)):
            if number == MEMBERS:
                raise ValueError(f"has more than {MEMBERS} members")
            if not 0 <= member.size <= len(data):  # a sparse member is as large as it claims
                raise ValueError(f"member {member.name!r} claims {member.size} bytes")
            name = PurePosixPath(member.name).name
            if name in wanted and member.isreg() and (content := archive.extractfile(member)):
                found[name] = content.read()
        return in_order(found, wanted)


def in_order(found: dict[str, bytes], wanted: list[str]) -> list[bytes]:
    """Return the contents of the members wanted; a ValueError if one is not there."""
    missing = [name for name in wanted if name not in found]
    if missing:
        raise ValueError(f"has no member {missing[0]!r}")
    return [found[name] for name in wanted]
