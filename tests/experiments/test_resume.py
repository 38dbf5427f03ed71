"""Interrupted in any way, a run goes on to the bytes of one that never was."""

import os
import random
import re
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from running import (
    Killed,
    algorithms,
    contents,
    document,
    main,
    process,
    refused,
    toml,
    wait_for,
    write,
)

from fedref.boundary import checkpoint
from fedref.experiments import run_directory

#: An algorithm whose server, one whose clients, and one whose detector has a state.
TABLE = document(
    rounds=3,
    algorithms=algorithms("fedcurv", "apfl", adam={"algorithm": "fedmeta-sgd", "server": "adam"})
    | {"fedcurv": {"lam": 0.001}},
)
ALWAYS = ("--checkpoint-every", "0", "--quiet")


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def whole(here) -> dict[str, bytes]:
    """What an uninterrupted run of TABLE leaves behind."""
    assert main("run", write(here / "t.toml", TABLE), "--out", "whole", "--quiet") == 0
    return contents(here / "whole")


# ---- a process of its own ------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize("kills", [3, pytest.param(15, marks=pytest.mark.slow)])
def test_sigkill_at_random_moments(here, capsys, kills):
    path = write(here / "t.toml", {**TABLE, "rounds": 50 if kills < 5 else 200})
    assert main("run", path, "--out", "whole", "--quiet") == 0
    checkpoints, killed = here / "a" / "checkpoints", 0
    words = ["run", path, "--out", "a"]
    for _ in range(kills):
        since = time.time_ns()
        run = process(*words, *ALWAYS)

        def has_ended_or_written(run=run, since=since) -> bool:
            with suppress(FileNotFoundError):  # just being renamed
                written = (path.stat().st_mtime_ns > since for path in checkpoints.glob("*.ckpt"))
                return run.poll() is not None or any(written)
            return False

        wait_for(has_ended_or_written)
        time.sleep(random.uniform(0, 0.3))
        run.kill()
        run.communicate(timeout=60)
        killed += run.returncode == -9
        words = ["resume", "a"]
    assert main("resume", "a", *ALWAYS) == 0
    assert capsys.readouterr() == ("", "")  # nothing was damaged
    assert contents(here / "a") == contents(here / "whole")
    assert killed >= 2


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits")
def test_a_file_that_may_not_grow_is_reported_and_the_run_can_go_on(here):
    """The system itself refuses the write, in the middle of a file."""
    limit = 60_000

    first = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    path = write(here / "t.toml", {**TABLE, "rounds": 40})
    assert main("run", path, "--out", "whole", "--quiet") == 0
    assert max(map(len, contents(here / "whole").values())) > limit
    run = process("run", path, "--out", "a", *ALWAYS, first=first)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert "cannot be read or written (File too large)" in err
    assert "make room, then `fedref resume a`" in err
    assert max(map(len, contents(here / "a").values())) <= limit
    assert main("resume", "a", "--quiet") == 0
    assert contents(here / "a") == contents(here / "whole")


# ---- damage --------------------------------------------------------------------------------------


def interrupted(here, monkeypatch, at: int) -> Path:
    """A run of TABLE that was killed at its at-th checkpoint."""
    with monkeypatch.context() as patch:
        saved: list[Path] = []
        real = checkpoint.save

        def save(path, value):
            if len(saved) == at:
                raise Killed
            saved.append(path)
            real(path, value)

        patch.setattr(checkpoint, "save", save)
        with pytest.raises(Killed):
            main("run", here / "t.toml", "--out", "a", *ALWAYS)
    return saved[-1]


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (1, "going on from the previous checkpoint, which is intact"),
        (2, "no intact checkpoint is left, starting anew"),
    ],
)
def test_damaged_checkpoints_are_told_and_do_no_harm(
    here, whole, monkeypatch, capsys, damaged, said
):
    newest = interrupted(here, monkeypatch, 7)
    for path in (newest, checkpoint.previous_path(newest))[:damaged]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    capsys.readouterr()
    assert main("resume", "a", *ALWAYS) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert f"fedref: {newest}: is damaged" in err
    assert said in err
    assert err.count("\n") == damaged + 1
    assert contents(here / "a") == whole


def test_a_damaged_split_or_config_is_refused(here, whole, monkeypatch, capsys):
    interrupted(here, monkeypatch, 5)
    split = here / "a" / "split.json"
    good = split.read_bytes()
    for bad in (b"", good[:-20], good.replace(b'"rule"', b'"ruel"', 1)):
        split.write_bytes(bad)
        assert "a/split.json" in refused(capsys, "resume", "a")
    split.write_bytes(good)
    (here / "a" / "config.toml").write_text("rounds = ")
    assert "a/config.toml: is not TOML" in refused(capsys, "resume", "a")


# ---- what may not change -------------------------------------------------------------------------


def test_resuming_a_finished_run_changes_nothing(here, whole, capsys):
    times = {p: p.stat().st_mtime_ns for p in (here / "whole" / "checkpoints").iterdir()}
    capsys.readouterr()
    assert main("resume", "whole") == 0
    assert "| algorithm |" in capsys.readouterr().out
    assert contents(here / "whole") == whole
    assert {p: p.stat().st_mtime_ns for p in times} == times


