"""Answers of a student's file to every probe, from a process of its own with a time limit."""

import signal
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from fedref.boundary.subprocess_runner import SubprocessRunner
from fedref.models.numerics import Array
from fedref.teach import catalogue, template
from fedref.teach.catalogue import Arguments, Exercise
from fedref.teach.example import equal

#: A solution is tried with each of these numbers of samples, or clients.
PROBES = (4, 8, 12, 16)
#: Seconds by the clock for starting the process and importing fedref; and the clock's limit for a file,
#: as a multiple of its limit of computing time: the machine may be busy, or the file may sleep.
IMPORT, PATIENCE = 120.0, 20.0

#: Probe → the numbers in one row, or one line that says why there are none.
Answers = dict[int, Array | str]


class OutOfTime(BaseException):
    """Raised in a file that computes for too long."""


def as_parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def shape_of(value: Any) -> Any:
    return tuple(map(np.shape, value)) if isinstance(value, tuple) else np.shape(value)


def call(function: Any, arguments: Arguments) -> Any:
    return function(*arguments[0], **arguments[1])


def right_answer(exercise: Exercise, probe: int) -> Array:
    """Return what fedref's own function answers, as one row of numbers."""
    answer = call(exercise.callable, exercise.inputs(probe))
    return np.concatenate([np.ravel(part) for part in as_parts(answer)])


def answer_probe(function: Any, exercise: Exercise, probe: int, name: str) -> Array | str:
    """Return the numbers that a function gives, or in one line why not."""
    wanted = shape_of(call(exercise.callable, exercise.inputs(probe)))
    arguments = exercise.inputs(probe)
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
    if any(not equal(*pair) for pair in zip(arguments[0], exercise.inputs(probe)[0])):
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


def answer_all(text: str, exercise: Exercise, name: str) -> Answers | str:
    """Return the answers of a file's text, in this process; or why it defines no function."""
    try:
        function = template.define_function(text, exercise, name)
    except KeyError:
        return f"{exercise.function} is not defined"
    except (Exception, SystemExit) as error:
        return error_line(error, name)
    return {probe: answer_probe(function, exercise, probe, name) for probe in PROBES}


def answer_in_time(text: str, exercise: str, name: str, seconds: float) -> Answers | str:
    """Return the answers of a file that computes for at most `seconds`; runs in a child process."""

    def stop(*_: object) -> None:
        raise OutOfTime

    if not hasattr(signal, "setitimer"):  # Windows: the caller's patience is the limit
        return answer_all(text, catalogue.find(exercise), name)
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        return answer_all(text, catalogue.find(exercise), name)
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
            answers: Answers | str = runner.call(
                answer_in_time, *arguments, timeout=PATIENCE * seconds
            )
            return answers
        except TimeoutError as error:
            return f"{error}: an endless loop? (--timeout)"
        except ChildProcessError:
            return "it ended the process"
