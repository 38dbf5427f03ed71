"""The suite: call a backend, and compare its outputs with the vectors.

    cases = vectors.read()
    results = name_mistakes(run(backend, cases), cases, "float64")      # naming.py

A backend that raises, prints, changes its inputs or returns anything but arrays is reported for that case,
and the suite goes on. A `BackendProcess` runs the backend in a child process and compares its answers in
this one, so a backend may also hang, fork, die or change NumPy. The first case of each function and
algorithm, and each that fails, is asked twice: answers may not depend on earlier calls. Nor may later calls
change what the first case was answered.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from math import inf
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fedref.boundary.errors import ConfigError, user_line
from fedref.conformance.backends import load_backend
from fedref.conformance.backends.reference import LOOP
from fedref.conformance.backends.tensors import Tensors
from fedref.conformance.subprocess_runner import SubprocessRunner
from fedref.draws import serialise
from fedref.judge import compare, verdicts
from fedref.judge.adapter import try_answer
from fedref.judge.case import Case, Values, flatten
from fedref.judge.compare import NoNumbers, difference, is_clear, type_name
from fedref.judge.verdicts import FAILED, NOT_OFFERED, PASSED, Answer, Graded, Result, grade

# ---- calling a backend -------------------------------------------------------------------------


def offers(backend: object, call: str) -> bool:
    """Return whether a backend has a call."""
    try:
        return isinstance(backend, Tensors) or callable(getattr(backend, call, None))
    except BaseException:  # a __getattr__ may raise anything
        return False


def call_backend(backend: object, case: Case, given: Values) -> dict[str, Any]:
    """Return a backend's outputs, flat. Raises what the backend raises."""
    f = getattr(backend, case.call)
    first = (case.algorithm, case.model, case.hyper) if case.algorithm else (case.model,)
    if case.call != "round":
        return name_outputs(f(*first, **given), case)
    state, out, copies = given["state"], dict[str, Any](), dict[str, Any]()
    for t, plan in enumerate(given["plans"]):
        state = f(*first, state, given["data"], plan)
        if not isinstance(state, Mapping) or "server" not in state:
            wrong = f"round returned {type_name(state)}"
            raise TypeError(f"{wrong}, expected a dictionary with 'server'")
        returned = flatten(state, f"{t}.")
        out |= returned
        copies |= {name: np.array(x) for name, x in returned.items() if isinstance(x, np.ndarray)}
    require_unchanged(out, copies, "a later round")
    return out


class Overwritten(Exception):
    """An array that was returned, and what it held is gone."""


def require_unchanged(returned: Values, copies: Values, by: str) -> None:
    """Raise `Overwritten` if an array that was returned is no longer what its copy is."""
    for name, x in copies.items():
        if isinstance(x, np.ndarray) and x.tobytes() != returned.get(name, x).tobytes():
            raise Overwritten(f"{by} changed {name}, which was returned: return copies")


def name_outputs(result: object, case: Case) -> dict[str, Any]:
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


