"""Edits, which for a while replace a line of a running function by a wrong one, and other plans."""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from fedref.conformance.backends.reference import LOOP, Reference, Values
from fedref.models.numerics import Array


class Edit(NamedTuple):
    """One place in a function: the right text, and the wrong text that replaces it.

    Further lines of `wrong` get the indentation of the line with `right`.
    """

    function: Any
    right: str
    wrong: str


def read_source(function: Any) -> str:
    """Return a function's source from the left margin, without any wrappers around it."""
    return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))


def edit_source(edit: Edit, text: str = "") -> str:
    """Return the function's source with the mistake. text : the source after earlier edits, if any."""
    text = text or read_source(edit.function)
    if text.count(edit.right) != 1:
        raise ValueError(
            f"{edit.function.__qualname__} holds {edit.right!r} {text.count(edit.right)} times"
        )
    at = text.index(edit.right)
    line = text[text.rindex("\n", 0, at) + 1 : at]
    indent = line[: len(line) - len(line.lstrip())]
    return text.replace(edit.right, edit.wrong.replace("\n", f"\n{indent}"))


@cache
def compile_edits(edits: tuple[Edit, ...]) -> CodeType:
    """Return the wrong function's code, compiled among the names of the right one."""
    f = inspect.unwrap(edits[0].function)
    text = read_source(f)
    for edit in edits:
        text = edit_source(edit, text)
    names = dict(f.__globals__)
    exec(compile(text[text.index("def ") :], f"{f.__qualname__}, wrong", "exec"), names)
    code: CodeType = names[f.__name__].__code__
    return code


@contextmanager
def apply_edits(*edits: Edit) -> Iterator[None]:
    """Replace the lines in all of this process."""
    by_function: dict[Any, tuple[Edit, ...]] = {}
    for edit in edits:
        f = inspect.unwrap(edit.function)
        by_function[f] = (*by_function.get(f, ()), edit)
    codes = [(f, f.__code__, compile_edits(own)) for f, own in by_function.items()]
    for f, _, wrong in codes:
        f.__code__ = wrong
    try:
        yield
    finally:
        for f, right, _ in codes:
            f.__code__ = right


# ---- mistakes ----------------------------------------------------------------------------------


class Mistake(NamedTuple):
    """A row: an equation that does not hold with it, and what would be right.

    edits : the wrong line, then the other lines that have to change in a backend with the mistake.
    kind : wrong, a variant (another paper or library defines it so), or a convention.
    stand_in : a backend with the mistake, if the cases contain what the wrong line would draw.
    effect : its consequence in a run, in one line.
    """

    tag: str
    line: str
    edits: tuple[Edit, ...]
    kind: str = "wrong"
    stand_in: Any = None
    effect: str = ""

    @property
    def backend(self) -> Any:
        """A backend that makes this mistake and nothing else."""
        return self.stand_in or EditedReference(self.edits)


def row(tag: str, line: str, effect: str, *edits: Edit, **more: Any) -> Mistake:
    """Return a row of the table, with its fields in the order in which the table writes them."""
    return Mistake(tag, line, edits, effect=effect, **more)


def wrong_line(
    tag: str, line: str, effect: str, function: Any, right: str, wrong: str, **more: Any
) -> Mistake:
    """Return the row of a mistake that is one edit."""
    return row(tag, line, effect, Edit(function, right, wrong), **more)


class EditedReference:
    """fedref as a backend that makes the edits during each call."""

    def __init__(self, edits: tuple[Edit, ...]) -> None:
        self.edits = edits

    def __getattr__(self, name: str) -> Any:
        call = getattr(LOOP, name)

        def edited_call(*args: Any, **inputs: Any) -> Any:
            with apply_edits(*self.edits):
                return call(*args, **inputs)

        return edited_call


# ---- other plans -------------------------------------------------------------------------------


@dataclass(frozen=True)
class OtherPlan(Reference):
    """fedref with another Plan. change : (hyper, plan) → the fields that differ."""

    change: Callable[[Values, Values], Values] = lambda hyper, plan: {}

    def plan_of(self, algorithm: str, hyper: Values, plan: Values) -> Values:
        return {**plan, **self.change(hyper, plan)}

    def client(
        self, algorithm: str, model: Values, hyper: Values, server: Values, data: Values,
        rows: Values, client: Values | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        n, steps = len(data["y"]), len(next(iter(rows.values())))
        one: dict[str, Any] = {"rows": {role: x[None] for role, x in rows.items()}}
        one |= {"sizes": np.array([n]), "steps": np.array([steps]), "straggler": np.array([False])}
        one |= {"per_epoch": np.array([-(-n // hyper["B"]) if "D" in rows else 1])}
        other = self.plan_of(algorithm, hyper, one)
        rows = {role: x[0, : int(other["steps"][0])] for role, x in other["rows"].items()}
        return Reference.client(self, algorithm, model, hyper, server, data, rows, client)


def take_steps(plan: Values, order: Array) -> dict[str, Array]:
    """Return the plan's rows in another order of steps (K, S)."""
    return {r: np.take_along_axis(x, order[..., None], 1) for r, x in plan["rows"].items()}


def keep_steps(kept: Callable[[Array, int, Array], Array]) -> Any:
    """Return a plan's change: some steps are left out. kept : n (K, 1), B, rows (K, S) → which stay."""

    def of_plan(hyper: Values, plan: Values) -> Values:
        if "D" not in plan["rows"]:  # episodes: not batches of B
            return {}
        count = (plan["rows"]["D"] >= 0).sum(-1)
        real = np.arange(count.shape[1]) < plan["steps"][:, None]
        chosen = real & kept(plan["sizes"][:, None], hyper["B"], count)
        order = np.argsort(~chosen, axis=1, kind="stable")
        return {"steps": chosen.sum(1), "rows": take_steps(plan, order)}

    return of_plan
