"""Exercises: a function of the specification in which one expression is missing.

A student's file defines that function. It is tried on the worked example and on cases that Hypothesis
draws: the function is called with what the specification calls it with, and must return the same. An
answer that is wrong is told what it gives on the worked example and what is right there, and, if a known
wrong expression gives the same on all cases, that in words. No verdict says the expression. Long because
a verdict has many kinds, from an unfinished file to a known mistake.
"""

import ast
import contextlib
import inspect
import signal
import textwrap
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedref import spec
from fedref.boundary.errors import ConfigError, unknown
from fedref.conformance.errata import MISTAKES, replace
from fedref.judge import Case, answer
from fedref.models import MLP
from fedref.teach import example
from fedref.teach.example import show

#: What stands for the missing expression.
GAP = "..."
#: Seven parameters of three output units, so that a number in the place of a vector shows, and a unit in
#: the place of a parameter; two rows in every batch, and one in none, so that a batch is not all the data.
MODEL, WIDTH = MLP(2, (1,), 2, "tanh"), 2
#: How many cases are drawn besides the worked example; the largest relative error of a right answer.
DRAWN, EXACT = 12, 1e-9


@dataclass(frozen=True)
class Exercise:
    """A missing expression. subject : the call and algorithm whose cases reach the function.

    slips : wrong expression → what to say to it. minutes : an estimate, not measured in a class.
    """

    name: str
    function: str
    missing: str
    subject: tuple[str, str]
    trains: str
    before: str = ""
    minutes: int = 10
    slips: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def file(self) -> str:
        return self.name.replace("-", "_") + ".py"

    @property
    def source(self) -> str:
        """The function as the specification has it, from the left margin."""
        return textwrap.dedent(inspect.getsource(_find(self.function)))


def _find(name: str) -> Any:
    value: Any = spec
    for part in name.split("."):
        value = getattr(value, part)
    return value


def read(text: str, where: object) -> dict[str, Exercise]:
    """Return the exercises of a TOML file by name. Raises ConfigError."""
    exercises = {}
    for name, table in tomllib.loads(text).items():
        try:
            one = Exercise(name, **{**table, "subject": tuple(table["subject"])})
            if one.source.count(one.missing) != 1:
                said = f"{one.missing!r} stands {one.source.count(one.missing)} times in {one.function}"
                raise ConfigError(f"{where}: {name}: {said}, expected once")
        except (TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"{where}: {name}: {error}") from None
        exercises[name] = one
    return exercises


EXERCISES = read((files("fedref.teach") / "exercises.toml").read_text("utf-8"), "exercises.toml")


def find(name: str, exercises: Mapping[str, Exercise] = EXERCISES) -> Exercise:
    """Return the exercise of that name; ConfigError lists them."""
    if name not in exercises:
        raise ConfigError(unknown("exercise", name, exercises))
    return exercises[name]


# ---- calls: what the specification calls the function with ---------------------------------------


