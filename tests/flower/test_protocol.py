"""What is refused of a message, in both directions: one reason, short, of printable characters."""

import numpy as np
import pytest
from federating import HOLDERS, experiment_of, far

from fedref.algorithm import ClientResult
from fedref.flower import protocol
from fedref.flower.protocol import Refused

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
            request = next(p for node, p in wires.sent if node == NODE and "train" in p)
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
    with pytest.raises(Refused) as error:
        function(*arguments)
    reason = str(error.value)
    assert reason.isprintable()
    assert len(reason) <= 200
    return reason


NASTY = "\x1b[2J\n|<b>\ud800" + "x" * 200_000


def test_any_reason_is_short_and_printable():
    assert str(Refused("a\x1b[31m\nb\u202e")) == r"a\x1b[31m\nb\u202e"
    assert len(str(Refused(NASTY))) == len(protocol.refusal(NASTY)["refused"]["reason"]) == 200
    assert str(Refused("Größe")) == "Größe"


# ---- what a server refuses of a reply ------------------------------------------------------------


def first_upload(edit):
    return lambda reply: reply.update({f"upload {FIRST}": edit(reply[f"upload {FIRST}"])})


def poison(value):
    return lambda upload: {"w": np.where(np.arange(len(upload["w"])) == 3, value, upload["w"])}


def values(name, **changes):
    """Other values in a record of the first client."""
    name = f"{name} {FIRST}"
    return lambda reply: reply.update({name: {**reply.get(name, {}), **changes}})


def call(**changes):
    return lambda reply: reply["call"].update(changes)


BAD_REPLIES = [
    ("another's upload", lambda r: r.update({"upload 0": r[f"upload {FIRST}"]}), "answers 'upload 0'"),
    ("another's scores", lambda r: r.update({"scores 0": r[f"scores {FIRST}"]}), "answers 'scores 0'"),
    ("another spelling", lambda r: r.update({f"upload 0{FIRST}": {}}), "which it was not asked for"),
    ("a nasty name", lambda r: r.update({NASTY: {}}), r"answers '\x1b[2J"),
    ("an old round", call(round=0), "answers for round 0, expected 1"),
    ("another run", call(run="0" * 16), "answers for another run"),
    ("a long run", call(run=NASTY), "missing, unknown or misshapen fields: run"),
    ("a label of 64 bits", call(labels=[2**63]), "misshapen fields: labels"),
    ("nothing", lambda r: r.clear(), "has no record call"),
    ("a refusal", lambda r: r.update(refused={"reason": NASTY}), r"refuses: \x1b[2J\n|<b>\ud800xx"),
    ("no text", lambda r: r.update(refused={"reason": 7}), "refuses: no reason given"),
]  # fmt: skip
BAD_RESULTS = [
    ("NaN", first_upload(poison(np.nan)), "sends w with a value that is not finite"),
    ("short", first_upload(lambda r: {"w": r["w"][:-1]}), "sends w of shape ("),
    ("another axis", first_upload(lambda r: {"w": r["w"][None]}), "sends w of shape (1, "),
    ("another name", first_upload(lambda r: {"v": r["w"]}), "sends v, expected w"),
    ("a nasty name", first_upload(lambda r: {NASTY: r["w"]}), r"sends \x1b[2J"),
    ("one more", first_upload(lambda r: {**r, "F": r["w"]}), "sends F, w, expected w"),
    ("float32", first_upload(lambda r: {"w": r["w"].astype(np.float32)}), "sends w as float32"),
    (
        "plain",
        first_upload(lambda r: {"w": r["w"].tolist()}),
        "holds plain values, expected arrays",
    ),
    ("a log", values("log", **{NASTY: 1.0}), r"logs \x1b[2J"),
    ("a log that is NaN", values("log", gamma=float("nan")), "logs a gamma that is not a number"),
    ("a log of text", values("log", gamma="1"), "logs gamma, "),
    ("less", values("work", grads=-1), "says that it did less than no work"),
    ("endless", values("work", grads=10**400), "misshapen fields: grads"),
    ("lost", values("lost", reason=NASTY), r"\x1b[2J\n|<b>"),
]
BAD_SCORES = [
    ("more rows", values("scores", n_test=10**6), "was evaluated on 1000000 test"),
    ("too good", values("scores", accuracy=1.5), "has an accuracy of 1.5"),
    ("NaN", values("scores", test_loss=float("nan")), "has a loss that is not finite"),
    ("text", values("scores", accuracy="1"), "missing, unknown or misshapen fields: accuracy"),
    ("true", values("scores", n_test=True), "missing, unknown or misshapen fields: n_test"),
    ("endless", values("scores", n_test=10**5000), "misshapen fields: n_test"),
    ("lost", values("lost"), "no reason given"),
]


