"""Tests of data never see the user's own data folder or cache, nor the network."""

from pathlib import Path

import pytest

from fedref.datasets import download, sources


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    def refuse(url: str, stream: object) -> None:
        raise ConnectionError("no network in tests")

    monkeypatch.setattr(download, "cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(download, "over_http", refuse)
    for function in (download.one, download.every, sources.prepare):
        monkeypatch.setattr(function, "__defaults__", (refuse,))
    if "real" not in request.fixturenames:
        monkeypatch.delenv("FEDREF_DATA", raising=False)


@pytest.fixture
def real() -> Path:
    from dataset_files import real_data

    return real_data()
