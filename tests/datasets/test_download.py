"""Downloads: whole or not at all."""

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import IO

import pytest
from dataset_files import write_idx

from fedref import DataError
from fedref.datasets import download, load, sources
from fedref.datasets.download import Remote

CONTENT = b"twelve bytes"
SHA = hashlib.sha256(CONTENT).hexdigest()
REMOTE = Remote("file.gz", ("https://first/file.gz", "https://second/file.gz"), f"sha256:{SHA}")


def give(data: bytes, url: str, stream: IO[bytes]) -> None:
    stream.write(data)


def fail(error: BaseException, url: str, stream: IO[bytes]) -> None:
    stream.write(CONTENT[:5])
    raise error


def test_a_file_appears_whole_after_fsync_and_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("rename"), replace(a, b))[1])
    for fetch in (partial(give, CONTENT), partial(fail, AssertionError("fetched"))):
        path = download.fetch_file(REMOTE, tmp_path / "new" / "folder", fetch)
        assert path.read_bytes() == CONTENT
        assert [p.name for p in path.parent.iterdir()] == ["file.gz"]
        assert order == ["fsync", "rename"]


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("fetch", "error", "message"),
    [
        (partial(fail, ConnectionError("reset")), DataError, "first: ConnectionError; second"),
        (partial(fail, ValueError("odd")), DataError, "first: ValueError; second"),
        (partial(fail, KeyboardInterrupt("stop")), KeyboardInterrupt, "stop"),
        (partial(give, CONTENT[:-1]), DataError, f"published is {SHA}"),
        (partial(give, b"<html>not found</html>"), DataError, f"published is {SHA}"),
        # not the server's fault
        (
            partial(fail, NO_SPACE),
            DataError,
            "No space left on device; expected a file that can be",
        ),
    ],
)
def test_what_does_not_arrive_whole_leaves_nothing(
    tmp_path: Path, fetch: download.Fetch, error: type[BaseException], message: str
) -> None:
    with pytest.raises(error, match=message):
        download.fetch_file(REMOTE, tmp_path, fetch)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError, match="expected a folder that can be written"):
        download.fetch_file(REMOTE, tmp_path / "file" / "mnist", partial(give, CONTENT))


def test_the_second_address_is_tried(tmp_path: Path) -> None:
    def second_only(url: str, stream: IO[bytes]) -> None:
        stream.write(CONTENT if "second" in url else b"moved")

    assert download.fetch_file(REMOTE, tmp_path, second_only).read_bytes() == CONTENT


def test_prepare_downloads_all_files_and_load_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = {p.name: p.read_bytes() for p in write_idx(tmp_path / "served").iterdir()}
    remotes = tuple(
        Remote(name, (f"https://host/{name}",), f"md5:{hashlib.md5(data).hexdigest()}")
        for name, data in served.items()
    )
    monkeypatch.setitem(
        sources.SOURCES, "mnist", sources.SOURCES["mnist"]._replace(remotes=remotes, sha256="")
    )

    def fetch(url: str, stream: IO[bytes]) -> None:
        stream.write(served[url.rsplit("/", 1)[1]])

    path = sources.prepare("mnist", {}, fetch)
    assert path == download.cache() / "mnist"
    assert load("mnist").X.shape == (18, 9)  # from the cache, without a network


def test_load_can_be_told_not_to_download() -> None:
    with pytest.raises(
        DataError,
        match=r"mnist: not found, and nothing is .* prepare mnist` downloads it; put",
    ):
        load("mnist", download=False)


def test_every_remote_has_an_address_and_a_hash() -> None:
    for known in sources.SOURCES.values():
        for remote in known.remotes:
            assert remote.urls
            assert all(url.startswith("https://") for url in remote.urls)
            kind, _, digest = remote.hash.partition(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[kind]


# ---- over HTTP, from this machine -------------------------------------------------------------------


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404 if "missing" in self.path else 200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:4] if "half" in self.path else CONTENT)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


OVER_HTTP = download.over_http  # before the tests' guard replaces it


def test_http_gives_the_file_or_leaves_nothing(address: str, tmp_path: Path) -> None:
    for place in ("missing", "half"):
        remote = Remote("a", (f"{address}/{place}",), f"sha256:{SHA}")
        with pytest.raises(DataError, match="download failed"):
            download.fetch_file(remote, tmp_path, OVER_HTTP)
        assert list(tmp_path.iterdir()) == []
    remote = Remote("a", (f"{address}/a",), f"sha256:{SHA}")
    assert download.fetch_file(remote, tmp_path, OVER_HTTP).read_bytes() == CONTENT
