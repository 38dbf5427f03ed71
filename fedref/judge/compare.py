"""The comparer: whether an answer is right, and how far right answers may lie apart.

Golden and drawn cases, rounds of your own (`checks.check_rounds`), drawn models and proofs are compared
here. A difference counts relative to the largest entry that is right. How much of it may be rounding is
measured only where that decides: we move the inputs a little, and see how many times as much the answer
moves. At a kink it jumps.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from fedref.judge.case import Case, Values
from fedref.models.numerics import Array

#: A number between 0 and the first is rounding alone, a derivative below the second has lost digits (as
#: p − 1 does for a p close to 1), and what is above the third has diverged.
ROUNDING, FEW_DIGITS, DIVERGED = 1e-6, 1e-3, 1e6
#: Inputs are moved by so much; outputs that move by more than so many times that are at a kink.
STEP, KINK = 1e-9, 1e4
#: How many units of rounding an output may be off whose condition is 1.
ULPS = 1e4


def difference(got: ArrayLike, want: ArrayLike, scale: float = 0.0, least: float = 0.0) -> float:
    """Return max |got − want| / max |want|, inf where shapes differ; True counts as 1.

    scale : that of the terms, if it is larger. Where neither is above `least` the difference is absolute.
    """
    got, want = np.add(got, 0), np.add(want, 0)
    if got.shape != want.shape:
        return float("inf")
    got = got if got.dtype.kind == "c" else got.astype(np.longdouble)
    scale = max(scale, float(np.max(np.abs(want), initial=0.0)))
    return float(np.max(np.abs(got - want), initial=0.0)) / (scale if scale > least else 1.0)


# ---- how far right answers may lie apart ---------------------------------------------------------


def is_clear(*outputs: ArrayLike, least: float = ROUNDING) -> bool:
    """Return whether each array is 0, or neither too small to compare nor diverged."""
    sizes = [np.max(np.abs(x), initial=0.0) for x in outputs]
    return all(size == 0 or least < size < DIVERGED for size in sizes)


def measure_condition(
    f: Callable[[dict[str, Array]], Values], inputs: Mapping[str, Array], outputs: Values
) -> float:
    """Return how many times as much as its inputs f's outputs move, the larger of two ways: 1 or more.

    inputs : those that are moved, both up and down. outputs : f(inputs), of which the floats count. The
    result is `KINK` or more close to a kink, and where f lacks an output nearby.
    """
    ways = {
        n: STEP * np.cos(i + np.arange(x.size)).reshape(x.shape)
        for i, (n, x) in enumerate(inputs.items())
    }
    floats, condition = [n for n, x in outputs.items() if np.asarray(x).dtype.kind == "f"], 1.0
    for sign in (1, -1):
        with np.errstate(all="ignore"):
            moved = f({n: x + sign * ways[n] for n, x in inputs.items()})
            gaps = [difference(moved.get(n, np.nan), outputs[n]) for n in floats]
        condition = float(np.max([condition, *(gap / STEP for gap in gaps)]))
    return condition


def is_convention(error: float | None, condition: float) -> bool:
    """Return whether other slopes at kinks can explain an error: 4 times the answer, or its jump."""
    return error is not None and error <= 4 * max(1.0, condition * STEP)


def tolerance(condition: float) -> dict[str, float]:
    """Return how much outputs of this condition may differ."""
    return {name: ULPS * condition * float(np.finfo(name).eps) for name in ("float64", "float32")}


# ---- the answer to a case ------------------------------------------------------------------------


class NoNumbers(NamedTuple):
    """Stands for an output that holds no numbers. what : says what it was: "a list"."""

    what: str


def type_name(x: object) -> str:
    """Return the name of x's type with its article."""
    if isinstance(x, NoNumbers):
        return x.what
    name = type(x).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def form_error(x: Any, want: Array, dtype: DTypeLike) -> str:
    """Return what is wrong with an output's type, shape or values, or ""."""
    if isinstance(x, bool | int | float) and want.ndim == 0:
        return "" if np.isfinite(x) else f"is {x}"
    if not isinstance(x, np.ndarray | np.generic):
        return (
            f"is {type_name(x)}, expected a {'NumPy array of numbers' if want.ndim else 'number'}"
        )
    if x.shape != want.shape:
        return f"has shape {x.shape}, expected {want.shape}"
    if x.dtype.kind not in "biuf":
        return f"is {x.dtype}, expected {np.dtype(dtype)}"
    return "" if np.all(np.isfinite(x)) else "holds NaN or infinity"


def dtype_error(x: Any, want: Array, dtype: DTypeLike) -> str:
    """Return what is wrong with the dtype of an array of numbers, or ""."""
    if np.ndim(x) and want.dtype.kind == "f" and x.dtype != dtype:
        return f"is {x.dtype}, expected {np.dtype(dtype)}"
    return ""


class Mismatch(NamedTuple):
    """The first output that is wrong, by how much, or the reason where its form is wrong."""

    output: str
    error: float | None
    reason: str


def compare(outputs: Values, case: Case, dtype: DTypeLike = np.float64) -> Mismatch | None:
    """Return the first difference, in the order in which the outputs arise, or None.

    The dtype of an output that is not required is free (`dtype_remarks`).
    """
    tolerance = case.tolerance[np.dtype(dtype).name]
    for name, want in case.outputs.items():
        if name not in outputs:
            if name in case.required:
                return Mismatch(name, None, "is missing")
            continue
        x = outputs[name]
        wrong = form_error(x, want, dtype)
        if not wrong and name in case.required:
            wrong = dtype_error(x, want, dtype)
        if wrong:
            return Mismatch(name, None, wrong)
        error = difference(x, want)
        if not error <= (tolerance if want.dtype.kind == "f" else 0):  # NaN fits nothing
            return Mismatch(name, error, "")
    return None


def dtype_remarks(outputs: Values, case: Case, dtype: DTypeLike) -> tuple[str, ...]:
    """Return a remark for each optional output, whatever its round, that has another dtype."""
    optional = (n for n in case.outputs if n in outputs and n not in case.required)
    wrong = {n: dtype_error(outputs[n], case.outputs[n], dtype) for n in optional}
    return tuple(sorted({f"{n.lstrip('0123456789.')} {x}" for n, x in wrong.items() if x}))
