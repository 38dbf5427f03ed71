"""python -m reproduce.speed: time rounds beside PyTorch and JAX."""

import argparse
import os
import time
from pathlib import Path

from reproduce.speed.timings import HERE, report
from reproduce.writing import write_page

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m reproduce.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two turns: to see that it runs")
    out = HERE.parent / "results" / "speed"
    parser.add_argument(
        "--out", type=Path, default=out, help="folder of the page (default: %(default)s)"
    )
    parser.add_argument(
        "--forced-kernels",
        action="store_true",
        help="also where OPENBLAS_CORETYPE chooses the kernels",
    )
    parser.add_argument(
        "--earlier", type=Path, help="a checkout of another version, to time it too"
    )
    args = parser.parse_args()
    if os.environ.get("OPENBLAS_CORETYPE") and not args.forced_kernels:
        parser.error(
            "OPENBLAS_CORETYPE is set, so NumPy may run other kernels than a user's: unset it, or say "
            "--forced-kernels"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    print(
        write_page(HERE / "report.md", args.out, report(args.out, args.quick, args.earlier), began)
    )
