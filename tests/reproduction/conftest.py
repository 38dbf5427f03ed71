"""Neither data nor downloads nor processes, a tiny reproduction, and where the real data are."""

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from reproducing import REPORT, TEXT, TINY

from fedref.datasets import download, sources
from reproduce import catalogue, jobs


class Here(Executor):
    """An executor that does the work at once, in this process."""

    def __init__(self, processes: int, *how: Any) -> None:
        self.processes = processes

    def submit(self, work: Callable[..., Any], /, *words: Any, **more: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(work(*words, **more))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Neither the user's data nor a download nor a process, but for the tests that ask for them."""
    if "real" not in request.fixturenames:
        monkeypatch.delenv("FEDREF_DATA", raising=False)
        monkeypatch.setattr(download, "cache_folder", lambda: tmp_path / "cache")
        if "processes" not in request.fixturenames:
            monkeypatch.setattr(jobs, "ProcessPoolExecutor", Here)


@pytest.fixture
def processes() -> None:
    """Jobs run in processes of their own."""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of reproductions with `tiny`; the OUT to reproduce it to."""
    folder = tmp_path / "reproductions" / "tiny"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text(TINY)
    (folder / "report.py").write_text(REPORT)
    (folder / "report.md").write_text(TEXT)
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
