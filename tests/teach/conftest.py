"""The site, built once for all tests, whichever process they run in."""

import fcntl
import os

import pytest
from running import main


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder that `fedref explain --html` writes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "site"
    with open(shared / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site.done").exists():
            assert main("explain", "--html", folder) == 0
            (shared / "site.done").touch()
    return folder
