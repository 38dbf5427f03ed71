"""Nodes in this process, and a network of functions between them and the server."""

import csv
import shutil
from functools import partial
from pathlib import Path

import numpy as np

from fedref import tree
from fedref.experiments import config
from fedref.experiments.loading import Loader, load_experiment, resolve_experiment
from fedref.experiments.run import run
from fedref.flower.client import answer_within, handle_request, read_part, write_part
from fedref.flower.nodes import Options, Reply
from fedref.flower.server import serve

#: Client → node. Not in order, and of different sizes, so that a mix-up cannot fit by chance.
HOLDERS = {101: [1, 4, 5], 57: [0, 6], 303: [2, 3]}


def experiment_of(**settings):
    """Return an experiment with seven clients of the digits, a small network and three rounds."""
    table = {
        "name": "far", "rounds": 3, "clients_per_round": 4, "steps": 3, "batch_size": 40,
        "data": {"name": "digits"}, "split": {"rule": "dirichlet", "users": 7},
        "model": {"name": "mlp", "hidden": [9]},
    }  # fmt: skip
    made = config.experiment_of(config.complete({**table, **settings}))
    return resolve_experiment(made, Loader())


class Wires:
    """A `Network` whose nodes answer at once.

    change(wires, node, packet, reply) : returns what arrives in place of the reply, as a list of
    (node, packet). away : nodes that are offline.
    """

    def __init__(self, folder: Path, experiment, holders=HOLDERS, change=None):
        self.experiment, self.change, self.away = experiment, change, set()
        whole = load_experiment(experiment, Loader()).whole
        folder.mkdir(exist_ok=True)
        self.parts, self.stores = {}, {}
        for node, clients in holders.items():
            path = folder / f"{node}.npz"
            write_part(path, whole, clients)
            self.parts[node], self.stores[node] = read_part(path), folder / f"store-{node}"
        self.arrived, self.sent, self.count = {}, [], 0

    def nodes(self):
        return set(self.parts) - self.away

    def send(self, packets, limit):
        messages = {}
        for node, packet in packets.items():
            self.count += 1
            message = f"m{self.count}"
            messages[message] = node
            self.sent.append((node, packet))
            if node in self.away:
                continue
            where = self.parts[node], self.experiment, self.stores[node]
            reply = answer_within(60.0, partial(handle_request, packet, *where))
            replies = [(node, reply)]
            if self.change and "call" in packet:
                replies = self.change(self, node, packet, reply)
            self.arrived[message] = [Reply(message, *one) for one in replies]
        return messages

    def receive(self, messages):
        # the last one first: the order in which answers arrive must not matter
        return [reply for m in reversed(list(messages)) for reply in self.arrived.pop(m, [])]


def options(**changes):
    return Options(**{"clients": 7, "limit": 0.1, "wait": 0.05, "pause": 0.01, **changes})


def far(tmp_path, experiment, change=None, wires=None, out="far", **how):
    """Run an experiment over a network; return (the run, the network, the messages)."""
    said = []
    wires = wires or Wires(tmp_path / "nodes", experiment, change=change)
    return serve(wires, experiment, tmp_path / out, options(**how), said.append), wires, said


def near(tmp_path, experiment, name="near"):
    """Run the same experiment in this process."""
    shutil.rmtree(tmp_path / name, ignore_errors=True)
    return run(experiment, out=tmp_path / name)


def away_in(rounds, node=101):
    """Return a `change` that loses the node's answers to calls of these rounds."""

    def change(wires, asked, packet, reply):
        return [] if asked == node and packet["call"]["round"] in rounds else [(asked, reply)]

    return change


TABLES = ("metrics.csv", "clients.csv", "config.toml", "summary.md")


def same_tables(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in TABLES)


def same_parameters(one, other):
    """Whether two runs end with the same server states, to the bit, dtypes included."""
    pairs = [
        pair
        for a, b in zip(one.records, other.records, strict=True)
        for pair in zip(tree.leaves(a.state.server), tree.leaves(b.state.server), strict=True)
    ]
    return all(
        np.array_equal(x, y) and np.asarray(x).dtype == np.asarray(y).dtype for x, y in pairs
    )


def missed(folder):
    """Return the rows of missed.csv."""
    with open(folder / "missed.csv", newline="") as file:
        return list(csv.DictReader(file))


def column(run, name):
    """Return a column of the first unit's metrics."""
    return [row[name] for row in run.records[0].rows]
