"""Fetching published files: to a file beside, hash checked, fsync, renamed. Never a half file."""

import errno
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from fedref.boundary.files import data_error, write_or_raise

Fetch = Callable[[str, IO[bytes]], None]
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}  # not the server's fault


class Remote(NamedTuple):
    """A file at stable public addresses (the first that answers is used), with its hash."""

    name: str
    urls: tuple[str, ...]
    hash: str  # "sha256:..." or "md5:...", whichever its publisher gives


def cache() -> Path:
    """Return the user's cache folder for downloads."""
    import pooch  # takes as long as NumPy, and few runs download

    return Path(pooch.os_cache("fedref"))


def over_http(url: str, stream: IO[bytes]) -> None:
    """Download with pooch; a server that does not answer for 10 s is given up."""
    import pooch

    pooch.HTTPDownloader(progressbar=False, timeout=10)(url, stream, None)


class NoAnswer(Exception):
    """A server could not be reached, or gave something else than it should."""


def fetch_file(remote: Remote, folder: Path, fetch: Fetch = over_http) -> Path:
    """Return the file in `folder`, downloaded unless it is there."""
    path = folder / remote.name
    if path.is_file():
        return path
    failures = []
    for url in remote.urls:
        try:
            write_or_raise(path, partial(fetch_checked, remote, url, fetch))
            return path
        except NoAnswer as error:
            failures.append(f"{urlsplit(url).netloc}: {error}")
    raise data_error(path, f"download failed ({'; '.join(failures)})", "a network")


def fetch_checked(remote: Remote, url: str, fetch: Fetch, stream: IO[bytes]) -> None:
    """Download into the stream; a wrong hash is an error before the file gets its name."""
    try:
        fetch(url, stream)
    except Exception as error:  # requests, urllib3, ssl and socket have errors of their own each
        if isinstance(error, OSError) and error.errno in DISK:
            raise
        raise NoAnswer(type(error).__name__) from error
    stream.flush()
    kind, _, wanted = remote.hash.partition(":")
    stream.seek(0)
    found = hashlib.file_digest(stream, kind).hexdigest()  # type: ignore[arg-type]
    if found != wanted:
        raise NoAnswer(f"{kind} is {found}, published is {wanted}")


def fetch_files(remotes: tuple[Remote, ...], folder: Path, fetch: Fetch = over_http) -> list[Path]:
    """Return all files, downloaded unless they are there."""
    return [fetch_file(remote, folder, fetch) for remote in remotes]
