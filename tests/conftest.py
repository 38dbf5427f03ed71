"""Hypothesis: no deadline (a cold BLAS is slow), and in CI the same examples on every run. A folder."""

import gc
import os
import signal
import sys
from functools import partialmethod

import pytest
from hypothesis import Phase, settings
from pages import FILES
from running import end_processes

from fedref.conformance.subprocess_runner import SubprocessRunner
from fedref.lab import plots

settings.register_profile("fedref", deadline=None, max_examples=25, print_blob=True)
settings.register_profile("ci", settings.get_profile("fedref"), derandomize=True)
unshrunk = Phase.explicit, Phase.generate  # nobody reads the example
settings.register_profile("mutation", settings.get_profile("ci"), phases=unshrunk, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "fedref")


def pytest_configure(config):
    """With `-n auto` who is done takes tests from the other, or one would wait at the end."""
    if config.getoption("dist", "no") == "load":
        config.option.dist = "worksteal"


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    end_processes()


@pytest.fixture
def forks(monkeypatch):
    """A process that answers calls begins as a copy of this one, and need not import anything."""
    forked = partialmethod(SubprocessRunner.__init__, fork=True)
    monkeypatch.setattr(SubprocessRunner, "__init__", forked)


@pytest.fixture
def no_pictures(monkeypatch):
    """Runs draw nothing, which takes most of their time."""
    monkeypatch.setattr(plots, "curves", lambda table: None, raising=False)
    monkeypatch.setattr(plots, "save", lambda figure, path: None, raising=False)


@pytest.fixture
def here(tmp_path, monkeypatch, no_pictures):
    """In an empty folder of its own, without pictures."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def page_files(tmp_path, monkeypatch):
    """In a folder with only the files that the pages define; their modules are imported anew."""
    assert set(FILES) == {"ditto.py", "mine.py", "stacked.py", "test_mine.py"}
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("mine", "ditto", "stacked"):
        sys.modules.pop(name, None)


# A process of tests holds much that lives long, and looked through it for garbage too often.
gc.set_threshold(20_000, 20, 20)
# No test cuts its own machine's power, so none waits for a disk: test_power_cut records what is synced.
os.fsync = lambda descriptor: None
# Processes that tests start keep fedref's bytecode: the first compiles it, and not each of them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Where SIGINT is ignored, as in a background job, the processes that tests start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)
