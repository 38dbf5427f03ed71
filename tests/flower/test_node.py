"""What a node refuses of a hostile server, and of its own part."""

import io
import zipfile
from hashlib import sha256

import numpy as np
import pytest
from federating import HOLDERS, Wires, experiment_of, far

from fedref.boundary import checkpoint
from fedref.boundary.errors import DataError
from fedref.flower import messages
from fedref.flower.messages import Evaluate, Facts, MessageError, Train
from fedref.flower.node import answer, read_part, read_state, write_state

NODE, OWN = 101, HOLDERS[101]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """(the node's files, its requests of a run by kind, the experiment)."""
    folder = tmp_path_factory.mktemp("run")
    experiment = experiment_of(algorithms={"fedprox": {}}, clients_per_round=7, rounds=2)
    wires = Wires(folder / "nodes", experiment)
    far(folder, experiment, wires)
    requests = [checkpoint.loads(data) for node, data in wires.asked if node == NODE]
    kinds = {type(request): request for request in requests}  # the last of each
    where = folder / "nodes" / f"{NODE}.npz", experiment, folder / "nodes" / f"states-{NODE}"
    return where, kinds


def call(**values):
    return lambda r: r._replace(call=r.call._replace(**values))


def rows(change):
    return lambda r: r._replace(rows=tuple(change(x.copy()) for x in r.rows))


def put(value):
    def change(x):
        x[0, 0, 0] = value
        return x

    return change


HOSTILE = [
    (Train, call(run="../../x"), "run is not 16 hexadecimal digits"),
    (Train, call(experiment="0" * 64), "is not the node's experiment"),
    (Train, call(unit=1), "unit is 1, of 1"),
    (Train, call(round=3), "round is 3 of 2"),
    (Train, call(round=-1), "round is -1 of 2"),
    (Train, call(clients=[0, 1, 4]), "asks for other clients than the node's"),
    (Train, call(clients=[4, 1, 5]), "clients are not ascending"),
    (Train, call(states=[0]), "has not one state a client"),
    (Train, call(states=[0, 0, 9]), "has no state of client 1 after round 1"),
    (Train, call(labels=[1]), "labels lack those of the node"),
    (Train, call(labels=[*range(10), 2**52]), "has the label"),
    (Train, call(round=0.0), "the request.round is float, expected int"),
    (Train, call(labels=list(range(1_000_001))), "the request.labels is list of 1000001"),
    (Train, lambda r: r._replace(sent=r.sent._replace(w=r.sent.w[:-1])), "what it sends.w is"),
    (Train, lambda r: r._replace(sent=r.sent._replace(w=r.sent.w * np.inf)), "not finite"),
    (Train, lambda r: r._replace(sent=r.call), "what it sends is Call"),
    (Train, lambda r: r._replace(steps=r.steps + 1), "has other than 0 to 3 steps"),
    (Train, lambda r: r._replace(steps=r.steps.astype(float)), "steps is float64"),
    (Train, lambda r: r._replace(per_epoch=r.per_epoch * 0), "has epochs of no step"),
    (Train, lambda r: r._replace(rows=()), "sends 0 roles of 1"),
    (Train, rows(put(10**6)), "plans with rows that a client does not have"),
    (Train, rows(put(-2)), "plans with rows that a client does not have"),
    (Train, rows(lambda x: x.astype(np.int64)), "the rows of the plan is int64"),
    (Train, rows(lambda x: x[1:]), "the rows of the plan is int32"),
    (Evaluate, call(clients=[1], states=[-1]), "does not ask for all the node's clients"),
    (Evaluate, lambda r: r._replace(train=2), "train is int, expected bool"),
    (Evaluate, lambda r: [r], "sends no request"),
    (Evaluate, lambda r: Facts(), "sends no request"),
]


@pytest.mark.parametrize(("kind", "change", "words"), HOSTILE)
def test_a_hostile_request_is_refused_with_a_reason(kind, change, words, asked, capsys):
    (part, experiment, states), kinds = asked
    given = answer(checkpoint.dumps(kinds[kind]), part, experiment, states)
    assert not isinstance(checkpoint.loads(given), str)
    text = checkpoint.loads(answer(checkpoint.dumps(change(kinds[kind])), part, experiment, states))
    assert isinstance(text, str)
    assert len(text) <= 250
    assert text.isprintable()
    if words == "has the label":  # an error of the model's own goes to the node's log
        assert words in capsys.readouterr().err
    else:
        assert text.startswith("refuses: ")
        assert words in text


def packed():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tree.npy", bytes(10**7))
    body = stream.getvalue()
    return checkpoint.MAGIC + sha256(body).hexdigest().encode() + b"\n" + body


def pickled():
    stream = io.BytesIO()
    np.savez(stream, tree=np.array([{}], object))
    body = stream.getvalue()
    return checkpoint.MAGIC + sha256(body).hexdigest().encode() + b"\n" + body


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (packed(), "a packed message"),
        (pickled(), "its message"),
        (b"x" * 1000, "zip"),
        ("text", "sends a str, expected bytes"),
        (checkpoint.dumps("\x1b" * 9)[:-30], "zip"),
    ],
)
def test_what_is_no_message_is_refused(data, words):
    with pytest.raises(MessageError, match=words) as caught:
        messages.read(data)
    assert len(str(caught.value)) <= 200
    assert str(caught.value).isprintable()


def test_a_part_that_nobody_can_train_on_is_refused(tmp_path):
    X, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    good = {"X": X, "y": y, "client": np.array([3, 3, 5, 5]), "test": y}
    for change, words in (
        ({"client": np.array([3, 3, 5, -1])}, "client is -1"),
        ({"test": y + 1}, "test holds other numbers"),
        ({"test": np.ones(4, int)}, "client 3 has no training row"),
        ({"z": y}, "z"),
    ):
        np.savez(tmp_path / "part.npz", **{**good, **change})
        with pytest.raises(DataError, match=words):
            read_part(tmp_path / "part.npz")
    np.savez(tmp_path / "part.npz", **good)
    assert read_part(tmp_path / "part.npz").facts == Facts(
        [3, 5], [1, 1], [1, 1], 2, [0, 1], [], []
    )


def test_a_failure_is_told_by_its_type_alone(tmp_path, asked, capsys):
    (_, experiment, states), _ = asked
    text = checkpoint.loads(
        answer(checkpoint.dumps("hello"), tmp_path / "secret.npz", experiment, states)
    )
    assert text == "its work raised DataError: see the node's own log"
    assert "secret.npz" in capsys.readouterr().err


def test_states_are_kept_for_the_checkpoint_before_the_last(tmp_path):
    before = -1
    for t in (0, 2, 3, 7):
        write_state(tmp_path, 4, before, t, (np.full(2, t),))
        before = t
    found = sorted(int(path.stem) for path in (tmp_path / "4").iterdir())
    assert found == [2, 3, 7]
    assert read_state(tmp_path, 4, 3)[0].tolist() == [3, 3]
    assert read_state(tmp_path, 4, -1) is None
