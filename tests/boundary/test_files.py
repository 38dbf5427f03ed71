"""Writing a file: all of it or nothing, and never through a link."""

import errno
import gzip
import io
import os

import pytest

from fedref import DataError
from fedref.boundary import files


def test_bytes_and_a_writer_give_the_same_file_which_others_read_as_the_umask_says(tmp_path):
    for name, content in (("a", b"abc"), ("b", lambda stream: stream.write(b"abc"))):
        old = os.umask(0o027)
        files.write_atomically(tmp_path / name, content)
        os.umask(old)
        assert (tmp_path / name).read_bytes() == b"abc"
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o640


def test_a_link_under_the_name_beside_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "guessed")
    (tmp_path / ".fedref-guessed.new").symlink_to(tmp_path / "outside")
    with pytest.raises(FileExistsError):
        files.write_atomically(tmp_path / "file", b"new")
    assert not (tmp_path / "outside").exists()


def test_an_error_leaves_the_old_file_and_nothing_beside(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomically(path, b"new")
    with pytest.raises(DataError, match="No space left on device; expected a path that can be"):
        files.write_or_raise(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


# ---- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_gzip_is_seen_by_its_magic_number(tmp_path, packed):
    data = bytes(3 << 20)
    (tmp_path / "file").write_bytes(gzip.compress(data) if packed else data)
    assert files.read_bytes(tmp_path / "file", "zeros") == data


def test_a_stream_is_read_up_to_its_limit():
    assert files.read_up_to(io.BytesIO(b"1234"), 4, "file") == b"1234"
    too_large = "file: becomes too large when unpacked; expected at most 3"
    with pytest.raises(DataError, match=too_large):
        files.read_up_to(io.BytesIO(b"1234"), 3, "file")
    assert files.unpacked_limit(10) == 64 << 20
    assert files.unpacked_limit(1 << 20) == 250 << 20


def test_an_error_is_one_line_without_control_characters():
    error = files.data_error("a\x1b[2J", "two\nlines" + "x" * 300, "a\u202eb")
    assert str(error) == "a\\x1b[2J: two; expected a\\u202eb"
    assert len(str(files.data_error("a", "x" * 5000, "b"))) < 300
