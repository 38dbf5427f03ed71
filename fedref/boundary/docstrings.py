"""The table of symbols at the head of a file, and its rows in the docstrings of the file's functions."""

import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def symbols(module: ModuleType) -> list[list[str]]:
    """Return the rows of the table of symbols in a file's docstring: a symbol, its name, what it is."""
    _, table, rest = (module.__doc__ or "").partition("\n    symbol ")
    lines = rest.partition("\n\n")[0].splitlines()[1:] if table else []
    rows = (re.split(r"  +", line.strip(), maxsplit=2) for line in lines)
    return [row for row in rows if len(row) == 3]


def explain_parameters(module: ModuleType, shared: ModuleType) -> None:
    """Add to the docstring of each function in a file the rows of its table that are parameters, one a line.

    shared : the file whose table says what neither the docstring nor the file's own does.
    """
    rows = (*symbols(shared), *symbols(module))
    known = {name: f"{symbol}, {what}" for symbol, name, what in rows}
    for function in vars(module).values():
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            add_lines(function, known)


def add_lines(thing: Any, known: Mapping[str, str]) -> None:
    """Add to the docstring of a function or class what is known of parameters that it does not explain."""
    text = (thing.__doc__ or "").rstrip()  # none with python -OO
    own = (x for x in inspect.signature(thing).parameters if f"{x} : " not in text)
    lines = "".join(f"\n    {x} : {known[x]}." for x in own if x in known)
    thing.__doc__ = f"{text}\n{lines}" if text and lines else thing.__doc__
