"""Nodes that are missing, late or come back, and a server that is stopped: the documented policy."""

import csv
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
    same_tables,
)

from fedref.boundary.errors import DataError, FedrefError
from fedref.commands import main
from fedref.experiments import checkpoint
from fedref.experiments.outcome import load_run
from fedref.experiments.run_directory import saved
from fedref.experiments.unit import units
from fedref.flower import engine
from fedref.flower.messages import NONE, Announced, Refused
from fedref.flower.nodes import Nodes
from fedref.flower.roster import Described, Roster
from fedref.flower.server import serve
from fedref.flower.store import Store

GONE = HOLDERS[101]
EVERYBODY = {"clients_per_round": 7, "rounds": 4}


def away_in(rounds, node=101):
    """The node is offline (or answers nothing in time) for calls of these rounds."""

    def change(wires, asked, packet, reply):
        return [] if asked == node and packet["call"]["round"] in rounds else [(asked, reply)]

    return change


@pytest.mark.parametrize("name", ["fedavg", "apfl", "fedcurv", "fedmeta-sgd"])
def test_a_late_node_is_a_dropped_straggler_and_is_back_in_the_next_round(name, tmp_path):
    experiment = experiment_of(algorithms={name: {}}, **EVERYBODY)
    run, _, _ = far(tmp_path, experiment, away_in({1}), limit=0.05)
    rows = missed(tmp_path / "far")
    training = [row for row in rows if row["phase"] == "training"]
    assert {(row["round"], row["client"]) for row in training} == {("2", str(k)) for k in GONE}
    assert {row["reason"] for row in rows} == {"no answer in 0.05 s"}
    assert column(run, "dropped") == column(run, "stragglers") == [0, 0, 3, 3, 3]
    assert column(run, "failed") == [0] * 5
    scores = dict(zip(run.records[0].rounds, run.records[0].scores))
    assert [k for k in range(7) if scores[1].n_test[k] == 0] == GONE
    assert scores[2].n_test.all()
    assert np.isfinite(column(run, "train_loss")).all()
    with open(tmp_path / "far" / "clients.csv", newline="") as file:
        known = {(r["round"], r["client"]): r["n_test"] for r in csv.DictReader(file)}
    assert all(known["1", str(k)] == "0" and known["2", str(k)] != "0" for k in GONE)


def test_a_dropped_client_s_state_is_that_of_its_last_counted_work(tmp_path):
    """FedCurv's clients whose answers were late are not in the server's sums: nor in their own."""
    experiment = experiment_of(algorithms={"apfl": {"z": 1}}, **EVERYBODY)
    run, wires, _ = far(tmp_path, experiment, away_in({2}), limit=0.05)
    asked = [p["train"] for node, p in wires.sent if node == 101 and "train" in p]
    assert [t["states"] for t in asked] == [[NONE] * 3, [NONE] * 3, [1] * 3, [1] * 3]
    assert kept(tmp_path, experiment) == dict.fromkeys(range(7), 3)
    assert column(run, "dropped") == [0, 0, 0, 3, 3]


def test_nobody_answers_and_the_model_stays(tmp_path):
    experiment = experiment_of(algorithms={"apfl": {}}, **EVERYBODY)

    def change(wires, node, packet, reply):
        return [] if packet["call"]["round"] == 2 else [(node, reply)]

    run, _, _ = far(tmp_path, experiment, change, limit=0.02)
    assert run.records[0].status == "done"
    assert column(run, "dropped") == [0, 0, 0, 7, 7]
    assert np.isnan(column(run, "accuracy")[2])
    assert not np.isnan(column(run, "accuracy")[3])


def kept(tmp_path, experiment):
    """Client → the round that its own state is of, as the server knows it."""
    (unit,) = units(experiment)
    return dict(saved(tmp_path / "far", unit, experiment).state.clients)


class Stop(Exception):
    pass


def stopped_at(t):
    """Every node's answers of round t never arrive: the server is stopped."""

    def change(wires, node, packet, reply):
        if packet["call"]["round"] == t and not getattr(wires, "again", False):
            raise Stop
        return [(node, reply)]

    return change


@pytest.mark.parametrize("t", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["fedavg", "apfl", "fedcurv"])
def test_a_stopped_server_goes_on_to_the_same_files(name, t, tmp_path):
    """Also where the nodes have done more than the server knows of."""
    experiment = experiment_of(algorithms={name: {}}, rounds=4)
    (tmp_path / "nodes").mkdir()
    wires = Wires(tmp_path / "nodes", experiment, change=stopped_at(t))
    with pytest.raises(Stop):
        serve(wires, experiment, tmp_path / "far", options())
    wires.again = True
    serve(wires, experiment, tmp_path / "far", options())
    near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")


