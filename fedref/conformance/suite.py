"""The suite: call a backend, compare its outputs with the vectors, and name known mistakes.

    cases = vectors.read()
    results = name_mistakes(run(backend, cases), cases, "float64")

A backend that raises, prints, changes its inputs or returns anything but arrays is reported for that
case, and the suite goes on. In a `BackendProcess` it may also hang or die.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError
from fedref.boundary.subprocess_runner import SubprocessRunner
from fedref.conformance import errata
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.tensors import Tensors
from fedref.judge.case import Case, flatten
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

    mistakes : known mistakes that explain it, each by itself.
    outputs : all that was returned, where numbers differ.
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
    outputs: Mapping[str, Any] = {}


# ---- calling a backend -------------------------------------------------------------------------


def offers(backend: Any, call: str) -> bool:
    """Return whether a backend has a call."""
    return isinstance(backend, Tensors) or callable(getattr(backend, call, None))


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
        out |= flatten(state, f"{t}.")
    return out


def name_outputs(result: Any, case: Case) -> dict[str, Any]:
    """Return outputs by name; a lone array stands for the one output that is required."""
    if isinstance(result, Mapping):
        return flatten(result)
    if len(case.required) > 1:
        names = ", ".join(case.required)
        raise TypeError(f"{type_name(result)}, expected a dictionary with {names}")
    return {case.required[0]: result}


def type_name(x: Any) -> str:
    """Return the name of x's type with its article."""
    name = type(x).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


class OpenStream(io.StringIO):
    """The stream that a backend prints to, which it cannot close."""

    def close(self) -> None:
        pass


def call_safely(backend: Any, case: Case, dtype: Any = np.float64) -> Answer:
    """Return a backend's answer to a case, even if it raises, prints or changes its inputs.

    A call is not offered if there is no such function, or if it raises NotImplementedError.
    """
    if not offers(backend, case.call):
        imported = case.call in getattr(backend, "imported_names", ())
        remark = f"{case.call} is imported, not defined: list it in __all__ to have it tested"
        return Answer(remarks=(remark,) * imported, offered=False)
    given, settings = case.arguments(dtype), repr((case.model, case.hyper))
    printed = OpenStream()
    try:
        with redirect_stdout(printed), redirect_stderr(printed), np.errstate(all="ignore"):
            if isinstance(backend, Tensors):
                outputs = backend.answer_case(case, dtype)
            else:
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


def same_arrays(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether nested dictionaries hold the same names and numbers."""
    one, other = flatten(a), flatten(b)
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


# ---- naming ------------------------------------------------------------------------------------

#: A mistake explains outputs that differ from its own by less than this, relatively, or the tolerance.
SAME = {"float64": 1e-8, "float32": 1e-4}
#: Once a mistake has explained so many cases, it is not looked for in the others that it catches.
ENOUGH = 12


def name_mistakes(results: Iterable[Result], cases: Sequence[Case], dtype: str) -> list[Result]:
    """Return the results with the known mistakes that explain them.

    A mistake shows in many cases: what has explained others is tried first. Where nothing explains an
    algorithm's first case, its other cases stay unnamed.
    """
    seen, hopeless, named = Counter[str](), set[tuple[str, str]](), []
    for result, case in zip(results, cases):
        near = sorted(case.catches, key=lambda name: -seen[name])
        known = any(seen[name] >= ENOUGH for name in near)
        subject = case.call, case.algorithm
        open_case = result.status == FAILED and result.outputs and subject not in hopeless
        if open_case and not known and errata.answer(case):
            explain = partial(explains, result.outputs, case, dtype)
            names = tuple(filter(explain, filter(seen.get, near))) or tuple(filter(explain, near))
            names = names or name_precision(result, case, dtype)
            hopeless |= set() if names else {subject}
            seen.update(names)
            result = result._replace(mistakes=names)
        named.append(result)
    return settle_names(named, cases)


def explains(outputs: Mapping[str, Any], case: Case, dtype: str, name: str) -> bool:
    """Return whether the outputs are those of the specification with this mistake, and not the right.

    Only what the specification has is compared; outputs that are right must be so with the mistake.
    """
    made = errata.answer(case, name)
    both = [name for name in case.outputs if name in made and name in outputs]
    if any(np.shape(made[name]) != np.shape(outputs[name]) for name in both):
        return False
    same = max(SAME[dtype], case.tolerance.get(dtype, 0.0))
    moved = max((difference(made[name], case.outputs[name]) for name in both), default=0.0)
    return moved > same and all(difference(outputs[n], np.asarray(made[n])) <= same for n in both)


def settle_names(results: Sequence[Result], cases: Sequence[Case]) -> list[Result]:
    """Return the results; where a case has several names, keep those least contradicted elsewhere.

    A case that passes contradicts every mistake that it would catch.
    """
    alone = Counter(r.mistakes[0] for r in results if len(r.mistakes) == 1)
    against = Counter(
        name for r, case in zip(results, cases) if r.status == PASSED for name in case.catches
    )

    def settle(result: Result) -> Result:
        if len(result.mistakes) < 2:
            return result
        best = min((against[name], -alone[name]) for name in result.mistakes)
        names = (n for n in result.mistakes if (against[n], -alone[n]) == best)
        return result._replace(mistakes=tuple(names))

    return [settle(result) for result in results]


#: The name for numbers that were float32 somewhere in the computation.
SINGLE = "float32 somewhere"


def name_precision(result: Result, case: Case, dtype: str) -> tuple[str, ...]:
    """Return SINGLE if the numbers are right to float32's precision and are themselves float32 numbers.

    A derivative depends on nothing but the model, so there the size of the error is enough.
    """
    if dtype != "float64" or result.reason:
        return ()
    if compare(result.outputs, case._replace(tolerance={"float64": case.tolerance["float32"]})):
        return ()
    x = np.asarray(result.outputs[result.output])
    own = bool(np.array_equal(x, x.astype(np.float32).astype(np.float64)))
    noise = case.call in ("loss", "grad", "hvp") and (result.error or 0) > 1e-9
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
    return result._replace(
        output=wrong.output, error=wrong.error, tolerance=case.tolerance[np.dtype(dtype).name],
        reason=wrong.reason, outputs={} if wrong.reason else numbers_of(answer.outputs, case, dtype),
    )  # fmt: skip


def numbers_of(outputs: Mapping[str, Any], case: Case, dtype: Any) -> dict[str, Array]:
    """Return the outputs that the case has, as arrays; without those of another form."""
    return {
        name: np.asarray(outputs[name])
        for name, want in case.outputs.items()
        if name in outputs and not form_error(outputs[name], want, dtype)
    }


def run(backend: Any, cases: Iterable[Case], dtype: Any = np.float64) -> Iterator[Result]:
    """Yield the verdicts on a backend in this process, without names."""
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
