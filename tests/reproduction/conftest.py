"""Neither data nor downloads, a tiny reproduction, and where the real data are."""

import os
from pathlib import Path

import pytest
from reproducing import REPORT, TINY

from fedref.datasets import download, sources
from fedref.reproduction import catalogue


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Neither the user's data nor a download, but for the slow tests on real data."""
    if "real" not in request.fixturenames:
        monkeypatch.delenv("FEDREF_DATA", raising=False)
        monkeypatch.setattr(download, "cache", lambda: tmp_path / "cache")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of reproductions with `tiny`; the OUT to reproduce it to."""
    folder = tmp_path / "reproductions" / "tiny"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text(TINY)
    (folder / "report.py").write_text(REPORT)
    monkeypatch.setattr(catalogue, "root", lambda: folder.parent)
    return tmp_path / "made" / "results"


@pytest.fixture
def real() -> Path:
    """Where the real data are."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("FEDREF_DATA") or beside)
    for name in ("mnist", "vehicle", "cifar10-gray", "landmine", "shakespeare"):
        chosen = {"step": 1} if name == "shakespeare" else {}
        if not folder.is_dir() or sources.locate(name, chosen, folder) is None:
            pytest.skip(f"needs {name} in FEDREF_DATA or ../shared/data")
    return folder
