"""One project's rows, in a process of their own."""

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedref.conformance import suite
from fedref.judge import verdicts
from fedref.judge.compare import difference
from reproduce.peers import mistakes, situations

sys.dont_write_bytecode = True  # a checkout stays as it is
Found = dict[str, Any]


def measure_rows(name: str, folders: Sequence[str], rows: Sequence[Found]) -> list[Found] | str:
    """Return what is measured for each row, or why nothing is.

    folders : a checkout's own; its modules come before installed ones.
    """
    warnings.simplefilter("ignore")
    sys.path[:0] = [*folders, str(Path(__file__).parent)]
    try:
        backend = importlib.import_module(f"adapters.{name}")
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    return [measure_row(backend, row) for row in rows]


def measure_row(backend: Any, row: Found) -> Found:
    """Return {status, names of mistakes, why, digits, equals}.

    digits, equals : the largest difference from fedref, and from fedref with the row's mistakes.
    """
    case = situations.make_case(row["run"])
    answer = suite.call_safely(backend, case)
    if answer.outputs is None:
        return {"status": "not run", "why": answer.error or "the adapter does not offer it"}
    graded = verdicts.grade(answer, case)
    found: Found = {"status": graded.status, "names": (), "why": graded.reason}
    is_nan = any(np.isnan(np.asarray(answer.outputs.get(k, 0.0))).any() for k in case.outputs)
    if graded.reason and not (is_nan and row.get("equals")):
        return found
    found["digits"] = np.inf if is_nan else largest_difference(answer.outputs, case.outputs)
    if graded.status == verdicts.FAILED and not is_nan:
        found["names"] = mistakes.find_names(answer.outputs, case)
    if row.get("equals"):
        other = mistakes.outputs_with(case, *row["equals"])
        found["equals"] = max(
            distance(answer.outputs[k], other[k], x) for k, x in case.outputs.items()
        )
    return found


def distance(got: Any, other: Any, right: Any) -> float:
    """Return the largest difference from a wrong answer, relative to the larger of it and the right one.

    What is not a number in both is equal.
    """
    if np.isnan(other).any() or np.isnan(got).any():
        return 0.0 if np.array_equal(got, other, equal_nan=True) else np.inf
    scale = max(np.max(np.abs(other)), np.max(np.abs(right)))
    return float(np.max(np.abs(got - other)) / scale)


def largest_difference(got: Mapping[str, Any], want: Mapping[str, Any]) -> float:
    """Return the largest relative difference of the required outputs."""
    return max(difference(got[name], x) for name, x in want.items())