def test_a_server_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(tmp_path):
    experiment = experiment_of(algorithms={"fedcurv": {}}, rounds=4, clients_per_round=7)
    (tmp_path / "nodes").mkdir()
    wires = Wires(tmp_path / "nodes", experiment, change=stopped_at(3))
    with pytest.raises(Stop):
        serve(wires, experiment, tmp_path / "far", options())
    (newest,) = (tmp_path / "far" / "checkpoints").glob("*.ckpt")
    assert checkpoint.old(newest).exists()
    newest.write_bytes(newest.read_bytes()[:-1])
    wires.again = True
    serve(wires, experiment, tmp_path / "far", options())
    near(tmp_path, experiment)
    assert same_tables(tmp_path / "far", tmp_path / "near")


def test_what_was_missed_before_a_stop_is_still_known_and_stands_once(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, **EVERYBODY)
    (tmp_path / "nodes").mkdir()
    stop, away = stopped_at(3), away_in({1})

    def change(wires, *what):
        return stop(wires, *what) and away(wires, *what)

    wires = Wires(tmp_path / "nodes", experiment, change=change)
    with pytest.raises(Stop):
        serve(wires, experiment, tmp_path / "far", options(limit=0.05))
    before = missed(tmp_path / "far")
    wires.again = True
    serve(wires, experiment, tmp_path / "far", options(limit=0.05))
    assert missed(tmp_path / "far") == before
    assert len(before) == 2 * len(GONE)


def test_a_run_goes_on_without_a_node_that_does_not_come_back(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, **EVERYBODY)
    (tmp_path / "nodes").mkdir()
    wires = Wires(tmp_path / "nodes", experiment, change=stopped_at(2))
    with pytest.raises(Stop):
        serve(wires, experiment, tmp_path / "far", options())
    wires.again, wires.away = True, {101}
    run = serve(wires, experiment, tmp_path / "far", options())
    assert column(run, "dropped") == [0, 0, 3, 6, 9]  # the second round was not saved yet
    assert {row["reason"] for row in missed(tmp_path / "far")} == {"its node is not online"}


def test_a_node_that_goes_offline_is_not_waited_for(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, **EVERYBODY)

    def change(wires, node, packet, reply):
        if node == 101 and packet["call"]["round"] == 1:
            wires.away = {101}
            return []
        if packet["call"]["round"] == 3:
            wires.away = set()
        return [(node, reply)]

    run, _, _ = far(tmp_path, experiment, change, limit=60.0)
    assert column(run, "dropped") == [0, 0, 3, 6, 9]
    rows = [row for row in missed(tmp_path / "far") if row["phase"] == "training"]
    reasons = {row["round"]: row["reason"] for row in rows}
    assert reasons == {
        "2": "its node went offline",
        "3": "its node is not online",
        "4": "its node is not online",
    }


def test_a_node_that_comes_back_with_another_number_answers_for_its_clients(tmp_path):
    """Without keys, a SuperNode that is restarted is a new node; its disk is the old one."""
    experiment = experiment_of(algorithms={"fedcurv": {}}, **EVERYBODY)

    def change(wires, node, packet, reply):
        if node == 101 and packet["call"]["round"] == 1:
            wires.away = {101}
            wires.parts[888], wires.stores[888] = wires.parts[101], wires.stores[101]
            return []
        return [(node, reply)]

    run, wires, _ = far(tmp_path, experiment, change, limit=60.0)
    assert column(run, "dropped") == [0, 0, 3, 3, 3]
    asked = [p["train"] for node, p in wires.sent if node == 888 and "train" in p]
    assert [t["states"] for t in asked] == [[0] * 3, [2] * 3]


def test_other_rows_than_when_the_run_began_are_refused(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}}, **EVERYBODY)
    (tmp_path / "nodes").mkdir()
    wires = Wires(tmp_path / "nodes", experiment, change=stopped_at(2))
    with pytest.raises(Stop):
        serve(wires, experiment, tmp_path / "far", options())
    site = wires.parts[101]
    part = site.federation.subset(np.array([1, 0, 2]))
    wires.parts[101] = site._replace(federation=part)
    wires.again = True
    said = []
    serve(wires, experiment, tmp_path / "far", options(), said.append)
    assert any("training and test rows of client 1, had" in text for text in said)
    assert {row["client"] for row in missed(tmp_path / "far")} == set(map(str, GONE))


def test_a_damaged_description_is_one_line(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}})
    _, wires, _ = far(tmp_path, experiment)
    path = tmp_path / "far" / "federation.json"
    for text in ("{", json.dumps({"run": "x"})):
        path.write_text(text)
        with pytest.raises(DataError, match="expected it as the run left it"):
            serve(wires, experiment, tmp_path / "far", options())


