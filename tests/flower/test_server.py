"""A run over nodes that hold their own rows is the local run, to the bit, without Flower itself.

And what is refused is not averaged, and a server that is stopped goes on.
"""

import json

import numpy as np
import pytest
from federating import (
    HOLDERS,
    Wires,
    column,
    experiment_of,
    far,
    missed,
    near,
    options,
    same_parameters,
    same_tables,
)

from fedref.algorithms import ALGORITHMS
from fedref.boundary.errors import ConfigError, DataError
from fedref.commands import main
from fedref.experiments.unit import Unit
from fedref.flower.server import MissedClients, serve

FEDERATED = [name for name in ALGORITHMS if not ALGORITHMS[name].pooled]
NODE, OWN = 101, HOLDERS[101]
CACHED = "fedref.algorithms.apfl_cached:APFLCachedImportance"
EVERYBODY = {"clients_per_round": 7, "rounds": 4}

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
}  # fmt: skip


KINDS = {name: {"algorithms": {name: {}}, "rounds": 4, "stragglers": 0.4} for name in FEDERATED}


@pytest.mark.parametrize("name", [*KINDS, *VARIANTS])
def test_every_algorithm_and_kind_of_plan_to_the_bit(name, tmp_path):
    experiment = experiment_of(**(KINDS | VARIANTS)[name])
    there, _, _ = far(tmp_path, experiment)
    here = near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    assert same_parameters(there, here)
    assert missed(tmp_path / "far") == []


# ---- refused -------------------------------------------------------------------------------------


def only_in(round, change):
    """`change(reply)` of the node's replies in one round; others pass."""

    def changed(wires, node, packet, reply):
        if node == NODE and packet["call"]["round"] == round:
            change(reply)
        return [(node, reply)]

    return changed


def poison(reply):
    upload = reply[f"upload {OWN[0]}"]
    reply[f"upload {OWN[0]}"] = {name: w * np.nan for name, w in upload.items()}


def test_who_is_refused_is_not_averaged(tmp_path):
    """The state is that of a round without the client, whatever it sent."""
    experiment = experiment_of(algorithms={"fedavg": {}}, clients_per_round=7, rounds=1)
    bad, _, said = far(tmp_path, experiment, only_in(0, poison), out="bad")
    (row,) = missed(tmp_path / "bad")
    reason = (
        f"sends w of upload {OWN[0]} as float64 (685,) with a value that is not finite, "
        "expected float64 (685,)"
    )
    assert (row["round"], row["phase"], row["client"]) == ("1", "training", str(OWN[0]))
    assert row["reason"] == reason
    assert any(text.endswith(f"client {OWN[0]} missed: {reason}") for text in said)
    assert (column(bad, "failed"), column(bad, "dropped")) == ([0, 1], [0, 0])
    lost = {f"lost {OWN[0]}": {"reason": "none\x1b"}}  # nor does it count in the evaluation
    without = far(tmp_path, experiment, only_in(0, lambda r: r.update(lost)), out="gone")
    assert [row["reason"] for row in missed(tmp_path / "gone")] == [r"none\x1b"] * 2
    good, _, _ = far(tmp_path, experiment, out="good")
    assert same_parameters(bad, without[0])
    assert not same_parameters(bad, good)


def test_a_node_answers_for_its_own_clients_alone(tmp_path):
    """What it says of another's is not read; a refusal is of all its clients, in both phases."""
    experiment = experiment_of(algorithms={"fedavg": {}}, clients_per_round=7)

    def change(reply):
        forged = {"upload 0": reply[f"upload {OWN[0]}"], "work 0": reply[f"work {OWN[0]}"]}
        reply.update(forged | {"scores 0": reply[f"scores {OWN[0]}"], "lost 2": {"reason": "x"}})

    far(tmp_path, experiment, only_in(1, change))
    near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    assert missed(tmp_path / "far") == []

    change = only_in(1, lambda reply: reply.update({"refused": {"reason": "no\x1b"}}))
    run, _, said = far(tmp_path, experiment, change, out="refused")
    assert all(text.isprintable() for text in said)
    rows = missed(tmp_path / "refused")
    assert {(row["client"], row["phase"]) for row in rows} == {
        (str(k), phase) for k in OWN for phase in ("training", "evaluation")
    }
    assert {row["reason"] for row in rows} == {r"its node refuses: no\x1b"}
    assert column(run, "failed") == [0, 0, 3, 3]
    (second,) = (s for t, s in zip(run.records[0].rounds, run.records[0].scores) if t == 1)
    assert [k for k in range(7) if second.n_test[k] == 0] == OWN
    assert np.isnan(second.accuracy[OWN]).all()
    assert "fedavg (seed 0), round 1: 4 of 7 clients were evaluated" in said


def test_an_endless_name_is_no_obstacle_to_going_on(tmp_path):
    """The reason is cut before it is written: a csv reader takes no field of more than 131 072."""
    experiment = experiment_of(algorithms={"fedavg": {}}, **EVERYBODY)
    name, stop = "\x1b" + "x" * 200_000, stopped_at(3)

    def change(wires, node, packet, reply):
        if node == NODE and packet["call"]["round"] == 1:
            reply |= {f"upload {k}": {name: np.zeros(1)} for k in OWN}
            reply |= {f"scores {k}": {name: 1} for k in OWN}
        return stop(wires, node, packet, reply)

    wires = Wires(tmp_path / "nodes", experiment, change=change)
    said = stop_and_go_on(tmp_path, experiment, wires)
    rows = missed(tmp_path / "far")
    assert {row["client"] for row in rows} == set(map(str, OWN))
    assert all(len(row["reason"]) == 200 and row["reason"].isprintable() for row in rows)
    assert all(text.isprintable() and len(text) < 300 for text in said)


