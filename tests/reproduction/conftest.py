"""A tiny report, and where the real data are."""

import os
from pathlib import Path

import pytest
from reproducing import CLAIMS, TEXT, TINY

from reproduce import pages, runs


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only report is `tiny`; return the OUT to reproduce it to."""
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "tiny.toml").write_text(TINY)
    (folder / "tiny.md").write_text(TEXT)
    (folder / "claims.md").write_text(CLAIMS)
    for module in (runs, pages):
        monkeypatch.setattr(module, "PAPERS", folder)
    return tmp_path / "made" / "results"


@pytest.fixture
def real() -> Path:
    """Where the real data are."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("FEDREF_DATA") or beside)
    for name in ("mnist", "vehicle", "cifar10-gray", "landmine", "shakespeare"):
        if not (folder / name).is_dir():
            pytest.skip(f"needs {name} in FEDREF_DATA or ../shared/data")
    return folder
