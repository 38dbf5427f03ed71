"""Write an experiment as a Flower app: the same numbers as `fedref run`, with every client's rows and state
on the node that holds them. Needs `fedref[flower]` to run.

example
  fedref flower write experiment.toml there --nodes 3     then follow there/README.md

A node's part is a .npz with the arrays X (n, p), y (n,), client (n,) and test (n,). The owner of real
rows writes it with NumPy; `fedref flower check FILE` prints what the node would tell a server.
"""

from pathlib import Path
from typing import Annotated

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds
from fedref.lab.experiments import config
from fedref.lab.experiments.loading import Loader


def write(
    experiment: Path,
    folder: Path,
    *,
    nodes: Annotated[int, Bounds(1)] | None = None,
    clients: Annotated[int, Bounds(1)] | None = None,
    limit: Annotated[float, Bounds(0)] = 600.0,
    data_dir: Path | None = None,
) -> None:
    """Write the app's folder, the nodes' parts and a README. Print which clients each node holds.

    experiment : as for `fedref run`
    folder : a new folder
    nodes : divide the data over N nodes (default 3)
    clients : divide no data: the nodes' owners make the parts, of clients 0 to N−1 together
    limit : seconds that a node's answer may take; the clients of a later one count as failed
    """
    from fedref.lab.flower.project import write_app  # `fedref --help` needs none

    if nodes and clients:
        raise ConfigError("--nodes and --clients are given, expected one of them")
    with config.naming(experiment):
        holders = write_app(
            config.compose(experiment, []), folder,
            nodes=nodes or 3, clients=clients, limit=limit, loader=Loader(data_dir),
        )  # fmt: skip
    for i, held in enumerate(holders):
        print(f"nodes/{i}.npz: clients {held.start} to {held.stop - 1}")
    print(f"the next steps are in {folder / 'README.md'}")


def check(part: Path) -> None:
    """Print what a node would tell a server of its part.

    part : the node's part
    """
    from fedref.lab.flower.node import facts_of, read_part

    facts = facts_of(read_part(part))
    print(f"features {facts.features}, labels {', '.join(map(str, facts.labels))}")
    for k, n_train, n_test in facts.sizes.T:
        print(f"client {k}: {n_train} training rows, {n_test} test rows")