def ids(table):
    return pytest.mark.parametrize(("change", "words"), [row[1:] for row in table],
                                   ids=[row[0] for row in table])  # fmt: skip


@ids(BAD_REPLIES)
def test_a_server_refuses_a_reply_as_a_whole(change, words, exchanged):
    _, request, reply = exchanged()
    request["evaluate"], reply["scores 1"] = {"clients": OWN}, {}
    reply["call"] = {**reply["call"], "round": 1}
    request["call"] = dict(reply["call"])
    protocol.check_reply(reply, request)
    change(reply)
    assert words in refuses(protocol.check_reply, reply, request)


@ids(BAD_RESULTS)
def test_a_server_refuses_a_result(change, words, exchanged):
    _, _, reply = exchanged("fedprox")
    log = dict(reply[f"log {FIRST}"])
    expected = ClientResult(np.zeros_like(reply[f"upload {FIRST}"]["w"]), None, log)
    result, _ = protocol.read_result(reply, FIRST, expected, 0)
    assert result.upload.any()
    assert result.log == log
    change(reply)
    assert words in refuses(protocol.read_result, reply, FIRST, expected, 0)


@ids(BAD_SCORES)
def test_a_server_refuses_scores(change, words):
    scores = protocol.ClientScores(5, 0.5, 1.0, 6, 2.0)
    reply = {f"scores {FIRST}": protocol.record(scores)}
    assert protocol.read_scores(reply, FIRST, 6, 5, True) == scores
    change(reply)
    assert words in refuses(protocol.read_scores, reply, FIRST, 6, 5, True)


BAD_ANNOUNCEMENTS = [
    ({"clients": [3, 3]}, "not different numbers"),
    ({"clients": [-1, 3]}, "expected numbers from 0 on"),
    ({"n_train": [5]}, "lists of different lengths"),
    ({"n_train": [5, 0]}, "one without training rows"),
    ({"n_test": [5, -1]}, "one without training rows"),
    ({"clients": [], "n_train": [], "n_test": []}, "announces no client"),
    ({"labels": []}, "without features or labels"),
    ({"labels": [1, 0]}, "not different numbers"),
    ({"labels": [0, 2**63]}, "misshapen fields: labels"),
    ({"labels": [0, 10**6]}, "classes: 1000000 is more than 100000"),
    ({"labels": [-(10**6), 0]}, "classes: 1000000 is more than 100000"),
    ({"labels": list(range(10**5)), "features": 10**4}, "features × labels: 10000 × 100000 is more"),
    ({"n_test": [1, 10**15]}, "rows: 1000000000000012 is more than 10000000"),
    ({"n_train": [10**6, 6], "features": 10**4}, "rows × features: 1000007 × 10000 is more"),
    ({"features": 2.0}, "missing, unknown or misshapen fields: features"),
    ({"image": [8, 8, 1]}, None),
    ({"image": [8, 7, 1]}, "images of [8, 7, 1], and 64 features"),
    ({"vocabulary": ["a", NASTY]}, "misshapen fields: vocabulary"),
    ({"vocabulary": ["a"] * (10**6 + 1)}, "misshapen fields: vocabulary"),
    ({"vocabulary": ["a", 7]}, "misshapen fields: vocabulary"),
    ({NASTY: 1}, r"misshapen fields: \x1b[2J"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), BAD_ANNOUNCEMENTS)
def test_a_server_refuses_an_announcement_that_cannot_be_so(changes, words):
    good = protocol.Announced([3, 4], [5, 6], [1, 0], 64, [0, 1], [], [])
    reply = {"announced": protocol.record(good)}
    assert protocol.read_announced(reply) == good
    reply["announced"].update(changes)
    if words:
        assert words in refuses(protocol.read_announced, reply)
    assert "answers" in refuses(protocol.read_announced, {**reply, NASTY: {}})
    assert refuses(protocol.read_announced, {"refused": {"reason": NASTY}}).startswith(r"\x1b[2J")


