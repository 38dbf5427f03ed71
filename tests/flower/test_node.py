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
from fedref.flower.messages import Facts, MessageError, Request, Work
from fedref.flower.node import answer, read_part, read_state, write_state

NODE, OWN = 101, HOLDERS[101]


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


def has(**values):
    values = {k: np.array(v, np.int64) if type(v) is list else v for k, v in values.items()}
    return lambda r: r._replace(**values)


def sent(change):
    return lambda r: r._replace(sent=r.sent._replace(w=change(r.sent.w)))


def plan(**changes):
    return lambda r: r._replace(
        work=r.work._replace(**{k: f(getattr(r.work, k)) for k, f in changes.items()})
    )


def rows(change):
    return plan(rows=lambda batches: tuple(change(x.copy()) for x in batches))


def put(value):
    def change(x):
        x[0, 0, 0] = value
        return x

    return rows(change)


TRAIN, EVALUATE = True, False
HOSTILE = [
    (TRAIN, has(run="../../x"), "run is not 16 hexadecimal digits"),
    (TRAIN, has(experiment="0" * 64), "is not the node's experiment"),
    (TRAIN, has(unit=1), "unit is 1, of 1"),
    (TRAIN, has(round=3), "round 3 is not in the run"),
    (TRAIN, has(round=-1), "round -1 is not in the run"),
    (TRAIN, has(round=0.0), "the request.round is float, expected int"),
    (TRAIN, has(clients=[0, 1, 4]), "asks for other clients than the node's"),
    (TRAIN, has(clients=[4, 1, 5]), "clients are not ascending"),
    (TRAIN, has(clients=[]), "clients are not ascending"),
    (TRAIN, has(clients=np.zeros((3, 1), np.int64)), "the request.clients is int64 (3, 1)"),
    (TRAIN, has(states=[0]), "has not one state a client"),
    (TRAIN, has(states=[0, 0, 9]), "has no state of client 1 after round 1"),
    (TRAIN, has(labels=[1]), "labels lack those of the node"),
    (TRAIN, has(labels=[*range(10), 2**52]), "has the label"),
    (TRAIN, has(labels=[*range(3_000_000)]), "has too many labels"),
    (TRAIN, sent(lambda w: w[:-1]), "what it sends.w is"),
    (TRAIN, sent(lambda w: w * np.inf), "not finite"),
    (TRAIN, has(sent=Facts()), "what it sends is Facts"),
    (TRAIN, plan(steps=lambda x: x + 1), "steps beyond S"),
    (TRAIN, plan(steps=lambda x: x.astype(float)), "work.steps is float64"),
    (TRAIN, plan(per_epoch=lambda x: x * 0), "has epochs of no step"),
    (TRAIN, plan(rows=lambda x: ()), "work.rows is tuple of 0"),
    (TRAIN, put(10**6), "plans with rows that a client does not have"),
    (TRAIN, put(-2), "plans with rows that a client does not have"),
    (TRAIN, rows(lambda x: x.astype(np.int64)), "work.rows.0 is int64"),
    (TRAIN, rows(lambda x: x[1:]), "work.rows.0 is int32"),
    (EVALUATE, has(clients=[1], states=[-1]), "does not ask for all the node's clients"),
    (EVALUATE, has(work=2), "work is int, expected bool"),
    (EVALUATE, lambda r: [r], "sends no request"),
    (EVALUATE, lambda r: Facts(), "sends no request"),
]


@pytest.mark.parametrize(("kind", "change", "words"), HOSTILE)
def test_a_hostile_request_is_refused_with_a_reason(kind, change, words, asked, capsys):
    (part, experiment, states), kinds = asked
    given = answer(checkpoint.dumps(kinds[kind]), part, experiment, states)
    assert not isinstance(checkpoint.loads(given), str)
    text = checkpoint.loads(answer(checkpoint.dumps(change(kinds[kind])), part, experiment, states))
    assert len(text) <= 250
    assert text.isprintable()
    if words == "has the label":  # an error of the model's own goes to the node's log
        assert words in capsys.readouterr().err
    else:
        assert text.startswith("refuses: ")
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
        ({"client": np.array(list("aabb"))}, "expected a node's part"),
        ({"client": None}, "lacks the array client or test"),
        ({"test": None}, "lacks the array client or test"),
        ({"test": y + 1}, "test holds other values"),
        ({"test": np.array([1, 1, 0, 0])}, "a client has no training row"),
        ({"y": y + 0.5}, "y holds other values than whole numbers"),
        ({"y": np.array(list("abab"))}, "y holds other values than whole numbers"),
        ({"scale": 0.0}, "scale"),
        ({"z": y}, "unknown array 'z'"),
    ):
        arrays = {k: x for k, x in {**good, **change}.items() if x is not None}
        np.savez(tmp_path / "part.npz", **arrays)
        with pytest.raises(DataError, match=words):
            read_part(tmp_path / "part.npz")
    np.savez(
        tmp_path / "part.npz",
        **(good | {"test": 0 * y, "X": X.astype(int), "vocabulary": ["a", "b"]}),
    )
    facts = read_part(tmp_path / "part.npz").facts
    assert [x if type(x) is int else x.tolist() for x in facts] == [
        [3, 5], [2, 2], [0, 0], 2, [0, 1], [], ["a", "b"]
    ]  # fmt: skip


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
