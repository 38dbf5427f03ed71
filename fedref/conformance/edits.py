"""Edits: a line of a running function is replaced by a wrong one, for a while."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType
from typing import Any, NamedTuple

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
    """Return a function's source without its indentation, under any wrappers."""
    return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))


def edit_source(edit: Edit) -> str:
    """Return the function's source with the mistake in it."""
    text = read_source(edit.function)
    if text.count(edit.right) != 1:
        raise ValueError(
            f"{edit.function.__qualname__} holds {edit.right!r} {text.count(edit.right)} times"
        )
    at = text.index(edit.right)
    line = text[text.rindex("\n", 0, at) + 1 : at]
    indent = line[: len(line) - len(line.lstrip())]
    return text.replace(edit.right, edit.wrong.replace("\n", f"\n{indent}"))


@cache
def compile_edit(edit: Edit, rows: int) -> CodeType:
    """Return the wrong function's code, compiled among the names of the right one."""
    f = inspect.unwrap(edit.function)
    text = edit_source(edit._replace(wrong=re.sub(r"\bB\b", str(rows), edit.wrong)))
    names = dict(f.__globals__)
    exec(compile(text[text.index("def ") :], f"{f.__qualname__}, wrong", "exec"), names)
    code: CodeType = names[f.__name__].__code__
    return code


@contextmanager
def apply_edits(*edits: Edit, rows: int = B) -> Iterator[None]:
    """Put the wrong lines into force, in all of this process. rows : B in the wrong lines."""
    codes = [(inspect.unwrap(edit.function), compile_edit(edit, rows)) for edit in edits]
    right = [f.__code__ for f, _ in codes]
    for f, code in codes:
        f.__code__ = code
    try:
        yield
    finally:
        for (f, _), code in zip(codes, right):
            f.__code__ = code
