"""What is refused of a message, in both directions: one reason, short, of printable characters."""

import numpy as np
import pytest
from federating import HOLDERS, experiment_of, far

from fedref.algorithm import ClientResult
from fedref.flower import protocol
from fedref.flower.protocol import ProtocolError
from fedref.flower.server import read_result, read_scores

NODE, OWN = 101, HOLDERS[101]
FIRST = OWN[0]


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory):
    """name → (network, request, reply) of NODE in a last round with all clients."""
    made = {}

    def exchange(name="fedavg"):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            experiment = experiment_of(algorithms={name: {}}, clients_per_round=7, rounds=1)
            _, wires, _ = far(folder, experiment)
            request = next(p for node, p in wires.sent if node == NODE and f"train {FIRST}" in p)
            made[name] = wires, request, reply_to(wires, request)
        wires, *packets = made[name]
        return wires, *({key: dict(record) for key, record in p.items()} for p in packets)

    return exchange


def reply_to(wires, packet):
    (message,) = wires.send({NODE: packet}, 1.0)
    (reply,) = wires.receive([message])
    return reply.answer


def refuses(function, *arguments):
    """The reason, which is what any reason must be."""
    with pytest.raises(ProtocolError) as error:
        function(*arguments)
    reason = str(error.value)
    assert reason.isprintable()
    assert len(reason) <= 200
    return reason


NASTY = "\x1b[2J\n|<b>\ud800" + "x" * 200_000


def test_any_reason_is_short_and_printable():
    assert str(ProtocolError("a\x1b[31m\nb\u202e")) == r"a\x1b[31m\nb\u202e"
    assert len(str(ProtocolError(NASTY))) == len(protocol.write_reason(NASTY)["reason"]) == 200
    assert str(ProtocolError("Größe")) == "Größe"


# ---- what a server refuses of a reply ------------------------------------------------------------


def change_upload(edit):
    return lambda reply: reply.update({f"upload {FIRST}": edit(reply[f"upload {FIRST}"])})


def put(value):
    return lambda upload: {"w": np.where(np.arange(len(upload["w"])) == 3, value, upload["w"])}


def change(name, **fields):
    """Other values in a record of the first client; None: without the field."""
    name = f"{name} {FIRST}"

    def changed(reply):
        record = {**reply.get(name, {}), **fields}
        reply[name] = {key: value for key, value in record.items() if value is not None}

    return changed


BAD_RESULTS = [
    (change_upload(put(np.nan)), "as float64 (685,) with a value that is not finite"),
    (change_upload(lambda r: {"w": r["w"][:-1]}), "as float64 (684,), expected float64 (685,)"),
    (change_upload(lambda r: {"v": r["w"]}), f"sends upload {FIRST} with v, expected w"),
    (change_upload(lambda r: {NASTY: r["w"]}), r"with \x1b[2J"),
    (change_upload(lambda r: {**r, "F": r["w"]}), "with F, w, expected w"),
    (change_upload(lambda r: {}), "with nothing, expected w"),
    (change_upload(lambda r: {"w": r["w"].astype(np.float32)}), "as float32 (685,)"),
    (change_upload(lambda r: {"w": r["w"].astype(str)}), "as <U32 (685,)"),
    (change_upload(lambda r: {"w": r["w"].tolist()}), "as list, expected float64 (685,)"),
    (change("work", log=[1.0] * 9), "logs 9 values, expected "),
    (change("work", log=[float("nan")] * 2), "sends log of work 1 as list"),
    (change("work", **{"counts.grads": -1}), "claims a negative amount of work"),
    (change("work", **{"counts.grads": 10**400}), "sends counts.grads of work 1 as int"),
    (change("work", **{"counts.grads": None}), "expected counts.grads, counts.hvps"),
    (change("work", keeps=1), "keeps of work 1 as int, expected bool"),
]  # fmt: skip
BAD_SCORES = [
    (change("scores", test=[]), "has 0 test and 1 training scores"),
    (change("scores", train=[1.0] * 2), "has 2 test and 2 training scores"),
    (change("scores", test=[1.5, 1.0]), "has an accuracy of 1.5, expected 0 to 1"),
    (change("scores", train=[float("nan")]), "sends train of scores 1 as list"),
    (change("scores", test=[True, False]), "sends test of scores 1 as list"),
    (change("scores", test=0.5), "test of scores 1 as float, expected list"),
    (change("scores", **{NASTY: 1.0}), r"sends scores 1 with \x1b[2J"),
]


