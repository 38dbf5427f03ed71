"""`fedref conformance`: whether an implementation is right, and if not, what is wrong with it."""

import argparse

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.values import Bounds
from fedref.commands.options import Command, Option
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


def command(arguments: argparse.Namespace) -> int:
    from fedref.conformance import report, suite, vectors  # `fedref --help` needs none

    name, dtype = arguments.backend, arguments.dtype
    if dtype not in vectors.DTYPES:
        raise ConfigError(unknown("dtype", dtype, vectors.DTYPES))
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


COMMAND = Command(
    command,
    "Run a backend against the golden vectors: what it offers, what of it is right, and which known "
    "mistake the rest is.",
    (
        Option("backend MODULE[:BACKEND]", f"yours, or one of {', '.join(NAMES)}"),
        Option("--only TEXT", "cases with this in tag, call, algorithm or name", default=""),
        Option("--dtype X", "float64 or float32", default="float64"),
        Option("--json", "print the report as JSON"),
        Option("--timeout S", "seconds a case", float, 60.0, Bounds(0, open="both")),
    ),
    epilog=EPILOG,
)
