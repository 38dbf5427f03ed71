"""runtime.json: seconds that add up, and the commits that made a run."""

import subprocess
from pathlib import Path

import pytest

from fedref.boundary.errors import DataError
from fedref.reproduction import runtime


def test_runtime_adds_up_and_names_all_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime.json").write_text('{"seconds": 100.0, "version": "0", "commit": "a"}')
    monkeypatch.setattr(runtime, "git_commit", lambda: "b")
    for _ in range(2):
        with runtime.stopwatch(tmp_path) as tick:
            tick()
    found = runtime.runtime(tmp_path)
    assert found["seconds"] >= 100
    assert found["commit"] == "a, b"
    (tmp_path / "runtime.json").write_text("{")
    with pytest.raises(DataError, match="is no JSON object"):
        runtime.runtime(tmp_path)


def test_changes_of_experiments_and_reports_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    files = ["fedref/a.py", "reproduce/one/x.toml", "reproduce/one/report.py", "README.md"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(runtime, "PACKAGE", tmp_path.resolve() / "fedref")
    for name in files:
        (tmp_path / name).write_text("changed")
        assert runtime.git_commit().endswith(" + changes") == (name != "README.md"), name
        (tmp_path / name).write_text("")
    assert len(runtime.git_commit()) == 40
