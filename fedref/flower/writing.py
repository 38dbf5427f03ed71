"""The folder of a Flower app, and the parts of its nodes, from an experiment."""

from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

import fedref
from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.files import write_or_raise
from fedref.experiments import config
from fedref.experiments.experiment import Experiment
from fedref.experiments.setting import Loader, setting, settled
from fedref.flower.part import write_part
from fedref.flower.server import refuse

MODULE = '''"""The app's two ends; the work is fedref's, which every node has installed."""

from pathlib import Path

from fedref.flower.apps import client_app, server_app

server = server_app(Path(__file__).parent)
client = client_app(Path(__file__).parent)
'''


def project(experiment: Experiment, clients: int, out: Path, limit: float) -> dict[str, Any]:
    """pyproject.toml as Flower reads it. No dependencies: nothing is to be installed by a run."""
    return {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {
            "name": "fedref-app",
            "version": "1.0.0",
            "description": f"{experiment.name}, an experiment of fedref {fedref.__version__}",
            "license": "Apache-2.0",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedref",
                    "components": {
                        "serverapp": "federated:server",
                        "clientapp": "federated:client",
                    },
                    "config": {
                        "out": str(out),
                        "clients": clients,
                        "limit": float(limit),
                        "wait": 300.0,
                        "pinned": False,
                    },
                }
            }
        },
    }


def dealt(clients: int, nodes: int) -> list[range]:
    """Clients 0 to N − 1 in as many runs of almost the same length."""
    if not 1 <= nodes <= clients:
        raise ConfigError(f"{nodes} nodes for {clients} clients, expected 1 to {clients}")
    cuts = np.linspace(0, clients, nodes + 1).round().astype(int).tolist()
    return [range(a, b) for a, b in pairwise(cuts)]


def write_app(
    experiment: Experiment,
    folder: Path,
    *,
    nodes: int,
    clients: int | None = None,
    limit: float = 600.0,
    loader: Loader | None = None,
) -> list[range]:
    """FOLDER/app, and FOLDER/nodes/I.npz for each of the nodes; which clients each of them holds.

    With `clients` instead, no data are read: every node's owner makes its part.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FedrefError(f"{folder} is not empty, expected a new folder")
    refuse(experiment)
    holders: list[range] = []
    if clients is None:
        loader = loader or Loader()
        experiment = settled(experiment, loader)
        whole = setting(experiment, loader=loader).whole
        if whole.source.real:
            raise ConfigError(f"{whole.source.name} has real targets, expected labels over Flower")
        clients = whole.clients
        holders = dealt(clients, nodes)
        for i, own in enumerate(holders):
            write_part(folder / "nodes" / f"{i}.npz", whole, own)
    app = folder / "app"
    out = (folder / "run").resolve()
    pyproject = tomli_w.dumps(project(experiment, clients, out, limit))
    write_or_raise(app / "pyproject.toml", pyproject.encode())
    write_or_raise(app / "experiment.toml", config.text(experiment).encode())
    write_or_raise(app / "federated.py", MODULE.encode())
    write_or_raise(folder / "README.md", commands(folder, holders).encode())
    return holders


def commands(folder: Path, holders: Sequence[range]) -> str:
    """What to type, on one machine and on several."""
    guide = files("fedref.flower").joinpath("commands.md").read_text("utf-8")
    node = guide[guide.index("<!-- node -->\n") : guide.index("<!-- end -->\n")]
    each = node.removeprefix("<!-- node -->\n")
    names = [str(i) for i in range(len(holders))] or ["NODE"]
    ports = [str(9101 + i) for i in range(len(names))]
    lines = "".join(
        each.replace("{node}", name).replace("{port}", port) for name, port in zip(names, ports)
    )
    text = guide.replace(node + "<!-- end -->\n", lines)
    held = ", ".join(f"{i}: {own.start} to {own.stop - 1}" for i, own in enumerate(holders))
    text = text.replace("{holders}", held or "as their owners made them")
    return text.replace("{folder}", str(folder.resolve()))
