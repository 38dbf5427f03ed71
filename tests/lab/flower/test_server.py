"""A run over nodes that hold their own rows is the local run, to the bit, without Flower itself.

And what is not what was asked for is not averaged, and a server that is stopped goes on.
"""

import numpy as np
import pytest
from federating import (
    HOLDERS,
    Wires,
    experiment_of,
    far,
    near,
    replaced,
    same_parameters,
    same_tables,
    with_entry,
)  # fmt: skip

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.lab.commands import main
from fedref.lab.experiments import checkpoint
from fedref.lab.flower.messages import Facts, Request, Work
from fedref.lab.flower.server import serve
from fedref.models import tree

FEDERATED = [name for name in ALGORITHMS if not ALGORITHMS[name].pooled]
NODE, OWN = 101, HOLDERS[101]
ONE_ROUND = experiment_of(algorithms={"fedavg": {}}, clients_per_round=7, rounds=1)


@pytest.fixture(autouse=True)
def few_pictures(request):
    if "picture" not in request.node.name:
        request.getfixturevalue("no_pictures")


# ---- the same numbers ----------------------------------------------------------------------------

VARIANTS = {
    "epochs": {
        "steps": None, "epochs": 2,
        "algorithms": {
            "fedavg": {}, "apfl": {"importance": "si"}, "fedmeta-maml": {"episodes": "epochs"},
        },
    },
    "float32": {
        "dtype": "float32",
        "algorithms": {
            "fedavg": {}, "fedmeta-sgd": {"server": "adam"}, "fedprox": {"adaptive_mu": True},
            "apfl": {"z": 1}, "fedcurv": {},
        },
    },
    "by samples, seeds and sweep": {
        "sampling": "by-samples", "seeds": (3, 4), "sweep": {"lr": [0.1, 0.2]},
        "algorithms": {"fedprox": {"adaptive_mu": True}},
    },
    "a CNN": {
        "model": {"name": "cnn", "channels": [2], "kernel": 3, "hidden": 5},
        "algorithms": {"fedavg": {}}, "rounds": 2,
    },
    "codes": {
        "data": {"name": "federating:coded"}, "model": {"name": "lstm", "hidden": [3]},
        "algorithms": {"fedavg": {}}, "rounds": 2,
    },
    "labels that no client has": {  # 8 and 9, and each node has others
        "split": {"rule": "per-fedavg", "users": 6}, "algorithms": {"fedavg": {}, "apfl": {}}, "rounds": 2,
    },
    "more labels than rows": {
        "data": {"name": "federating:many_labels"}, "algorithms": {"fedavg": {}}, "rounds": 1,
        "split": {"rule": "natural", "min_rows": 2},
    },
}  # fmt: skip


KINDS = {name: {"algorithms": {name: {}}, "stragglers": 0.4} for name in FEDERATED}


@pytest.mark.parametrize("name", [*KINDS, *VARIANTS])
def test_every_algorithm_and_kind_of_plan_to_the_bit(name, tmp_path):
    experiment = experiment_of(**(KINDS | VARIANTS)[name])
    there, said = far(tmp_path, experiment)
    here = near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    assert same_parameters(there, here)
    assert said == []


def test_a_run_has_its_picture(tmp_path):
    far(tmp_path, ONE_ROUND)
    assert (tmp_path / "far" / "curves.png").stat().st_size > 1000


def test_no_row_travels_and_no_state(tmp_path):
    """Requests have the plan's rows as numbers; answers of a training have the upload and a log."""
    experiment = experiment_of(algorithms={"apfl": {"z": 0}}, rounds=2)
    answers = []
    wires = Wires(tmp_path / "nodes", experiment, lambda n, q, a: answers.append(a) or a)
    far(tmp_path, experiment, wires)
    trained = [a for a in map(checkpoint.loads, answers) if isinstance(a, tuple) and len(a) == 2]
    results = [result for some, _ in trained for result in some]
    assert results
    for upload, keeps, _ in results:
        assert keeps is True
        assert tree.flatten(upload).keys() <= {"w", "importance"}


# ---- refused -------------------------------------------------------------------------------------

HELLO, UNIT = "at the start", "fedavg (seed 0)"
TRAIN, EVALUATE = f"{UNIT}, round 1", f"{UNIT}, evaluation after round 1"


