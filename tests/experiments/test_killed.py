"""A run that is killed, or whose disk fails, at every single write goes on to the same bytes."""

import errno
import os

import pytest
from running import Killed, algorithms, contents, document, main, refused, write

from fedref.boundary import files

ALWAYS = ("--checkpoint-every", "0", "--quiet")


pytestmark = pytest.mark.usefixtures("here")


class Torn:
    """A file that takes half of what is written to it, and then fails."""

    def __init__(self, file, fail):
        self.file, self.fail = file, fail

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        self.fail()


class Calls:
    """Counts opens, writes, syncs and renames of checkpoints and tables; the n-th one fails."""

    def __init__(self, monkeypatch, fail, at: int | None = None):
        self.count, self.fail, self.at = 0, fail, at
        for name in ("fsync", "replace"):
            monkeypatch.setattr(os, name, self.watched(getattr(os, name)))
        monkeypatch.setattr(files, "open", self.open, raising=False)

    def due(self) -> bool:
        self.count += 1
        return self.count == self.at

    def watched(self, real):
        def call(*arguments):
            if self.due():
                self.fail()
            return real(*arguments)

        return call

    def open(self, path, mode, **how):
        if self.due():
            self.fail()
        file = open(path, mode, **how)  # noqa: SIM115
        return Torn(file, self.fail) if self.due() else file


def kill():
    raise Killed


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_only():
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def calls(monkeypatch, *words) -> int:
    """How many there are in a whole run."""
    with monkeypatch.context() as patch:
        counted = Calls(patch, kill)
        assert main("run", *words, "--out", "counted") == 0
    return counted.count


FEW = document(rounds=1, keep_parameters=1, algorithms=algorithms("apfl"))


def test_killed_at_every_single_write_sync_and_rename(here, monkeypatch, capsys):
    path = write(here / "t.toml", FEW)
    total = calls(monkeypatch, path, *ALWAYS)
    expected = contents(here / "counted")
    assert total > 30
    for at in range(1, total + 1):
        out = here / f"{at}"
        with monkeypatch.context() as patch:
            Calls(patch, kill, at)
            with pytest.raises(Killed):
                main("run", path, "--out", out, *ALWAYS)
        again = ["resume", out] if (out / "config.toml").exists() else ["run", path, "--out", out]
        assert main(*again, *ALWAYS) == 0, at
        assert capsys.readouterr() == ("", ""), at  # whatever is read is whole
        found = contents(out)
        stray = [name for name in found if name not in expected]
        # what a half-written split.json leaves is hidden, and harmless
        assert all(name.startswith(".split.json.") for name in stray), (at, stray)
        assert {name: found[name] for name in expected} == expected, at


@pytest.mark.parametrize(
    ("fail", "hint"), [(full, "make room, then"), (read_only, "when it can be")]
)
def test_a_disk_that_is_full_or_read_only_is_one_line_and_loses_nothing(
    here, capsys, monkeypatch, fail, hint
):
    path = write(here / "t.toml", FEW)
    total = calls(monkeypatch, path, *ALWAYS)
    expected = contents(here / "counted")
    for at in range(1, total + 1, 3 if fail is full else 7):
        out = here / f"{at}"
        with monkeypatch.context() as patch:
            Calls(patch, fail, at)
            line = refused(capsys, "run", path, "--out", out, *ALWAYS)
        assert ("No space left" if fail is full else "Read-only") in line
        begun = (out / "config.toml").exists()
        if begun and "split.json" not in line:
            assert f"what was saved before is whole: {hint}" in line
            assert f"`fedref resume {out}`" in line
        assert not list(out.rglob("*.new"))
        again = ["resume", out] if begun else ["run", path, "--out", out]
        assert main(*again, *ALWAYS) == 0, at
        assert contents(out) == expected, at
