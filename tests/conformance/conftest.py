"""The golden vectors are read once, and a backend's process begins as a copy of this one.

Both take longest, and few of these tests are about them. `test_a_stop_prints_what_was_answered`
runs the command as a user does.
"""

from functools import partialmethod

import pytest
from golden import CASES

from fedref.conformance import vectors
from fedref.conformance.subprocess_runner import SubprocessRunner


@pytest.fixture(autouse=True)
def at_hand(monkeypatch):
    read = vectors.read
    monkeypatch.setattr(vectors, "read", lambda *where: read(*where) if where else [*CASES])
    forked = partialmethod(SubprocessRunner.__init__, fork=True)
    monkeypatch.setattr(SubprocessRunner, "__init__", forked)
