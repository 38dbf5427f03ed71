"""Packets as Flower carries them; skipped where flwr is not installed."""

import io

import numpy as np
import pytest

flwr = pytest.importorskip("flwr.app", reason="Flower is not installed")

from fedref.flower.apps import content_of, options_of, packet_of  # noqa: E402
from fedref.flower.messages import Call, Evaluating, Refused, packed, record  # noqa: E402


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
        "call": record(Call("0" * 16, "ab", 3, 7, [-1, 1])),
        "evaluate": record(Evaluating([1, 2], [-1, 4], True)),
        "log 7": {"gamma": float("inf"), "penalty": 0.1},
        **packed((w, w.astype(np.float32).T, 1.5, 3, True), "sent"),
    }
    found = carried(packet)
    assert found.keys() == packet.keys()
    for name in ("call", "evaluate", "log 7", "sent numbers"):
        assert found[name] == packet[name]
        assert [type(x) for x in found[name].values()] == [type(x) for x in packet[name].values()]
    for name, array in packet["sent"].items():
        np.testing.assert_array_equal(found["sent"][name], array)
        assert found["sent"][name].dtype == array.dtype


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def claiming(shape):
    """64 bytes that say that they are an array of this shape."""
    stream = io.BytesIO()
    head = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, head)
    return stream.getvalue() + bytes(64)


ODD = {
    "pickled": npy(np.array([{}], object)),
    "short": npy(np.zeros(8))[:-1],
    "long": npy(np.zeros(8)) + b"\0",
    "claims more than it has": claiming((10**10,)),
    "negative": claiming((-8,)),
    "unclosed": npy(np.zeros(8)).replace(b"}", b" "),
    "not one": b"hello",
    "empty": b"",
}


@pytest.mark.parametrize("name", ODD)
def test_bytes_that_are_no_array_are_refused(name):
    array = flwr.Array("float64", (8,), "numpy.ndarray", ODD[name])
    with pytest.raises(Refused, match="an array that cannot be read"):
        packet_of(flwr.RecordDict({"sent": flwr.ArrayRecord({"w": array})}))


def test_other_records_are_refused():
    with pytest.raises(Refused, match="holds a MetricRecord"):
        packet_of(flwr.RecordDict({"sent": flwr.MetricRecord({"w": 1.0})}))


def test_the_options_of_an_app():
    values = {"clients": 7, "limit": 30.0, "wait": 5.0, "pinned": True}
    assert options_of(values).pinned is True
    for missing in values:
        with pytest.raises(ValueError, match="expected clients, limit, wait, pinned, out"):
            options_of({key: value for key, value in values.items() if key != missing})
