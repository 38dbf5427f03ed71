"""A run over nodes that hold their own rows is the local run, to the bit, without Flower itself.

And what is not what was asked for is not averaged, and a server that is stopped goes on.
"""

import time

import numpy as np
import pytest
from federating import (
    HOLDERS,
    Wires,
    column,
    experiment_of,
    far,
    near,
    same_parameters,
    same_tables,
)

from fedref import tree
from fedref.algorithms import ALGORITHMS
from fedref.boundary import checkpoint
from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.commands import main
from fedref.flower.messages import Facts, Request, Work
from fedref.flower.server import serve
from fedref.rounds.evaluation import Scores

FEDERATED = [name for name in ALGORITHMS if not ALGORITHMS[name].pooled]
NODE, OWN = 101, HOLDERS[101]
CACHED = "fedref.algorithms.apfl_cached:APFLCachedImportance"
EVERYBODY = {"algorithms": {"fedavg": {}}, "clients_per_round": 7}

# ---- the same numbers ----------------------------------------------------------------------------

VARIANTS = {
    "epochs": {"steps": None, "epochs": 2, "algorithms": {"fedavg": {}, "apfl": {"importance": "si"}}},
    "float32": {
        "dtype": "float32",
        "algorithms": {
            "fedavg": {}, "fedmeta-sgd": {"server": "adam"}, "fedprox": {"adaptive_mu": True},
            "apfl": {"z": 1}, "fedcurv": {},
        },
    },
    "by samples": {"sampling": "by-samples", "algorithms": {"fedprox": {"adaptive_mu": True}}},
    "all rows": {"batch_size": 0, "algorithms": {"per-fedavg": {}, "fedcurv": {}}},
    "every second": {"eval_every": 2, "eval_train": False, "algorithms": {"fedavg": {}, "apfl": {}}},
    "seeds and sweep": {"seeds": (3, 4), "sweep": {"lr": [0.1, 0.2]}, "algorithms": {"fedavg": {}}},
    "until γ": {"steps": None, "epochs": 3, "algorithms": {"fedprox": {"until_gamma": 0.9}}},
    "episodes": {
        "steps": None, "epochs": 2, "algorithms": {"fedmeta-maml": {"episodes": "epochs"}}
    },
    "a CNN": {
        "model": {"name": "cnn", "channels": [2], "kernel": 3, "hidden": 5},
        "algorithms": {"fedavg": {}}, "rounds": 2,
    },
    "codes": {
        "data": {"name": "federating:coded"}, "model": {"name": "lstm", "hidden": [3]},
        "algorithms": {"fedavg": {}}, "rounds": 2,
    },
}  # fmt: skip


KINDS = {name: {"algorithms": {name: {}}, "rounds": 4, "stragglers": 0.4} for name in FEDERATED}


@pytest.mark.parametrize("name", [*KINDS, *VARIANTS])
def test_every_algorithm_and_kind_of_plan_to_the_bit(name, tmp_path):
    experiment = experiment_of(**(KINDS | VARIANTS)[name])
    there, said = far(tmp_path, experiment)
    here = near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    assert same_parameters(there, here)
    assert said == []


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


def is_training(request):
    return isinstance(request, Request) and isinstance(request.work, Work)


def changed(change, round=0):
    """Return a network's `change`: `change(results)` of one node's results in a round."""

    def at(node, request, answer):
        asked, answered = checkpoint.loads(request), checkpoint.loads(answer)
        if node != NODE or not is_training(asked) or asked.round != round:
            return answer
        found = change(*answered)
        return found if isinstance(found, bytes | str) else checkpoint.dumps(found)

    return at


def first(results, **values):
    return (results[0]._replace(**values), *results[1:])


def poisoned(results):
    return first(results, upload=results[0].upload * np.nan)


EVIL = {
    "NaN": (lambda r, n: (poisoned(r), n), "upload is float64 (685,) with a value that is not"),
    "shape": (lambda r, n: (first(r, upload=np.zeros(684)), n), "expected float64 (685,)"),
    "dtype": (lambda r, n: (first(r, upload=np.zeros(685, "f4")), n), "upload is float32 (685,)"),
    "name": (lambda r, n: (first(r, upload=(r[0].upload, 1)), n), "upload is tuple of 2"),
    "keeps": (lambda r, n: (first(r, keeps=1), n), "result.0 is int, expected bool"),
    "log": (lambda r, n: (first(r, log={"\x1b" * 300: 1.0}), n), "result.1 is dict"),
    "fewer": (lambda r, n: (r[1:], n), "lacks results"),
    "other": (lambda r, n: ((Facts(),) * len(r), n), "sends no result of a client"),
    "counts": (lambda r, n: (r, -n), "claims a negative or impossible amount of work"),
    "text": (lambda r, n: "\x1b[2J" * 100, "\\x1b[2J"),
    "silence": (lambda r, n: "no answer in 5 s", "no answer in 5 s"),
    "damaged": (lambda r, n: checkpoint.dumps((r, n))[:-1], "zip file"),
}