def first(**values):
    """Change the first client's result."""
    return lambda a: ((a[0][0]._replace(**values), *a[0][1:]), a[1])


def sizes(place, value):
    return lambda a: a._replace(sizes=with_entry(place, value)(a.sizes))


EVIL = [
    (TRAIN, first(upload=np.full(685, np.nan)), "upload is float64 (685,) from nan to nan, expected"),
    (TRAIN, first(upload=np.zeros(684)), "answer.0.0.upload is float64 (684,)"),
    (TRAIN, first(upload=(np.zeros(685), 1)), "upload is tuple of 2"),
    (TRAIN, first(log={"\x1b" * 300: 1.0}), "log is dict"),
    (TRAIN, lambda a: (a[0][1:], a[1]), "answer.0 is tuple of 2, expected tuple of 3"),
    (TRAIN, lambda a: (a[0], -a[1]), "answer.1 is int64 (4,) from -"),
    (TRAIN, lambda a: "\x1b[2J" * 100, "\\x1b[2J"),
    (EVALUATE, lambda a: a[1:], "scores is float64 (2, 3)"),
    (EVALUATE, with_entry((1, 2), np.nan), "scores is float64"),
    (EVALUATE, lambda a: tuple(a), "scores is tuple of 3"),
    (HELLO, sizes((0, 0), 0), "announces clients that another node holds"),
    (HELLO, sizes((0, 0), 4), "announces no client, or one twice"),
    (HELLO, sizes((1, 0), 10**7), "announces no label, or too many rows"),
    (HELLO, replaced(image=[1, 2, 8]), "announces features that are no image's"),
    (HELLO, replaced(image=[0, 0, 0]), "announces other features than another node"),
    (HELLO, replaced(labels=[]), "its announcement.labels is float64 (0,)"),
    (HELLO, replaced(labels=np.zeros(10**5 + 1, int)), "announces no label, or too many rows"),
    (HELLO, replaced(labels=[0, 2**40]), "its announcement.labels is int64 (2,)"),
    (HELLO, replaced(vocabulary=np.array(["x" * 201])), "its announcement.vocabulary is <U201"),
]  # fmt: skip


