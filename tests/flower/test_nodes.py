"""Nodes that are missing, late or come back: the documented policy."""

import csv

import numpy as np
import pytest
from federating import (
    HOLDERS,
    Wires,
    away_in,
    column,
    experiment_of,
    far,
    missed,
    options,
)

from fedref.boundary.errors import FedrefError
from fedref.commands import main
from fedref.experiments.results import load_run
from fedref.experiments.run_directory import load_record
from fedref.experiments.unit import units
from fedref.flower import client
from fedref.flower.nodes import Nodes
from fedref.flower.protocol import NONE, Announcement
from fedref.flower.server import serve

OWN = HOLDERS[101]
EVERYBODY = {"clients_per_round": 7, "rounds": 4}

# ---- which node has which clients ----------------------------------------------------------------


def test_a_client_of_another_node_is_taken_over_only_when_that_is_offline(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}})
    wires = Wires(tmp_path / "nodes", experiment, {**HOLDERS, 999: [3, 4]})
    for pinned in (False, True):
        said = []
        nodes = Nodes(wires, options(pinned=pinned), said.append)
        wires.away = {999}
        nodes.greet()
        wires.away = set()
        nodes.greet()
        nodes.greet()
        assert nodes.holder == {k: n for n, own in HOLDERS.items() for k in own}
        left_out = "node 999 is left out for now: it announces client 3, for which node 303 answers"
        assert said.count(left_out) == 1
        wires.away = {101, 303}  # without a key a node that was restarted has another number
        nodes.greet()
        assert (nodes.holder[3], nodes.holder[4]) == ((303, 101) if pinned else (999, 999))


def test_clients_that_never_come_are_named(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}})
    wires = Wires(tmp_path / "nodes", experiment)
    wires.away = {303}
    with pytest.raises(FedrefError, match=r"no node has client 2, 3 after 0.05 s; expected all 7"):
        serve(wires, experiment, tmp_path / "far", options())


def test_a_node_that_did_not_tell_of_its_clients_is_asked_again(tmp_path):
    """And nobody tells of them in its place."""
    lost = []

    class Losing(Wires):
        def receive(self, messages):
            for reply in super().receive(messages):
                if reply.node != 101 or lost:
                    yield reply
                else:
                    lost.append(reply)
                    yield reply._replace(node=57)
                    yield reply._replace(answer="lost")

    said = []
    wires = Losing(tmp_path / "nodes", experiment_of(algorithms={"fedavg": {}}))
    nodes = Nodes(wires, options(wait=1.0), said.append)
    nodes.wait_for_all(partial=False)
    assert nodes.holder == {k: n for n, own in HOLDERS.items() for k in own}
    assert any("101 is left out for now: it does not say which clients" in text for text in said)


def announced(clients, rows, **changes):
    n = [rows] * len(clients)
    return {"clients": clients, "n_train": n, "n_test": n, "features": 64, "labels": [0], **changes}


class Announcing:
    """A network of nodes that say what they hold, and no more. replies : node → announcement."""

    def __init__(self, replies):
        self.replies = replies

    def nodes(self):
        return set(self.replies)

    def send(self, packets, limit):
        return {str(node): node for node in packets}

    def receive(self, messages):
        return [(m, int(m), {"announcement": self.replies[int(m)]}) for m in sorted(messages)]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (announced([7], 5), "announces client 7 of 0 to 6"),
        (announced([1], 5, features=65), "announces other features than other nodes"),
        (announced([1], 25 * 10**5), "rows: 11000000 is more than 10000000"),
        (announced([1], 5, labels=[1]), None),
    ],
)
def test_what_nodes_announce_must_fit_together(said, words):
    rows = 3 * 10**6 if words and "rows:" in words else 5  # each of the two alone would be taken
    wires = Announcing({1: announced([0], rows), 2: said})
    log = []
    nodes = Nodes(wires, options(), log.append)
    nodes.greet()
    assert (nodes.holder.get(1) == 2) == (words is None)
    if words:
        assert any(words in text for text in log), log


def test_a_model_that_nobody_could_hold_is_refused(tmp_path):
    """Features and labels are the nodes' word; what a server makes of them is checked before it is."""
    experiment = experiment_of(algorithms={"fedavg": {}}, model={"name": "logistic"})
    said = announced(list(range(7)), 5, features=2000, labels=[0, 99_999])
    with pytest.raises(FedrefError, match="parameters: 200100000 is more than 134217728"):
        serve(Announcing({1: said}), experiment, tmp_path / "far", options())