def call_safely(
    backend: object, case: Case, dtype: DTypeLike = np.float64, keeps: bool = False
) -> Answer:
    """Return a backend's answer to a case, even if it raises, prints or changes its inputs.

    A call is not offered if there is no such function, or if it raises NotImplementedError.
    keeps : whether to ask another case, which may not change what was returned.
    """
    if not offers(backend, case.call):
        known = vars(backend) if isinstance(backend, SimpleNamespace) else {}
        remark = f"{case.call} is imported, not defined: list it in __all__ to have it tested"
        imported = case.call in known.get("imported_names", ())
        return Answer(remarks=(remark,) if imported else (), offered=False)
    given = case.arguments(dtype)
    before = settings_and_bytes(case, given)
    printed = OpenStream()
    try:
        with redirect_stdout(printed), redirect_stderr(printed), np.errstate(all="ignore"):
            if isinstance(backend, Tensors):
                outputs = backend.answer_case(case, dtype)
            else:
                outputs = call_backend(backend, case, given)
        plain = {str(name): as_plain(x) for name, x in outputs.items()}
        changed = settings_and_bytes(case, given) != before
        if keeps and not isinstance(backend, Tensors):
            halves = {name: x / 2 if x.dtype.kind == "f" else x for name, x in case.inputs.items()}
            call_safely(backend, case._replace(inputs=halves), dtype)
            require_unchanged(outputs, plain, "another call")
    except NotImplementedError:
        return Answer(offered=False)
    except Overwritten as error:
        return Answer(error=str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Answer(error=f"raised {first_line(error)}"[:300] + place_of(error))
    remarks = ("prints",) if printed.getvalue() else ()
    if changed:
        return Answer(error="its inputs were changed: work on copies", remarks=remarks)
    return Answer(plain, remarks=remarks)


def first_line(error: BaseException) -> str:
    """Return an error's type and the first line of what it says, if it says something."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    return ": ".join([type(error).__name__, *lines[:1]])


def place_of(error: BaseException) -> str:
    """Return the last line of the backend's own code in an error's traceback, " (FILE:LINE)", or ""."""
    place = user_line(error)
    return f" ({Path(place[0]).name}:{place[1]})" if place else ""


def as_plain(x: Any) -> Any:
    """Return an output as numbers that any process can read; `NoNumbers` where it holds anything else.

    To read an object of another kind would run the backend's own code, in this process, too.
    """
    if isinstance(x, np.ndarray | np.generic):
        native = x.dtype.kind in "biufc" and x.dtype.isbuiltin != 2  # 2: of another library
        return np.array(x) if native else NoNumbers(f"an array of {x.dtype}")
    whole = isinstance(x, int) and abs(x) < 2**63
    return x.real if whole or isinstance(x, float) else NoNumbers(type_name(x))


def settings_and_bytes(case: Case, given: Values) -> Any:
    """Return a case's settings and its inputs' bytes: equal before and after if a backend changed neither."""
    inputs = [
        (name, x.dtype, x.shape, x.tobytes()) if isinstance(x, np.ndarray) else (name, type(x))
        for name, x in flatten(given).items()
    ]
    return repr((case.model, case.hyper)), inputs


# ---- verdicts on drawn cases ---------------------------------------------------------------------


def with_answer(case: Case) -> Case | None:
    """Return the case with its answer; None if the answer is rounding alone, or all rows are 0."""
    outputs = try_answer(case)
    rows = [x.any() for name, x in case.inputs.items() if name.endswith("X")]
    if not outputs or (rows and not any(rows)):
        return None
    required = tuple(outputs) if case.call != "evaluate" else ("losses",)
    if case.call == "client":
        required = tuple(n for n in outputs if n.startswith(("upload.", "client.")))
    if case.call in ("round", "aggregate"):
        start = [n.split("server.")[1] for n in case.inputs if "server." in n]
        main = serialise.required_state(case.algorithm, start, case.hyper)
        ends = tuple(f"server.{n}" for n in main)
        required = tuple(n for n in outputs if n.endswith(ends))
    floats = [n for n, x in outputs.items() if x.dtype.kind == "f"]
    unclear = {n for n in floats if not is_clear(outputs[n], least=compare.FEW_DIGITS)}
    if unclear & set(required):
        return None
    unclear |= {n for n in floats if n.endswith(".F") and not outputs[n].ndim}  # 0 until renewed
    tag = f"{case.algorithm} {case.call}".strip()
    case = case._replace(name=f"drawn {tag}", tag=tag, tolerance=compare.tolerance(1.0))
    clear = {n: x for n, x in outputs.items() if n not in unclear}
    return case._replace(outputs=clear, required=required)


def lost_digits(case: Case) -> float:
    """Return how far fedref's own outputs in float64 and in longdouble differ, in units of rounding."""
    eps = float(np.finfo(float).eps)
    double, exact = (call_safely(LOOP, case, dtype).outputs for dtype in (float, np.longdouble))
    if not (double and exact):
        return 0.0
    floats = [n for n, x in case.outputs.items() if x.dtype.kind == "f"]
    return max(difference(double[n], exact[n]) for n in floats) / eps


def grade_drawn(backend: "Backend", case: Case, dtype: str) -> Graded | None:
    """Return the verdict on a backend's answer to a case, or None if the case does not count.

    The tolerance is measured only where it decides.
    """
    answered = with_answer(case)
    if answered is None:
        return None
    result = grade_twice(backend, answered, dtype)
    if result.status == NOT_OFFERED:
        return None
    if not result.outputs:  # it passes, or its numbers are not what is wrong
        return Graded(answered, result)
    condition = verdicts.measure(answered)
    if condition < compare.KINK:
        condition = max(condition, lost_digits(answered))
    return verdicts.grade_again(answered, result, dtype, condition)


# ---- answers of one backend ----------------------------------------------------------------------


def grade_twice(
    backend: "Backend", case: Case, dtype: str = "float64", always: bool = False
) -> Result:
    """Return the verdict on one answer; if its numbers are wrong, or `always`, ask again and compare.

    always : whether what was returned stays as it is is asked, too, when other numbers are asked for.
    """
    answer = backend.answer(case, dtype)
    result = grade(answer, case, dtype)
    if answer.outputs is None or not (result.outputs or (always and result.status == PASSED)):
        return result
    again = backend.answer(case, dtype, always)
    if result.status == PASSED == grade(again, case, dtype).status:
        return result
    first, second = (verdicts.numbers_of(x.outputs or {}, case, dtype) for x in (answer, again))
    most = case.tolerance[np.dtype(dtype).name]  # sums on several threads differ in their last bits
    both = ((x, second[name]) for name, x in first.items())
    if first.keys() == second.keys() and all(difference(*pair) <= most for pair in both):
        return result
    reason = f"{verdicts.TWICE}: {again.error}" if again.error else verdicts.TWICE
    return Result(case.name, case.tag, FAILED, reason=reason, remarks=answer.remarks)


def grade_all(
    backend: "Backend", cases: Iterable[Case], dtype: str, until: float = inf
) -> Iterator[Result]:
    """Yield the verdicts; the first case of each function and algorithm is asked twice.

    until : the time by `monotonic()` from which no case is asked. Nor is one asked of a backend that cannot
    be imported again.
    """
    seen = set[tuple[str, str]]()
    for case in cases:
        if monotonic() > until or backend.is_lost:
            yield not_asked(case)
        else:
            result = grade_twice(backend, case, dtype, (case.call, case.algorithm) not in seen)
            if result.status != NOT_OFFERED:
                seen.add((case.call, case.algorithm))
            yield result


def not_asked(case: Case) -> Result:
    return Result(case.name, case.tag, verdicts.NOT_ASKED)


def run(backend: object, cases: Iterable[Case], dtype: str = "float64") -> Iterator[Result]:
    """Yield the verdicts on a backend in this process, without names."""
    return grade_all(InProcess(backend), cases, dtype)


class InProcess(NamedTuple):
    """A backend in this process, with what a `BackendProcess` asks of it in another."""

    backend: object
    is_lost: bool = False

    def offers(self, call: str) -> bool:
        return offers(self.backend, call)

    def answer(self, case: Case, dtype: str = "float64", keeps: bool = False) -> Answer:
        """Return the answer to one case."""
        return call_safely(self.backend, case, dtype, keeps)


# ---- in a child process ------------------------------------------------------------------------

#: Seconds that importing a backend may take, or 30 times those of a case: torch needs a few.
IMPORT = 120.0
import_backend = cache(load_backend)


def ask_backend(name: str, method: str, *about: object) -> Any:
    """Return what the backend of that name answers. It runs in the child: a backend cannot be pickled.

    Nor can an error of a backend's own class: the parent could unpickle it only with the backend's code.
    """
    try:
        return getattr(InProcess(import_backend(name)), method)(*about)
    except ConfigError:
        raise
    except Exception as error:  # a backend may change what the suite in its process rests on
        raise RuntimeError(f"the suite beside it raised {first_line(error)}") from None


class BackendProcess(SubprocessRunner):
    """A backend in a child process: if it hangs or dies, that costs one case.

    is_lost : whether it could not be imported again.
    """

    def __init__(self, name: str, timeout: float = 60.0) -> None:
        super().__init__()
        self.name, self.timeout, self.begun, self.is_lost = name, timeout, False, False

    def ask(self, method: str, *about: object) -> Any:
        """Return the child's answer, after at most `timeout` seconds; import the backend first."""
        if self.process is None:
            try:
                longest = min(IMPORT, 30 * self.timeout)
                self.call(ask_backend, self.name, "offers", "loss", timeout=longest)
                self.begun = True
            except (TimeoutError, ChildProcessError, ConfigError) as error:
                if self.begun:  # this costs the cases that are left, not all verdicts so far
                    self.is_lost = True
                    raise ChildProcessError(f"cannot be imported again: {error}") from None
                if isinstance(error, ConfigError):
                    raise
                raise ConfigError(f"{self.name}: while it was imported: {error}") from None
        try:
            return self.call(ask_backend, self.name, method, *about, timeout=self.timeout)
        except TimeoutError as error:
            raise ChildProcessError(f"{error} (--timeout)") from None
        except Exception as error:
            self.kill()
            raise ChildProcessError(str(error)) from None

    def offers(self, call: str) -> bool:
        try:
            return bool(self.ask("offers", call))
        except ChildProcessError:  # the first case says so
            return True

    def answer(self, case: Case, dtype: str = "float64", keeps: bool = False) -> Answer:
        """Return the answer to one case, whose outputs it does not see."""
        try:
            answer: Answer = self.ask("answer", case._replace(outputs={}), dtype, keeps)
            return answer
        except ChildProcessError as error:
            return Answer(error=str(error))


Backend = InProcess | BackendProcess
