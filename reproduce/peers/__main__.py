"""python -m reproduce.peers: other projects' functions against the golden vectors."""

import argparse
import sys
import time
from pathlib import Path

from fedref.boundary.errors import FedrefError
from reproduce.peers.scoreboard import HERE, find_unexpected, report
from reproduce.writing import write_page


def checkout(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not folder or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=DIR with a folder DIR")
    return name, Path(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m reproduce.peers",
        description="Run other projects' functions in the golden vectors' situations, those that are "
        "installed or checked out. Exit code 1: something came out otherwise than was found before.",
    )
    out = HERE.parent / "results" / "peers"
    parser.add_argument(
        "--out", type=Path, default=out, help="folder of the page (default: %(default)s)"
    )
    parser.add_argument(
        "--checkout", metavar="NAME=DIR", type=checkout, action="append", default=[],
        help="the folder of a project that pip does not install (may be repeated)",
    )  # fmt: skip
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        parts, measured = report(args.out, dict(args.checkout))
    except FedrefError as error:
        parser.error(str(error))
    print(write_page(HERE / "report.md", args.out, parts, began))
    if other := find_unexpected(measured):
        sys.exit("\n".join(other))
