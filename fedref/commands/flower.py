"""`fedref flower`: an experiment as a Flower app, for clients that keep their rows."""

import argparse
from pathlib import Path

from fedref.boundary.errors import ConfigError
from fedref.boundary.values import Bounds
from fedref.commands.options import DATA_DIR, Command, Option
from fedref.experiments import config
from fedref.experiments.loading import Loader

EPILOG = """\
example
  fedref flower write experiment.toml there --nodes 3     then follow there/README.md

A node's part is a .npz with the arrays X (n, p), y (n,), client (n,) and test (n,). The owner of real
rows writes it with NumPy; `fedref flower check FILE` prints what the node would tell a server.
"""


def run_write(arguments: argparse.Namespace) -> int:
    """Write the folder, and print which clients each node holds."""
    from fedref.flower.project import write_app  # `fedref --help` needs none

    if arguments.nodes and arguments.clients:
        raise ConfigError("--nodes and --clients are given, expected one of them")
    path = arguments.experiment
    table = {"name": path.stem, **config.read(path)}
    with config.naming(str(path)):
        holders = write_app(
            config.from_table(table),
            arguments.folder,
            nodes=arguments.nodes or 3,
            clients=arguments.clients,
            limit=arguments.limit,
            loader=Loader(arguments.data_dir),
        )
    for i, clients in enumerate(holders):
        print(f"nodes/{i}.npz: clients {clients.start} to {clients.stop - 1}")
    print(f"the next steps are in {arguments.folder / 'README.md'}")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Print what a node with this part would announce."""
    from fedref.flower.node import read_part

    facts = read_part(arguments.part).facts
    print(f"features {facts.features}, labels {', '.join(map(str, facts.labels))}")
    for k, n_train, n_test in zip(facts.clients, facts.n_train, facts.n_test):
        print(f"client {k}: {n_train} training rows, {n_test} test rows")
    return 0


WRITE = Command(
    run_write,
    "Write the app's folder, the nodes' parts and a README.",
    (
        Option("experiment FILE.toml", "as for `fedref run`", Path),
        Option("folder DIR", "a new folder", Path),
        Option("--nodes N", "divide the data over N nodes (default 3)", int, bounds=Bounds(1)),
        Option(
            "--clients N",
            "divide no data: the nodes' owners make the parts, of clients 0 to N−1 together",
            int,
            bounds=Bounds(1),
        ),
        Option(
            "--limit S",
            "seconds that a node's answer may take; the clients of a later one count as failed",
            float,
            600.0,
            bounds=Bounds(0),
        ),
        DATA_DIR,
    ),
)
CHECK = Command(
    run_check,
    "Print what a node would tell a server of its part.",
    (Option("part FILE.npz", "the node's part", Path),),
)
COMMAND = Command(
    None,
    "Write an experiment as a Flower app: the same numbers as `fedref run`, with every client's rows "
    "and state on the node that holds them. Needs `fedref[flower]` to run.",
    commands={"write": WRITE, "check": CHECK},
    epilog=EPILOG,
)