# ---- what a node refuses of a request ------------------------------------------------------------

BAD_REQUESTS = [
    ("call", "stamp", "0" * 64, "another experiment"),
    ("call", "round", 7, "round 7 of 1"),
    ("call", "unit", 1, "unit 1 of 1"),
    ("call", "run", "../../../etc", "run '../../../etc'"),
    ("call", "labels", [0, 1], "leaves out labels"),
    ("call", "labels", [*range(10), 2**63], "misshapen fields: labels"),
    ("call", "labels", [*range(10), 2**52], "classes: "),
    ("call", "labels", [1, 0], "not different numbers"),
    ("call", NASTY, 1, r"misshapen fields: \x1b[2J"),
    ("sent", "w", np.zeros(3), "sends w of shape (3,)"),
    ("sent", "w", np.full(685, np.nan), "not finite"),
    ("sent", "w", [0.0], "holds plain values"),
    ("sent", "v", np.zeros(3), "sends v of shape (3,)"),
    ("sent", "v", np.zeros(685), "sends what holds v, expected w"),
    ("train", "amounts", [3], "lists of different lengths"),
    ("train", "clients", [1, 1, 1], "not different numbers"),
    ("train", "states", [10**400] * 3, "misshapen fields: states"),
    (NASTY, "w", 1, r"asks '\x1b[2J"),
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
        ("amounts", [4, 3, 3], "is asked for 4 epochs or steps of 3"),
        ("clients", [0, 4, 5], "is not a client of this node"),
        ("states", [5, -1, -1], "its own state after round 6 cannot be read"),
        ("widths", [3], "is asked for batches of 3 rows"),
        ("widths", [40, 40], "is asked for 2 kinds of batches, expected 1"),
        ("widths", [2**22], "rows of a batch × features: 4194304 × 64 is more than"),
        ("widths", [2**50], "steps × rows of a batch: 3 × "),
    ],
)
def test_a_node_does_no_more_for_a_client_than_the_experiment_says(field, value, words, exchanged):
    wires, request, _ = exchanged("apfl")
    request["train"] = {**request["train"], field: value}
    reply = reply_to(wires, request)
    assert words in reply[f"lost {value[0] if field == 'clients' else FIRST}"]["reason"]
    if field != "widths":
        assert f"upload {OWN[1]}" in reply


def test_a_node_whose_rows_have_changed_says_so(exchanged):
    wires, request, _ = exchanged("apfl")
    wires.parts[NODE] = wires.parts[NODE]._replace(sha256="0" * 64)
    reason = reply_to(wires, request)["refused"]["reason"]
    assert reason == "its rows have changed since the run began"


# ---- trees ---------------------------------------------------------------------------------------


def test_a_tree_is_the_same_after_its_way():
    from fedref.algorithms.apfl import ServerState, Upload

    value = (Upload(np.arange(3.0), None), ServerState(np.zeros(2), 0, 4, True, None), (1.5,))
    packet = {"sent": protocol.pack(value)}
    assert set(packet["sent"]) == {"0.w", "1.w", "1.F", "1.t", "1.renew", "2.0"}
    again = protocol.unpack(value, packet, "sent")
    assert type(again[0]) is Upload
    assert again[0].importance is None
    assert [type(x) for x in again[1][1:4]] == [int, int, bool]
    np.testing.assert_array_equal(again[0].w, value[0].w)
    fresh = (Upload(np.zeros(3), None), ServerState(np.zeros(2), 0, 0, True, None), (0.0,))
    grown = (
        Upload(np.zeros(3), np.ones(3)),
        ServerState(np.zeros(2), np.ones(3), 1, True, None),
        (0.0,),
    )
    packet = {"sent": protocol.pack(grown)}
    assert protocol.unpack(fresh, packet, "sent", np.zeros(3))[1].F.tolist() == [1.0] * 3
    assert "sends" in refuses(protocol.unpack, fresh, packet, "sent")
    assert "shape (3,), expected (4,)" in refuses(
        protocol.unpack, fresh, packet, "sent", np.zeros(4)
    )