@pytest.mark.parametrize(("edit", "words"), BAD_RESULTS)
def test_a_server_refuses_a_result(edit, words, exchanged):
    _, _, reply = exchanged("fedprox")
    log = dict.fromkeys("ab", 0.0)
    reply[f"work {FIRST}"]["log"] = [1.0, 2.0]
    expected = ClientResult(np.zeros_like(reply[f"upload {FIRST}"]["w"]), None, log)
    result, _ = read_result(FIRST, reply, expected, 0)
    assert result.upload.any()
    assert result.log == {"a": 1.0, "b": 2.0}
    edit(reply)
    assert words in refuses(read_result, FIRST, reply, expected, 0)


@pytest.mark.parametrize(("edit", "words"), BAD_SCORES)
def test_a_server_refuses_scores(edit, words):
    scores = protocol.ClientScores([0.5, 1.0], [2.0])
    reply = {f"scores {FIRST}": protocol.write(scores)}
    assert read_scores(FIRST, reply, True, True) == scores
    edit(reply)
    assert words in refuses(read_scores, FIRST, reply, True, True)


ROWS = "announces its rows wrongly, expected "
BAD_ANNOUNCEMENTS = [
    ({"clients": [3, 3]}, ROWS + "clients that are different, ascending"),
    ({"clients": [-1, 3]}, ROWS + "clients from 0 on"),
    ({"n_train": [5]}, ROWS + "one entry per client"),
    ({"n_train": [5, 0]}, ROWS + "training rows of every client"),
    ({"n_test": [5, -1]}, ROWS + "test rows, or 0"),
    ({"clients": [], "n_train": [], "n_test": []}, ROWS + "clients"),
    ({"labels": []}, ROWS + "features and labels"),
    ({"labels": [1, 0]}, ROWS + "labels that are different, ascending"),
    ({"labels": [0, 2**63]}, "sends labels of announcement as list"),
    ({"labels": [0, 10**6]}, "classes: 1000000 is more than 100000"),
    ({"labels": [-(10**6), 0]}, "classes: 1000000 is more than 100000"),
    ({"labels": list(range(10**5)), "features": 10**4}, "features × labels: 10000 × 100000 is more"),
    ({"n_test": [1, 10**15]}, "rows: 1000000000000012 is more than 10000000"),
    ({"n_train": [10**6, 6], "features": 10**4}, "rows × features: 1000007 × 10000 is more"),
    ({"features": 2.0}, "features of announcement as float, expected int"),
    ({"image": [8, 8, 1]}, None),
    ({"image": [8, 8]}, ROWS + "three sizes of an image"),
    ({"image": [8, 7, 1]}, ROWS + "as many features as pixels"),
    ({"vocabulary": ["a", NASTY]}, "sends vocabulary of announcement as list"),
    ({"vocabulary": ["a"] * (10**6 + 1)}, "sends vocabulary of announcement as list"),
    ({"vocabulary": ["a", 7]}, "sends vocabulary of announcement as list"),
    ({NASTY: 1}, r"sends announcement with \x1b[2J"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), BAD_ANNOUNCEMENTS)
def test_a_server_refuses_an_announcement_that_cannot_be_so(changes, words):
    good = protocol.Announcement([3, 4], [5, 6], [1, 0], 64, [0, 1], [], [])
    reply = {"announcement": protocol.write(good)}
    assert protocol.read_announcement(reply) == good
    reply["announcement"].update(changes)
    if words:
        assert words in refuses(protocol.read_announcement, reply)
    refused = {"refused": protocol.write_reason(NASTY)}
    assert refuses(protocol.read_announcement, refused).startswith(r"\x1b[2J")
    for reason in ({"reason": NASTY}, {"reason": 7}, {}):
        assert refuses(protocol.read_announcement, {"refused": reason}).startswith("sends re")


