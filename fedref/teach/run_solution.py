"""What a student's file answers to every probe, from a process of its own with a time limit.

The golden vectors are asked as well, with the student's function in the place of fedref's: a known
mistake of public implementations is recognised by them.
"""

import signal
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref.boundary.subprocess_runner import SubprocessRunner
from fedref.conformance import suite, vectors
from fedref.conformance.backends.reference import Reference
from fedref.conformance.vectors import Case
from fedref.models.numerics import Array
from fedref.teach import catalogue, template
from fedref.teach.catalogue import Arguments, Exercise
from fedref.teach.example import equal

#: Batch sizes, or numbers of clients, of a probe.
N = 4
#: What starting the process and importing fedref may take, in seconds by the clock; and how many
#: times the limit of computing time, on a machine that is busy, or in a file that sleeps.
IMPORT, PATIENCE = 120.0, 20.0


class Probe(NamedTuple):
    """One call: in which situation, with how many samples or clients, and with which knob halved."""

    situation: str = ""
    n: int = N
    halved: str = ""

    def arguments(self, exercise: Exercise) -> Arguments:
        knobs = {k: x / 2 if k == self.halved else x for k, x in exercise.knobs.items()}
        return exercise.inputs(self.situation, self.n, knobs)


class Answers(NamedTuple):
    """Per probe: the numbers, in one row, or why there are none; and what the vectors say.

    failed : how many golden vectors do not come out; mistakes : the known ones that they name.
    """

    values: Mapping[Probe, Array | str]
    vectors: int = 0
    failed: int = 0
    mistakes: tuple[str, ...] = ()


class OutOfTime(BaseException):
    """Raised in a file that computes for too long."""


def probes(exercise: Exercise) -> list[Probe]:
    """Return, in every situation: as it is, with each knob halved, and with twice the samples."""
    return [
        probe
        for situation in ("", *exercise.hides)
        for probe in (
            Probe(situation),
            *(Probe(situation, halved=name) for name in exercise.knobs),
            Probe(situation, 2 * N),
        )
    ]


def as_parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def shape_of(value: Any) -> Any:
    return tuple(map(np.shape, value)) if isinstance(value, tuple) else np.shape(value)


def call(function: Any, arguments: Arguments) -> Any:
    return function(*arguments[0], **arguments[1])


def right_answer(exercise: Exercise, probe: Probe) -> Array:
    """Return what fedref's own function answers, as one row of numbers."""
    answer = call(exercise.callable, probe.arguments(exercise))
    return np.concatenate([np.ravel(part) for part in as_parts(answer)])


def answer_probe(function: Any, exercise: Exercise, probe: Probe, name: str) -> Array | str:
    """Return the numbers that a function gives, or in one line why not."""
    wanted = shape_of(call(exercise.callable, probe.arguments(exercise)))
    arguments = probe.arguments(exercise)
    try:
        with np.errstate(all="ignore"):
            answer = call(function, arguments)
    except (Exception, SystemExit) as error:
        return error_line(error, name)
    try:
        shape = shape_of(answer)
        if shape != wanted:
            return f"what is returned has shape {shape}, expected {wanted}"
        row = np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in as_parts(answer)])
    except (TypeError, ValueError):
        return f"what is returned is {type(answer).__name__}, expected arrays"
    if not np.all(np.isfinite(row)):
        return "what is returned holds NaN or infinity"
    if any(not equal(*pair) for pair in zip(arguments[0], probe.arguments(exercise)[0])):
        return "an argument is changed in place: other callers hold the same array"
    return row


def error_line(error: BaseException, name: str) -> str:
    """Return an error of the student's file in one line, with its line there."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == name]
    if isinstance(error, SyntaxError) and not lines:
        lines, error = [error.lineno], SyntaxError(error.msg)
    said = (str(error).strip().splitlines() or [""])[0]
    at = f"line {lines[-1]}: " if lines else ""
    return f"{at}{type(error).__name__}: {said}"[:200].rstrip(": ")


def ask_vectors(
    function: Any, exercise: Exercise, cases: Sequence[Case]
) -> tuple[int, int, tuple[str, ...]]:
    """Return (golden vectors, those that fail with this function in fedref's place, mistakes named)."""
    right = exercise.owner.__dict__[exercise.function]
    setattr(exercise.owner, exercise.function, function)
    try:
        replies = [suite.call_safely(Reference(), case) for case in cases]
    finally:
        setattr(exercise.owner, exercise.function, right)
    results = [suite.grade(reply, case) for reply, case in zip(replies, cases)]
    failed = [result for result in results if result.status == suite.FAILED]
    return len(cases), len(failed), tuple(dict.fromkeys(m for r in failed for m in r.mistakes))


def answer_all(
    text: str, exercise: Exercise, name: str, cases: Sequence[Case] = ()
) -> Answers | str:
    """Return the answers of a file's text, in this process; why there are none if it can't be read.

    cases : golden vectors; they are asked only where a probe has got numbers.
    """
    try:
        function = template.define_function(text, exercise, name)
    except KeyError:
        return f"{exercise.function} is not defined"
    except (Exception, SystemExit) as error:
        return error_line(error, name)
    values = {probe: answer_probe(function, exercise, probe, name) for probe in probes(exercise)}
    if not cases or all(isinstance(value, str) for value in values.values()):
        return Answers(values)
    return Answers(values, *ask_vectors(function, exercise, cases))


def answer_in_time(text: str, exercise: str, name: str, seconds: float) -> Answers | str:
    """Return the answers of a file that computes for at most so many seconds: in a child process."""

    def stop(*_: object) -> None:
        raise OutOfTime

    cases = vectors.read()
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        return answer_all(text, catalogue.find(exercise), name, cases)
    except OutOfTime:
        return f"no answer after {seconds:g} s of computing: an endless loop? (--timeout)"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def run_solution(path: Path, text: str, exercise: Exercise, seconds: float) -> Answers | str:
    """Return the answers of a file, or in one line why there are none.

    seconds : of computing; starting the process and importing fedref are not counted.
    """
    arguments = text, exercise.name, str(path), seconds
    with SubprocessRunner() as runner:
        try:
            runner.call(as_parts, (), timeout=IMPORT)  # imports this module
            found: Answers | str = runner.call(
                answer_in_time, *arguments, timeout=PATIENCE * seconds
            )
            return found
        except TimeoutError as error:
            return f"{error}: an endless loop? (--timeout)"
        except ChildProcessError:
            return "it ended the process"
