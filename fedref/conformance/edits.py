"""Edits, which for a while replace a line of a running function by a wrong one, and mistakes."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

from fedref.conformance.backends.reference import LOOP
from fedref.models.numerics import ACTIVATIONS, Activation

#: Rows of a mini-batch in the golden vectors; a wrong line may use them as B.
B = 4


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


class Swap(NamedTuple):
    """An activation's name, and the wrong activation that replaces the right one."""

    name: str
    wrong: Activation


@cache
def compile_edits(edits: tuple[Edit, ...], rows: int) -> CodeType:
    """Return the wrong function's code, compiled among the names of the right one."""
    f = inspect.unwrap(edits[0].function)
    text = read_source(f)
    for edit in edits:
        wrong = re.sub(r"\bB\b", str(rows), edit.wrong)
        text = edit_source(edit._replace(wrong=wrong), text)
    names = dict(f.__globals__)
    exec(compile(text[text.index("def ") :], f"{f.__qualname__}, wrong", "exec"), names)
    code: CodeType = names[f.__name__].__code__
    return code


@contextmanager
def apply_edits(*edits: Edit | Swap, rows: int = B) -> Iterator[None]:
    """Replace the lines in all of this process. rows : the number that B stands for in wrong lines."""
    by_function: dict[Any, tuple[Edit, ...]] = {}
    for edit in edits:
        if isinstance(edit, Edit):
            f = inspect.unwrap(edit.function)
            by_function[f] = (*by_function.get(f, ()), edit)
    codes = [(f, compile_edits(own, rows)) for f, own in by_function.items()]
    swaps = dict(edit for edit in edits if isinstance(edit, Swap))
    right, values = [f.__code__ for f, _ in codes], {name: ACTIVATIONS[name] for name in swaps}
    for f, code in codes:
        f.__code__ = code
    ACTIVATIONS.update(swaps)
    try:
        yield
    finally:
        for (f, _), code in zip(codes, right):
            f.__code__ = code
        ACTIVATIONS.update(values)


# ---- mistakes ----------------------------------------------------------------------------------


class Mistake(NamedTuple):
    """One row of the table.

    number : its place in the list of twenty published mistakes (0: none); tag : an equation whose proof
    in `fedref check` fails; line : the mistake, and what would be right.
    edits : the wrong line, then the other lines that have to change in a backend with the mistake.
    kind : wrong, a variant (another paper or library defines it so), or a convention.
    stand_in : a backend with the mistake, if the vectors contain what the wrong line would draw.
    effect : its consequence in a run, in one line.
    """

    number: int
    tag: str
    line: str
    edits: tuple[Any, ...]
    kind: str = "wrong"
    stand_in: Any = None
    effect: str = ""

    @property
    def backend(self) -> Any:
        """A backend that makes this mistake and nothing else."""
        return self.stand_in or EditedReference(self.edits)


def row(
    tag: str, line: str, effect: str, *edits: Edit | Swap, number: int = 0, **more: Any
) -> Mistake:
    """Return a row of the table, with its fields in the order in which the tables write them."""
    return Mistake(number, tag, line, edits, effect=effect, **more)


def wrong_line(
    tag: str, line: str, effect: str, function: Any, right: str, wrong: str, **more: Any
) -> Mistake:
    """Return the row of a mistake that is one edit."""
    return row(tag, line, effect, Edit(function, right, wrong), **more)


class EditedReference:
    """fedref as a backend that makes the edits during each call."""

    def __init__(self, edits: tuple[Edit | Swap, ...]) -> None:
        self.edits = edits

    def __getattr__(self, name: str) -> Any:
        call = getattr(LOOP, name)

        def edited_call(*args: Any, **inputs: Any) -> Any:
            with apply_edits(*self.edits):
                return call(*args, **inputs)

        return edited_call
