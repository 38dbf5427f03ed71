"""`fedref conformance`: whether an implementation is right, and if not, what is wrong with it."""

import argparse
from math import isfinite
from typing import Any

from fedref.boundary.errors import ConfigError, unknown
from fedref.conformance.backends import NAMES

EPILOG = """\
A backend is a module, or an object in one, with some of the functions
  loss, grad, hvp, dissimilarity  (model, ...)
  meta_gradient                   (variant, model, hyper, ...)
  client, aggregate, evaluate     (algorithm, model, hyper, ...)
  round                           (algorithm, model, hyper, state, data, plan)
that take and return NumPy arrays and dictionaries; `pydoc fedref.conformance` has the details.

examples
  fedref conformance mine --only "per-fedavg eq.6"
  fedref conformance mine:Backend --dtype float32 --json
  fedref conformance torch

exit code: 0 all that is offered passes; 1 something fails; 2 wrong input
"""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "conformance",
        help="test your own implementation against golden vectors",
        description="Run a backend against the golden vectors: what it offers, what of it is right, "
        "and which known mistake the rest is.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "backend", metavar="MODULE[:BACKEND]", help=f"yours, or one of {', '.join(NAMES)}"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="cases with this in tag, call, algorithm or name"
    )
    parser.add_argument("--dtype", default="float64", metavar="X", help="float64 or float32")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="seconds a case (default 60)"
    )
    parser.set_defaults(run=command)


def command(arguments: argparse.Namespace) -> int:
    from fedref.conformance import report, suite, vectors  # `fedref --help` needs none

    name, dtype = arguments.backend, arguments.dtype
    if dtype not in vectors.DTYPES:
        raise ConfigError(unknown("dtype", dtype, vectors.DTYPES))
    if not (isfinite(arguments.timeout) and arguments.timeout > 0):
        raise ConfigError(f"timeout is {arguments.timeout:g}, expected seconds > 0")
    every = vectors.read()
    cases = suite.select_cases(every, arguments.only)
    if not cases:
        raise ConfigError(unknown("case or tag", arguments.only, {case.tag for case in every}))
    results = list(suite.run_in_process(name, cases, dtype, arguments.timeout))
    if arguments.json:
        print(report.as_json(results, name, dtype))
    else:
        print(report.text(results, cases))
    return int(any(result.status == suite.FAILED for result in results))
