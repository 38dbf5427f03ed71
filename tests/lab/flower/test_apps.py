"""Messages as Flower carries them; skipped where flwr is not installed."""

from types import SimpleNamespace

import pytest
from federating import HOLDERS, experiment_of, near, same_tables

flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")

from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from fedref.boundary.errors import ConfigError  # noqa: E402
from fedref.lab.experiments import config  # noqa: E402
from fedref.lab.flower.apps import (  # noqa: E402
    OverGrid,
    bytes_of,
    client_app,
    content_of,
    server_app,
)
from fedref.lab.flower.project import write_app  # noqa: E402


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Flower makes a message only within a task."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def test_bytes_arrive_as_they_were_sent():
    data = bytes(range(256)) * 9
    content = content_of(data)
    for name, one in list(content.items()):
        parts = {child.object_id: child for child in one.children.values()} if one.children else {}
        content[name] = type(one).inflate(one.deflate(), parts or None)
    assert bytes_of(content) == data


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


def test_a_run_over_both_apps(tmp_path, capsys):
    experiment = experiment_of(algorithms={"apfl": {"z": 1}, "fedmeta-sgd": {}}, rounds=2)
    holders = write_app(experiment, tmp_path / "there", nodes=3)
    assert sum(map(len, holders)) == sum(map(len, HOLDERS.values()))
    folder = tmp_path / "there" / "app"
    client = client_app(folder)

    def node(i):
        def reply(message):
            values = {"data": f"{tmp_path}/there/nodes/{i}.npz", "state": f"{tmp_path}/state/{i}"}
            return {
                "content": client(
                    message, flwr.Context(1, i, values, flwr.RecordDict(), {})
                ).content
            }

        return reply

    table = config.read(folder / "pyproject.toml")["tool"]["flwr"]["app"]["config"]
    context = flwr.Context(1, 0, {}, flwr.RecordDict(), table)
    server_app(folder)(Grid({i: node(i) for i in range(3)}), context)
    near(tmp_path, experiment)
    assert same_tables(tmp_path / "there" / "run", tmp_path / "near")
    assert "fedref: results written to" in capsys.readouterr().out
    context = flwr.Context(1, 0, {}, flwr.RecordDict(), table | {"clients": 0})
    with pytest.raises(ConfigError, match="clients is 0, expected"):
        server_app(folder)(Grid({}), context)
