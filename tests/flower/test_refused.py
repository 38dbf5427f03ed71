"""What is refused: replies that are not what was asked, each with a reason beside the client."""

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

from fedref.boundary.errors import ConfigError, DataError, FedrefError
from fedref.flower.answers import announced
from fedref.flower.messages import Announced, Refused, record
from fedref.flower.nodes import Nodes
from fedref.flower.server import serve

NODE, OWN = 101, HOLDERS[101]


def only_in(round, change):
    """`change(packet, reply)` of the node's replies in one round; others pass."""

    def changed(wires, node, packet, reply):
        if node == NODE and packet["call"]["round"] == round:
            change(packet, reply)
        return [(node, reply)]

    return changed


def upload(edit):
    """Change the first of the uploads in a reply by `edit(record)`."""

    def change(packet, reply):
        name = min((name for name in reply if name.startswith("upload")), default=None)
        if name:
            reply[name] = edit(dict(reply[name]))

    return change


def poisoned(record):
    return {key: np.where(np.arange(len(w)) == 3, np.nan, w) for key, w in record.items()}


def infinite(record):
    return {key: w * np.inf for key, w in record.items()}


BAD_UPLOADS = {
    "NaN": (poisoned, "sends w with a value that is not finite"),
    "infinite": (infinite, "sends w with a value that is not finite"),
    "short": (lambda r: {k: w[:-1] for k, w in r.items()}, "sends w of shape ("),
    "another axis": (lambda r: {k: w[None] for k, w in r.items()}, "sends w of shape (1, "),
    "another name": (lambda r: {"v": r["w"]}, "sends v, expected w"),
    "one more": (lambda r: {**r, "F": r["w"]}, "sends F, w, expected w"),
    "nothing": (lambda r: {}, "sends nothing, expected w"),
    "float32": (lambda r: {"w": r["w"].astype(np.float32)}, "sends w as float32"),
    "numbers": (lambda r: {"w": r["w"].tolist()}, "holds plain values, expected arrays"),
}


@pytest.mark.parametrize("name", BAD_UPLOADS)
def test_a_bad_upload_is_refused_and_the_others_are_averaged(name, tmp_path):
    edit, reason = BAD_UPLOADS[name]
    experiment = experiment_of(algorithms={"fedavg": {}}, clients_per_round=7)
    run, _, said = far(tmp_path, experiment, only_in(1, upload(edit)))
    (row,) = missed(tmp_path / "far")
    assert (row["round"], row["phase"], row["client"]) == ("2", "training", str(OWN[0]))
    assert reason in row["reason"]
    assert any(reason in text and f"client {OWN[0]} " in text for text in said)
    assert column(run, "failed") == [0, 0, 1, 1]
    assert column(run, "dropped") == [0, 0, 0, 0]
    assert np.isfinite(run.records[0].state.server.w).all()
    assert not np.isnan(column(run, "accuracy")).any()


def test_who_is_refused_is_not_averaged(tmp_path):
    """The state is that of a round without the client, whatever it sent."""
    experiment = experiment_of(algorithms={"fedavg": {}}, clients_per_round=7, rounds=1)
    bad = far(tmp_path, experiment, only_in(0, upload(poisoned)), out="bad")[0].records[0]

    def gone(packet, reply):
        reply.pop(f"upload {OWN[0]}")

    without = far(tmp_path, experiment, only_in(0, gone), out="gone")[0].records[0]
    good = far(tmp_path, experiment, out="good")[0].records[0]
    np.testing.assert_array_equal(bad.state.server.w, without.state.server.w)
    assert not np.array_equal(bad.state.server.w, good.state.server.w)


def whole(word):
    return lambda packet, reply: reply.update({f"{word} 0": reply[f"{word} {OWN[0]}"]})


def of_round(t):
    def change(packet, reply):
        reply["call"] = {**reply["call"], "round": t}

    return change


