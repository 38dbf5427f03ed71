"""The suite: ask a backend, compare with the vectors, and say which known mistake it is.

    results = run(backend, vectors.read())

A backend that raises, prints, changes its inputs or returns something else than arrays is reported
for that case, and the suite goes on. In a `BackendProcess`, it may hang or die as well.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.subprocess_runner import SubprocessRunner
from fedref.conformance import serialise
from fedref.conformance.backends import load_backend
from fedref.conformance.vectors import Case
from fedref.models.numerics import Array

PASSED, FAILED, NOT_OFFERED = "passed", "failed", "not offered"


class Answer(NamedTuple):
    """What a backend made of a case: outputs by name, or why there are none."""

    outputs: Mapping[str, Any] | None = None
    error: str = ""
    remarks: tuple[str, ...] = ()


class Result(NamedTuple):
    """The verdict on one case. output : the first that differs; error : by how much, relative."""

    case: str
    tag: str
    status: str
    output: str = ""
    error: float | None = None
    tolerance: float | None = None
    reason: str = ""
    mistakes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


# ---- asking ------------------------------------------------------------------------------------


def call_backend(backend: Any, case: Case, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a backend's outputs, flat. Raises what the backend raises."""
    f: Callable[..., Any] = getattr(backend, case.call)
    first = (case.algorithm, case.model, case.hyper) if case.algorithm else (case.model,)
    if case.call != "round":
        return name_outputs(f(*first, **given), case)
    state, out = given["state"], dict[str, Any]()
    for t, plan in enumerate(given["plans"]):
        state = f(*first, state, given["data"], plan)
        if not isinstance(state, Mapping) or "server" not in state:
            raise TypeError(f"round returned {a_type(state)}, expected a dictionary with 'server'")
        out |= {f"{t}.{name}": x for name, x in serialise.flatten(state)}
    return out


def name_outputs(result: Any, case: Case) -> dict[str, Any]:
    """Return outputs by name; a lone array stands for the one output that is required."""
    if isinstance(result, Mapping):
        return dict(serialise.flatten(result))
    if len(case.required) > 1:
        raise TypeError(f"{a_type(result)}, expected a dictionary with {', '.join(case.required)}")
    return {case.required[0]: result}


def a_type(x: Any) -> str:
    """Return the name of x's type with its article."""
    name = type(x).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def call_safely(backend: Any, case: Case, dtype: Any = np.float64) -> Answer | None:
    """Return what a backend makes of a case, whatever it does; None if the call is not offered.

    Not offered: there is no such function, or it raises NotImplementedError.
    """
    if not callable(getattr(backend, case.call, None)):
        return None
    given = case.arguments(dtype)
    settings = repr((case.model, case.hyper))
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed), np.errstate(all="ignore"):
            outputs = call_backend(backend, case, given)
    except NotImplementedError:
        return None
    except (Exception, SystemExit) as error:
        said = (str(error).strip().splitlines() or [""])[0]
        return Answer(error=f"raised {type(error).__name__}: {said}"[:300])
    remarks = ("prints",) if printed.getvalue() else ()
    if settings != repr((case.model, case.hyper)) or not same_arrays(given, case.arguments(dtype)):
        return Answer(error="its inputs were changed: work on copies", remarks=remarks)
    return Answer(outputs, remarks=remarks)


