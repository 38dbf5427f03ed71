"""The tracer: the lines of `fedref/spec.py` that ran for a case, with the values that they set."""

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from fedref import spec
from fedref.judge.case import Values


class Line(NamedTuple):
    """One line that ran. function : where it stands; number : its place in `fedref/spec.py`.

    text : the line without its comment; comment : that comment, often with the paper's tag.
    values : the names that the line set, and "return" for what its function returned or yielded.
    """

    function: str
    number: int
    text: str
    comment: str
    values: Values


#: The lines of the algorithms: models, their derivatives and who takes part are not traced.
TRACED = range(spec.fedavg.__code__.co_firstlineno, spec.unpack.__code__.co_firstlineno)


#: Whose results are worth a line of their own for a case redone by hand; their own lines are not.
DERIVATIVES = spec.Risk.grad.__code__, spec.Risk.hvp.__code__, spec.gradient.__code__


def trace(work: Callable[[], object], derivatives: bool = False) -> list[Line]:
    """Return the lines of the specification's algorithms that run during `work()`, in their order.

    Those that set no array and no number are left out; so is what runs in order to differentiate.
    derivatives : whether f.grad, f.hvp and `gradient` have a line with their value, and clients one each.

    >>> f = spec.make_toy()[0]
    >>> D = spec.Batch(np.ones((1, 3)), np.array([0]))
    >>> [line.text for line in trace(lambda: spec.adapt(f, np.zeros(12), D, 0.5))]
    ['w = w - alpha * f.grad(w, D)', 'return w']
    """
    lines = list[Line]()

    def note(frame: FrameType, number: int, values: Values) -> None:
        text, _, comment = linecache.getline(spec.__file__, number).strip().partition("  # ")
        if values:
            lines.append(Line(frame.f_code.co_qualname, number, text, comment, values))

    def enter(frame: FrameType, event: str, _: object) -> Any:
        code, before, last = frame.f_code, dict(frame.f_locals), frame.f_lineno
        in_spec = code.co_filename == spec.__file__ and code.co_firstlineno in TRACED
        asked_by = frame.f_back.f_code if frame.f_back else code
        in_spec |= derivatives and code in DERIVATIVES and asked_by not in DERIVATIVES
        if not in_spec or code.co_name[0] == "<" or any(map(differentiates, before.values())):
            return None

        def step(frame: FrameType, event: str, result: object) -> Any:
            nonlocal before, last
            if event == "line" and frame.f_lineno == last:
                return step  # from Python 3.12 on a comprehension's turns, whose names are the function's
            after = dict(frame.f_locals)
            names = () if code in DERIVATIVES else after
            new = {name: after[name] for name in names if is_number(after[name])}
            new = {name: x for name, x in new.items() if before.get(name) is not x}
            if derivatives and "client" in names and before.get("client") is not after["client"]:
                new["client"] = after["client"].k
            if event == "return" and code in DERIVATIVES and is_number(after.get("w")):
                new["w"] = after["w"]  # where the derivative is taken
            if event == "return" and is_number(result):
                new["return"] = result
            note(frame, last, new)
            before, last = after, frame.f_lineno
            return step

        return step

    follow(work, enter)
    return lines


#: Python's two ways to tell what runs: which function is told, and the one that is to be.
LINES, CALLS = (sys.gettrace, sys.settrace), (sys.getprofile, sys.setprofile)


def follow(work: Callable[[], object], note: Callable[..., Any], by: Any = LINES) -> None:
    """Run `work()`; note(frame, event, ...) is told of each line, or by `CALLS` of each call."""
    now, put = by
    outer = now()
    put(note)
    try:
        work()
    finally:
        put(outer)


def differentiates(x: object) -> bool:
    """Return whether x is a dual number, or an array with a complex step."""
    return isinstance(x, spec.Dual) or (isinstance(x, np.ndarray) and x.dtype.kind == "c")


def is_number(x: object) -> bool:
    """Return whether x is a real number or array, or a sequence of them."""
    if isinstance(x, tuple | list) and not isinstance(x, spec.Client | spec.Risk | spec.Batch):
        return all(map(is_number, x)) and len(x) > 0
    return isinstance(x, np.ndarray | np.number | float) and not differentiates(x)
