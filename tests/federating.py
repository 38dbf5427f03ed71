"""Nodes in this process, and a network of functions between them and the server."""

import shutil
from pathlib import Path

import numpy as np
from helpers import same

from fedref.lab.experiments import config
from fedref.lab.experiments.loading import Loader, load_experiment, resolve_experiment
from fedref.lab.experiments.run import run
from fedref.lab.flower.node import answer, write_part
from fedref.lab.flower.server import serve
from fedref.rounds.federation import Source

#: Client → node. Not in order, and of different sizes, so that a mix-up cannot fit by chance.
HOLDERS = {101: [1, 4, 5], 57: [0, 6], 303: [2, 3]}


def experiment_of(**settings):
    """Return an experiment with seven clients of the digits, a small network and three rounds."""
    table = {
        "name": "far", "rounds": 3, "clients_per_round": 4, "steps": 3, "batch_size": 40,
        "data": {"name": "digits"}, "split": {"rule": "dirichlet", "users": 7},
        "model": {"name": "mlp", "hidden": [9]},
    }  # fmt: skip
    made = config.experiment_of(table.items(), settings.items())
    return resolve_experiment(made, Loader())


def coded():
    """Return rows of seven codes, and padding."""
    X = np.random.default_rng(0).integers(0, 4, (200, 7)).astype(np.uint8)
    return Source(X, X[:, 0] % 2, vocabulary=("a", "é", "·"))


def many_labels():
    """Return 24 rows of four clients with the labels 0 to 3; each other label has a client of one row."""
    y = np.concatenate([np.arange(24) % 4, np.arange(4, 34)])
    client = np.concatenate([np.arange(24) // 6, np.arange(4, 34)])
    return Source(np.random.default_rng(0).normal(size=(54, 5)), y, client)


class Wires:
    """A `Network` whose nodes answer at once.

    change(node, request, answer) : returns what arrives in place of the answer. away : nodes that do
    not answer.
    """

    def __init__(self, folder: Path, experiment, change=None):
        self.folder, self.experiment, self.change, self.away = folder, experiment, change, set()
        self.asked = []
        whole = load_experiment(experiment, Loader()).whole
        self.clients = whole.clients
        for node, clients in HOLDERS.items():
            write_part(folder / f"{node}.npz", whole, [k for k in clients if k < whole.clients])

    def nodes(self):
        return set(HOLDERS)

    def ask(self, requests, limit):
        self.asked += requests.items()
        answers = {}
        for node in sorted(set(requests) - self.away, reverse=True):
            where = self.folder / f"{node}.npz", self.experiment, self.folder / f"states-{node}"
            given = answer(requests[node], *where)
            answers[node] = self.change(node, requests[node], given) if self.change else given
        return answers


def far(tmp_path, experiment, wires=None, out="far"):
    """Run an experiment over a network; return (the run, the messages)."""
    said = []
    wires = wires or Wires(tmp_path / "nodes", experiment)
    how = {"clients": wires.clients, "limit": 5.0, "say": said.append}
    return serve(wires, experiment, tmp_path / out, **how), said


def near(tmp_path, experiment, name="near"):
    """Run the same experiment in this process."""
    shutil.rmtree(tmp_path / name, ignore_errors=True)
    return run(experiment, out=tmp_path / name)


def replaced(**values):
    """Return a function that replaces fields of a message; lists stand for arrays."""
    values = {k: np.array(v) if type(v) is list else v for k, v in values.items()}
    return lambda message: message._replace(**values)


def with_entry(place, value):
    """Return a function that sets an entry of a copy."""

    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


def same_tables(one: Path, other: Path) -> bool:
    names = ("metrics.csv", "clients.csv", "config.toml", "summary.md")
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def same_parameters(one, other):
    """Whether two runs end with the same server states, to the bit, dtypes included."""
    states = [[record.state.server for record in run.records] for run in (one, other)]
    return same(*states)