def cleared(packet, reply):
    reply.clear()


BAD_REPLIES = {
    "another's upload": (whole("upload"), "answers 'upload 0', which it was not asked for"),
    "another's scores": (whole("scores"), "answers 'scores 0', which it was not asked for"),
    "an old round": (of_round(0), "answers for round 0, expected 1"),
    "another run": (
        lambda p, r: r.update(call={**r["call"], "run": "0" * 16}),
        "answers for another run",
    ),
    "nothing": (cleared, "has no record call"),
    "twice by another spelling": (
        lambda p, r: r.update({f"upload 0{OWN[0]}": r[f"upload {OWN[0]}"]}),
        "which it was not asked for",
    ),
}


@pytest.mark.parametrize("name", BAD_REPLIES)
def test_a_bad_reply_is_refused_as_a_whole(name, tmp_path):
    change, reason = BAD_REPLIES[name]
    experiment = experiment_of(algorithms={"fedavg": {}}, clients_per_round=7)
    run, _, _ = far(tmp_path, experiment, only_in(1, change))
    rows = missed(tmp_path / "far")
    assert {(row["client"], row["phase"]) for row in rows} == {
        (str(k), phase) for k in OWN for phase in ("training", "evaluation")
    }
    assert all(reason in row["reason"] for row in rows)
    assert column(run, "failed") == [0, 0, 3, 3]
    (second,) = (s for t, s in zip(run.records[0].rounds, run.records[0].scores) if t == 1)
    assert [k for k in range(7) if second.n_test[k] == 0] == OWN
    assert np.isnan(second.accuracy[OWN]).all()


def scores(**values):
    def change(packet, reply):
        name = f"scores {OWN[0]}"
        if name in reply:
            reply[name] = {**reply[name], **values}

    return change


BAD_SCORES = {
    "more rows": (scores(n_test=10**6), "was evaluated on 1000000 test"),
    "too good": (scores(accuracy=1.5), "has an accuracy of 1.5"),
    "NaN": (scores(test_loss=float("nan")), "has a loss that is not finite"),
    "infinite": (scores(train_loss=float("inf")), "has a loss that is not finite"),
    "text": (scores(accuracy="1"), "missing, unknown or misshapen fields: accuracy"),
    "true": (scores(n_test=True), "missing, unknown or misshapen fields: n_test"),
}


@pytest.mark.parametrize("name", BAD_SCORES)
def test_bad_scores_are_left_out_and_end_no_run(name, tmp_path):
    change, reason = BAD_SCORES[name]
    experiment = experiment_of(algorithms={"apfl": {}})
    run, _, _ = far(tmp_path, experiment, only_in(2, change))
    (row,) = missed(tmp_path / "far")
    assert (row["round"], row["phase"], row["client"]) == ("2", "evaluation", str(OWN[0]))
    assert reason in row["reason"]
    assert run.records[0].status == "done"
    assert not np.isnan(column(run, "train_loss")).any()


def test_work_that_is_not_a_number_is_refused(tmp_path):
    def change(packet, reply):
        reply[f"log {OWN[0]}"] = {"gamma": float("nan"), "penalty": 0.0}

    def less(packet, reply):
        reply[f"work {OWN[1]}"] = {**reply[f"work {OWN[1]}"], "grads": -1}

    def both(packet, reply):
        change(packet, reply)
        less(packet, reply)

    experiment = experiment_of(algorithms={"fedprox": {}}, clients_per_round=7, rounds=1)
    far(tmp_path, experiment, only_in(0, both))
    reasons = {row["client"]: row["reason"] for row in missed(tmp_path / "far")}
    assert reasons[str(OWN[0])] == "logs a gamma that is not a number"
    assert reasons[str(OWN[1])] == "says that it did less than no work"


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
    assert any("answers what it was not asked" in text for text in said)


