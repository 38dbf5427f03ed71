"""Downloads: whole or not at all."""

import errno
import hashlib
import threading
from collections.abc import Callable
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from dataset_files import write_idx

from fedref import DataError
from fedref.datasets import download, load, sources
from fedref.datasets.download import Remote

CONTENT = b"twelve bytes"
SHA = hashlib.sha256(CONTENT).hexdigest()
REMOTE = Remote("file.gz", ("https://first/file.gz", "https://second/file.gz"), f"sha256:{SHA}")
OVER_HTTP = download.download_by_http  # before the tests' guard replaces it


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let every address give this content, or raise this error after half of it."""

    def serve(answer: Any) -> None:
        def fetch(url: str, path: str, _: object) -> None:
            found = answer(url) if callable(answer) else answer
            Path(path).write_bytes(found if isinstance(found, bytes) else CONTENT[:5])
            if isinstance(found, BaseException):
                raise found

        monkeypatch.setattr(download, "download_by_http", fetch)

    return serve


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (ConnectionError("reset"), DataError, "first: ConnectionError; second"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
        (CONTENT[:-1], DataError, f"its hash is not the published sha256:{SHA}"),
        (OSError(errno.ENOSPC, "No space left on device"), DataError, "No space left on device"),
    ],
)
def test_what_does_not_arrive_whole_leaves_nothing(
    tmp_path: Path, serve: Any, answer: Any, error: type[BaseException], message: str
) -> None:
    serve(answer)
    with pytest.raises(error, match=message):
        download.fetch_file(REMOTE, tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("no folder")
    serve(CONTENT)
    with pytest.raises(DataError, match=r"download failed.*: (Not a directory|File exists)"):
        download.fetch_file(REMOTE, tmp_path / "file" / "mnist")


def test_the_second_address_is_tried_and_a_whole_file_is_not_fetched_again(
    tmp_path: Path, serve: Any
) -> None:
    for answer in (lambda url: CONTENT if "second" in url else b"moved", AssertionError("fetched")):
        serve(answer)
        download.fetch_file(REMOTE, tmp_path / "new" / "folder")
        (path,) = (tmp_path / "new" / "folder").iterdir()
        assert (path.name, path.read_bytes()) == ("file.gz", CONTENT)


def test_load_downloads_all_files_once_unless_told_not_to(
    tmp_path: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = {p.name: p.read_bytes() for p in write_idx(tmp_path / "served").iterdir()}
    remotes = tuple(
        Remote(name, (f"https://host/{name}",), f"md5:{hashlib.md5(data).hexdigest()}")
        for name, data in served.items()
    )
    known = sources.SOURCES["mnist"]._replace(remotes=remotes, sha256="")
    monkeypatch.setitem(sources.SOURCES, "mnist", known)
    with pytest.raises(DataError, match=r"nothing is .* prepare mnist` downloads it; put"):
        load("mnist", download=False)
    for answer in (lambda url: served[url.rsplit("/", 1)[1]], AssertionError("fetched")):
        serve(answer)
        assert load("mnist").X.shape == (18, 9)


def test_every_remote_has_an_address_and_a_hash() -> None:
    for remote in (remote for known in sources.SOURCES.values() for remote in known.remotes):
        assert remote.urls
        assert all(url.startswith("https://") for url in remote.urls)
        kind, _, digest = remote.hash.partition(":")
        assert len(digest) == {"md5": 32, "sha256": 64}[kind]


def test_http_gives_the_file_or_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "download_by_http", OVER_HTTP)
    (tmp_path / "there").write_bytes(CONTENT)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        urls = [f"http://127.0.0.1:{server.server_port}/{name}" for name in ("missing", "there")]
        with pytest.raises(DataError, match="download failed"):
            download.fetch_file(Remote("a", (urls[0],), f"sha256:{SHA}"), tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []
        download.fetch_file(Remote("a", (urls[1],), f"sha256:{SHA}"), tmp_path / "cache")
        server.shutdown()
    assert (tmp_path / "cache" / "a").read_bytes() == CONTENT
