"""The suite: call a backend, compare its outputs with the vectors, and name known mistakes.

    results = run(backend, vectors.read())

A backend that raises, prints, changes its inputs or returns anything but arrays is reported for that
case, and the suite goes on. In a `BackendProcess` it may also hang or die.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.subprocess_runner import SubprocessRunner
from fedref.conformance import serialise
from fedref.conformance.backends import load_backend
from fedref.conformance.edits import EditedReference, apply_edits
from fedref.conformance.mistakes import MISTAKES
from fedref.conformance.vectors import Case
from fedref.models.numerics import Array

PASSED, FAILED, NOT_OFFERED = "passed", "failed", "not offered"


class Answer(NamedTuple):
    """A backend's answer to one case: outputs by name, or the reason why there are none.

    offered : whether the backend has the call, for this case.
    """

    outputs: Mapping[str, Any] | None = None
    error: str = ""
    remarks: tuple[str, ...] = ()
    offered: bool = True


class Result(NamedTuple):
    """The verdict on one case. output : the first that differs; error : its relative error.

    mistakes : known mistakes that explain it, each by itself, or (`pair`) two of them together.
    """

    case: str
    tag: str
    status: str
    output: str = ""
    error: float | None = None
    tolerance: float | None = None
    reason: str = ""
    mistakes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    pair: bool = False


# ---- calling a backend -------------------------------------------------------------------------


def call_backend(backend: Any, case: Case, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a backend's outputs, flat. Raises what the backend raises."""
    f = getattr(backend, case.call)
    first = (case.algorithm, case.model, case.hyper) if case.algorithm else (case.model,)
    if case.call != "round":
        return name_outputs(f(*first, **given), case)
    state, out = given["state"], dict[str, Any]()
    for t, plan in enumerate(given["plans"]):
        state = f(*first, state, given["data"], plan)
        if not isinstance(state, Mapping) or "server" not in state:
            raise TypeError(
                f"round returned {type_name(state)}, expected a dictionary with 'server'"
            )
        out |= serialise.flatten(state, f"{t}.")
    return out


def name_outputs(result: Any, case: Case) -> dict[str, Any]:
    """Return outputs by name; a lone array stands for the one output that is required."""
    if isinstance(result, Mapping):
        return serialise.flatten(result)
    if len(case.required) > 1:
        names = ", ".join(case.required)
        raise TypeError(f"{type_name(result)}, expected a dictionary with {names}")
    return {case.required[0]: result}


def type_name(x: Any) -> str:
    """Return the name of x's type with its article."""
    name = type(x).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def call_safely(backend: Any, case: Case, dtype: Any = np.float64) -> Answer:
    """Return a backend's answer to a case, even if it raises, prints or changes its inputs.

    A call is not offered if there is no such function, or if it raises NotImplementedError.
    """
    if not callable(getattr(backend, case.call, None)):
        imported = case.call in getattr(backend, "imported_names", ())
        remark = f"{case.call} is imported, not defined: list it in __all__ to have it tested"
        return Answer(remarks=(remark,) * imported, offered=False)
    given, settings = case.arguments(dtype), repr((case.model, case.hyper))
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed), np.errstate(all="ignore"):
            outputs = call_backend(backend, case, given)
    except NotImplementedError:
        return Answer(offered=False)
    except (Exception, SystemExit) as error:
        line = (str(error).strip().splitlines() or [""])[0]
        return Answer(error=f"raised {type(error).__name__}: {line}"[:300])
    remarks = ("prints",) if printed.getvalue() else ()
    if settings != repr((case.model, case.hyper)) or not same_arrays(given, case.arguments(dtype)):
        return Answer(error="its inputs were changed: work on copies", remarks=remarks)
    return Answer(outputs, remarks=remarks)


def arrays_of(backend: Any, case: Case) -> dict[str, Array]:
    """Return a backend's outputs as arrays; none where it fails or does not offer the call."""
    outputs = call_safely(backend, case).outputs or {}
    return {name: np.asarray(x) for name, x in outputs.items()}


