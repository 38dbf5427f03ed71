"""Downloads: whole or not at all."""

import errno
import hashlib
import threading
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
from dataset_files import write_idx

from fedref import DataError
from fedref.lab.datasets import load, sources

CONTENT = b"twelve bytes"
SHA = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
ADDRESSES = ("https://first/", "https://second/")
OVER_HTTP = sources.download_by_http  # before the tests' guard replaces it


@pytest.fixture
def serve(monkeypatch):
    """Let every address give this content, or raise this error after half of it."""

    def serve(answer):
        def fetch(url, path, _):
            found = answer(url) if callable(answer) else answer
            Path(path).write_bytes(found if isinstance(found, bytes) else CONTENT[:5])
            if isinstance(found, BaseException):
                raise found

        monkeypatch.setattr(sources, "download_by_http", fetch)

    return serve


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (ConnectionError("reset"), DataError, "first: ConnectionError; second"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
        (CONTENT[:-1], DataError, f"its hash is not the published {SHA}"),
        (OSError(errno.ENOSPC, "No space left on device"), DataError, "No space left on device"),
    ],
)
def test_a_file_arrives_whole_or_leaves_nothing(tmp_path, serve, answer, error, message):
    folder = tmp_path / "new" / "folder"
    serve(answer)
    with pytest.raises(error, match=message):
        sources.fetch_file("file.gz", SHA, ADDRESSES, folder)
    assert list(folder.iterdir()) == []
    for answer in (lambda url: CONTENT if "second" in url else b"moved", AssertionError("fetched")):
        serve(answer)  # a whole file is not fetched again
        sources.fetch_file("file.gz", SHA, ADDRESSES, folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"file.gz": CONTENT}


def test_load_downloads_all_files_once_unless_told_not_to(tmp_path, serve, monkeypatch):
    served = {p.name: p.read_bytes() for p in write_idx(tmp_path / "served").iterdir()}
    hashes = {name: f"md5:{hashlib.md5(data).hexdigest()}" for name, data in served.items()}
    known = sources.SOURCES["mnist"]._replace(hashes=hashes, sha256="")
    monkeypatch.setitem(sources.SOURCES, "mnist", known)
    with pytest.raises(DataError, match=r"nothing is .* prepare mnist` downloads it; put"):
        load("mnist", download=False)
    for answer in (lambda url: served[url.rsplit("/", 1)[1]], AssertionError("fetched")):
        serve(answer)
        assert load("mnist").X.shape == (18, 9)


def test_http_gives_the_file_or_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(sources, "download_by_http", OVER_HTTP)
    (tmp_path / "there").write_bytes(CONTENT)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        here = [f"http://127.0.0.1:{server.server_port}/"]
        with pytest.raises(DataError, match="download failed"):
            sources.fetch_file("missing", SHA, here, tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []
        sources.fetch_file("there", SHA, here, tmp_path / "cache")
        server.shutdown()
    assert (tmp_path / "cache" / "there").read_bytes() == CONTENT
