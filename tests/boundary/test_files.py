"""Writing a file: all of it or nothing, and never through a link."""

import errno
import gzip
import io
import os
from pathlib import Path

import pytest

from fedref import DataError
from fedref.boundary import files


def test_bytes_pieces_and_a_writer_give_the_same_file(tmp_path: Path) -> None:
    for content in (b"abc", iter([b"a", b"bc"]), lambda stream: stream.write(b"abc")):
        files.write_whole(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == b"abc"
        (tmp_path / "file").unlink()


def test_the_file_before_is_kept_where_wanted(tmp_path: Path) -> None:
    for content in (b"1", b"2"):
        files.write_whole(tmp_path / "file", content, before=tmp_path / "old")
    assert (tmp_path / "file").read_bytes() == b"2"
    assert (tmp_path / "old").read_bytes() == b"1"


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"kept")
    (tmp_path / "file").symlink_to(tmp_path / "outside")
    files.write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "outside").read_bytes() == b"kept"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()


def test_a_link_under_the_name_beside_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "guessed")
    (tmp_path / ".fedref-guessed.new").symlink_to(tmp_path / "outside")
    with pytest.raises(FileExistsError):
        files.write_whole(tmp_path / "file", b"new")
    assert not (tmp_path / "outside").exists()


def test_an_error_leaves_the_old_file_and_nothing_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_whole(path, b"new")
    with pytest.raises(DataError, match="No space left on device; expected a file that can be"):
        files.written(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_what_killed_writes_left_is_swept_up(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in (".fedref-12.new", "inner/.fedref-34.new", "my.new"):
        (tmp_path / name).write_bytes(b"")
    files.sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"inner", "my.new"}
    assert list((tmp_path / "inner").iterdir()) == []


# ---- budgets --------------------------------------------------------------------------------------


def test_a_budget_is_one_for_all_layers() -> None:
    budget = files.Budget("file", 1 << 20)
    assert budget.left == files.RATIO << 20
    budget.spend(budget.left)
    with pytest.raises(DataError, match=r"file: needs more than \d+ bytes to read"):
        budget.spend(1)
    small = files.Budget("file", 10)
    assert small.left == files.FLOOR
    with files.unzipped(io.BytesIO(gzip.compress(bytes(1000))), 50, small) as (stream, length):
        assert length is None
        assert files.read_up_to(stream, 600) == bytes(600)
    assert small.left == files.FLOOR - 600


def test_a_budget_counts_members_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = files.Budget("file")
    for _ in range(files.MEMBERS):
        budget.member()
    with pytest.raises(DataError, match=f"more than {files.MEMBERS} members"):
        budget.member()
    slow = files.Budget("file", 5_000_000)
    now = files.time.monotonic()
    monkeypatch.setattr(files.time, "monotonic", lambda: now + 66)
    with pytest.raises(DataError, match="takes more than 65 s"):
        slow.spend(0)


def test_json_is_paid_for_by_what_it_becomes() -> None:
    budget = files.Budget("file")
    assert files.from_json(b'{"a": [1, 2]}', budget) == {"a": [1, 2]}
    assert budget.spent == 13 + 240 + 100 + 96 + 40 + 2 * 30
    with pytest.raises(DataError, match="needs more than"):
        files.from_json(b"[" + b"[]," * 500_000 + b"0]", budget)