def same_arrays(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether nested dictionaries hold the same names and numbers."""
    one, other = serialise.flatten(a), serialise.flatten(b)
    return one.keys() == other.keys() and all(
        np.array_equal(x, other[name], equal_nan=x.dtype.kind == "f") for name, x in one.items()
    )


# ---- comparing ---------------------------------------------------------------------------------


def difference(got: Array, want: Array) -> float:
    """Return max |got − want| / max |want|, absolute where want is 0 everywhere."""
    if not np.size(want):
        return 0.0
    gap = float(np.max(np.abs(np.asarray(got, np.longdouble) - want)))
    scale = float(np.max(np.abs(np.asarray(want, np.float64))))
    return gap / (scale or 1.0)


def form_error(x: Any, want: Array, dtype: Any) -> str:
    """Return what is wrong with an output's type, shape or values, or ""."""
    if isinstance(x, bool | int | float) and want.ndim == 0:
        return "" if np.isfinite(x) else f"is {x}"
    if not isinstance(x, np.ndarray | np.generic):
        return f"is {type_name(x)}, expected a NumPy array"
    if x.shape != want.shape:
        return f"has shape {x.shape}, expected {want.shape}"
    if x.dtype.kind not in "biuf":
        return f"is {x.dtype}, expected {np.dtype(dtype)}"
    return "" if np.all(np.isfinite(x)) else "holds NaN or infinity"


def dtype_error(x: Any, want: Array, dtype: Any) -> str:
    """Return what is wrong with the dtype of an array of numbers, or ""."""
    if np.ndim(x) and want.dtype.kind == "f" and x.dtype != dtype:
        return f"is {x.dtype}, expected {np.dtype(dtype)}"
    return ""


class Mismatch(NamedTuple):
    """The first output that is wrong, by how much, or the reason where its form is wrong."""

    output: str
    error: float | None
    reason: str


def compare(outputs: Mapping[str, Any], case: Case, dtype: Any = np.float64) -> Mismatch | None:
    """Return the first difference, in the order in which the outputs arise, or None.

    A wrong dtype of an output that is not required is reported only if no number is wrong.
    """
    tolerance, last = case.tolerance[np.dtype(dtype).name], None
    for name, want in case.outputs.items():
        if name not in outputs:
            if name in case.required:
                return Mismatch(name, None, "is missing")
            continue
        x = outputs[name]
        wrong = form_error(x, want, dtype)
        if not wrong and (wrong := dtype_error(x, want, dtype)) and name not in case.required:
            last, wrong = last or Mismatch(name, None, wrong), ""
        if wrong:
            return Mismatch(name, None, wrong)
        error = difference(x, want)
        if not error <= (tolerance if want.dtype.kind == "f" else 0):  # NaN fits nothing
            return Mismatch(name, error, "")
    return last


def name_mistakes(
    outputs: Mapping[str, Any], mismatch: Mismatch, case: Case, dtype: Any
) -> tuple[tuple[str, ...], bool]:
    """Return the known mistakes whose required outputs were returned, and whether they are a pair.

    A pair is two mistakes at once; it is looked for where no single one fits. Where the required outputs
    are right, the first output that is wrong decides. An output that is right, but that a mistake moves,
    shows that it is not this mistake.
    """

    def agrees(names: Iterable[str], expected: Mapping[str, Any]) -> bool:
        known = {name: expected[name] for name in names if name in expected}
        narrow = case._replace(outputs=known, required=tuple(known))
        return bool(known) and compare(outputs, narrow, dtype) is None

    names = (mismatch.output,) if agrees(case.required, case.outputs) else case.required
    right = [name for name in case.outputs if name in outputs and agrees([name], case.outputs)]

    def fits(backend: Any) -> bool:
        expected = arrays_of(backend, case)
        moved = (name in expected and not agrees([name], expected) for name in right)
        return agrees(names, expected) and not any(moved)

    found = tuple(name for name in case.catches if fits(MISTAKES[name].backend))
    if found:
        return found, False
    for pair in mistake_pairs(case):
        if fits(combine_mistakes(*pair)):
            return pair, True
    return (), False


#: Pairs of mistakes that are tried at most: a round takes some milliseconds.
PAIRS = 400


def mistake_pairs(case: Case) -> Iterator[tuple[str, str]]:
    """Yield pairs of mistakes that the case catches and that are edits alone, kind "wrong" first."""
    order = {"wrong": 0, "variant": 1, "convention": 2}
    single = [name for name in case.catches if MISTAKES[name].stand_in is None]
    single.sort(key=lambda name: order[MISTAKES[name].kind])
    return islice(combinations(single, 2), PAIRS)


def combine_mistakes(one: str, other: str) -> Any:
    """Return a backend that makes two mistakes at once; None if they change the same words."""
    edits = MISTAKES[one].edits + MISTAKES[other].edits
    try:
        with apply_edits(*edits):
            return EditedReference(edits)
    except (ValueError, SyntaxError):
        return None


#: The name for numbers that were float32 somewhere in the computation.
SINGLE = "float32 somewhere"


def name_precision(
    outputs: Mapping[str, Any], mismatch: Mismatch, case: Case, dtype: Any
) -> tuple[str, ...]:
    """Return SINGLE if the numbers are right to float32's precision and are themselves float32 numbers.

    A derivative depends on nothing but the model, so there the size of the error is enough.
    """
    if np.dtype(dtype) != np.float64 or mismatch.reason:
        return ()
    if compare(outputs, case._replace(tolerance={"float64": case.tolerance["float32"]})):
        return ()
    x = np.asarray(outputs[mismatch.output])
    own = bool(np.array_equal(x, x.astype(np.float32).astype(np.float64)))
    noise = case.call in ("loss", "grad", "hvp") and (mismatch.error or 0) > 1e-9
    return (SINGLE,) if own or noise else ()


def grade(answer: Answer, case: Case, dtype: Any = np.float64) -> Result:
    """Return the verdict on a backend's answer to one case."""
    result = Result(case.name, case.tag, FAILED, remarks=answer.remarks)
    if not answer.offered:
        return result._replace(status=NOT_OFFERED)
    if answer.outputs is None:
        return result._replace(reason=answer.error)
    wrong = compare(answer.outputs, case, dtype)
    if wrong is None:
        return result._replace(status=PASSED)
    names, pair = name_mistakes(answer.outputs, wrong, case, dtype)
    names = names or name_precision(answer.outputs, wrong, case, dtype)
    allowed = case.tolerance[np.dtype(dtype).name]
    return result._replace(
        output=wrong.output, error=wrong.error, tolerance=allowed, reason=wrong.reason,
        mistakes=names, pair=pair,
    )  # fmt: skip


def select_cases(cases: Iterable[Case], only: str = "") -> list[Case]:
    """Return the case of that name, else those with `only` in a tag, call, algorithm or name."""
    cases = list(cases)
    return [c for c in cases if c.name == only] or [
        c
        for c in cases
        if any(only in text for text in (*c.tags, c.tag, c.call, c.algorithm, c.name))
    ]


def run(backend: Any, cases: Iterable[Case], dtype: Any = np.float64) -> Iterator[Result]:
    """Yield the verdicts on a backend in this process."""
    for case in cases:
        yield grade(call_safely(backend, case, dtype), case, dtype)


# ---- in a child process ------------------------------------------------------------------------

#: Seconds that importing a backend may take, or 30 times those of a case: torch and JAX need a few.
IMPORT = 120.0
import_backend = cache(load_backend)


def check_import(name: str) -> None:
    """Import the backend; a backend itself cannot travel between processes."""
    import_backend(name)


def grade_backend(name: str, case: Case, dtype: str) -> Result:
    """Return the verdict on the backend of that name, in the child."""
    return grade(call_safely(import_backend(name), case, dtype), case, dtype)


class BackendProcess(SubprocessRunner):
    """A backend in a child process: if it hangs or dies, that costs one case."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def grade(self, case: Case, dtype: str = "float64", timeout: float = 60.0) -> Result:
        """Return the verdict on one case, after at most `timeout` seconds."""
        if self.process is None:
            try:
                self.call(check_import, self.name, timeout=min(IMPORT, 30 * timeout))
            except (TimeoutError, ChildProcessError) as error:
                raise ConfigError(f"{self.name}: while it was imported: {error}") from None
        try:
            result: Result = self.call(grade_backend, self.name, case, dtype, timeout=timeout)
            return result
        except TimeoutError as error:
            reason = f"{error} (--timeout)"
        except ChildProcessError as error:
            reason = str(error)
        return Result(case.name, case.tag, FAILED, reason=reason)


def run_in_process(
    name: str, cases: Iterable[Case], dtype: str = "float64", timeout: float = 60.0
) -> Iterator[Result]:
    """Yield the verdicts as `run` does, from a child process, at most `timeout` seconds a case."""
    with BackendProcess(name) as process:
        for case in cases:
            yield process.grade(case, dtype, timeout)
