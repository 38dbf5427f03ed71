"""Messages as Flower carries them; skipped where flwr is not installed."""

from types import SimpleNamespace

import pytest

flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")

from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from fedref.lab.flower.apps import OverGrid, content_of  # noqa: E402


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Flower makes a message only within a task."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """A grid of nodes, each with what comes back from it (None: nothing); it cannot reach others."""

    def __init__(self, replies):
        self.replies = replies

    def push_messages(self, messages):
        nodes = [message.metadata.dst_node_id for message in messages]
        return [f"m{node}" if node in self.replies else "" for node in nodes]

    def pull_messages(self, ids):
        nodes = [int(id[1:]) for id in ids]
        return [reply(node, **self.replies[node]) for node in nodes if self.replies[node]]


def reply(node, of=None, **values):
    metadata = SimpleNamespace(reply_to_message_id=f"m{node}", src_node_id=of or node)
    return SimpleNamespace(**{"has_error": lambda: False, "metadata": metadata, **values})


def test_what_flower_says_in_the_place_of_a_reply():
    error = SimpleNamespace(reason="client app crashed")
    record = flwr.RecordDict({"fedref": flwr.ConfigRecord({"message": 1})})
    replies = {
        1: {"has_error": lambda: True, "error": error},
        2: {"content": flwr.RecordDict()},
        3: {"content": record},
        4: None,
        5: {"content": content_of(b"x"), "of": 3},
        6: {"content": content_of(b"x")},
    }
    assert OverGrid(Grid(replies)).ask(dict.fromkeys(range(1, 8), b"hello"), 0.3) == {
        1: "gives no answer (Flower: client app crashed)",
        2: None,  # which is no message
        3: None,
        5: "another node answers in its place",
        6: b"x",
        7: "is offline",
    }
