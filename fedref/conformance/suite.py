"""The suite: call a backend, and compare its outputs with the vectors.

    cases = vectors.read()
    results = name_mistakes(run(backend, cases), cases, "float64")      # naming.py

A backend that raises, prints, changes its inputs or returns anything but arrays is reported for that
case, and the suite goes on. In a `BackendProcess` it may also hang, fork or die. The first case of each
function and algorithm, and each that fails, is asked twice: answers may not depend on earlier calls.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.errors import ConfigError, own_line
from fedref.boundary.subprocess_runner import SubprocessRunner
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.tensors import Tensors
from fedref.judge.case import Case, flatten
from fedref.judge.compare import compare, dtype_remarks, form_error, type_name
from fedref.models.numerics import Array

PASSED, FAILED, NOT_OFFERED = "passed", "failed", "not offered"
DERIVATIVES = "loss", "grad", "hvp", "meta_gradient"


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

    mistakes : known mistakes that explain it, each by itself; looked : whether they were looked for.
    evidence : what can be seen in the numbers. outputs : all that was returned, where numbers differ.
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
    evidence: str = ""
    looked: bool = True


# ---- calling a backend -------------------------------------------------------------------------


def offers(backend: Any, call: str) -> bool:
    """Return whether a backend has a call."""
    try:
        return isinstance(backend, Tensors) or callable(getattr(backend, call, None))
    except Exception:  # a __getattr__ may raise anything
        return False


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


class OpenStream(io.StringIO):
    """The stream that a backend prints to, which it cannot close."""

    def close(self) -> None:
        pass


def call_safely(backend: Any, case: Case, dtype: Any = np.float64) -> Answer:
    """Return a backend's answer to a case, even if it raises, prints or changes its inputs.

    A call is not offered if there is no such function, or if it raises NotImplementedError.
    """
    if not offers(backend, case.call):
        imported = isinstance(backend, SimpleNamespace) and case.call in getattr(
            backend, "imported_names", ()
        )
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
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Answer(error=f"raised {first_line(error)}"[:300] + place_of(error))
    remarks = ("prints",) if printed.getvalue() else ()
    if settings != repr((case.model, case.hyper)) or not same_arrays(given, case.arguments(dtype)):
        return Answer(error="its inputs were changed: work on copies", remarks=remarks)
    return Answer(outputs, remarks=remarks)


def first_line(error: BaseException) -> str:
    """Return an error's type and the first line of what it says, if it says something."""
    try:
        said = str(error).strip().splitlines()
    except Exception:
        said = []
    return ": ".join([type(error).__name__, *said[:1]])


def place_of(error: BaseException) -> str:
    """Return the last line of the backend's own code in an error's traceback, " (FILE:LINE)", or ""."""
    place = own_line(error)
    return f" ({Path(place[0]).name}:{place[1]})" if place else ""