def test_an_answer_counts_once_and_only_from_whom_it_was_asked(tmp_path):
    """Two answers to one message, and one that another node gives: the first right one is taken."""
    experiment = experiment_of(algorithms={"fedavg": {}}, clients_per_round=7)

    def change(wires, node, packet, reply):
        forged = {k: dict(record) for k, record in reply.items()}
        for name in forged:
            if name.startswith("upload"):
                forged[name] = {"w": forged[name]["w"] + 1}
        other = next(iter(set(HOLDERS) - {node}))
        return [(other, forged), (node, reply), (node, forged)]

    _, _, said = far(tmp_path, experiment, change)
    near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    assert any("answers a message to another node" in text for text in said)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithms": {"kept": {"algorithm": CACHED}}}, "kept sends what a client does not have"),
        ({"algorithms": {"centralised": {}}}, "centralised pools all clients' rows"),
        ({"classes": "own", "algorithms": {"fedavg": {}}}, "classes=own needs clients' rows"),
        ({"dissimilarity": True, "algorithms": {"fedavg": {}}}, "dissimilarity needs"),
        ({"sweep": {"split.alpha": [0.1, 1.0]}, "algorithms": {"fedavg": {}}}, "split.alpha"),
    ],
)
def test_what_needs_the_rows_on_the_server_is_refused(settings, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        serve(None, experiment_of(**settings), tmp_path, options())


# ---- a server that is stopped --------------------------------------------------------------------


class Stop(Exception):
    pass


def stopped_at(t):
    """Every node's answers of round t never arrive: the server is stopped."""

    def change(wires, node, packet, reply):
        if packet["call"]["round"] == t and not getattr(wires, "again", False):
            raise Stop
        return [(node, reply)]

    return change


def stop_and_go_on(tmp_path, experiment, wires, between=lambda: None, **how):
    """What was said by a run that is stopped once."""
    said = []
    with pytest.raises(Stop):
        serve(wires, experiment, tmp_path / "far", options(**how), said.append)
    between()
    wires.again = True
    serve(wires, experiment, tmp_path / "far", options(**how), said.append)
    return said


STOPS = [
    *(("fedavg", t, False) for t in range(4)),
    *((name, t, False) for name in ("apfl", "fedcurv") for t in (1, 3)),
    ("fedcurv", 3, True),
]


@pytest.mark.parametrize(("name", "t", "damaged"), STOPS)
def test_a_stopped_server_goes_on_to_the_same_files(name, t, damaged, tmp_path):
    """Also where the nodes have done more than the server knows of, and from the checkpoint before
    if the newest is damaged."""
    experiment = experiment_of(algorithms={name: {}}, rounds=4)
    wires = Wires(tmp_path / "nodes", experiment, change=stopped_at(t))

    def damage():
        for newest in (tmp_path / "far" / "checkpoints").glob("*.ckpt") if damaged else ():
            newest.write_bytes(newest.read_bytes()[:-1])

    said = stop_and_go_on(tmp_path, experiment, wires, damage)
    near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")
    went_on = f"{name} (seed 0) goes on after round {t - 1 - damaged}"
    assert [text for text in said if "goes on" in text] == [went_on] * (t > 1)


def test_missed_rows_of_a_round_that_is_done_again_are_replaced(tmp_path):
    unit, path = Unit(0, "fedavg", 0, {}), tmp_path / "missed.csv"
    rows = MissedClients(path)
    rows.replace(unit, 1, "training", {3: "late", 2: "gone"})
    rows.replace(unit, 2, "training", {1: "late"})
    MissedClients(path).replace(unit, 1, "training", {})
    assert [(r["round"], r["client"]) for r in missed(tmp_path)] == [("2", "1")]


def test_other_rows_than_when_the_run_began_are_refused(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, **EVERYBODY)
    wires = Wires(tmp_path / "nodes", experiment, change=stopped_at(2))

    def swap():
        site = wires.parts[101]
        part = site.federation.subset(np.array([1, 0, 2]))
        wires.parts[101] = site._replace(federation=part)

    said = stop_and_go_on(tmp_path, experiment, wires, swap)
    assert any("training and test rows of client 1, had" in text for text in said)
    assert {row["client"] for row in missed(tmp_path / "far")} == set(map(str, OWN))


def test_a_directory_that_is_not_of_this_run_is_refused(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, rounds=1)
    _, wires, _ = far(tmp_path, experiment)
    with pytest.raises(DataError, match="holds the run of another experiment"):
        far(tmp_path, experiment_of(algorithms={"fedavg": {"lr": 0.2}}, rounds=1))
    # rows that are not there: `fedref resume` would train on others
    assert main(["resume", str(tmp_path / "far")]) == 2
    path = tmp_path / "far" / "federation.json"
    for text in ("{", json.dumps({"run": "x"})):
        path.write_text(text)
        with pytest.raises(DataError, match="expected the file as the run left it"):
            serve(wires, experiment, tmp_path / "far", options())