class Call(NamedTuple):
    """Arguments that the specification called the function with, and what came back."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]
    result: Any


def record_call(exercise: Exercise, case: Case) -> Call:
    """Return the last call of the function while the specification answers a case."""
    owner, _, name = exercise.function.rpartition(".")
    home, right, calls = (_find(owner) if owner else spec), _find(exercise.function), list[Call]()

    def recorder(*arguments: Any, **options: Any) -> Any:
        kept = tuple(keep(x) for x in arguments), {name: keep(x) for name, x in options.items()}
        calls.append(Call(*kept, None))
        return right(*(fresh(x) for x in kept[0]), **{k: fresh(x) for k, x in kept[1].items()})

    setattr(home, name, recorder)
    try:
        with np.errstate(all="ignore"):
            answer(case)
    finally:
        setattr(home, name, right)
    last = calls[-1]
    return last._replace(result=run(right, last))


def keep(x: Any) -> Any:
    """Return an argument that can be used again: rounds as a list, a training loss that stays."""
    if isinstance(x, Iterator):
        return list(x)
    return constant_loss if inspect.isfunction(x) and x.__name__ == "<lambda>" else x


def constant_loss(*_: Any) -> float:
    return 1.0


def fresh(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x


def run(function: Callable[..., Any], call: Call) -> Any:
    """Return what a function gives for the arguments of a call; of a generator the last state."""
    options = {name: fresh(x) for name, x in call.options.items()}
    with np.errstate(all="ignore"):
        result = function(*map(fresh, call.arguments), **options)
        return list(result)[-1] if inspect.isgenerator(result) else result


@cache
def calls_of(exercise: Exercise) -> list[Call]:
    """Return the calls that an answer is tried on: the worked example first, then drawn cases."""
    drawn: list[Case] = []

    def note(case: Case) -> bool:
        drawn.append(case)
        return False

    find_case = partial(
        example.find_case, exercise.subject[1], model=MODEL, width=WIDTH, spare=1, rounds=2, steps=2
    )
    find_case(note, DRAWN)
    least = find_case(example.has_no_zero, example.DRAWS)
    return [record_call(exercise, case) for case in filter(None, [least, *drawn])]


# ---- a student's file ----------------------------------------------------------------------------


def student_file(exercise: Exercise, formula: bool = False) -> str:
    """Return the file that a student starts from. formula : with the docstring and the comments."""
    text = exercise.source.replace(exercise.missing, GAP)
    if not formula:
        tree: Any = ast.parse(text)
        body = tree.body[0].body
        tree.body[0].body = body[ast.get_docstring(tree.body[0]) is not None :]
        text = ast.unparse(tree)
    call = calls_of(exercise)[0]
    names = list(inspect.signature(_find(exercise.function)).parameters)
    given = dict(zip(names, call.arguments)) | call.options
    lines = [
        f"Exercise {exercise.name}: {exercise.trains}.", "",
        f"One expression of `{exercise.function}` in fedref/spec.py is missing: write it where {GAP} stands.",
        "f(w, D) is the mean loss on the batch D, f.grad(w, D) its gradient, f.hvp(w, v, D) its Hessian",
        "times v; the table at the top of fedref/spec.py has every other name.", "",
        f"Worked example, {MODEL!r}:",
        *(f"    {name} = {show_value(x)}" for name, x in given.items() if is_shown(x)),
        "  gives", f"    {show_value(call.result)}", "",
        f"Then: fedref exercise check {exercise.file}",
    ]  # fmt: skip
    head = '"""' + "\n".join(lines) + '\n"""\n\nfrom fedref.spec import *\n\n\n'
    return head + text.rstrip() + "\n"


def is_shown(x: Any) -> bool:
    """Return whether a student can read an argument: numbers, batches, and the clients of a round."""
    return not callable(x) or isinstance(x, spec.Batch)


def show_value(x: Any) -> str:
    """Return a value as text: arrays, batches as rows, clients by their steps."""
    if isinstance(x, spec.Batch):
        return "; ".join(f"{show(row)} → {label}" for row, label in zip(x.X, x.y))
    if isinstance(x, spec.Client):
        steps = " | ".join(", ".join(map(show_value, batches)) for batches in x.steps)
        return f"client {x.k}, {len(x.data.y)} rows in all, with steps {steps}"
    if isinstance(x, dict):
        return ", ".join(f"{key}: {show_value(value)}" for key, value in x.items())
    if isinstance(x, list | tuple):
        return f"[{', '.join(map(show_value, x))}]"
    return str(x) if isinstance(x, str | bool | None) else show(x)


def exercise_of(text: str, where: object, exercises: Mapping[str, Exercise]) -> Exercise:
    """Return the exercise that the first line of a file names."""
    first = text.lstrip().removeprefix('"""').partition("\n")[0]
    word, _, rest = first.partition(" ")
    if word != "Exercise" or ":" not in rest:
        wanted = "expected a file that `fedref exercise start` wrote"
        raise ConfigError(f"{where}: begins with no 'Exercise NAME:', {wanted}")
    return find(rest.partition(":")[0], exercises)


# ---- the verdict ---------------------------------------------------------------------------------


def check(
    path: Path, text: str, exercises: Mapping[str, Exercise] = EXERCISES, seconds: float = 60.0
) -> tuple[bool, list[str]]:
    """Return whether a file is right, and the lines of the verdict."""
    exercise = exercise_of(text, path, exercises)
    try:
        gap = find_gap(text)
    except SyntaxError as error:
        return False, [f"line {error.lineno}: {type(error).__name__}: {error.msg}"]
    if gap:
        return False, [f"not finished: line {gap} still says {GAP}"]
    try:
        with time_limit(seconds):
            function = define(text, exercise, str(path))
            got = [outcome(function, call, str(path)) for call in calls_of(exercise)]
    except TimeoutError:
        return False, [f"no answer after {seconds:g} s: an endless loop? (--timeout)"]
    except KeyError:
        return False, [f"{exercise.function.rpartition('.')[2]} is not defined"]
    except (Exception, SystemExit) as error:
        return False, [error_line(error, str(path))]
    right = [call.result for call in calls_of(exercise)]
    if all(map(agree, got, right)):
        return True, ["right"]
    return False, ["not right", *evidence(exercise, got, right)]


def define(text: str, exercise: Exercise, name: str) -> Callable[..., Any]:
    """Run a file's text and return the function that it defines. Raises what the file raises."""
    wanted = exercise.function.rpartition(".")[2]
    if not any(getattr(node, "name", "") == wanted for node in ast.parse(text).body):
        raise KeyError(wanted)  # the specification's own is imported
    scope: dict[str, Any] = {"__name__": "exercise", "__file__": name}
    exec(compile(text, name, "exec", dont_inherit=True), scope)
    function: Callable[..., Any] = scope[wanted]
    return function


