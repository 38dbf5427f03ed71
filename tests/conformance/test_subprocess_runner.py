"""A function in another process: its result, its error, or that it hangs or dies."""

import os
import signal
import time
from pathlib import Path

import pytest
from running import wait_for

from fedref.boundary.errors import ConfigError
from fedref.conformance.subprocess_runner import SubprocessRunner

CALLS = []


@pytest.fixture
def at_hand():
    """Each process begins anew, as a backend's does."""


def remember(x):
    CALLS.append(x)
    return list(CALLS)


def fail(text):
    raise ConfigError(text)


def talk():
    os.write(1, b"raw")
    print("text")


def test_what_hangs_or_dies_is_said_and_the_next_call_is_answered(capfd):
    with SubprocessRunner() as runner:
        assert runner.call(remember, 1, timeout=60) == [1]
        assert runner.call(remember, 2, timeout=60) == [1, 2]  # the same process
        runner.call(talk, timeout=60)
        with pytest.raises(ConfigError, match="wrong here"):
            runner.call(fail, "wrong here", timeout=60)
        assert runner.call(remember, 3, timeout=60) == [1, 2, 3]
        with pytest.raises(TimeoutError, match=r"no answer after 0\.1 s"):
            runner.call(time.sleep, 60, timeout=0.1)
        assert runner.call(remember, 4, timeout=60) == [4]  # another process
        for end, how in ((os._exit, 7), "exit code 7"), ((signal.raise_signal, 11), "Segmentation"):
            with pytest.raises(ChildProcessError, match=f"the process died: {how}"):
                runner.call(*end, timeout=60)
        assert runner.call(remember, 5, timeout=60) == [5]
        child = runner.process
    assert runner.process is None
    assert not child.is_alive()
    assert capfd.readouterr().out == ""


def leave_a_session_and_die():
    """What is left holds the connection open."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(write, str(os.getpid()).encode())
        time.sleep(600)
    Path("left").write_bytes(os.read(read, 20))
    os._exit(7)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_process_that_the_child_has_started_ends_with_it_whatever_its_session(here):
    died = pytest.raises(ChildProcessError, match="the process died")
    with SubprocessRunner() as runner, died:
        runner.call(leave_a_session_and_die, timeout=60)
    status = Path(f"/proc/{Path('left').read_text()}/stat")
    wait_for(lambda: not status.exists() or status.read_text().split()[2] == "Z")
