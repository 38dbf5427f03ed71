"""Downloads of published files by pooch: to a file beside, hash checked, renamed. Never half a file."""

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fedref.boundary.files import data_error


class Remote(NamedTuple):
    """A file at stable public addresses (the first that answers is used), with its hash."""

    name: str
    urls: tuple[str, ...]
    hash: str  # "sha256:..." or "md5:...", whichever its publisher gives


def cache() -> Path:
    """Return the user's cache folder for downloads."""
    import pooch  # takes as long as NumPy, and few runs download

    return Path(pooch.os_cache("fedref"))


def over_http(url: str, path: str, _: Any) -> None:
    """Download to a file; a server that does not answer for 10 s is given up."""
    import pooch

    pooch.HTTPDownloader(progressbar=False, timeout=10)(url, path, None)


def fetch_file(remote: Remote, folder: Path) -> None:
    """Download a file to `folder`, unless it is there with the right hash."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    failures = []
    for url in remote.urls:
        try:
            pooch.retrieve(url, remote.hash, remote.name, folder, downloader=over_http)
        except (
            Exception
        ) as error:  # requests, urllib3, ssl and socket have errors of their own each
            wrong = (
                f"its hash is not the published {remote.hash}" if type(error) is ValueError else ""
            )
            wrong = wrong or getattr(error, "strerror", None) or type(error).__name__
            failures.append(f"{urlsplit(url).netloc}: {wrong}")
        else:
            return
    raise data_error(folder / remote.name, f"download failed ({'; '.join(failures)})", "a network")
