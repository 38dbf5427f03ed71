"""Single members of zip and tar archives, read in memory: nothing is ever unpacked to disk."""

import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from fedref.files import bad, budget, guard, opened, read_up_to, size_of


def safe(name: str) -> bool:
    """Whether an archive member stays inside its archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in name


def check_members(path: Path, names: list[str], total: int, limit: int, expected: str) -> None:
    """Refuse an archive with members that point outside, or that unpacks to a zip bomb."""
    unsafe = [name for name in names if not safe(name)]
    if unsafe:
        raise bad(path, f"member {unsafe[0]!r} points outside the archive", expected)
    if total > limit:
        raise bad(path, f"claims {total} bytes when unpacked", f"at most {limit}")


def from_zip(path: Path, wanted: list[str], expected: str) -> list[bytes]:
    """The members of these names, wherever in the archive's folders they are."""
    limit = budget(size_of(path, expected))
    found = {}
    with guard(path, expected), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        sizes = sum(member.file_size for member in members)
        check_members(path, [m.filename for m in members], sizes, limit, expected)
        for member in members:
            name = PurePosixPath(member.filename).name
            if name in wanted:
                with archive.open(member) as stream:
                    found[name] = read_up_to(stream, member.file_size)
    return in_order(path, found, wanted, expected)


def from_tar(path: Path, wanted: list[str], expected: str) -> list[bytes]:
    """The same for a tar archive, gzip or plain, in one pass."""
    found: dict[str, bytes] = {}
    total = 0
    with opened(path, expected) as (stream, limit, _):
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                total += member.size
                check_members(path, [member.name], total, limit, expected)
                name = PurePosixPath(member.name).name
                data = archive.extractfile(member) if member.isreg() and name in wanted else None
                if data is not None:
                    found[name] = read_up_to(data, member.size)
        # tar stops at its own end mark; gzip checks its checksum only where the stream ends
        while total <= limit and (rest := stream.read(1 << 20)):
            total += len(rest)
    return in_order(path, found, wanted, expected)


def in_order(path: Path, found: dict[str, bytes], wanted: list[str], expected: str) -> list[bytes]:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise bad(path, f"has no member {missing[0]!r}", expected)
    return [found[name] for name in wanted]
