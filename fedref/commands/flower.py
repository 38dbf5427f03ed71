"""`fedref flower`: an experiment as a Flower app, for clients that keep their rows."""

import argparse
from pathlib import Path
from typing import Any

from fedref.boundary.errors import ConfigError
from fedref.commands.console import whole_number
from fedref.experiments import config
from fedref.experiments.setting import Loader

EPILOG = """\
example
  fedref flower write experiment.toml there --nodes 3     then follow there/README.md

A node's part is a .npz with the arrays X (n, p), y (n,), client (n,) and test (n,); who holds rows of
its own writes it with NumPy: `fedref flower check FILE` says what a server would be told of it.
"""


def add_parser(commands: Any) -> None:
    """Add `flower` to the commands."""
    parser = commands.add_parser(
        "flower",
        help="run an experiment over Flower: clients keep their rows",
        description="Write an experiment as a Flower app: the same numbers as `fedref run`, with "
        "every client's rows and state on the node that holds them. Needs `fedref[flower]` to run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    write = actions.add_parser(
        "write", help="the app's folder, the nodes' parts and a README", allow_abbrev=False
    )
    write.add_argument("experiment", type=Path, metavar="FILE.toml", help="as for `fedref run`")
    write.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    write.add_argument(
        "--nodes", type=whole_number, metavar="N", help="cut the data for N nodes (default 3)"
    )
    write.add_argument(
        "--clients",
        type=whole_number,
        metavar="N",
        help="cut no data: the nodes' owners make the parts of clients 0 to N−1",
    )
    write.add_argument(
        "--limit",
        type=float,
        default=600.0,
        metavar="S",
        help="seconds that a round's work may take; who is later is a dropped straggler (default 600)",
    )
    write.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where data is (else FEDREF_DATA)"
    )
    write.set_defaults(run=run_write)
    check = actions.add_parser("check", help="what a node would tell of its part")
    check.add_argument("part", type=Path, metavar="FILE.npz")
    check.set_defaults(run=run_check)


def run_write(arguments: argparse.Namespace) -> int:
    """Write the folder and say where to read on."""
    from fedref.flower.writing import write_app  # `fedref --help` needs none

    if arguments.nodes and arguments.clients:
        raise ConfigError("--nodes cuts the data, --clients cuts none; expected one of the two")
    path = arguments.experiment
    table = {"name": path.stem, **config.read(path)}
    with config.naming(str(path)):
        experiment = config.from_table(config.completed(table))
        holders = write_app(
            experiment,
            arguments.folder,
            nodes=arguments.nodes or 3,
            clients=arguments.clients,
            limit=arguments.limit,
            loader=Loader(arguments.data_dir),
        )
    for i, own in enumerate(holders):
        print(f"nodes/{i}.npz: clients {own.start} to {own.stop - 1}")
    print(f"read on in {arguments.folder / 'README.md'}")
    return 0


def run_check(arguments: argparse.Namespace) -> int:
    """Read a part as a node does."""
    from fedref.flower.part import read_part

    said = read_part(arguments.part).announced
    print(f"features {said.features}, labels {', '.join(map(str, said.labels))}")
    for k, n_train, n_test in zip(said.clients, said.n_train, said.n_test):
        print(f"client {k}: {n_train} training rows, {n_test} test rows")
    return 0