def with_expression(exercise: Exercise, expression: str) -> Callable[..., Any]:
    """Return the function with another expression in the place of the missing one."""
    return define_in_spec(exercise.source.replace(exercise.missing, f"({expression})"), exercise)


def define_in_spec(text: str, exercise: Exercise) -> Callable[..., Any]:
    """Return the function of another text, among the specification's own names."""
    scope = dict(vars(spec))
    exec(text, scope)
    return scope[exercise.function.rpartition(".")[2]]


def outcome(function: Callable[..., Any], call: Call, name: str = "") -> Any:
    """Return what a function gives for a call; where it raises, the error as one line."""
    try:
        return run(function, call)
    except TimeoutError:
        raise
    except (Exception, SystemExit) as error:
        return error_line(error, name)


def numbers(x: Any) -> Any:
    """Return all numbers of a result in one row; None where it is not made of numbers."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, list | tuple):
        parts = [numbers(part) for part in x]
        return (
            None if any(part is None for part in parts) else np.concatenate([np.zeros(0), *parts])
        )
    value = np.asarray(x)
    return value.ravel().astype(complex) if value.dtype.kind in "fcbiu" else None


def shape_of(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: shape_of(value) for key, value in x.items()}
    return tuple(map(shape_of, x)) if isinstance(x, list | tuple) else np.shape(x)


def agree(got: Any, right: Any) -> bool:
    """Return whether two results are equal, to rounding; two errors are if their lines are."""
    if isinstance(got, str) or isinstance(right, str):
        same = isinstance(got, str) and isinstance(right, str)
        return same and got.partition(": ")[2][-40:] == right.partition(": ")[2][-40:]
    a, b = numbers(got), numbers(right)
    if a is None or b is None or shape_of(got) != shape_of(right):
        return False
    return bool(np.max(np.abs(a - b), initial=0) <= EXACT * np.max(np.abs(b), initial=0))


def evidence(exercise: Exercise, got: Sequence[Any], right: Sequence[Any]) -> Iterator[str]:
    """Yield what is known of a wrong answer: in words, then its numbers beside the right ones."""
    if words := known_slip(exercise, got) or pattern(got, right):
        yield words
    which = next(i for i in range(len(got)) if not agree(got[i], right[i]))
    place = (
        "on the worked example"
        if which == 0
        else "on the worked example it is right, but on a drawn case"
    )
    if isinstance(got[which], str):
        yield got[which]
        return
    if shape_of(got[which]) != shape_of(right[which]):
        yield f"what is returned has shape {shape_of(got[which])}, expected {shape_of(right[which])}"
    elif np.asarray(got[which], object).dtype.kind == "O" and numbers(got[which]) is None:
        yield f"what is returned is {type(got[which]).__name__}, expected numbers"
    yield f"{place} yours gives {show_value(got[which])}, right is {show_value(right[which])}"


def known_slip(exercise: Exercise, got: Sequence[Any]) -> str:
    """Return what to say if a known wrong expression gives the same on all cases."""
    for expression, words in exercise.slips.items():
        wrong = with_expression(exercise, expression)
        if all(agree(x, outcome(wrong, call)) for x, call in zip(got, calls_of(exercise))):
            return words
    for name, mistake in MISTAKES.items():
        text = replace(exercise.source, mistake.edits[0])
        if len(mistake.edits) == 1 and text != exercise.source:
            wrong = define_in_spec(text, exercise)
            if all(agree(x, outcome(wrong, call)) for x, call in zip(got, calls_of(exercise))):
                return f"this is the known mistake {name!r}"
    return ""


def pattern(got: Sequence[Any], right: Sequence[Any]) -> str:
    """Return what all answers have in common: the opposite sign, or one factor."""
    pairs = [(numbers(a), numbers(b)) for a, b in zip(got, right) if not isinstance(a, str)]
    if len(pairs) < len(got) or any(a is None or a.shape != b.shape for a, b in pairs):
        return ""
    a, b = (np.concatenate(part) for part in zip(*pairs))
    if not np.all(np.isfinite(a)):
        return "what is returned holds NaN or infinity"
    c = (a @ b.conj()) / (b @ b.conj())
    if np.max(np.abs(a - c * b)) > EXACT * np.max(np.abs(a), initial=1e-300):
        return ""
    factor = float(c.real)
    return (
        "the sign is the opposite"
        if abs(factor + 1) < EXACT
        else f"right but for the factor {factor:.4g}"
    )


def find_gap(text: str) -> int:
    """Return the line on which the gap still stands, or 0. Raises SyntaxError."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value is ...:
            return node.lineno
    return 0


def error_line(error: BaseException, name: str) -> str:
    """Return an error in one line, with its line in the student's file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == name]
    said = (str(error).strip().splitlines() or [""])[0]
    at = f"line {lines[-1]}: " if lines else ""
    return f"{at}{type(error).__name__}: {said}"[:200].rstrip(": ")


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in this block after some seconds, where the system can (not on Windows)."""

    def stop(*_: object) -> None:
        raise TimeoutError

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
