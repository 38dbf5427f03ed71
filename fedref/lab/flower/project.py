"""The folder that `fedref flower write` makes: a Flower app, and the parts of its nodes."""

from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import tomli_w

import fedref
from fedref.boundary.errors import ConfigError, FedrefError
from fedref.boundary.files import write_or_raise
from fedref.lab.experiments import config
from fedref.lab.experiments.loading import Loader, load_experiment, resolve_experiment
from fedref.lab.flower.node import write_part
from fedref.lab.flower.server import check_experiment


def write_app(
    experiment: config.Experiment,
    folder: Path,
    *,
    nodes: int,
    clients: int | None = None,
    limit: float = 600.0,
    loader: Loader | None = None,
) -> list[range]:
    """Write FOLDER/app, and FOLDER/nodes/I.npz for each node; return the clients of each node.

    clients : their number, if the nodes' owners make the parts themselves; then no data are read.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FedrefError(f"{folder} is not empty, expected a new folder")
    check_experiment(experiment)
    holders: list[range] = []
    if clients is None:
        loader = loader or Loader()
        experiment = resolve_experiment(experiment, loader)
        whole = load_experiment(experiment, loader).whole
        if whole.source.real:
            raise ConfigError(f"{whole.source.name} has real targets, expected labels over Flower")
        if whole.unseen is not None:
            raise ConfigError(
                f"{whole.source.name} has test rows of clients without a training row, expected none "
                "over Flower, whose server has no rows"
            )
        if whole.validation is not None:
            raise ConfigError(f"{whole.source.name} has validation rows, expected none over Flower")
        clients = whole.clients
        if not 1 <= nodes <= clients:
            raise ConfigError(f"{nodes} nodes for {clients} clients, expected 1 to {clients}")
        cuts = np.linspace(0, clients, nodes + 1).round().astype(int).tolist()
        holders = [range(a, b) for a, b in pairwise(cuts)]  # of almost the same length
        for i, node_clients in enumerate(holders):
            write_part(folder / "nodes" / f"{i}.npz", whole, node_clients)
    held = ", ".join(f"{i}: {part.start} to {part.stop - 1}" for i, part in enumerate(holders))
    held = held or "as their owners made them"
    numbers = " ".join(map(str, range(len(holders)))) or "NODE"
    values = {"out": str((folder / "run").resolve()), "clients": clients, "limit": float(limit)}
    for path, text in {
        "app/pyproject.toml": fill("app.toml", version=fedref.__version__) + tomli_w.dumps(values),
        "app/experiment.toml": config.toml_text(experiment),
        "app/federated.py": fill("federated.txt"),
        "README.md": fill("commands.md", holders=held, nodes=numbers, folder=str(folder.resolve())),
    }.items():
        write_or_raise(folder / path, text.encode())
    return holders


def fill(name: str, **values: str) -> str:
    """Return a text beside this module, with {name} replaced by its value."""
    text = files("fedref.lab.flower").joinpath(name).read_text("utf-8")
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text
