"""Packets as Flower carries them; skipped where flwr is not installed."""

import io
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from federating import experiment_of

flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")

from flwr.common.constant import ErrorCode  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from fedref.flower.apps import OverGrid, client_app, content_of, options_of, packet_of  # noqa: E402
from fedref.flower.nodes import Options  # noqa: E402
from fedref.flower.project import write_app  # noqa: E402
from fedref.flower.protocol import Call, ProtocolError, TrainRequest, write, write_arrays  # noqa: E402


def carried(packet):
    """A packet after its way in bytes, as it travels."""
    content = content_of(packet)
    for name, one in list(content.items()):
        parts = {child.object_id: child for child in one.children.values()} if one.children else {}
        deflated = one.deflate()
        content[name] = type(one).inflate(deflated, parts or None)
    return packet_of(content)


def test_a_packet_arrives_as_it_was_sent():
    w = np.random.default_rng(0).normal(size=(2, 3))
    packet = {
        "call": write(Call("0" * 16, "ab", 3, 7, [-1, 1])),
        "train 7": write(TrainRequest(4, -1, [3, 4])),
        "log 7": {"gamma": float("inf"), "penalty": 0.1},
        "sent": write_arrays((w, w.astype(np.float32).T, 1.5, 3, True)),
    }
    found = carried(packet)
    assert found.keys() == packet.keys()
    for name in ("call", "train 7", "log 7"):
        assert found[name] == packet[name]
        assert [type(x) for x in found[name].values()] == [type(x) for x in packet[name].values()]
    for name, array in packet["sent"].items():
        np.testing.assert_array_equal(found["sent"][name], array)
        assert found["sent"][name].dtype == array.dtype


def pickled():
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    return stream.getvalue()


def claiming_more():
    """64 bytes that say that they are an array of 80 GB."""
    stream = io.BytesIO()
    head = {"descr": "<f8", "fortran_order": False, "shape": (10**10,)}
    np.lib.format.write_array_header_1_0(stream, head)
    return stream.getvalue() + bytes(64)


def test_what_is_no_array_is_refused():
    archive = io.BytesIO()
    np.savez(archive, w=np.zeros(8))
    for data in (pickled(), claiming_more(), archive.getvalue(), b"hello", b""):
        array = flwr.Array("float64", (8,), "numpy.ndarray", data)
        with pytest.raises(ProtocolError, match="an array that cannot be read"):
            packet_of(flwr.RecordDict({"sent": flwr.ArrayRecord({"w": array})}))
    with pytest.raises(ProtocolError, match="holds a MetricRecord"):
        packet_of(flwr.RecordDict({"sent": flwr.MetricRecord({"w": 1.0})}))


def test_the_options_of_an_app():
    values = {"out": "run", "clients": 7, "limit": 30.0, "wait": 5.0, "pinned": True}
    assert options_of(values) == Options(7, 30.0, 5.0, True)
    for changes, words in [
        ({"clients": 0}, "clients is 0, expected a whole number, at least 1"),
        ({"limit": "soon"}, "limit is 'soon', expected a finite number"),
        ({"limt": 3.0}, "unknown key .*limt.*did you mean 'limit'"),
    ]:
        with pytest.raises(ValueError, match=words):
            options_of({**values, **changes})
    with pytest.raises(ValueError, match="clients is 0"):
        options_of({"out": "run"})


@pytest.fixture(autouse=True)
def task(monkeypatch):
    """Flower makes a message only within a task."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """A grid whose nodes answer with an error of Flower's own, or with what is no packet."""

    def __init__(self, answer):
        self.answer = answer

    def push_messages(self, messages):
        self.messages = dict(zip(("m1", "m2"), messages))
        return ["m1", ""]  # the second one cannot be sent

    def pull_messages(self, ids):
        replies = []
        for one in ids:
            asked = self.messages[one]
            # an error may come from the link, whose number is 1
            sender = asked.metadata.dst_node_id if "content" in self.answer else 1
            metadata = SimpleNamespace(reply_to_message_id=one, src_node_id=sender)
            replies.append(SimpleNamespace(metadata=metadata, **self.answer))
        return replies


CRASHED = {"reason": "its client app failed (Flower's error 8)"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ErrorCode.MESSAGE_UNAVAILABLE, "no answer in 90 s"),
        (ErrorCode.REPLY_MESSAGE_UNAVAILABLE, "no answer in 90 s"),
        (ErrorCode.NODE_UNAVAILABLE, "its node went offline"),
        (ErrorCode.CLIENT_APP_CRASHED, CRASHED),
        ({"a": 7}, {"reason": "holds a int, expected arrays or plain values"}),
    ],
)
def test_what_flower_says_in_the_place_of_a_reply(answer, words):
    """Late is one wording, and a client app that crashed has failed: it is no straggler."""
    failed = not isinstance(answer, dict)
    reply = (
        {"error": SimpleNamespace(code=answer, reason="\x1b" * 300)}
        if failed
        else {"content": answer}
    )
    answer = {"has_error": lambda: failed, **reply}
    network = OverGrid(Grid(answer))
    packet = {"hello": {"fedref": 1}}
    assert network.send({7: packet, 8: packet}, 90.0) == {"m1": 7}
    (reply,) = network.receive(["m1"])
    assert reply == ("m1", 7, {"refused": words} if isinstance(words, dict) else words)


def asked_of(app, packet, ttl=60.0, **values):
    message = flwr.Message(content_of(packet), 7, "train", ttl=ttl)
    message.metadata._message_id = "m1"
    context = flwr.Context(1, 7, values, flwr.RecordDict(), {})
    return packet_of(app(message, context).content)


def test_a_client_app_answers_whatever_happens(tmp_path, capsys, monkeypatch):
    write_app(experiment_of(algorithms={"fedavg": {}}), tmp_path / "there", nodes=3)
    app = client_app(tmp_path / "there" / "app")
    hello = {"hello": {"fedref": 1}}
    where = {"data": f"{tmp_path}/there/nodes/1.npz", "state": f"{tmp_path}/state"}
    assert asked_of(app, hello, **where)["announcement"]["clients"] == [2, 3, 4]
    for values in ({}, where | {"data": "nowhere.npz"}):
        (reason,) = asked_of(app, hello, **values)["refused"].values()
        assert re.fullmatch(r"its work raised \w+Error: see the node's own log", reason)
    told = capsys.readouterr().err
    assert "the --node-config of this node lacks the key data" in told
    assert "nowhere.npz" in told
    monkeypatch.setattr("fedref.flower.apps.handle_request", lambda *_: time.sleep(5))
    assert asked_of(app, hello, ttl=1.0, **where) == {
        "refused": {"reason": "its work took longer than 1 s"}
    }