def same_arrays(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether nested dictionaries hold the same names and numbers."""
    one, other = flatten(a), flatten(b)
    return one.keys() == other.keys() and all(
        np.array_equal(x, other[name], equal_nan=x.dtype.kind == "f") for name, x in one.items()
    )


# ---- verdicts -----------------------------------------------------------------------------------


def grade(answer: Answer, case: Case, dtype: Any = np.float64) -> Result:
    """Return the verdict on a backend's answer to one case."""
    result = Result(case.name, case.tag, FAILED, remarks=answer.remarks)
    if not answer.offered:
        return result._replace(status=NOT_OFFERED)
    if answer.outputs is None:
        return result._replace(reason=answer.error)
    with np.errstate(all="ignore"):
        wrong = compare(answer.outputs, case, dtype)
    if wrong is None:
        remarks = (*answer.remarks, *dtype_remarks(answer.outputs, case, dtype))
        return result._replace(status=PASSED, remarks=remarks)
    if case.convention and not wrong.reason:
        return result._replace(status=PASSED, remarks=answer.remarks + convention_remarks(case))
    return result._replace(
        output=wrong.output, error=wrong.error, tolerance=case.tolerance[np.dtype(dtype).name],
        reason=wrong.reason, outputs={} if wrong.reason else numbers_of(answer.outputs, case, dtype),
    )  # fmt: skip


#: Where it is stated what a derivative is at a kink: family, activation or pooling of the model.
CONVENTIONS = {
    "svm": "the slope at margin 1 is 0", "relu": "ReLU′(0) = 0", "elu": "ELU″(0) = 0",
    "max": "a tie in max-pooling goes to the first",
}  # fmt: skip


def convention_remarks(case: Case) -> tuple[str, ...]:
    """Return what to say of a derivative that differs at a kink; of rounds nothing is stated."""
    kinds = [case.model.get(name) for name in ("family", "activation", "pool")]
    words = [CONVENTIONS[x] for x in kinds if x in CONVENTIONS and case.call in DERIVATIVES]
    return tuple(f"{case.call} differs at a kink: here {word}" for word in words)


def numbers_of(outputs: Mapping[str, Any], case: Case, dtype: Any) -> dict[str, Array]:
    """Return the outputs that the case has, as arrays; without those of another form."""
    return {
        name: np.asarray(outputs[name])
        for name, want in case.outputs.items()
        if name in outputs and not form_error(outputs[name], want, dtype)
    }


def run(backend: Any, cases: Iterable[Case], dtype: Any = np.float64) -> Iterator[Result]:
    """Yield the verdicts on a backend in this process, without names."""
    for case, first in with_firsts(cases):
        yield grade_twice(backend, case, dtype, first)


def with_firsts(cases: Iterable[Case]) -> Iterator[tuple[Case, bool]]:
    """Yield each case, and whether it is the first of its function and algorithm."""
    seen = set[tuple[str, str]]()
    for case in cases:
        yield case, (case.call, case.algorithm) not in seen
        seen.add((case.call, case.algorithm))


def grade_twice(backend: Any, case: Case, dtype: Any, always: bool) -> Result:
    """Return the verdict on one answer; ask again if it fails, or `always`, and compare both."""
    answer = call_safely(backend, case, dtype)
    result = grade(answer, case, dtype)
    if answer.outputs is None or not (always or result.status == FAILED):
        return result
    again = call_safely(backend, case, dtype)
    if is_same(answer, again):
        return result
    reason = f"answers differently when asked twice{f': {again.error}' if again.error else ''}"
    return Result(case.name, case.tag, FAILED, reason=reason, remarks=answer.remarks)


def is_same(one: Answer, other: Answer) -> bool:
    """Return whether two answers to one question have the same outputs, to the bit."""
    if other.outputs is None or (one.outputs or {}).keys() != other.outputs.keys():
        return False
    pairs = [(np.asarray(x), np.asarray(other.outputs[n])) for n, x in (one.outputs or {}).items()]
    return all(
        x.dtype.kind == "O" or np.array_equal(x, y, equal_nan=x.dtype.kind in "fc")
        for x, y in pairs
    )


# ---- in a child process ------------------------------------------------------------------------

#: Seconds that importing a backend may take, or 30 times those of a case: torch needs a few.
IMPORT = 120.0
import_backend = cache(load_backend)


def check_import(name: str) -> None:
    """Import the backend; a backend itself cannot travel between processes."""
    import_backend(name)


def grade_backend(name: str, case: Case, dtype: str, always: bool) -> Result:
    """Return the verdict on the backend of that name, in the child."""
    return grade_twice(import_backend(name), case, dtype, always)


def call_backend_safely(name: str, case: Case, dtype: str) -> Answer:
    """Return the answer of the backend of that name, in the child."""
    answer = call_safely(import_backend(name), case, dtype)
    if answer.outputs is None:
        return answer
    wrong = compare(answer.outputs, case._replace(tolerance={dtype: np.inf}), dtype)
    if wrong is not None:  # what is no array may not travel
        return Answer(error=f"{wrong.output} {wrong.reason}", remarks=answer.remarks)
    return answer._replace(outputs=numbers_of(answer.outputs, case, dtype))


def offers_by_name(name: str, call: str) -> bool:
    """Return whether the backend of that name has a call, in the child."""
    return offers(import_backend(name), call)


class InProcess(NamedTuple):
    """A backend in this process, with the questions that a `BackendProcess` answers."""

    backend: Any

    def offers(self, call: str) -> bool:
        return offers(self.backend, call)

    def answer(self, case: Case, dtype: str) -> Answer:
        return call_safely(self.backend, case, dtype)


class BackendProcess(SubprocessRunner):
    """A backend in a child process: if it hangs or dies, that costs one case."""

    def __init__(self, name: str, timeout: float = 60.0) -> None:
        super().__init__()
        self.name, self.timeout = name, timeout

    def ask(self, question: Any, *about: Any) -> Any:
        """Return the child's answer, after at most `timeout` seconds; import the backend first."""
        if self.process is None:
            try:
                self.call(check_import, self.name, timeout=min(IMPORT, 30 * self.timeout))
            except (TimeoutError, ChildProcessError) as error:
                raise ConfigError(f"{self.name}: while it was imported: {error}") from None
        try:
            return self.call(question, self.name, *about, timeout=self.timeout)
        except TimeoutError as error:
            raise ChildProcessError(f"{error} (--timeout)") from None
        except ChildProcessError:
            raise
        except Exception as error:  # a backend may change what the suite in its process rests on
            self.kill()
            raise ChildProcessError(f"the suite beside it raised {first_line(error)}") from None

    def grade(self, case: Case, dtype: str = "float64", always: bool = False) -> Result:
        """Return the verdict on one case. always : ask twice even if it passes."""
        try:
            result: Result = self.ask(grade_backend, case, dtype, always)
            return result
        except ChildProcessError as error:
            return Result(case.name, case.tag, FAILED, reason=str(error))

    def offers(self, call: str) -> bool:
        return bool(self.ask(offers_by_name, call))

    def answer(self, case: Case, dtype: str) -> Answer:
        try:
            answer: Answer = self.ask(call_backend_safely, case, dtype)
            return answer
        except ChildProcessError as error:
            return Answer(error=str(error))


def run_in_process(
    name: str, cases: Iterable[Case], dtype: str = "float64", timeout: float = 60.0
) -> Iterator[Result]:
    """Yield the verdicts as `run` does, from a child process, at most `timeout` seconds a case."""
    with BackendProcess(name, timeout) as process:
        for case, first in with_firsts(cases):
            yield process.grade(case, dtype, first)
