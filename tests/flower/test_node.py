"""What a node refuses: more than its experiment says, and messages that are not what they must be."""

import numpy as np
import pytest
from federating import HOLDERS, experiment_of, far

from fedref import tree
from fedref.flower.messages import Refused, packed, tree_of, unpacked

NODE, OWN = 101, HOLDERS[101]


def asked(tmp_path, **settings):
    """(network, a packet of its first round for NODE)."""
    experiment = experiment_of(algorithms={"apfl": {}}, clients_per_round=7, rounds=1, **settings)
    _, wires, _ = far(tmp_path, experiment)
    packet = next(p for node, p in wires.sent if node == NODE and "train" in p)
    return wires, {name: dict(record) for name, record in packet.items()}


def reply_to(wires, packet):
    (message,) = wires.send({NODE: packet}, 1.0)
    (reply,) = wires.receive([message])
    return reply.packet


NODE_REFUSES = {
    "another experiment": (("call", "stamp", "0" * 64), "another experiment"),
    "a round too many": (("call", "round", 7), "round 7 of 1"),
    "a unit too many": (("call", "unit", 1), "unit 1 of 1"),
    "a path for a run": (("call", "run", "../../../etc"), "run '../../../etc'"),
    "labels left out": (("call", "labels", [0, 1]), "leaves out labels"),
    "short parameters": (("sent", "w", np.zeros(3)), "another shape"),
    "infinite parameters": (("sent", "w", None), "not finite"),
    "an unknown name": (("sent", "v", np.zeros(3)), "holds v, expected"),
    "lists of other lengths": (("train", "amounts", [3]), "lists of different lengths"),
}


@pytest.mark.parametrize("name", NODE_REFUSES)
def test_a_node_refuses_what_the_experiment_does_not_say(name, tmp_path):
    (record, field, value), words = NODE_REFUSES[name]
    wires, packet = asked(tmp_path)
    assert "refused" not in reply_to(wires, packet)
    if value is None:
        value = packet[record][field] * np.nan
    packet[record] = {**packet[record], field: value}
    assert words in reply_to(wires, packet)["refused"]["reason"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("amounts", [4, 3, 3], "is asked for 4 epochs or steps of 3"),
        ("clients", [0, 4, 5], "is not a client of this node"),
        ("states", [5, -1, -1], "its own state after round 6 cannot be read"),
        ("widths", [3], "is asked for batches of 3 rows"),
        ("widths", [40, 40], "is asked for 2 kinds of batches, expected 1"),
    ],
)
def test_a_node_does_no_more_for_a_client_than_the_experiment_says(field, value, words, tmp_path):
    wires, packet = asked(tmp_path)
    packet["train"] = {**packet["train"], field: value}
    reply = reply_to(wires, packet)
    lost = reply[f"lost {value[0] if field == 'clients' else OWN[0]}"]["reason"]
    assert words in lost
    if field not in ("widths",):
        assert f"upload {OWN[1]}" in reply


def test_a_node_whose_rows_have_changed_says_so(tmp_path):
    wires, packet = asked(tmp_path)
    site = wires.parts[NODE]
    site.federation.source.y[0] += 1
    assert "have changed since the run began" in reply_to(wires, packet)["refused"]["reason"]


def test_the_text_of_an_error_stays_on_the_node(tmp_path, monkeypatch, capsys):
    wires, packet = asked(tmp_path)

    def fails(*_):
        raise ZeroDivisionError("a secret value: 17")

    monkeypatch.setattr("fedref.flower.node.run_clients", fails)
    reply = reply_to(wires, packet)
    assert reply[f"lost {OWN[0]}"]["reason"] == "its work raised ZeroDivisionError"
    assert "17" not in str(reply[f"lost {OWN[0]}"])
    assert "a secret value: 17" in capsys.readouterr().err


# ---- names ---------------------------------------------------------------------------------------


def test_a_tree_is_the_same_after_its_way():
    from fedref.algorithms.apfl import ServerState, Upload

    value = (Upload(np.arange(3.0), None), ServerState(np.zeros(2), 0, 4, True, None), (1.5,))
    leaves = unpacked(packed(value, "sent"), "sent")
    assert list(leaves) == ["0.w", "1.w", "1.F", "1.t", "1.renew", "2.0"] or set(leaves) == set(
        tree.flatten(value)
    )
    again = tree_of(value, leaves)
    assert type(again[0]) is Upload
    assert again[0].importance is None
    assert [type(x) for x in again[1][1:4]] == [int, int, bool]
    np.testing.assert_array_equal(again[0].w, value[0].w)


def test_a_name_too_many_is_refused():
    with pytest.raises(Refused, match="holds v, expected w"):
        tree_of(np.zeros(1), {"w": np.zeros(1), "v": np.zeros(1)})