# ---- what a node refuses of a request ------------------------------------------------------------

BAD_REQUESTS = [
    ("call", "stamp", "0" * 64, "another experiment"),
    ("call", "round", 7, "round 7 of 1"),
    ("call", "round", -1, "round -1 of 1"),
    ("call", "unit", 1, "unit 1 of 1"),
    ("call", "run", "../../../etc", "run '../../../etc'"),
    ("call", "run", NASTY, "run of call as str"),
    ("call", "labels", [0, 1], "leaves out labels"),
    ("call", "labels", [*range(10), 2**63], "labels of call as list"),
    ("call", "labels", [*range(10), 2**52], "classes: "),
    ("call", "labels", [1, 0, *range(2, 10)], "does not sort them"),
    ("call", NASTY, 1, r"with \x1b[2J"),
    ("sent", "w", np.zeros(3), "sends w of sent as float64 (3,), expected float64 (685,)"),
    ("sent", "w", np.full(685, np.nan), "not finite"),
    ("sent", "w", [0.0], "sends w of sent as list"),
    ("sent", "t", np.array(2**60), "sends t of sent as int"),
    ("sent", "F", np.zeros(3), "sends F of sent as float64 (3,), expected float64 (685,)"),
    ("sent", "v", np.zeros(3), "sends v of sent as float64 (3,)"),
    ("sent", "v", np.zeros(685), "sends sent that holds v, expected w"),
]


@pytest.mark.parametrize(("record", "field", "value", "words"), BAD_REQUESTS)
def test_a_node_refuses_what_the_experiment_does_not_say(record, field, value, words, exchanged):
    wires, request, reply = exchanged("apfl")
    assert "refused" not in reply
    request[record] = {**request.get(record, {}), field: value}
    (reason,) = reply_to(wires, request)["refused"].values()
    assert words in reason
    assert reason.isprintable()
    assert len(reason) <= 200


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("amount", 4, "is asked for 4 epochs or steps of 3"),
        ("state", 5, "its own state after round 6 cannot be read"),
        ("state", 10**400, f"sends state of train {FIRST} as int"),
        ("widths", [3], "is asked for batches of 3 rows"),
        ("widths", [40, 40], "is asked for 2 kinds of batches, expected 1"),
        ("widths", [2**22], "rows of a batch × features: 4194304 × 64 is more than"),
        ("widths", [2**50], "steps × rows of a batch: 3 × "),
        (NASTY, 1, rf"sends train {FIRST} with \x1b[2J"),
    ],
)
def test_a_node_does_no_more_for_a_client_than_the_experiment_says(field, value, words, exchanged):
    wires, request, _ = exchanged("apfl")
    request[f"train {FIRST}"] = {**request[f"train {FIRST}"], field: value}
    reply = reply_to(wires, request)
    assert words in reply[f"lost {FIRST}"]["reason"]
    assert reply[f"lost {FIRST}"]["reason"].isprintable()
    assert f"upload {OWN[1]}" in reply


def test_a_node_does_nothing_that_it_does_not_know(exchanged):
    wires, request, reply = exchanged("apfl")
    more = {"train 0": request[f"train {FIRST}"], NASTY: {"w": 1}, f"train 0{FIRST}": {}}
    assert reply_to(wires, request | more).keys() == reply.keys()


def test_a_node_whose_rows_have_changed_says_so(exchanged):
    wires, request, _ = exchanged("apfl")
    wires.parts[NODE] = wires.parts[NODE]._replace(sha256="0" * 64)
    reason = reply_to(wires, request)["refused"]["reason"]
    assert reason == "its rows have changed since the run began"


def test_an_array_with_a_shape_of_its_own_keeps_it():
    """A vector of parameters may stand for a number, and for no array of another shape."""
    packet = {"sent": {"0": np.zeros(3), "1": np.zeros(3)}}
    assert protocol.read((np.zeros(3), 0), packet, "sent", np.zeros(3))[1].shape == (3,)
    assert "expected float64 (2,)" in refuses(
        protocol.read, (np.zeros(2), 0), packet, "sent", np.zeros(3)
    )