@pytest.mark.parametrize("what", EVIL)
def test_what_was_not_asked_for_fails_and_its_node_is_named(what, tmp_path):
    """The state is that of a round in which the node did not answer, whatever it sent."""
    change, words = EVIL[what]
    experiment = experiment_of(**EVERYBODY, rounds=1)
    bad, said = far(
        tmp_path, experiment, Wires(tmp_path / "nodes", experiment, changed(change)), out="bad"
    )
    (text,) = said
    head = f"fedavg (seed 0), round 1: node {NODE}: "
    assert text.startswith(head)
    assert words in text
    assert text.isprintable()
    assert len(text) <= len(head) + 200
    assert column(bad, "failed") == [0, len(OWN)]
    away = changed(lambda *_: "gone")
    other, _ = far(tmp_path, experiment, Wires(tmp_path / "nodes", experiment, away), out="other")
    assert same_parameters(bad, other)
    assert not same_parameters(bad, near(tmp_path, experiment))


def scores(change):
    def at(node, request, answer):
        value = checkpoint.loads(answer)
        if node != NODE or not isinstance(value, Scores):
            return answer
        return checkpoint.dumps(change([column.copy() for column in value]))

    return at


def put(column, value):
    def change(columns):
        columns[column] = columns[column].astype(np.asarray(value).dtype)
        columns[column][0] = value
        return Scores(*columns)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(0, 9), "has other rows than before"),
        (put(1, 1.5), "has an accuracy beyond 0 to 1"),
        (put(2, np.nan), "scores.test_loss is float64"),
        (put(4, np.float32(1)), "scores.train_loss is float32"),
        (lambda columns: tuple(columns), "scores is tuple of 5, expected Scores"),
        (lambda columns: Scores(*(x[1:] for x in columns)), "scores.n_test is int64"),
    ],
)
def test_scores_that_cannot_be_are_left_out(change, words, tmp_path):
    experiment = experiment_of(**EVERYBODY, rounds=1)
    run, said = far(tmp_path, experiment, Wires(tmp_path / "nodes", experiment, scores(change)))
    assert len(said) == 2
    assert all(text.startswith("fedavg (seed 0), evaluation after round") for text in said)
    found = run.records[0].scores[-1]
    assert [k for k in range(7) if found.n_test[k] == 0] == OWN
    assert np.isnan(found.accuracy[OWN]).all()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"clients": [0, 4, 5]}, "announces clients [0], which another node holds"),
        ({"clients": [1, 4, 7]}, "a client beyond the last"),
        ({"clients": [4, 1, 5]}, "clients, ascending"),
        ({"n_train": [1, 2]}, "one entry a client"),
        ({"n_train": [1, 2, 10**9]}, "fewer rows"),
        ({"image": []}, "other features"),
        ({"labels": [0, 2**40]}, "fewer labels"),
        ({"image": [1, 2]}, "image sizes"),
        ({"vocabulary": np.array(["x" * 201])}, "its announcement.vocabulary is <U201"),
        ({"features": 64.0}, "its announcement.features is float, expected int"),
    ],
)
def test_rows_that_cannot_be_are_refused_and_the_run_does_not_begin(facts, words, tmp_path):
    experiment = experiment_of(**EVERYBODY, rounds=1)

    def change(node, request, answer):
        value = checkpoint.loads(answer)
        given = {k: np.array(v, np.int64) if type(v) is list else v for k, v in facts.items()}
        return checkpoint.dumps(value._replace(**given)) if node == NODE else answer

    said = []
    wires = Wires(tmp_path / "nodes", experiment, change)
    with pytest.raises(FedrefError, match=r"no node has announced the clients \[1"):
        serve(wires, experiment, tmp_path / "far", clients=7, limit=0.0, say=said.append)
    assert any(f"node {NODE}: " in text and words in text for text in said), said
    assert not (tmp_path / "far").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"algorithms": {"kept": {"algorithm": CACHED}}},
            "kept sends what a client does not have yet",
        ),
        ({"algorithms": {"centralised": {}}}, "centralised pools clients' rows"),
        ({"classes": "own", "algorithms": {"fedavg": {}}}, "classes=own needs clients' rows"),
        ({"dissimilarity": True, "algorithms": {"fedavg": {}}}, "dissimilarity needs"),
        ({"sweep": {"split.alpha": [0.1, 1.0]}, "algorithms": {"fedavg": {}}}, "split.alpha"),
    ],
)
def test_what_needs_the_rows_on_the_server_is_refused(settings, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        serve(None, experiment_of(**settings), tmp_path, clients=7)


# ---- a server that is stopped --------------------------------------------------------------------


class Stop(BaseException):
    pass


def test_a_stopped_server_goes_on_to_the_same_files(tmp_path):
    """At any message, also where the nodes have done more than the server knows of."""
    algorithms = {"apfl": {"z": 1}, "scaffold": {}, "fedcurv": {}}
    experiment = experiment_of(algorithms=algorithms, rounds=3)
    near(tmp_path, experiment)
    count, stop = 0, 0

    def change(node, request, answer):
        nonlocal count
        count += 1
        if count == stop:
            raise Stop
        return answer

    wires = Wires(tmp_path / "nodes", experiment, change)
    for stop in range(4, 60, 4):
        count = 0
        try:
            far(tmp_path, experiment, wires)
            break
        except Stop:
            # every second time the newest checkpoint is damaged: the one before has its states
            for newest in (tmp_path / "far" / "checkpoints").glob("*.ckpt") if stop % 8 else ():
                newest.write_bytes(newest.read_bytes()[:-1])
    assert stop > 16
    assert same_tables(tmp_path / "far", tmp_path / "near")


def test_two_runs_of_one_name_do_not_share_states(tmp_path):
    experiment = experiment_of(algorithms={"scaffold": {}})
    wires = Wires(tmp_path / "nodes", experiment)
    one, _ = far(tmp_path, experiment, wires, out="one")
    other, said = far(tmp_path, experiment, wires, out="other")
    assert said == []
    assert same_parameters(one, other)
    states = [p.name for p in (tmp_path / "nodes" / f"states-{NODE}").iterdir()]
    assert len(states) == 2
    assert all(len(name) == 16 for name in states)


def test_a_node_that_is_away_fails_until_it_is_back(tmp_path):
    experiment = experiment_of(algorithms={"scaffold": {}}, clients_per_round=7, rounds=4)

    def change(node, request, answer):
        asked = checkpoint.loads(request)
        lost = node == NODE and not isinstance(asked, str) and asked.round in (1, 2)
        return "is offline" if lost else answer

    wires = Wires(tmp_path / "nodes", experiment, change)
    run, said = far(tmp_path, experiment, wires)
    assert column(run, "failed") == [0, 0, 3, 6, 6]
    assert said.count(f"scaffold (seed 0), round 2: node {NODE}: is offline") == 1
    asked = [checkpoint.loads(request) for node, request in wires.asked if node == NODE]
    states = [request.states.tolist() for request in asked if is_training(request)]
    assert states == [[-1] * 3, [0] * 3, [0] * 3, [0] * 3]  # from the last work that counted


def test_a_node_that_is_busy_at_the_start_is_asked_again(tmp_path):
    experiment = experiment_of(**EVERYBODY, rounds=1)

    class Busy(Wires):
        def ask(self, requests, limit):
            self.away = {NODE} if not self.asked else set()
            time.sleep(limit if self.away else 0)
            return super().ask(requests, limit)

    said = []
    wires = Busy(tmp_path / "nodes", experiment)
    serve(wires, experiment, tmp_path / "far", clients=7, limit=1.0, say=said.append)
    assert said == [f"at the start: node {NODE}: no answer in 0.25 s"]


def test_a_directory_that_is_not_of_this_run_is_refused(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, rounds=1)
    wires = Wires(tmp_path / "nodes", experiment)
    far(tmp_path, experiment, wires)
    with pytest.raises(DataError, match="holds the run of another experiment"):
        far(tmp_path, experiment_of(algorithms={"fedavg": {"lr": 0.2}}, rounds=1))
    # rows that are not there: `fedref resume` would train on others
    assert main(["resume", str(tmp_path / "far")]) == 2
    whole = [k for clients in HOLDERS.values() for k in clients]
    assert sorted(whole) == list(range(7))

    def other_rows(node, request, answer):
        value = checkpoint.loads(answer)
        if not isinstance(value, Facts):
            return answer
        return checkpoint.dumps(value._replace(n_train=value.n_train - 1))

    wires.change = other_rows
    with pytest.raises(DataError, match="the data or the split changed after"):
        far(tmp_path, experiment, wires)