def test_a_local_resume_of_such_a_run_is_refused(tmp_path):
    """Its rows are not there: `fedref resume` would train on others."""
    experiment = experiment_of(algorithms={"apfl": {}})
    far(tmp_path, experiment)
    assert main(["resume", str(tmp_path / "far")]) == 2


def test_the_picture_and_the_results_of_a_run_with_missed_clients(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}, "apfl": {}}, **EVERYBODY)
    far(tmp_path, experiment, away_in({1, 4}), limit=0.05)
    assert main(["plot", str(tmp_path / "far")]) == 0
    again = load_run(tmp_path / "far")
    assert [len(record.rows) for record in again.records] == [5, 5]
    assert again.records[0].scores[-1].n_test[GONE].sum() == 0


def test_a_node_that_did_not_tell_of_its_clients_is_asked_again(tmp_path):
    """And nobody tells of them in its place."""
    experiment = experiment_of(algorithms={"fedavg": {}})
    lost = []

    class Losing(Wires):
        def receive(self, messages):
            for reply in super().receive(messages):
                if reply.node != 101 or lost:
                    yield reply
                else:
                    lost.append(reply)
                    yield reply._replace(node=57)
                    yield reply._replace(packet=None, error="lost")

    (tmp_path / "nodes").mkdir()
    said = []
    nodes = Nodes(Losing(tmp_path / "nodes", experiment), options(), said.append)
    nodes.gather(enough=False)
    assert dict(nodes.roster.holder) == {k: n for n, own in HOLDERS.items() for k in own}
    assert any("101 is left out for now: it does not say which clients" in text for text in said)


def test_a_pinned_node_is_waited_for_until_it_has_told_of_its_clients():
    known = Described([5, 6], [1, 1], 2, [0, 1], [], [])
    roster = Roster(True, {0: 7, 1: 8}, known)
    assert roster.missing(2, {7, 8}) == [0, 1]
    roster = roster.joined(7, Announced([0], [5], [1], 2, [0], [], []), {7, 8}, 2)
    assert roster.missing(2, {7, 8}) == [1]
    assert roster.missing(2, {8}) == [0, 1]


# ---- the store -----------------------------------------------------------------------------------


def test_the_store_keeps_the_new_state_and_three_before(tmp_path):
    store = Store(tmp_path, "0" * 16, 0, {})
    before = NONE
    for t in (0, 1, 2, 3, 7):
        store.write(5, before, t, np.array([float(t)]))
        before = t
    assert store.rounds(5) == [1, 2, 3, 7]
    assert store.read(5, 3) == 3.0
    store.write(5, 3, 4, np.array([4.0]))  # the server has gone back to round 3
    assert store.rounds(5) == [1, 2, 3, 4]
    with pytest.raises(Refused, match="after round 8 cannot be read"):
        store.read(5, 7)
    assert store.read(5, NONE) is None


def test_a_state_that_was_half_written_is_refused(tmp_path):
    store = Store(tmp_path, "0" * 16, 0, {})
    store.write(5, NONE, 0, np.zeros(9))
    path = store.path(5, 0)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Refused, match="cannot be read"):
        store.read(5, 0)


def test_a_full_disk_loses_the_client_s_round_and_no_state(tmp_path, monkeypatch):
    experiment = experiment_of(algorithms={"apfl": {"z": 1}}, **EVERYBODY)

    from fedref.flower import store

    written, full = store.write_or_raise, {"on": False}

    def refuse(path, data):
        if full["on"] and path.suffix == ".ckpt":
            raise FedrefError("no room")
        return written(path, data)

    monkeypatch.setattr(store, "write_or_raise", refuse)

    class Filling(Wires):
        def send(self, packets, limit):
            full["on"] = any(p.get("call", {}).get("round") == 2 for p in packets.values())
            return super().send(packets, limit)

    (tmp_path / "nodes").mkdir()
    wires = Filling(tmp_path / "nodes", experiment)
    run, _, _ = far(tmp_path, experiment, wires=wires)
    assert column(run, "failed") == [0, 0, 0, 7, 7]
    assert kept(tmp_path, experiment) == dict.fromkeys(range(7), 3)
    assert sum(column(run, "dropped")) == 0


def test_missed_rows_of_a_round_that_is_done_again_are_replaced(tmp_path):
    from fedref.experiments.unit import Unit

    unit, path = Unit(0, "fedavg", 0, {}), tmp_path / "missed.csv"
    rows = engine.Missed(path)
    rows.set(unit, 1, "training", {3: "late", 2: "gone"})
    rows.set(unit, 2, "training", {1: "late"})
    again = engine.Missed(path)
    again.set(unit, 1, "training", {})
    assert [(r["round"], r["client"]) for r in missed(tmp_path)] == [("2", "1")]
