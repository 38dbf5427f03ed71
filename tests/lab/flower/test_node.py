"""What a node refuses of a hostile server, and of its own part."""

import io
import zipfile
from hashlib import sha256

import numpy as np
import pytest
from federating import HOLDERS, Wires, experiment_of, far, replaced, with_entry

from fedref.boundary.errors import DataError
from fedref.lab.experiments import checkpoint
from fedref.lab.flower import messages
from fedref.lab.flower.messages import MessageError, Request, Work
from fedref.lab.flower.node import answer, facts_of, read_part

NODE = 101
K = len(HOLDERS[NODE])


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """(the node's files, its last requests of a run: to train, to evaluate)."""
    folder = tmp_path_factory.mktemp("run")
    experiment = experiment_of(algorithms={"fedprox": {}}, clients_per_round=7, rounds=2)
    wires = Wires(folder / "nodes", experiment)
    far(folder, experiment, wires)
    requests = [checkpoint.loads(data) for node, data in wires.asked if node == NODE]
    kinds = {isinstance(r.work, Work): r for r in requests if isinstance(r, Request)}
    where = folder / "nodes" / f"{NODE}.npz", experiment, folder / "nodes" / f"states-{NODE}"
    return where, kinds


def sent(change):
    return lambda r: r._replace(sent=r.sent._replace(w=change(r.sent.w)))


def plan(name, change):
    return lambda r: r._replace(work=r.work._replace(**{name: change(getattr(r.work, name))}))


def rows(change):
    return plan("rows", lambda batches: tuple(map(change, batches)))


TRAIN, EVALUATE = True, False
HOSTILE = [
    (TRAIN, replaced(run="../../x"), "the request.run is str, expected int64 () from 0"),
    (TRAIN, replaced(unit=1), "the request.unit is int64 () from 1 to 1, expected int64 ()"),
    (TRAIN, replaced(round=3), "expected int64 () from 0 to 2"),
    (TRAIN, replaced(clients=[[0, 4, 5], [0] * 3]), "expected int64 (2, None) from -1 to 5"),
    (TRAIN, replaced(clients=[[2, 4], [0, 0]]), "asks for other clients than the node's"),
    (TRAIN, replaced(clients=np.zeros((2, 0), int)), "asks for other clients than the node's"),
    (TRAIN, replaced(clients=[[1, 4, 5], [1, 1, 2]]), "has no state of client 1 after round 2"),
    (TRAIN, replaced(labels=np.zeros((10, 1), int)), "the request.labels is int64 (10, 1)"),
    (TRAIN, replaced(labels=[*range(1, 10)]), "does not know all labels of the node's rows"),
    (TRAIN, replaced(labels=[*range(10), 10**6]), "raised ConfigError"),
    (TRAIN, replaced(labels=[*range(-(10**6), 10)]), "a model too large"),
    (TRAIN, sent(lambda w: w[:-1]), "what it sends.w is"),
    (TRAIN, sent(with_entry(0, np.inf)), "to inf, expected float64 (685,)"),
    (TRAIN, plan("steps", with_entry((0, 0), 10**6)), "work.steps is"),
    (TRAIN, plan("steps", lambda x: x.astype(float)), "work.steps is float64"),
    (TRAIN, rows(with_entry((0, 0, 0), 10**6)), "work.rows.0 is"),
    (TRAIN, rows(lambda x: x.astype(np.int64)), "work.rows.0 is int64"),
    (EVALUATE, replaced(clients=[[1], [-1]]), "does not ask for all the node's clients"),
    (EVALUATE, replaced(work=2), "work is int64 () from 2 to 2, expected bool"),
    (EVALUATE, lambda r: [r], "sends no request"),
]


@pytest.mark.parametrize(("kind", "change", "words"), HOSTILE)
def test_a_hostile_request_is_refused_with_a_reason(kind, change, words, asked):
    (part, experiment, states), kinds = asked
    given = answer(checkpoint.dumps(kinds[kind]), part, experiment, states)
    assert not isinstance(checkpoint.loads(given), str)
    text = checkpoint.loads(answer(checkpoint.dumps(change(kinds[kind])), part, experiment, states))
    assert len(text) <= 250
    assert text.isprintable()
    assert text.startswith("refuses: ") == ("raised" not in words)
    assert words in text


def sealed(write):
    stream = io.BytesIO()
    write(stream)
    body = stream.getvalue()
    return checkpoint.MAGIC + sha256(body).hexdigest().encode() + b"\n" + body


def pack(stream):
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tree.npy", bytes(10**7))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (sealed(pack), "a packed message"),
        (sealed(lambda s: np.savez(s, tree=np.array([{}], object))), "its message"),
        (b"x" * 1000, "zip"),
        (None, "sends a NoneType, expected bytes"),
        (checkpoint.dumps("\x1b" * 9)[:-30], "zip"),
    ],
)
def test_what_is_no_message_is_refused(data, words):
    with pytest.raises(MessageError, match=words) as caught:
        messages.read(data)
    assert len(str(caught.value)) <= 200
    assert str(caught.value).isprintable()


def test_a_part_that_nobody_can_train_on_is_refused(tmp_path, asked, capsys):
    X, y, path = np.zeros((4, 2)), np.array([0, 1, 0, 1]), tmp_path / "secret.npz"
    good = {"X": X, "y": y, "client": np.array([30, 30, 5, 5]), "test": y}
    for change, words in (
        ({"client": np.array([3, 3, 5, -1])}, "client is -1"),
        ({"client": None}, "lacks the array client or test"),
        ({"test": y + 1}, "test holds other values"),
        ({"test": np.array([1, 1, 0, 0])}, "a client has no training row"),
        ({"y": y + 0.5}, "y holds other values than whole numbers"),
        ({"scale": 0.0}, "scale"),
        ({"z": y}, "unknown array 'z'"),
        ({"labels": np.array([0.5, 1])}, "labels is float64"),
        ({"labels": np.array([[0, 1]])}, r"labels is int64 \(1, 2\)"),
    ):
        arrays = {k: x for k, x in {**good, **change}.items() if x is not None}
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=words):
            read_part(path)
    (_, experiment, states), _ = asked  # a failure is told by its type alone
    text = checkpoint.loads(answer(checkpoint.dumps("hello"), path, experiment, states))
    assert text == "its work raised DataError: see the node's own log"
    assert "secret.npz" in capsys.readouterr().err
    words = {"test": 0 * y, "X": X.astype(int), "vocabulary": ["a", "b"], "labels": [1, 3]}
    np.savez(path, **(good | words))
    assert [x if type(x) is int else x.tolist() for x in facts_of(read_part(path))] == [
        [[5, 30], [2, 2], [0, 0]], [0, 1, 3], 2, [0, 0, 0], ["a", "b"]
    ]  # fmt: skip