def changed_wires(folder, where, change):
    """Return a network in which a node's answer to one kind of question is another."""

    def change_answer(node, request, answer):
        asked = checkpoint.loads(request)
        kind = HELLO if isinstance(asked, str) else TRAIN if is_training(asked) else EVALUATE
        if node != NODE or kind != where or (kind == EVALUATE and asked.round == 0):
            return answer
        value = change(checkpoint.loads(answer))
        return value if isinstance(value, bytes | str) else checkpoint.dumps(value)

    return Wires(folder / "nodes", ONE_ROUND, change_answer)


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The runs in which a node does not answer, by what it is asked, and in which nobody is away."""
    folder = tmp_path_factory.mktemp("without")
    runs = {"nobody": near(folder, ONE_ROUND)}
    for where in (TRAIN, EVALUATE):
        wires = changed_wires(folder / where[-1], where, lambda _: "gone")
        runs[where], _ = far(folder, ONE_ROUND, wires, out=where)
    return runs


@pytest.mark.parametrize(("where", "change", "words"), EVIL)
def test_what_was_not_asked_for_is_left_out_and_its_node_is_named(
    where, change, words, tmp_path, without
):
    """As if the node had not answered: its clients fail, or have no scores, or the run does not begin."""
    said, wires = [], changed_wires(tmp_path, where, change)
    if where == HELLO:
        with pytest.raises(FedrefError, match=r"no node has announced the clients \[1"):
            serve(wires, ONE_ROUND, tmp_path / "far", clients=7, limit=0.0, say=said.append)
        assert not (tmp_path / "far").exists()
    else:
        bad, said = far(tmp_path, ONE_ROUND, wires, out="bad")
        assert same_parameters(bad, without[where])
        assert same_parameters(bad, without["nobody"]) == (where == EVALUATE)
        (record,) = bad.records
        assert [row["failed"] for row in record.rows] == [0, len(OWN) * (where == TRAIN)]
        found = record.scores[-1]
        assert [k for k in range(7) if found.n_test[k] == 0] == OWN * (where == EVALUATE)
    head = f"{where}: node {NODE}: "
    (text,) = {text for text in said if text.startswith(head)}
    assert words in text
    assert text.isprintable()
    assert len(text) <= len(head) + 200


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"classes": "own"}, "classes=own needs clients' rows"),
        ({"dissimilarity": True}, "dissimilarity needs"),
        ({"sweep": {"split.alpha": [0.1, 1.0]}}, "split.alpha"),
    ],
)
def test_what_needs_the_rows_on_the_server_is_refused(settings, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        serve(None, experiment_of(algorithms={"fedavg": {}}, **settings), tmp_path, clients=7)


def is_training(request):
    return isinstance(request, Request) and isinstance(request.work, Work)


# ---- other runs, and nodes that go and come --------------------------------------------------------


def test_two_runs_of_one_name_do_not_share_states(tmp_path):
    experiment = experiment_of(algorithms={"scaffold": {}})
    wires = Wires(tmp_path / "nodes", experiment)
    one, _ = far(tmp_path, experiment, wires, out="one")
    other, said = far(tmp_path, experiment, wires, out="other")
    assert said == []
    assert same_parameters(one, other)
    states = [p.name for p in (tmp_path / "nodes" / f"states-{NODE}").iterdir()]
    assert len(states) == 2


def test_a_node_that_is_away_fails_until_it_is_back(tmp_path):
    experiment = experiment_of(algorithms={"scaffold": {}}, clients_per_round=7, rounds=4)

    def change(node, request, answer):
        asked = checkpoint.loads(request)
        lost = node == NODE and not isinstance(asked, str) and asked.round in (1, 2)
        return "is offline" if lost else answer

    wires = Wires(tmp_path / "nodes", experiment, change)
    run, said = far(tmp_path, experiment, wires)
    assert [row["failed"] for row in run.records[0].rows] == [0, 0, 3, 6, 6]
    assert said.count(f"scaffold (seed 0), round 2: node {NODE}: is offline") == 1
    asked = [checkpoint.loads(request) for node, request in wires.asked if node == NODE]
    states = [request.clients[1].tolist() for request in asked if is_training(request)]
    assert states == [[-1] * 3, [0] * 3, [0] * 3, [0] * 3]  # from the last work that counted


@pytest.mark.parametrize("rounds_lost", [(2,), (2, 3), (3,)])
def test_scaffolds_c_stays_the_mean_of_the_states_that_count(rounds_lost, tmp_path):
    """A reply that is lost is work that its client has done, and whose c_i nobody uses."""
    experiment = experiment_of(algorithms={"scaffold": {}}, clients_per_round=7, rounds=4)

    def change(node, request, answer):
        asked = checkpoint.loads(request)
        lost = node == NODE and not isinstance(asked, str) and is_training(asked)
        return "is offline" if lost and asked.round in rounds_lost else answer

    wires = Wires(tmp_path / "nodes", experiment, change)
    run, _ = far(tmp_path, experiment, wires)
    last = max({0, 1, 2, 3} - {*rounds_lost})

    def mean_of_states(round_of_node):
        states = [
            checkpoint.loads(path.read_bytes()).c_i
            for path in (tmp_path / "nodes").glob("states-*/*/*/*/*.ckpt")
            if int(path.stem) == (round_of_node if f"states-{NODE}/" in path.as_posix() else 3)
        ]
        assert len(states) == 7
        return np.mean(states, 0)

    c = run.records[0].state.server.c
    np.testing.assert_allclose(c, mean_of_states(last), rtol=1e-12, atol=1e-15)
    if 3 in rounds_lost:  # it did the work, and has the file
        assert np.max(np.abs(c - mean_of_states(3))) > 1e-6 * np.max(np.abs(c))


def test_a_directory_that_is_not_of_this_run_is_refused(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, rounds=1)
    wires = Wires(tmp_path / "nodes", experiment)
    far(tmp_path, experiment, wires)
    with pytest.raises(DataError, match="holds the run of another experiment"):
        far(tmp_path, experiment_of(algorithms={"fedavg": {"lr": 0.2}}, rounds=1))
    # rows that are not there: `fedref resume` would train on others
    assert main(["resume", str(tmp_path / "far")]) == 2

    def other_rows(node, request, answer):
        value = checkpoint.loads(answer)
        if not isinstance(value, Facts):
            return answer
        return checkpoint.dumps(value._replace(sizes=value.sizes - [[0], [1], [0]]))

    wires.change = other_rows
    with pytest.raises(DataError, match="the data or the split changed after"):
        far(tmp_path, experiment, wires)
