"""The golden vectors are read once, and a backend's process begins as a copy of this one.

Both take longest, and few of these tests are about them. `test_a_stop_prints_what_was_answered`
runs the command as a user does.
"""

import pytest
from golden import CASES

from fedref.conformance import vectors


@pytest.fixture(autouse=True)
def at_hand(forks, monkeypatch):
    read = vectors.read
    monkeypatch.setattr(vectors, "read", lambda *where: read(*where) if where else [*CASES])