def test_a_pinned_node_is_waited_for_until_it_has_told_of_its_clients():
    nodes = Nodes(None, options(clients=2, pinned=True), lambda text: None)
    nodes.restore(Announcement([0, 1], [5, 6], [1, 1], 2, [0, 1], [], []), {0: 7, 1: 8})
    assert nodes.missing({7, 8}) == [0, 1]
    nodes.waiting[7] = Announcement([0], [5], [1], 2, [0], [], [])
    nodes.join(7, {7, 8})
    assert nodes.missing({7, 8}) == [1]
    assert nodes.missing({8}) == [0, 1]


# ---- late, missing, back -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg", "apfl", "fedcurv", "fedmeta-sgd"])
def test_a_late_node_is_a_dropped_straggler_and_is_back_in_the_next_round(name, tmp_path):
    experiment = experiment_of(algorithms={name: {}}, **EVERYBODY)
    run, _, _ = far(tmp_path, experiment, away_in({1}), limit=0.05)
    rows = missed(tmp_path / "far")
    training = [row for row in rows if row["phase"] == "training"]
    assert {(row["round"], row["client"]) for row in training} == {("2", str(k)) for k in OWN}
    assert {row["reason"] for row in rows} == {"no answer in 0.05 s"}
    assert column(run, "dropped") == column(run, "stragglers") == [0, 0, 3, 3, 3]
    assert column(run, "failed") == [0] * 5
    scores = dict(zip(run.records[0].rounds, run.records[0].scores))
    assert [k for k in range(7) if scores[1].n_test[k] == 0] == OWN
    assert scores[2].n_test.all()
    assert np.isfinite(column(run, "train_loss")).all()
    with open(tmp_path / "far" / "clients.csv", newline="") as file:
        known = {(r["round"], r["client"]): r["n_test"] for r in csv.DictReader(file)}
    assert all(known["1", str(k)] == "0" and known["2", str(k)] != "0" for k in OWN)


def kept(tmp_path, experiment):
    """Client → the round that its own state is of, as the server knows it."""
    (unit,) = units(experiment)
    return dict(load_record(tmp_path / "far", unit).state.clients)


def states_asked_of(wires, node):
    """The round of each client's state, in every request to train."""
    asked = [[p[f"train {k}"]["state"] for k in OWN if f"train {k}" in p]
             for to, p in wires.sent if to == node]  # fmt: skip
    return [states for states in asked if states]


def test_a_dropped_client_s_state_is_that_of_its_last_counted_work(tmp_path):
    """A client whose answer was late is not in the server's sums: nor is its work in its state."""
    experiment = experiment_of(algorithms={"apfl": {"z": 1}}, **EVERYBODY)
    run, wires, _ = far(tmp_path, experiment, away_in({2}), limit=0.05)
    assert states_asked_of(wires, 101) == [[NONE] * 3, [NONE] * 3, [1] * 3, [1] * 3]
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
    offline = "its node is not online"
    assert reasons == {"2": "its node went offline", "3": offline, "4": offline}


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
    assert states_asked_of(wires, 888) == [[0] * 3, [2] * 3]


def test_a_full_disk_loses_the_client_s_round_and_no_state(tmp_path, monkeypatch, capsys):
    """And the text of an error stays on the node: it may hold values."""
    experiment = experiment_of(algorithms={"apfl": {"z": 1}}, **EVERYBODY)
    written, full = client.write_or_raise, {"on": False}

    def refuse(path, data):
        if full["on"] and path.suffix == ".ckpt":
            raise FedrefError("no room")
        return written(path, data)

    monkeypatch.setattr(client, "write_or_raise", refuse)

    class Filling(Wires):
        def send(self, packets, limit):
            full["on"] = any(p.get("call", {}).get("round") == 2 for p in packets.values())
            return super().send(packets, limit)

    wires = Filling(tmp_path / "nodes", experiment)
    run, _, _ = far(tmp_path, experiment, wires=wires)
    assert column(run, "failed") == [0, 0, 0, 7, 7]
    assert kept(tmp_path, experiment) == dict.fromkeys(range(7), 3)
    assert sum(column(run, "dropped")) == 0
    reason = "its work raised FedrefError: see the node's own log"
    assert {row["reason"] for row in missed(tmp_path / "far")} == {reason}
    assert "no room" in capsys.readouterr().err


def test_the_picture_and_the_results_of_a_run_with_missed_clients(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}, "apfl": {}}, **EVERYBODY)
    far(tmp_path, experiment, away_in({1, 4}), limit=0.05)
    assert main(["plot", str(tmp_path / "far")]) == 0
    again = load_run(tmp_path / "far")
    assert [len(record.rows) for record in again.records] == [5, 5]
    assert again.records[0].scores[-1].n_test[OWN].sum() == 0