@pytest.mark.parametrize(
    "lost", ["metrics.csv", "clients.csv", "summary.md", "split.json", ".lock"]
)
def test_what_can_be_made_again_is(here, whole, lost):
    (here / "whole" / lost).unlink()
    assert main("resume", "whole", "--quiet") == 0
    assert contents(here / "whole") == whole


def test_without_checkpoints_it_says_what_can_be_done(here, whole, capsys):
    for path in (here / "whole" / "checkpoints").iterdir():
        path.unlink()
    (here / "whole" / "checkpoints").rmdir()
    before = contents(here / "whole")
    line = refused(capsys, "resume", "whole")
    assert "whole: there is no folder checkpoints, so there is nothing to go on with" in line
    assert contents(here / "whole") == before
    (command,) = re.findall("`fedref (run .*)` runs the experiment anew", line)
    assert main(*command.split(), "--out", "again", "--quiet") == 0
    assert contents(here / "again")["metrics.csv"] == before["metrics.csv"]


def test_killed_between_the_last_checkpoint_and_the_removal_of_the_one_before(here, whole):
    for path in list((here / "whole" / "checkpoints").iterdir()):
        checkpoint.previous_path(path).write_bytes(path.read_bytes())
    assert main("resume", "whole", "--quiet") == 0
    assert contents(here / "whole") == whole


def test_changed_data_are_refused(here, capsys, monkeypatch):
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2
    np.savez(here / "my.npz", X=X, y=y)
    table = {**TABLE, "data": {"name": "my.npz"}, "split": {"rule": "iid", "users": 4}}
    write(here / "t.toml", table)
    interrupted(here, monkeypatch, 6)
    before = contents(here / "a")
    X[3, 1] += 1e-9
    np.savez(here / "my.npz", X=X, y=y)
    line = refused(capsys, "resume", "a")
    assert "a/split.json: the data or the split has changed since this run began" in line
    assert contents(here / "a") == before
    X[3, 1] -= 1e-9
    np.savez(here / "my.npz", X=X, y=y)
    assert main("resume", "a", "--quiet") == 0


@pytest.mark.parametrize("at", [2, 500], ids=["interrupted", "finished"])
def test_a_changed_config_is_refused(here, capsys, monkeypatch, whole, at):
    if at == 2:
        interrupted(here, monkeypatch, 6)
    else:
        (here / "whole").rename(here / "a")
    path, before = here / "a" / "config.toml", contents(here / "a")
    good = path.read_text()
    for old, new in (("rounds = 3", "rounds = 4"), ("batch-size = 8", "batch-size = 9")):
        assert old in good
        path.write_text(good.replace(old, new))
        assert "config.toml changed" in refused(capsys, "resume", "a")
    path.write_text(good)
    assert contents(here / "a") == before
    assert main("resume", "a", "--quiet") == 0


def test_two_at_once_are_refused_and_lose_nothing(here, whole, capsys):
    with run_directory.lock_run_directory(Path("whole")):
        for words in (["resume", "whole"], ["run", "t.toml", "--out", "whole"]):
            line = refused(capsys, *words)
            assert "whole: another process is running this experiment; wait for it" in line
    assert contents(here / "whole") == whole
    assert main("resume", "whole", "--quiet") == 0


def test_going_on_with_workers_or_from_elsewhere_is_the_same(here, whole, monkeypatch):
    interrupted(here, monkeypatch, 6)
    (here / "else").mkdir()
    monkeypatch.chdir(here / "else")
    assert main("resume", "../a", "--quiet", "--workers", "2") == 0
    assert contents(here / "a") == whole


def test_a_place_that_cannot_be_written_is_one_line(here, capsys, monkeypatch):
    (here / "file").write_text("")
    path = write(here / "t.toml", TABLE)
    for out in ("file", "file/a"):
        line = refused(capsys, "run", path, "--out", out)
        assert line.startswith("fedref: error: file")
        assert "cannot be read or written (File exists)" in line
        assert "resume" not in line  # there is nothing yet to go on with
    if os.geteuid():  # not for root, who may write everywhere
        (here / "closed").mkdir(mode=0o555)
        line = refused(capsys, "run", path, "--out", "closed/a")
        assert "cannot be read or written (Permission denied)" in line
    assert sorted(p.name for p in here.iterdir() if p.name != "closed") == ["file", "t.toml"]


def test_checkpoints_are_written_as_often_as_is_said(here, monkeypatch):
    path = write(here / "t.toml", document(rounds=5))
    saved: list[int] = []
    real = checkpoint.save

    def save(path, value):
        saved.append(value.round)
        real(path, value)

    monkeypatch.setattr(checkpoint, "save", save)
    assert main("run", path, "--out", "a", *ALWAYS) == 0
    assert main("run", path, "--out", "b", "--quiet", "--checkpoint-every", "1e9") == 0
    assert saved == [0, 1, 2, 3, 4, 5, 5]
    assert not list((here / "a" / "checkpoints").glob("*.old"))
    assert contents(here / "a") == contents(here / "b")
    assert toml(here / "a" / "config.toml") == toml(here / "b" / "config.toml")
