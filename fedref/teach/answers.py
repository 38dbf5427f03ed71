"""What a student's file answers to every probe, from a process of its own with a time limit.

The golden vectors are asked as well, with the student's function in the place of fedref's: a known
mistake of public implementations is recognised by them.
"""

import os
import traceback
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.models.numerics import Array
from fedref.teach import catalogue, files
from fedref.teach.catalogue import Arguments, Exercise
from fedref.teach.example import equal

#: Batch sizes, or numbers of clients, of a probe.
N = 4


class Probe(NamedTuple):
    """One call: in which situation, with how many samples or clients, and with which knob halved."""

    situation: str = ""
    n: int = N
    halved: str = ""

    def arguments(self, exercise: Exercise) -> Arguments:
        knobs = {
            name: value / 2 if name == self.halved else value
            for name, value in exercise.knobs.items()
        }
        return exercise.inputs(self.situation, self.n, knobs)


class Answers(NamedTuple):
    """Per probe: the numbers, in one row, or why there are none; and what the vectors say.

    failed : how many golden vectors do not come out; mistakes : the known ones that they name.
    """

    values: Mapping[Probe, Array | str]
    vectors: int = 0
    failed: int = 0
    mistakes: tuple[str, ...] = ()


def probes(exercise: Exercise) -> list[Probe]:
    """In every situation: as it is, with each knob halved, and with twice the samples."""
    return [
        probe
        for situation in ("", *exercise.hides)
        for probe in (
            Probe(situation),
            *(Probe(situation, halved=name) for name in exercise.knobs),
            Probe(situation, 2 * N),
        )
    ]


def flat(value: Any) -> Array:
    """An array or a tuple of arrays as one row."""
    return np.concatenate(
        [np.ravel(part) for part in (value if isinstance(value, tuple) else (value,))]
    )


def shapes(value: Any) -> Any:
    return [np.shape(part) for part in value] if isinstance(value, tuple) else np.shape(value)


def reply(function: Any, exercise: Exercise, probe: Probe, name: str) -> Array | str:
    """The numbers that a function gives, or in one line why not."""
    want = shapes(call(exercise.callable, probe.arguments(exercise)))
    arguments = probe.arguments(exercise)
    try:
        with np.errstate(all="ignore"):
            got = call(function, arguments)
    except (Exception, SystemExit) as error:
        return where(error, name)
    try:
        found = shapes(got)
        if found != want:
            return f"what is returned has shape {found}, expected {want}"
        numbers = np.asarray(flat(got), np.float64)
    except (TypeError, ValueError):
        return f"what is returned is {type(got).__name__}, expected arrays"
    if not np.all(np.isfinite(numbers)):
        return "what is returned holds NaN or infinity"
    if changed(arguments, probe.arguments(exercise)):
        return "an argument is changed in place: other callers hold the same array"
    return numbers


def call(function: Any, arguments: Arguments) -> Any:
    return function(*arguments[0], **arguments[1])


def changed(after: Arguments, before: Arguments) -> bool:
    return not equal((after[0], list(after[1].values())), (before[0], list(before[1].values())))


def where(error: BaseException, name: str) -> str:
    """An error of the student's file in one line, with its line there."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == name
    ]
    said = (str(error).strip().splitlines() or [""])[0]
    at = f"line {lines[-1]}: " if lines else ""
    return f"{at}{type(error).__name__}: {said}"[:200].rstrip(": ")


def known_mistakes(function: Any, exercise: Exercise) -> tuple[int, int, tuple[str, ...]]:
    """(golden vectors, those that fail with this function in place of fedref's, mistakes named)."""
    from fedref.conformance import suite, vectors
    from fedref.conformance.backends.reference import Reference

    cases = vectors.read()
    right = exercise.owner.__dict__[exercise.function]
    setattr(exercise.owner, exercise.function, function)
    try:
        given = [suite.call_safely(Reference(), case) for case in cases]
    finally:
        setattr(exercise.owner, exercise.function, right)
    results = [suite.grade(one, case) for one, case in zip(given, cases)]
    failed = [one for one in results if one.status == suite.FAILED]
    return len(cases), len(failed), tuple(dict.fromkeys(m for one in failed for m in one.mistakes))


def answered(text: str, exercise: Exercise, name: str, golden: bool = True) -> Answers | str:
    """The answers of a file's text, in this process; why there are none if it can't be read."""
    try:
        function = files.run(text, exercise, name)
    except SyntaxError as error:
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    except KeyError:
        return f"{exercise.function} is not defined"
    except (Exception, SystemExit) as error:
        return where(error, name)
    values = {probe: reply(function, exercise, probe, name) for probe in probes(exercise)}
    vectors = known_mistakes(function, exercise) if golden else ()
    return Answers(values, *vectors)


def serve(connection: Connection, text: str, exercise: str, name: str) -> None:
    """The child's side: what the file prints goes to standard error."""
    os.dup2(2, 1)
    connection.send(answered(text, catalogue.find(exercise), name))


def ask(path: Path, text: str, exercise: Exercise, timeout: float) -> Answers | str:
    """The answers of a file, or in one line why there are none."""
    context = get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, text, exercise.name, str(path)))
    process.start()
    theirs.close()
    try:
        if not connection.poll(timeout):
            return f"no answer after {timeout:g} s: an endless loop? (--timeout)"
        found: Answers | str = connection.recv()
        return found
    except EOFError:
        return "it ended the process"
    finally:
        process.kill()
        process.join()
        connection.close()
