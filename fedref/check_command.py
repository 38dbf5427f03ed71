"""`fedref plot`."""

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("check", help="x")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    return 0
