"""python -m reproduce.speed: time rounds beside PyTorch and JAX."""

import argparse
import time
from pathlib import Path

from reproduce.speed.report import HERE, report
from reproduce.writing import write_page

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m reproduce.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two turns: to see that it runs")
    out = HERE.parent / "results" / "speed"
    parser.add_argument(
        "--out", type=Path, default=out, help="folder of the page (default: %(default)s)"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    print(write_page(HERE / "report.md", args.out, report(args.out, args.quick), began))
