"""The hunt: a specification with one planted mistake, which a student finds by a test.

`start` writes two files: `suspect.py`, an algorithm of the specification with a known mistake, without its
comments; and `test_suspect.py`, in which the student writes tests that the right algorithm passes and the
suspect does not, and the number of the wrong line. The smaller the case that shows it, the better.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache, partial, reduce
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from fedref import spec
from fedref.boundary.errors import ConfigError
from fedref.conformance.errata import MISTAKES, TEXTS, replace
from fedref.sampling import stream
from fedref.teach.example import show
from fedref.teach.exercises import bare_code
from fedref.teach.source import spec_code
from fedref.teach.verdict import OutOfTime, error_line, leaves, processor_time

SUSPECT, TEST = "suspect.py", "test_suspect.py"
HEAD = '''"""The suspect of hunt {seed}: `{name}` of fedref/spec.py, with one planted mistake."""

from fedref.spec import *


'''
PAGE = '''"""Hunt {seed}: one line of suspect.py is not what the paper of {paper} says. Find it by a test.

A test calls a function of suspect.py and asserts what the paper says of its result: `fedref explain {topic}`
has the paper's words. The right algorithm must pass each test, and the suspect fail at least one. The
fewer numbers the call has that shows it, the better: begin with one client, one row, one parameter.

Then: fedref exercise check {test}
"""

from fedref.spec import *
from suspect import {functions}

#: The number of the wrong line in suspect.py.
LINE = 0


def test_something():
    f = Risk(lambda w, X: X @ w, logistic_loss, np.array([0, 1]))
    D = Batch(np.array([[2.0]]), np.array([1]))
    w = np.array([0.5])
    assert True  # say here what the paper says
'''


@cache
def plantable() -> dict[str, tuple[str, str, str]]:
    """Return {mistake: (its paper, the right code, the wrong code)} of those in an algorithm's lines."""
    codes = {}
    for name, one in MISTAKES.items():
        paper = one.tag.split()[0].replace("-", "_")
        text = reduce(replace, one.edits, TEXTS[spec])
        right, wrong = (
            bare_code(spec_code(paper, t)) if spec_code(paper) else "" for t in (TEXTS[spec], text)
        )
        if one.kind == "wrong" and 0 < len(wrong_lines(right, wrong)) <= 2:
            codes[name] = paper, right, wrong
    return codes


def wrong_lines(right: str, wrong: str) -> list[int]:
    """Return the numbers of the lines of `suspect.py` that are not the right ones."""
    known = {*right.splitlines()}
    first = HEAD.count("\n") + 1
    return [n for n, line in enumerate(wrong.splitlines(), first) if line not in known]


def choose(seed: int) -> str:
    """Return the mistake that a seed plants."""
    return str(stream(seed, "hunt").choice(list(plantable())))


def hunt_files(seed: int) -> dict[str, str]:
    """Return the two files of a hunt by their names."""
    paper, _, wrong = plantable()[choose(seed)]
    functions = re.findall(r"^def (\w+)", wrong, re.M)
    page = PAGE.format(
        seed=seed,
        paper=paper,
        topic=paper.replace("_", "-"),
        test=TEST,
        functions=", ".join(functions),
    )
    return {SUSPECT: HEAD.format(seed=seed, name=functions[0]) + wrong + "\n", TEST: page}


def seed_of(text: str) -> int | None:
    """Return the seed that the first line of a test file names, if it is one of a hunt."""
    match = re.match(r'\s*"""Hunt (\d+):', text)
    return int(match[1]) if match else None


# ---- the verdict ---------------------------------------------------------------------------------


def hunt_verdict(text: str, where: str, seconds: float = 60.0) -> tuple[bool, list[str]]:
    """Return whether the planted line is found, and by a test; and the lines that say so."""
    seed = seed_of(text)
    if seed is None:
        raise ConfigError(f"{where}: begins with no 'Hunt SEED:', expected a file of a hunt")
    _, right, wrong = plantable()[choose(seed)]
    try:
        with processor_time(seconds), redirect_stdout(StringIO()):
            sound, _ = run_tests(text, where, right)
            failed, calls = run_tests(text, where, wrong)
            line = namespace(text, where, wrong, []).get("LINE")
    except (Exception, SystemExit) as error:
        return False, [error_line(error, where)]
    except OutOfTime as error:
        return False, [str(error)]
    said = []
    if sound:
        return False, ["not found", f"the right algorithm does not pass either: {sound}"]
    if not failed:
        said.append("no test fails on the suspect")
    if line not in wrong_lines(right, wrong):
        said.append("LINE is 0: say which line is wrong" if line == 0 else f"line {line} is right")
    if said:
        return False, ["not found", *said]
    return True, ["found", *describe_case(calls)]


def describe_case(calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> Iterator[str]:
    """Yield how small the case is that the last call before the failure had."""
    if calls:
        name, arguments, options = calls[-1]
        given = [x for x in (*arguments, *options.values()) if not callable(x)]
        arrays = (np.asarray(x) for x in leaves(given).values())
        count = sum(x.size for x in arrays if x.dtype.kind in "fc" or x.ndim)
        yield f"the case has {count} numbers: {name}({', '.join(map(show, given))})"[:400]


def run_tests(text: str, where: str, code: str) -> tuple[str, list[Any]]:
    """Return the first failure of the tests with this code as the suspect, and the calls before it."""
    calls: list[Any] = []
    names = namespace(text, where, code, calls)
    for name, test in names.items():
        if name.startswith("test") and callable(test):
            try:
                test()
            except Exception as error:
                return f"{name}: {error_line(error, where)}", calls
    return "", calls


def namespace(text: str, where: str, code: str, calls: list[Any]) -> dict[str, Any]:
    """Run a test file, with this code as the module `suspect`; every call of it is noted in `calls`."""
    from hypothesis import settings

    suspect = ModuleType("suspect")
    exec(compile("from fedref.spec import *\n" + code, SUSPECT, "exec"), vars(suspect))
    for name in re.findall(r"^def (\w+)", code, re.M):
        setattr(suspect, name, partial(note_call, calls, name, getattr(suspect, name)))
    names = {"__name__": "test", "__file__": where}
    settings.register_profile("hunt", database=None, deadline=None, derandomize=True)
    settings.load_profile("hunt")
    with (
        patch.dict(sys.modules, suspect=suspect),
        patch.object(sys, "path", [str(Path(where).parent), *sys.path]),
    ):
        exec(compile(text, where, "exec", dont_inherit=True), names)
    return names


def note_call(calls: list[Any], name: str, function: Any, *arguments: Any, **options: Any) -> Any:
    """Note a call that a test makes, and return its result; a generator's states as a list."""
    arguments = tuple(list(x) if isinstance(x, Iterator) else x for x in arguments)
    calls.append((name, arguments, options))
    return function(*arguments, **options)
