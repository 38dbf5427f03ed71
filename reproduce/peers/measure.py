"""One project's rows, in a process of their own: python measure.py NAME [CHECKOUT] < rows as JSON.

Prints, as JSON, a list of what was measured for each row, or a text that says why nothing was.
"""

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import cases
import mistakes

from fedref.conformance import suite
from fedref.judge.compare import difference

sys.dont_write_bytecode = True  # a checkout stays as it is


def load_adapter(name: str, checkout: str, within: str) -> Any:
    """Import an adapter; a checkout's own modules come before installed ones."""
    if checkout:
        sys.path[:0] = [str(Path(checkout, part)) for part in within.split(":")]
    return importlib.import_module(f"adapters.{name}")


def measure_row(backend: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return {status, names of mistakes, why, digits, equals}.

    digits, equals : the largest difference from fedref, and from fedref with the row's mistakes.
    """
    case = cases.make_case(row["run"])
    answer = suite.call_safely(backend, case)
    if answer.outputs is None:
        return {"status": "not run", "why": answer.error or "the adapter does not offer it"}
    graded = suite.grade(answer, case)
    found: dict[str, Any] = {"status": graded.status, "names": (), "why": graded.reason}
    if graded.reason:
        return found
    found["digits"] = largest_difference(answer.outputs, case.outputs)
    if graded.status == suite.FAILED:
        found["names"] = mistakes.find_names(answer.outputs, case)
    if row.get("equals"):
        other = mistakes.outputs_with(case, *row["equals"])
        found["equals"] = largest_difference(answer.outputs, {k: other[k] for k in case.required})
        if not found["names"] and found["equals"] <= case.tolerance["float64"]:
            found["names"] = tuple(row["equals"])  # two at once
    return found


def largest_difference(got: Any, want: dict[str, Any]) -> float:
    """Return the largest relative difference of the required outputs."""
    return max(difference(got[name], x) for name, x in want.items())


def main(name: str, checkout: str = "") -> None:
    warnings.simplefilter("ignore")
    task, stdout = json.load(sys.stdin), sys.stdout
    sys.stdout = sys.stderr  # projects may print
    answer: Any
    try:
        backend = load_adapter(name, checkout, task["within"])
        answer = [measure_row(backend, row) for row in task["rows"]]
    except ImportError as error:
        answer = f"{type(error).__name__}: {error}"
    json.dump(answer, stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
