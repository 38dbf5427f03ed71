"""The suite: ask a backend, compare with the vectors, and say which known mistake it is.

    results = run(backend, vectors.read())

Every call is guarded: a backend that raises, prints, changes its inputs or returns something else
than arrays is reported for that case, and the suite goes on.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import numpy as np

from fedref.conformance import plain
from fedref.conformance.vectors import Case
from fedref.models.numerics import Array

CALLS = (
    "loss", "grad", "hvp", "meta_gradient", "client", "aggregate", "round", "evaluate",
    "dissimilarity",
)  # fmt: skip
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


def ask(backend: Any, case: Case, dtype: Any = np.float64) -> dict[str, Any]:
    """A backend's outputs, flat. Raises what the backend raises."""
    f: Callable[..., Any] = getattr(backend, case.call)
    first = (case.algorithm, case.model, case.hyper) if case.algorithm else (case.model,)
    given = case.arguments(dtype)
    if case.call != "round":
        return named(f(*first, **given), case)
    state, out = given["state"], dict[str, Any]()
    for t, plan in enumerate(given["plans"]):
        state = f(*first, state, given["data"], plan)
        if not isinstance(state, Mapping) or "server" not in state:
            raise TypeError(f"round returned {kind(state)}, expected a dictionary with 'server'")
        out |= {f"{t}.{name}": x for name, x in plain.flat(state)}
    return out


def named(result: Any, case: Case) -> dict[str, Any]:
    """A lone array stands for the one output that is required."""
    if isinstance(result, Mapping):
        return dict(plain.flat(result))
    if len(case.required) > 1:
        raise TypeError(f"{kind(result)}, expected a dictionary with {', '.join(case.required)}")
    return {case.required[0]: result}


def kind(x: Any) -> str:
    name = type(x).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def offers(backend: Any, case: Case) -> bool:
    return callable(getattr(backend, case.call, None))


def answer(backend: Any, case: Case, dtype: Any = np.float64) -> Answer | None:
    """The same, guarded; None if it is not offered (no such function, or NotImplementedError)."""
    if not offers(backend, case):
        return None
    watched = Watched(case)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed), np.errstate(all="ignore"):
            outputs = ask(backend, watched, dtype)  # type: ignore[arg-type]
    except NotImplementedError:
        return None
    except (Exception, SystemExit) as error:
        said = (str(error).strip().splitlines() or [""])[0]
        return Answer(error=f"raised {type(error).__name__}: {said}"[:300])
    remarks = ["prints"] * bool(printed.getvalue())
    if watched.changed():
        return Answer(error="its inputs were changed: work on copies", remarks=tuple(remarks))
    return Answer(outputs, remarks=tuple(remarks))


class Watched:
    """A case that keeps the inputs which it handed out, to see whether they were changed."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.before: dict[str, Array] = {}
        self.given: dict[str, Any] = {}
        self.settings = (repr(case.model), repr(case.hyper))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["case"], name)

    def arguments(self, dtype: Any) -> dict[str, Any]:
        self.given = self.case.arguments(dtype)
        self.before = {name: x.copy() for name, x in plain.flat(self.given)}
        return self.given

    def changed(self) -> bool:
        now = dict(plain.flat(self.given))
        same = now.keys() == self.before.keys() and all(
            np.array_equal(now[name], x, equal_nan=x.dtype.kind == "f")
            for name, x in self.before.items()
        )
        return not same or self.settings != (repr(self.case.model), repr(self.case.hyper))


# ---- comparing ---------------------------------------------------------------------------------


def difference(got: Array, want: Array) -> float:
    """max |got − want| / max |want| (or absolute, where want is 0 everywhere)."""
    if not np.size(want):
        return 0.0
    gap = float(np.max(np.abs(np.asarray(got, np.longdouble) - want)))
    scale = float(np.max(np.abs(np.asarray(want, np.float64))))
    return gap / (scale or 1.0)


def form(x: Any, want: Array, dtype: Any) -> str:
    """What is wrong with the form of an output, or nothing."""
    if isinstance(x, bool | int | float) and want.ndim == 0:
        return "" if np.isfinite(x) else f"is {x}"
    if not isinstance(x, np.ndarray | np.generic):
        return f"is {kind(x)}, expected a NumPy array"
    if x.shape != want.shape:
        return f"has shape {x.shape}, expected {want.shape}"
    if x.ndim and want.dtype.kind == "f" and x.dtype != dtype:
        return f"is {x.dtype}, expected {np.dtype(dtype)}"
    if not np.issubdtype(x.dtype, np.number) and x.dtype != bool:
        return f"is {x.dtype}, expected numbers"
    return "" if np.all(np.isfinite(x)) else "holds NaN or infinity"


class Gap(NamedTuple):
    """The first output that is not as it should be."""

    output: str
    error: float | None
    reason: str


def compare(outputs: Mapping[str, Any], case: Case, dtype: Any = np.float64) -> Gap | None:
    """The first difference in the order in which the outputs arise, or None."""
    tolerance = case.tolerance[np.dtype(dtype).name]
    for name, want in case.outputs.items():
        if name not in outputs:
            if name in case.required:
                return Gap(name, None, "is missing")
            continue
        wrong = form(outputs[name], want, dtype)
        if wrong:
            return Gap(name, None, wrong)
        error = difference(outputs[name], want)
        if error > (tolerance if want.dtype.kind == "f" else 0):
            return Gap(name, error, "")
    return None


def diagnose(outputs: Mapping[str, Any], case: Case, dtype: Any) -> tuple[str, ...]:
    """The known mistakes that give just these outputs."""
    from fedref.conformance.mistakes import MISTAKES

    found = []
    for name in case.catches:
        wrong = answer(MISTAKES[name].backend, case)
        if wrong is None or wrong.outputs is None:
            continue
        mistaken = {key: np.asarray(x) for key, x in wrong.outputs.items() if key in case.outputs}
        told = {key: x for key, x in outputs.items() if key in mistaken}
        required = tuple(key for key in case.required if key in mistaken)
        if (
            told
            and compare(told, case._replace(outputs=mistaken, required=required), dtype) is None
        ):
            found.append(name)
    return tuple(found)


def judge(reply: Answer | None, case: Case, dtype: Any = np.float64) -> Result:
    """The verdict on a backend's answer to one case."""
    if reply is None:
        return Result(case.name, case.tag, NOT_OFFERED)
    if reply.outputs is None:
        return Result(case.name, case.tag, FAILED, reason=reply.error, remarks=reply.remarks)
    gap = compare(reply.outputs, case, dtype)
    if gap is None:
        return Result(case.name, case.tag, PASSED, remarks=reply.remarks)
    return Result(
        case.name, case.tag, FAILED, *gap[:2], case.tolerance[np.dtype(dtype).name], gap.reason,
        () if gap.reason else diagnose(reply.outputs, case, dtype), reply.remarks,
    )  # fmt: skip


def selected(cases: Iterable[Case], only: str = "") -> list[Case]:
    """Those whose tag, call, algorithm or name holds the text."""
    return [
        case
        for case in cases
        if any(only in text for text in (case.tag, case.call, case.algorithm, case.name))
    ]


def run(backend: Any, cases: Iterable[Case], dtype: Any = np.float64) -> Iterator[Result]:
    """Verdicts on a backend in this process; `guard.run` stops one that hangs."""
    for case in cases:
        yield judge(answer(backend, case, dtype), case, dtype)
