"""Standard output and standard error: what is written to them, and when they cannot be written."""

import os
import sys

import numpy as np
import pytest
from running import document, main, npz, process, refused, write

pytestmark = pytest.mark.usefixtures("here")


def test_no_name_from_outside_commands_the_terminal(here, capsys):
    path = npz(here / "a.npz", y=np.array(["dog\x1b[2J", "貓\n\x9b1m"] * 10))
    words = ["--data", path.name, "--split", "iid", "--set", "split.users=3"]
    assert main("run", "fedavg", *words, "--rounds", 1, "--clients-per-round", 2, "-o", "a") == 0
    assert main("data", "show", path.name, *words[2:], "--out", "p\x1b[2J.png") == 0
    out, err = capsys.readouterr()
    assert "labels are encoded as 0 = dog\\x1b[2J, 1 = 貓\\n\\x9b1m" in err
    assert "dog\\x1b[2J" in out
    assert "p\\x1b[2J.png" in out
    assert not {"\x1b", "\x9b"} & {*out, *err}
    assert "\\x1b[31m" in refused(capsys, "run", "\x1b[31mfedavg")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full")
def test_help_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        run = process("--help", stdout=full, env_more={"PYTHONUNBUFFERED": ""})
        _, err = run.communicate()
    assert run.returncode == 2
    assert err == "fedref: error: standard output: No space left on device\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_without_a_stream_a_command_works(here, monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    assert main("run", write(here / "t.toml", document(rounds=1)), "-o", "a") == 0


@pytest.mark.parametrize(("words", "value"), [(["--traceback"], ""), ([], "1")])
def test_an_error_shows_where_it_was_raised_if_asked(capsys, monkeypatch, words, value):
    assert main("run", "fedavgg") == 2
    (line,) = capsys.readouterr().err.splitlines()
    monkeypatch.setenv("FEDREF_TRACEBACK", value)
    assert main(*words, "run", "fedavgg") == 2
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", line)
    assert any("ConfigError" in x for x in lines)