def same_arrays(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether nested dictionaries hold the same names and numbers."""
    one, other = dict(serialise.flatten(a)), dict(serialise.flatten(b))
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


def type_error(x: Any, want: Array, dtype: Any) -> str:
    """Return what is wrong with an output's type, shape or dtype, or ""."""
    if isinstance(x, bool | int | float) and want.ndim == 0:
        return "" if np.isfinite(x) else f"is {x}"
    if not isinstance(x, np.ndarray | np.generic):
        return f"is {a_type(x)}, expected a NumPy array"
    if x.shape != want.shape:
        return f"has shape {x.shape}, expected {want.shape}"
    if x.ndim and want.dtype.kind == "f" and x.dtype != dtype:
        return f"is {x.dtype}, expected {np.dtype(dtype)}"
    if not np.issubdtype(x.dtype, np.number) and x.dtype != bool:
        return f"is {x.dtype}, expected numbers"
    return "" if np.all(np.isfinite(x)) else "holds NaN or infinity"


class Mismatch(NamedTuple):
    """The first output that is not as it should be."""

    output: str
    error: float | None
    reason: str


def compare(outputs: Mapping[str, Any], case: Case, dtype: Any = np.float64) -> Mismatch | None:
    """Return the first difference, in the order in which the outputs arise, or None."""
    tolerance = case.tolerance[np.dtype(dtype).name]
    for name, want in case.outputs.items():
        if name not in outputs:
            if name in case.required:
                return Mismatch(name, None, "is missing")
            continue
        wrong = type_error(outputs[name], want, dtype)
        if wrong:
            return Mismatch(name, None, wrong)
        error = difference(outputs[name], want)
        if error > (tolerance if want.dtype.kind == "f" else 0):
            return Mismatch(name, error, "")
    return None


def name_mistakes(
    outputs: Mapping[str, Any], mismatch: Mismatch, case: Case, dtype: Any
) -> tuple[str, ...]:
    """Return the known mistakes that give just these outputs, of those that are required.

    Where what is required is right, it is the first output that is not.
    """
    from fedref.conformance.mistakes import MISTAKES

    def agrees(names: Iterable[str], expected: Mapping[str, Any]) -> bool:
        known = {name: expected[name] for name in names if name in expected}
        return compare(outputs, case._replace(outputs=known, required=tuple(known)), dtype) is None

    wanted = (mismatch.output,) if agrees(case.required, case.outputs) else case.required
    found = []
    for name in case.catches:
        reply = call_safely(MISTAKES[name].backend, case)
        if reply is not None and reply.outputs is not None:
            expected = {key: np.asarray(x) for key, x in reply.outputs.items()}
            if any(key in expected for key in wanted) and agrees(wanted, expected):
                found.append(name)
    return tuple(found)


def grade(reply: Answer | None, case: Case, dtype: Any = np.float64) -> Result:
    """Return the verdict on a backend's answer to one case."""
    if reply is None:
        return Result(case.name, case.tag, NOT_OFFERED)
    if reply.outputs is None:
        return Result(case.name, case.tag, FAILED, reason=reply.error, remarks=reply.remarks)
    wrong = compare(reply.outputs, case, dtype)
    if wrong is None:
        return Result(case.name, case.tag, PASSED, remarks=reply.remarks)
    names = () if wrong.reason else name_mistakes(reply.outputs, wrong, case, dtype)
    allowed = case.tolerance[np.dtype(dtype).name]
    return Result(
        case.name, case.tag, FAILED, wrong.output, wrong.error, allowed, wrong.reason, names,
        reply.remarks,
    )  # fmt: skip


def select_cases(cases: Iterable[Case], only: str = "") -> list[Case]:
    """Return those whose tag, call, algorithm or name holds the text."""
    return [
        case
        for case in cases
        if any(only in text for text in (case.tag, case.call, case.algorithm, case.name))
    ]


def run(backend: Any, cases: Iterable[Case], dtype: Any = np.float64) -> Iterator[Result]:
    """Yield the verdicts on a backend in this process."""
    for case in cases:
        yield grade(call_safely(backend, case, dtype), case, dtype)


# ---- in a process of its own -------------------------------------------------------------------

#: What importing a backend may take, in seconds: torch and JAX need a few.
IMPORT = 120.0
import_backend = cache(load_backend)


def check_import(name: str) -> None:
    import_backend(name)


def grade_backend(name: str, case: Case, dtype: str) -> Result:
    """What the child is asked for."""
    return grade(call_safely(import_backend(name), case, dtype), case, dtype)


class BackendProcess(SubprocessRunner):
    """A backend, by its name, in a process of its own: one that hangs or dies costs one case."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def grade(self, case: Case, dtype: str = "float64", timeout: float = 60.0) -> Result:
        """Return the verdict on one case, after at most `timeout` seconds."""
        if self.process is None:
            try:
                self.call(check_import, self.name, timeout=IMPORT)
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
    """Yield the verdicts on the backend of that name, as `run`, at most `timeout` seconds a case."""
    with BackendProcess(name) as process:
        for case in cases:
            yield process.grade(case, dtype, timeout)
