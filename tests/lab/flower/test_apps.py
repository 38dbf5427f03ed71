"""Messages as Flower carries them; skipped where flwr is not installed."""

from types import SimpleNamespace

import pytest

flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")

from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from fedref.lab.flower.apps import (  # noqa: E402
    OverGrid,
    content_of,
)


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Flower makes a message only within a task."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """A grid whose nodes are functions from a message to what comes back (None: nothing)."""

    def __init__(self, nodes):
        self.nodes, self.replies, self.count = nodes, {}, 0

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            node = message.metadata.dst_node_id
            if node not in self.nodes:
                ids.append("")  # it cannot be sent
                continue
            self.count += 1
            ids.append(f"m{self.count}")
            message.metadata._message_id = ids[-1]
            reply = self.nodes[node](message)
            if reply is not None:
                metadata = SimpleNamespace(reply_to_message_id=ids[-1], src_node_id=node)
                values = {"has_error": lambda: False, "metadata": metadata, **reply}
                self.replies[ids[-1]] = SimpleNamespace(**values)
        return ids

    def pull_messages(self, ids):
        return [self.replies.pop(id) for id in ids if id in self.replies]


def test_what_flower_says_in_the_place_of_a_reply():
    other = SimpleNamespace(reply_to_message_id="m5", src_node_id=3)
    error = SimpleNamespace(reason="client app crashed")
    record = flwr.RecordDict({"fedref": flwr.ConfigRecord({"message": 1})})
    grid = Grid(
        {
            1: lambda _: {"has_error": lambda: True, "error": error},
            2: lambda _: {"content": flwr.RecordDict()},
            3: lambda _: {"content": record},
            4: lambda _: None,
            5: lambda _: {"content": content_of(b"x"), "metadata": other},
            6: lambda _: {"content": content_of(b"x")},
        }
    )
    assert OverGrid(grid).ask(dict.fromkeys(range(1, 8), b"hello"), 0.3) == {
        1: "gives no answer (Flower: client app crashed)",
        2: None,  # which is no message
        3: None,
        5: "another node answers in its place",
        6: b"x",
        7: "is offline",
    }
