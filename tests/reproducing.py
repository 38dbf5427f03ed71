"""A tiny reproduction, and the command that runs it."""

import argparse
from typing import Any

from fedref.commands import reproduce
from fedref.reproduction import catalogue

TINY = """\
rounds = 2
clients-per-round = 3
steps = 1
batch-size = 5
seeds = [0, 1]
[data]
name = "digits"
[model]
name = "logistic"
[algorithms.fedavg]
lr = 0.1
[algorithms.fedprox]
lr = 0.1
"""
REPORT = """\
TITLE = "Tiny"
PAPER = "Nobody's, §0."
QUICK = {"seeds": [0], "one": {"rounds": 1}}


def report(runs, out, data_dir):
    from fedref.reproduction import Number, number_table, write_numbers

    (out / "one.png").write_bytes(b"")
    lines = [
        Number((stem, label), 100 * run.curve(label)[1][:, -1], 50.0, "so it is")
        for stem, run in runs.items()
        for label in run.experiment.algorithms
    ]
    write_numbers(out / "numbers.csv", ("stem", "method"), lines)
    return "## Part\\n\\n![a picture](one.png)\\n\\n" + number_table(("stem", "method"), lines)


CHECKS = {"one round was run": lambda runs: (runs["one"].experiment.rounds == 1, "measured")}
"""


def change(name: str, old: str, new: str) -> None:
    """Something in the tiny reproduction's file `name`."""
    path = catalogue.root() / "tiny" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def command(*words: object) -> int:
    """As a user types it."""
    parser = argparse.ArgumentParser("fedref")
    reproduce.add_parser(parser.add_subparsers())
    args = parser.parse_args(["reproduce", *map(str, words)])
    return int(args.run(args))


def small(
    algorithms: dict[str, Any], *, users: int = 4, clients: int = 2, **more: Any
) -> dict[str, Any]:
    """An experiment of one local step on digits, for reports that read something else off it."""
    return {
        "data": {"name": "digits"},
        "split": {"rule": "iid", "users": users},
        "clients-per-round": clients,
        "steps": 1,
        "algorithms": algorithms,
        **more,
    }