def test_a_client_of_another_node_is_not_taken_over(tmp_path):
    """A node that claims clients that another, online, has announced is left out."""
    experiment = experiment_of(algorithms={"fedavg": {}})
    (tmp_path / "nodes").mkdir()
    holders = {**HOLDERS, 999: [3, 4]}
    wires = Wires(tmp_path / "nodes", experiment, dict(sorted(holders.items())))
    said = []
    nodes = Nodes(wires, options(), said.append)
    wires.away = {999}
    nodes.greet()
    wires.away = set()
    nodes.greet()
    assert dict(nodes.roster.holder) == {k: n for n, own in HOLDERS.items() for k in own}
    assert any("node 999 is left out for now: it announces client 3, for which" in s for s in said)
    wires.away = {101, 303}  # then it may have them: such a node comes back without a key
    nodes.greet()
    assert nodes.roster.holder[3] == nodes.roster.holder[4] == 999


def test_pinned_clients_stay_with_their_node(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}})
    (tmp_path / "nodes").mkdir()
    wires = Wires(tmp_path / "nodes", experiment, {**HOLDERS, 999: [3, 4]})
    nodes = Nodes(wires, options(pinned=True), lambda text: None)
    wires.away = {999}
    nodes.greet()
    wires.away = {101, 303}
    nodes.greet()
    assert nodes.roster.holder[3] == 303
    assert nodes.roster.holder[4] == 101


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {
                "algorithms": {
                    "kept": {"algorithm": "fedref.algorithms.apfl_cached:APFLCachedImportance"}
                }
            },
            "kept sends by what each client keeps",
        ),
        ({"algorithms": {"centralised": {}}}, "centralised pools all clients' rows"),
        ({"classes": "own", "algorithms": {"fedavg": {}}}, "classes=own counts labels"),
        ({"dissimilarity": True, "algorithms": {"fedavg": {}}}, "dissimilarity needs"),
        ({"sweep": {"split.alpha": [0.1, 1.0]}, "algorithms": {"fedavg": {}}}, "split.alpha"),
    ],
)
def test_what_needs_the_rows_on_the_server_is_refused(settings, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        serve(None, experiment_of(**settings), tmp_path, options())


def test_clients_that_never_come_are_named(tmp_path):
    experiment = experiment_of(algorithms={"fedavg": {}})
    (tmp_path / "nodes").mkdir()
    wires = Wires(tmp_path / "nodes", experiment)
    wires.away = {303}
    with pytest.raises(FedrefError, match=r"no node has client 2, 3 after 0.2 s; expected all 7"):
        serve(wires, experiment, tmp_path / "far", options())


def test_a_directory_of_another_experiment_is_refused(tmp_path):
    far(tmp_path, experiment_of(algorithms={"fedavg": {}}))
    with pytest.raises(DataError, match="holds the run of another experiment"):
        far(tmp_path, experiment_of(algorithms={"fedavg": {"lr": 0.2}}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": [3, 3]}, "not different numbers"),
        ({"clients": [4, 3]}, "not different numbers"),
        ({"clients": [-1, 3]}, "not different numbers"),
        ({"n_train": [5]}, "other than one number of rows for each client"),
        ({"n_train": [5, 0]}, "a client without training rows"),
        ({"labels": []}, "without features or labels"),
        ({"n_test": [1, 10**15]}, "announces more than 10000000 rows"),
        ({"labels": [0, 10**6]}, "or 100000 classes"),
        ({"features": 2.0}, "missing, unknown or misshapen fields: features"),
        ({"secret": 1}, "missing, unknown or misshapen fields: secret"),
    ],
)
def test_an_announcement_that_cannot_be_so_is_refused(changes, words):
    good = record(Announced([3, 4], [5, 6], [1, 0], 64, [0, 1], [], []))
    assert announced({"announced": good}).clients == [3, 4]
    with pytest.raises(Refused, match=words):
        announced({"announced": {**good, **changes}})
