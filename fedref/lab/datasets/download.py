"""Download published files with pooch. A file appears only when it is complete and its hash right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedref.boundary.files import data_error


def cache_folder() -> Path:
    """Return the user's cache folder for downloads."""
    import pooch  # importing it takes as long as NumPy, and few runs download

    return Path(pooch.os_cache("fedref"))


def download_by_http(url: str, path: str, _: Any) -> None:
    """Download to a file; give up on a server that does not answer within 10 s."""
    import pooch

    pooch.HTTPDownloader(progressbar=False, timeout=10)(url, path, None)


def fetch_file(name: str, hash: str, addresses: Sequence[str], folder: Path) -> None:
    """Download a file to `folder`, unless it is already there with the right hash.

    addresses : of folders that hold it, tried in order.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    failures = []
    for address in addresses:
        try:
            pooch.retrieve(address + name, hash, name, folder, downloader=download_by_http)
            return
        except Exception as error:  # requests, urllib3, ssl and socket share no base class
            reason = getattr(error, "strerror", None) or type(error).__name__
            if type(error) is ValueError:
                reason = f"its hash is not the published {hash}"
            failures.append(f"{urlsplit(address).netloc}: {reason}")
    what = f"download failed ({'; '.join(failures)})"
    raise data_error(folder / name, what, "a working network connection")
