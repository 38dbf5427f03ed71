"""`fedref conformance`: test an implementation against the golden vectors, and name its mistakes."""

import argparse
from pathlib import Path

from fedref.boundary.errors import ConfigError, unknown
from fedref.boundary.files import write_or_raise
from fedref.boundary.values import Bounds
from fedref.commands.options import Command, Option
from fedref.conformance.backends import NAMES

EPILOG = """\
A backend is a module, or an object in one, with some of the functions
  loss, grad, hvp, dissimilarity  (model, ...)
  meta_gradient                   (variant, model, hyper, ...)
  client, aggregate, evaluate     (algorithm, model, hyper, ...)
  round                           (algorithm, model, hyper, state, data, plan)
They take and return NumPy arrays and dictionaries. The cases of a function are not tested if the
backend does not offer it: it is missing, imported from elsewhere, or raises NotImplementedError.
data/vectors/README.md and `pydoc fedref.conformance` say what each takes and returns.

examples
  fedref conformance my_backend                              all that it offers
  fedref conformance my_backend --only "per-fedavg eq.6"     one equation
  fedref conformance my_backend:Backend --dtype float32 --json
  fedref conformance torch

The backend runs in the same process as the tests, so it could read the answers or change the tests.
A report is evidence only for an honest backend, and only for what was tested. Before you rely on one,
run the tests yourself on the code that you mean to use.

`fedref explain NAME` explains a known mistake or an equation that the report names.

exit code: 0 all that is offered passes; 1 something fails; 2 wrong input
"""


def test_backend(arguments: argparse.Namespace) -> int:
    """Print the report of a backend. Return 0 if all that it offers passes, else 1."""
    from fedref.conformance import report, suite, vectors  # `fedref --help` needs none

    name, dtype = arguments.backend, arguments.dtype
    if dtype not in vectors.DTYPES:
        raise ConfigError(unknown("dtype", dtype, vectors.DTYPES))
    every = vectors.read()
    cases = suite.select_cases(every, arguments.only)
    if not cases:
        raise ConfigError(unknown("case or tag", arguments.only, {case.tag for case in every}))
    results = list(suite.run_in_process(name, cases, dtype, arguments.timeout))
    results = report.settle_names(results, cases)
    if arguments.badge:
        badge = report.draw_badge(report.cite_results(results, name, dtype))
        write_or_raise(Path(arguments.badge), badge.encode())
    if arguments.json:
        print(report.report_json(results, name, dtype))
    else:
        print(report.report_text(results, cases))
    return int(any(result.status == suite.FAILED for result in results))


COMMAND = Command(
    test_backend,
    "Test a backend against the golden vectors. The report says what it offers, how much of that is "
    "right, and which known mistakes it makes.",
    (
        Option(
            "backend MODULE[:BACKEND]",
            f"your backend (a module or FILE.py), or one of {', '.join(NAMES)}",
        ),
        Option(
            "--only TEXT", "cases with this text in their tag, call, algorithm or name", default=""
        ),
        Option("--dtype X", "dtype of all arrays: float64 or float32", default="float64"),
        Option("--json", "print the report as JSON; its last line can be cited"),
        Option("--badge FILE", "draw the outcome as a badge (SVG)", default=""),
        Option("--timeout S", "seconds that a case may take", float, 60.0, Bounds(0, open="both")),
    ),
    epilog=EPILOG,
)
